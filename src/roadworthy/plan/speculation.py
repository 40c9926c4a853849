"""Speculative decoding: what ``speculative_config`` asks for, how many tokens a step then yields, what drafting costs.

A drafter proposes k tokens of every sequence, the model verifies them in one pass together with the next token, and
the longest run that it would have said itself is kept. With a chance ``p`` that a draft is accepted, given those before
it were, a step yields ``(1 - p**(k + 1)) / (1 - p)`` tokens on average (Leviathan, Kalman, Matias 2023, "Fast Inference
from Transformers via Speculative Decoding", equation 1). Names and rules: vLLM 0.32, `vllm/config/speculative.py`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError
from roadworthy.plan.weights import Split, draft_layer_bytes
from roadworthy.plan.weights.attention import attention_bytes
from roadworthy.plan.weights.mlp import mlp_bytes
from roadworthy.plan.weights.stage import draft_layer
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer, MlaAttention, ModelSpec

if TYPE_CHECKING:
    from roadworthy.spec.values import Scalar

MTP, EAGLE, LOOKUP = "mtp", ("eagle", "eagle3"), ("ngram", "ngram_gpu", "suffix")
UNMODELLED = ("draft_model", "medusa", "mlp_speculator", "dflash", "dspark", "extract_hidden_states", "custom_class")
TOKENS_MAX = 64

MTP_ACCEPTANCE_RATIO, MTP_REUSED_ACCEPTANCE_RATIO = 0.8, 0.7
"""Assumed. DeepSeek-V3's report gives 85 to 90 % for its one draft; 0.8 is the other estimator's figure for V4-Pro.
Reused for further tokens the layer does worse: 3.1 to 3.2 tokens a step at 7 drafts is 0.7 a token
(model card nebius/MTP-DeepSeek-V3-0324, before its fine-tuning)."""
EAGLE_ACCEPTANCE_RATIO, LOOKUP_ACCEPTANCE_RATIO = 0.65, 0.3
"""Assumed, not measured: a trained head on ordinary chat; copies of the prompt, which code edits and quotes have many
of and free text has few."""
EAGLE3_VOCABULARY = 32_000
"""Draft vocabulary of the published EAGLE-3 heads: assumed, since the head's own config is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speculation:
    """What is asked of the drafter.

    Args:
        method: in the engine's words; the names of single models' MTP layers are all ``mtp``.
        tokens: drafted for each sequence in a step (k).
        acceptance_ratio: chance that a draft is accepted, given that those before it were.
        assumed: the document does not say the acceptance.
    """

    method: str
    tokens: int
    acceptance_ratio: float
    assumed: bool = True

    @classmethod
    def of(
        cls, settings: Mapping[str, Scalar], *, draft_layers: int, acceptance_ratio: float | None = None
    ) -> Speculation | None:
        """What ``engine.settings`` asks for; None without ``speculative_config``.

        Args:
            draft_layers: MTP layers of the checkpoint, vLLM's default for the number of drafts.

        Raises:
            SpecError: what vLLM rejects while it reads the setting.
        """
        config = _config(settings)
        if config is None:
            return None
        method = _method(config)
        tokens = config.get("num_speculative_tokens")
        if tokens is None and method == MTP and draft_layers:
            tokens = draft_layers
        if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= TOKENS_MAX:
            hint = f"1 for {draft_layers} draft layer of the checkpoint" if method == MTP and draft_layers else ""
            raise _wrong("num_speculative_tokens", tokens, f"a whole number from 1 to {TOKENS_MAX}", hint)
        if method == MTP and draft_layers and tokens > draft_layers and tokens % draft_layers:
            raise _wrong("num_speculative_tokens", tokens, f"at most {draft_layers}, or a multiple of it")
        if config.get("tensor_parallel_size") is not None:
            raise _wrong(
                "tensor_parallel_size", config["tensor_parallel_size"], "nothing", "draft_tensor_parallel_size"
            )  # fmt: skip
        if acceptance_ratio is not None:
            return cls(method=method, tokens=tokens, acceptance_ratio=acceptance_ratio, assumed=False)
        return cls(method=method, tokens=tokens, acceptance_ratio=_assumed_ratio(method, tokens, draft_layers))

    @property
    def modelled(self) -> bool:
        """Whether its time and memory are known here."""
        return self.method not in UNMODELLED

    @property
    def tokens_per_step(self) -> float:
        """Tokens that a sequence gains in a step on average."""
        ratio, most = self.acceptance_ratio, self.tokens + 1
        return float(most) if ratio >= 1 else (1 - ratio**most) / (1 - ratio)

    def draft(self, model: ModelSpec) -> Layer | None:
        """The layer that drafts, None where text is looked up or the drafter is not known."""
        if self.method == MTP and model.draft_layers:
            return draft_layer(model)
        if self.method in EAGLE:
            dense = [layer for layer in model.layers if isinstance(layer.mlp, DenseMlp)]
            return next((layer for layer in reversed(dense) if isinstance(layer.attention, GqaAttention)), None)
        return None

    def why_not(self, model: ModelSpec) -> str:
        """Why the engine would not start with it; empty when it would."""
        if self.method == MTP and not model.draft_layers:
            return f"speculative_config: {model.id} ships no MTP layers to draft with; leave it out, or use ngram"
        return ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DraftCost:
    """Of one rank of the last stage. ``resident_bytes`` are the weights that drafting adds to it; ``read_bytes`` (head
    included) and of ``expert_bytes`` the picked share are read for a drafted token, ``parameters`` and the picked share
    of ``expert_parameters`` are computed with."""

    resident_bytes: int = 0
    read_bytes: int = 0
    expert_bytes: int = 0
    parameters: float = 0.0
    expert_parameters: float = 0.0


def draft_cost(speculation: Speculation, model: ModelSpec, split: Split) -> DraftCost:
    """What the drafter weighs, and what it reads and computes for a token, on one rank."""
    layer = speculation.draft(model)
    if layer is None:
        return DraftCost()
    if speculation.method != MTP:  # trained heads come in BF16, whatever the model is stored in
        model = replace(model, linear_format="bf16")
    parts = _layer_bytes(model, layer, split)
    wide = _layer_bytes(replace(model, linear_format="bf16", expert_format="bf16"), layer, split)
    experts, expert_parameters = parts.pop("routed_experts", 0), wide.pop("routed_experts", 0) / 2
    hidden, head = model.hidden_size, -(-model.vocab_size // split.tp)
    joined = 2 * hidden * hidden  # the projection of hidden state and embedding, or V4's two of half the width
    if speculation.method == MTP:
        resident = model.draft_layers * draft_layer_bytes(model, split)
    else:
        own_head = -(-EAGLE3_VOCABULARY // split.tp) if speculation.method == "eagle3" else 0
        joined = (3 if speculation.method == "eagle3" else 2) * hidden * hidden
        resident = sum(parts.values()) + 2 * joined + 2 * own_head * hidden
        head = own_head or head
    return DraftCost(
        resident_bytes=resident,
        read_bytes=sum(parts.values()) + 2 * joined + 2 * head * hidden,
        expert_bytes=experts,
        parameters=sum(wide.values()) / 2 + joined + head * hidden,
        expert_parameters=expert_parameters,
    )


def _layer_bytes(model: ModelSpec, layer: Layer, split: Split) -> dict[str, int]:
    return {**attention_bytes(model, layer.attention, split), **mlp_bytes(model, layer.mlp, split)}


def with_draft_layer(
    speculation: Speculation | None, model: ModelSpec, stage_layers: tuple[int, ...]
) -> tuple[ModelSpec, tuple[int, ...]]:
    """The model as its KV cache sees it: the draft layer is one more layer of the last stage."""
    layer = speculation.draft(model) if speculation is not None else None
    if speculation is None or layer is None:
        return model, stage_layers
    count = model.draft_layers if speculation.method == MTP else 1
    return replace(model, layers=model.layers + (layer,) * count), (*stage_layers[:-1], stage_layers[-1] + count)


def grows_with_context(layer: Layer) -> bool:
    """Whether the layer's cache is read token by token of the context."""
    attention = layer.attention
    return isinstance(attention, MlaAttention) or (
        isinstance(attention, GqaAttention) and attention.window_tokens is None
    )


def _config(settings: Mapping[str, Scalar]) -> Mapping[str, object] | None:
    text = settings.get("speculative_config")
    if text is None:
        return None
    try:
        parsed = json.loads(str(text))
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, dict):
        raise _wrong(
            "", text, 'a JSON object as text, such as {"method": "mtp", "num_speculative_tokens": 1}'
        )  # fmt: skip
    return parsed


def _method(config: Mapping[str, object]) -> str:
    method, named = config.get("method"), config.get("model")
    if method is None:
        return "ngram" if named in ("ngram", "[ngram]") else "draft_model"
    if isinstance(method, str):
        if method == "mtp" or method.endswith("_mtp"):
            return MTP
        if method.strip("[]") in (*EAGLE, *LOOKUP, *UNMODELLED):
            return method.strip("[]")
    raise _wrong("method", method, f"one of {', '.join((MTP, *EAGLE, *LOOKUP, *UNMODELLED))}")


def _assumed_ratio(method: str, tokens: int, draft_layers: int) -> float:
    if method == MTP:
        return MTP_ACCEPTANCE_RATIO if tokens <= max(1, draft_layers) else MTP_REUSED_ACCEPTANCE_RATIO
    return LOOKUP_ACCEPTANCE_RATIO if method in LOOKUP else EAGLE_ACCEPTANCE_RATIO


def _wrong(key: str, seen: object, wanted: str, hint: str = "") -> SpecError:
    path = "engine.settings.speculative_config" + (f".{key}" if key else "")
    problem = Problem(path=path, seen="nothing" if seen is None else str(seen)[:60], wanted=wanted, hint=hint)
    return SpecError("engine settings cannot be as written", problems=(problem,))
