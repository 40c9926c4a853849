"""Expert-parallel load balancing: which redundancy vLLM can build, and what it costs.

Redundant experts are slots over the whole EP group, not copies a rank: ``(experts + redundant)`` must divide by the EP
size, which vLLM finds out only while it builds the model (`vllm/model_executor/layers/fused_moe/layer.py`). Its state
is allocated beside the weights (`vllm/distributed/eplb/eplb_state.py`): the load window, the map of up to 1,024 copies
of each expert, and one layer's experts as a transfer buffer.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError
from roadworthy.plan.weights.mlp import expert_bytes, routed_expert_bytes
from roadworthy.spec.model import ModelSpec, MoeMlp

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.plan.weights.formats import Split
    from roadworthy.spec.values import Scalar

REDUNDANT_MAX, COPIES_MAX = 1023, 1024
WINDOW_STEPS = 1000
"""vLLM's default ``window_size``."""
IGNORING_FAMILIES = frozenset({"kimi_k3", "kimi_linear"})
"""Accepted and without effect: their model classes register no experts with the balancer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Eplb:
    """``enable_eplb`` and the keys of ``eplb_config`` that decide memory."""

    redundant: int = 0
    window_steps: int = WINDOW_STEPS

    @classmethod
    def of(cls, settings: Mapping[str, Scalar]) -> Eplb | None:
        """What ``engine.settings`` asks for; None without ``enable_eplb``. Raises SpecError for what vLLM rejects."""
        config = _config(settings)
        redundant, window = config.get("num_redundant_experts", 0), config.get("window_size", WINDOW_STEPS)
        if isinstance(redundant, bool) or not isinstance(redundant, int) or not 0 <= redundant <= REDUNDANT_MAX:
            raise _wrong("num_redundant_experts", redundant, f"a whole number from 0 to {REDUNDANT_MAX}")
        if isinstance(window, bool) or not isinstance(window, int) or window < 1:
            raise _wrong("window_size", window, "a whole number of steps from 1")
        if settings.get("enable_eplb") is not True:
            if redundant:
                raise _wrong("num_redundant_experts", redundant, "0 while enable_eplb is off", hint="enable_eplb: true")
            return None
        return cls(redundant=redundant, window_steps=window)

    def legal_near(self, experts: int, expert_ranks: int) -> tuple[int, ...]:
        """The legal redundancies around the one asked for, nearest first."""
        below = self.redundant - (experts + self.redundant) % expert_ranks
        around = [value for value in (below, below + expert_ranks) if 0 <= value <= REDUNDANT_MAX]
        return tuple(sorted(around, key=lambda value: (abs(value - self.redundant), value)))

    def legal(self, experts: int, expert_ranks: int) -> bool:
        return (experts + self.redundant) % expert_ranks == 0

    def state_bytes(self, model: ModelSpec, *, split: Split, layers: range) -> int:
        """Window, map and transfer buffer on one rank. The redundant experts themselves count as weights."""
        moe = [mlp for mlp in (model.layers[index].mlp for index in layers) if isinstance(mlp, MoeMlp)]
        if not moe:
            return 0
        experts = moe[0].experts
        window = 4 * self.window_steps * len(moe) * (experts + self.redundant)
        copies = 8 * COPIES_MAX * experts * len(moe)
        return window + copies + routed_expert_bytes(model, moe[0], split)


def slot_bytes(model: ModelSpec, *, split: Split, layers: range) -> int:
    """Weights of one expert in every MoE layer of ``layers``: what one more slot on a rank costs."""
    mlps = (model.layers[index].mlp for index in layers)
    return sum(expert_bytes(model, mlp, split) for mlp in mlps if isinstance(mlp, MoeMlp))


def _config(settings: Mapping[str, Scalar]) -> Mapping[str, object]:
    text = settings.get("eplb_config")
    if text is None:
        return {}
    try:
        parsed = json.loads(str(text))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _wrong("", text, 'a JSON object as text, such as {"num_redundant_experts": 32}')
    return parsed


def _wrong(key: str, seen: object, wanted: str, hint: str = "") -> SpecError:
    path = "engine.settings.eplb_config" + (f".{key}" if key else "")
    problem = Problem(path=path, seen=str(seen)[:60], wanted=wanted, hint=hint)
    return SpecError("engine settings cannot be as written", problems=(problem,))
