"""A model as the planner sees it: a tuple of typed layers, each an attention kind and an MLP kind.

Only what memory and time need is here. ``catalog`` builds it from a Hugging Face ``config.json``; ``plan`` turns it
into bytes. A new architecture is a new combination of these kinds, or one new kind with its formula in ``plan``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import groupby
from typing import Literal

WeightFormat = Literal["bf16", "fp8_block128_e8m0", "fp8_block128_f32", "fp8_channel", "fp4_group32", "mxfp4_group32"]
"""How a linear layer's weights are stored.

``bf16`` 2 B; ``fp8_block128_*`` 1 B and one scale per 128 x 128 block (e8m0: 1 B, f32: 4 B); ``fp8_channel`` 1 B and
one float32 scale per output row; ``fp4_group32`` and ``mxfp4_group32`` half a byte and one e8m0 byte per 32 weights
of a row.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class GqaAttention:
    """Grouped-query attention; ``window_tokens`` None means full. ``qk_norm`` adds two head_dim norms.

    Args:
        bias: on the q, k and v projections; ``output_bias`` on the output projection.
        sinks: one learned attention sink a head (gpt-oss).
        rope_scale: rows of the rotary table as a multiple of the longest context (Gemma's linear scaling).
    """

    heads: int
    kv_heads: int
    head_dim: int
    bias: bool = False
    qk_norm: bool = False
    window_tokens: int | None = None
    output_bias: bool = False
    sinks: bool = False
    rope_scale: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class MlaAttention:
    """Multi-head latent attention (DeepSeek-V3, Kimi). ``q_lora_rank`` None projects q straight from hidden."""

    heads: int
    q_lora_rank: int | None
    kv_lora_rank: int
    qk_nope_head_dim: int
    qk_rope_head_dim: int
    v_head_dim: int
    output_gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KdaAttention:
    """Kimi Delta Attention: fixed recurrent and convolution state per sequence, no KV cache."""

    heads: int
    head_dim: int
    conv_kernel: int
    full_rank_gate: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class V4Attention:
    """DeepSeek-V4 attention. ``compress_ratio`` 4 is CSA, 128 is HCA, 0 is the sliding window only; every kind
    keeps the window."""

    heads: int
    head_dim: int
    rope_head_dim: int
    q_lora_rank: int
    o_groups: int
    o_lora_rank: int
    compress_ratio: int
    window_tokens: int
    index_heads: int
    index_head_dim: int
    index_topk: int


Attention = GqaAttention | MlaAttention | KdaAttention | V4Attention


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseMlp:
    """Gate, up and down projections of width ``intermediate``."""

    intermediate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MoeMlp:
    """Routed and shared experts.

    ``latent_width`` is the width that experts work in when it is not the hidden size (Kimi-K3).
    ``hash_routed`` layers store a vocabulary x experts_per_token table in place of the router bias (V4).
    ``router_bias`` says whether the router carries one bias per expert, ``expert_bias`` whether experts carry biases.
    """

    experts: int
    experts_per_token: int
    intermediate: int
    shared_experts: int = 0
    latent_width: int | None = None
    hash_routed: bool = False
    router_bias: bool = True
    expert_bias: bool = False


Mlp = DenseMlp | MoeMlp


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One transformer block."""

    attention: Attention
    mlp: Mlp


@dataclass(frozen=True, slots=True, kw_only=True)
class VisionTower:
    """Encoder and projector of a multimodal model, in BF16 bytes, on every rank of the first stage.

    ``split_bytes`` is the part of the tower that TP splits; the rest is copied.
    """

    tower_bytes: int
    projector_bytes: int
    split_bytes: int = 0


Family = Literal[
    "deepseek_v4", "kimi_k3", "kimi_linear", "deepseek_v3", "qwen3_moe", "llama", "gemma3", "gpt_oss"
]  # fmt: skip
"""Which closed form of vLLM's model class applies (what is copied, padded, repeated on every stage)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model's shape and how its weights are stored.

    Args:
        linear_format: attention, dense and shared-expert projections.
        expert_format: routed experts.
        hyper_connections: V4's ``hc_mult``, streams kept per token; 0 when the model has none.
        draft_layers: MTP layers shipped in the checkpoint, served only with speculative decoding.
    """

    id: str
    family: Family
    architecture: str
    hidden_size: int
    vocab_size: int
    layers: tuple[Layer, ...]
    max_context_tokens: int
    linear_format: WeightFormat
    expert_format: WeightFormat
    tie_word_embeddings: bool = False
    hyper_connections: int = 0
    draft_layers: int = 0
    vision: VisionTower | None = None
    served_dtype: Literal["bf16"] = "bf16"
    source: str = ""
    _hash: int = field(init=False, repr=False, compare=False, default=0)

    def __post_init__(self) -> None:
        if not self.layers:
            raise ValueError(f"model {self.id}: no layers")
        # a search looks a model up thousands of times, and each of its hundred layers would be hashed every time
        shape = (self.id, self.family, self.hidden_size, self.layers, self.linear_format, self.expert_format)
        object.__setattr__(self, "_hash", hash(shape))

    def __hash__(self) -> int:
        return self._hash

    @property
    def num_layers(self) -> int:
        return len(self.layers)

    @property
    def groups(self) -> tuple[tuple[int, Layer], ...]:
        """Runs of equal neighbouring layers as (count, layer); the counts add up to ``num_layers``."""
        return tuple((len(list(run)), layer) for layer, run in groupby(self.layers))
