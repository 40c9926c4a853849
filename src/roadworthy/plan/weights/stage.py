"""What one rank of one pipeline stage loads: parameters, buffers beside them, and what appears after loading."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from roadworthy.plan.weights.attention import attention_bytes, kda_decode_buffers
from roadworthy.plan.weights.formats import Split, matrix_bytes, round_up
from roadworthy.plan.weights.mlp import mlp_bytes
from roadworthy.spec.model import GqaAttention, KdaAttention, Layer, MlaAttention, ModelSpec, MoeMlp, V4Attention

StateDtype = Literal["auto", "float32", "bfloat16"]
"""vLLM's ``mamba_ssm_cache_dtype``; ``auto`` is float32 for KDA."""

VOCABULARY_PADDING = 64
"""`vllm/model_executor/layers/vocab_parallel_embedding.py` DEFAULT_VOCAB_PADDING_SIZE."""
VISION_BUFFER_BYTES = 16_384
"""Position table of Kimi-K3's vision tower."""
V4_ROPE_BYTES_PER_ROW = 64 * 4
"""DeepSeek-V4 keeps its rotary table in float32, 64 wide, one row per position."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageWeights:
    """Bytes of one rank by component. ``post_load_bytes`` are tensors that loading derives (dequantised kv_b)."""

    parameters: Mapping[str, int]
    buffers: Mapping[str, int]
    post_load_bytes: int = 0

    @property
    def parameter_bytes(self) -> int:
        return sum(self.parameters.values())

    @property
    def buffer_bytes(self) -> int:
        return sum(self.buffers.values())

    @property
    def total_bytes(self) -> int:
        """What vLLM logs as ``Model loading took``."""
        return self.parameter_bytes + self.buffer_bytes + self.post_load_bytes


@lru_cache(maxsize=4096)  # a search asks again for every layout that cuts a stage alike
def stage_weights(model: ModelSpec, *, split: Split, layers: range, state_dtype: StateDtype = "auto") -> StageWeights:
    """Weights of one rank that holds ``layers`` (indexes into ``model.layers``).

    Args:
        layers: the stage's layers; the stage with layer 0 carries the embedding, the last one head and final norm.
        state_dtype: with ``bfloat16`` recurrent state the fused KDA decode kernel and its buffers fall away.
    """
    kinds = Counter(model.layers[index] for index in layers)
    first, last = layers.start == 0, layers.stop == model.num_layers
    parameters = _ends(model, split, first=first, last=last)
    for layer, count in kinds.items():
        for part in (attention_bytes(model, layer.attention, split), mlp_bytes(model, layer.mlp, split)):
            parameters.update({name: size * count for name, size in part.items()})
        parameters.update(_around(model, count))
    return StageWeights(
        parameters=+parameters,
        buffers=+_buffers(model, kinds, split, first=first, fused_decode=state_dtype != "bfloat16"),
        post_load_bytes=sum(_dequantised_kv_bytes(model, layer, split) * count for layer, count in kinds.items()),
    )


def _around(model: ModelSpec, count: int) -> dict[str, int]:
    """Norms, residual projections and hyper-connections of ``count`` layers, copied on every rank."""
    hidden = model.hidden_size
    norms = 4 if model.family == "gemma3" else 2  # Gemma norms the output of attention and MLP as well
    parts = {"norm": 2 * norms * hidden * count}
    if model.family == "kimi_k3":
        parts["attn_res"] = 8 * hidden * count
    if model.hyper_connections:
        streams = model.hyper_connections
        mixes = (2 + streams) * streams
        parts["mhc"] = 2 * (4 * mixes * streams * hidden + 4 * mixes + 4 * 3) * count
    return parts


def _ends(model: ModelSpec, split: Split, *, first: bool, last: bool) -> Counter[str]:
    hidden = model.hidden_size
    rows = -(-round_up(model.vocab_size, VOCABULARY_PADDING) // split.tp)
    # vLLM's Qwen3-MoE builds embedding, head and final norm on every stage
    everywhere = model.family == "qwen3_moe"
    parts: Counter[str] = Counter()
    if first or everywhere:
        parts["embedding"] = 2 * rows * hidden
    if last or everywhere:
        shares_embedding = model.tie_word_embeddings and parts["embedding"] > 0
        parts["lm_head"] = 0 if shares_embedding else 2 * rows * hidden
        parts["norm"] = 2 * hidden
    if last and model.family == "kimi_k3":
        parts["attn_res"] = 4 * hidden
    if model.hyper_connections:
        parts["mhc"] = hyper_head_bytes(model)  # on every stage
    if first and model.vision is not None:
        copied = model.vision.tower_bytes - model.vision.split_bytes
        parts["vision_tower"] = copied + model.vision.split_bytes // split.tp
        parts["mm_projector"] = model.vision.projector_bytes
    return parts


def hyper_head_bytes(model: ModelSpec) -> int:
    """The projection that joins V4's streams before the head (float32)."""
    streams = model.hyper_connections
    return 4 * (streams * streams * model.hidden_size + streams + 1)


def _buffers(
    model: ModelSpec, kinds: Mapping[Layer, int], split: Split, *, first: bool, fused_decode: bool
) -> Counter[str]:
    buffers: Counter[str] = Counter(_rope_tables(model, kinds))
    if model.family == "gemma3":
        buffers["embedding"] = 2  # the factor that embeddings are scaled by
    if first and model.vision is not None and model.family == "kimi_k3":
        buffers["vision_tower"] = VISION_BUFFER_BYTES
    for layer, count in kinds.items():
        match layer.attention:
            case KdaAttention() if fused_decode:
                for name, size in kda_decode_buffers(layer.attention, split).items():
                    buffers[name] += size * count
            case MlaAttention():
                buffers["attention"] += (16 if model.family == "deepseek_v3" else 20) * count  # q, k, v, prob scales
            case GqaAttention():
                buffers["attention"] += 16 * count
        if isinstance(layer.mlp, MoeMlp) and split.expert_ranks > 1:
            buffers["expert_map"] += 4 * (layer.mlp.experts + split.redundant_experts) * count
    return buffers


def _rope_tables(model: ModelSpec, kinds: Mapping[Layer, int]) -> dict[str, int]:
    """One rotary table per distinct rope of the stage. Kimi uses no positions (NoPE) and has none."""
    if model.family == "deepseek_v4":
        compressed = {layer.attention.compress_ratio > 0 for layer in kinds if isinstance(layer.attention, V4Attention)}
        return {"rope_cache": len(compressed) * V4_ROPE_BYTES_PER_ROW * model.max_context_tokens}
    element = 4 if model.family == "gpt_oss" else 2
    widths = set[tuple[int, int]]()
    for layer in kinds:
        if isinstance(layer.attention, GqaAttention):
            widths.add((layer.attention.head_dim, layer.attention.rope_scale))
        elif isinstance(layer.attention, MlaAttention) and model.family == "deepseek_v3":
            widths.add((layer.attention.qk_rope_head_dim, 1))
    return {"rope_cache": sum(element * width * scale * model.max_context_tokens for width, scale in widths)}


def _dequantised_kv_bytes(model: ModelSpec, layer: Layer, split: Split) -> int:
    """FP8 MLA keeps a BF16 copy of kv_b for its absorbed products; BF16 MLA uses views of the weight."""
    attention = layer.attention
    if model.family != "deepseek_v3" or model.linear_format == "bf16" or not isinstance(attention, MlaAttention):
        return 0
    width = attention.qk_nope_head_dim + attention.v_head_dim
    return 2 * (attention.heads // split.tp) * attention.kv_lora_rank * width


def draft_layer_bytes(model: ModelSpec, split: Split) -> int:
    """Parameter bytes of one multi-token-prediction layer on the last stage, embedding and head shared.

    Zero when the checkpoint ships none. Served only with speculative decoding.
    """
    if not model.draft_layers:
        return 0
    layer, hidden = draft_layer(model), model.hidden_size
    parts = (attention_bytes(model, layer.attention, split), mlp_bytes(model, layer.mlp, split), _around(model, 1))
    total = sum(sum(part.values()) for part in parts) + 3 * 2 * hidden
    if model.family == "deepseek_v4":
        return total + 2 * matrix_bytes(hidden, hidden, model.linear_format) + hyper_head_bytes(model)
    return total + 2 * hidden * 2 * hidden


def draft_layer(model: ModelSpec) -> Layer:
    """The shape of the draft layer: like the last layer, in V4 without compression."""
    from dataclasses import replace

    last = model.layers[-1]
    if isinstance(last.attention, V4Attention):
        return replace(last, attention=replace(last.attention, compress_ratio=0))
    return last
