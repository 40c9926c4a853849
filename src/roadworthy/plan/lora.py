"""What LoRA costs at start-up: slots of full rank beside every adapted layer, allocated before any adapter is loaded.

vLLM keeps ``max_loras`` copies of an (in x rank) and an (out x rank) matrix beside each linear layer
(`vllm/lora/layers/`). Without ``fully_sharded_loras`` a column-parallel layer keeps the whole first matrix on every
rank and a row-parallel layer the whole second one; embedding and head keep the whole vocabulary.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.errors import Problem, SpecError
from roadworthy.plan.weights.mlp import local_experts
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer, ModelSpec

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.plan.weights.formats import Split
    from roadworthy.spec.values import Scalar

RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""`vllm/config/lora.py` MaxLoRARanks."""
NO_LORA_FAMILIES = frozenset({"kimi_k3", "kimi_linear"})
"""Model classes of vLLM 0.33 without SupportsLoRA."""
ELEMENT_BYTES = 2
"""``lora_dtype`` auto is the model's own dtype, BF16."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoraSlots:
    """``max_loras`` adapters of at most ``max_lora_rank`` that a batch may use at once."""

    max_loras: int = 1
    max_lora_rank: int = 16

    @classmethod
    def of(cls, settings: Mapping[str, Scalar]) -> LoraSlots | None:
        """What ``engine.settings`` asks for, or None without ``enable_lora``. Raises SpecError for an illegal rank."""
        if settings.get("enable_lora") is not True:
            return None
        loras = settings.get("max_loras")
        try:
            rank = int(str(settings.get("max_lora_rank") or 16))
        except ValueError:
            rank = 0
        if rank not in RANKS:
            problem = Problem(
                path="engine.settings.max_lora_rank",
                seen=str(settings.get("max_lora_rank")),
                wanted="one of " + ", ".join(map(str, RANKS)),
            )
            raise SpecError("engine settings cannot be as written", problems=(problem,))
        return cls(max_loras=loras if isinstance(loras, int) else 1, max_lora_rank=rank)

    def bytes_on_rank(self, model: ModelSpec, *, split: Split, layers: range) -> int | None:
        """Bytes of all slots on one rank that holds ``layers``; None where the attention is not GQA (not modelled)."""
        if any(not isinstance(model.layers[index].attention, GqaAttention) for index in layers):
            return None
        widths = sum(_layer_widths(model, model.layers[index], split) for index in layers)
        if layers.start == 0:
            widths += model.vocab_size + model.hidden_size
        if layers.stop == model.num_layers:
            widths += model.vocab_size + model.hidden_size
        return ELEMENT_BYTES * self.max_loras * self.max_lora_rank * widths


def _layer_widths(model: ModelSpec, layer: Layer, split: Split) -> int:
    """Inputs and outputs of every adapted matrix of a layer on one rank: a slot holds rank times their sum."""
    hidden, tp = model.hidden_size, split.tp
    attention = layer.attention
    assert isinstance(attention, GqaAttention)
    query, kv = attention.heads // tp * attention.head_dim, max(1, attention.kv_heads // tp) * attention.head_dim
    widths = 3 * hidden + query + 2 * kv + query + hidden
    if isinstance(layer.mlp, DenseMlp):
        columns = layer.mlp.intermediate // tp
        return widths + 2 * hidden + 2 * columns + columns + hidden
    columns = layer.mlp.intermediate if split.expert_ranks > 1 else -(-layer.mlp.intermediate // tp)
    return widths + local_experts(layer.mlp, split) * (2 * hidden + 2 * columns + columns + hidden)
