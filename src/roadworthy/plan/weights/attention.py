"""Attention parameters of one layer on one rank, one form per kind, as bytes by component.

Sources, vLLM 0.33.0: `vllm/model_executor/layers/linear.py` (QKVParallelLinear), `vllm/models/deepseek_v4/attention.py`
and `compressor.py`, `vllm/models/kimi_k3/nvidia/kda.py` and `mla.py`, `vllm/model_executor/layers/mla.py`. Each form is
held to those classes to the byte (tests/unit/plan/test_weights.py).
"""

from __future__ import annotations

from collections.abc import Mapping

from roadworthy.plan.weights.formats import Split, matrix_bytes, round_up
from roadworthy.spec.model import Attention, GqaAttention, KdaAttention, MlaAttention, ModelSpec, V4Attention

Components = Mapping[str, int]

FUSED_DECODE_LOCAL_HEADS = (12, 24, 48, 96)
"""KDA heads of a rank for which vLLM has a fused decode kernel (`vllm/models/kimi_k3/nvidia/kda.py`)."""
SINK_PADDING_HEADS = 64
"""FlashMLA wants at least this many attention sinks on a rank (DeepSeek-V4)."""


def attention_bytes(model: ModelSpec, attention: Attention, split: Split) -> Components:
    """Parameter bytes of one attention layer on one rank."""
    match attention:
        case GqaAttention():
            return _gqa(model, attention, split)
        case MlaAttention():
            return _mla(model, attention, split)
        case KdaAttention():
            return _kda(model, attention, split)
        case V4Attention():
            return _v4(model, attention, split)


def _gqa(model: ModelSpec, attention: GqaAttention, split: Split) -> Components:
    heads = attention.heads // split.tp
    kv_heads = max(1, attention.kv_heads // split.tp)  # fewer KV heads than ranks: each is copied
    qkv_rows = (heads + 2 * kv_heads) * attention.head_dim
    projections = matrix_bytes(qkv_rows, model.hidden_size, model.linear_format) + matrix_bytes(
        model.hidden_size, heads * attention.head_dim, model.linear_format
    )
    biases = (qkv_rows if attention.bias else 0) + (model.hidden_size if attention.output_bias else 0)
    return {
        "attention": projections + 2 * (biases + (heads if attention.sinks else 0)),
        "norm": 2 * 2 * attention.head_dim if attention.qk_norm else 0,
    }


def _mla(model: ModelSpec, attention: MlaAttention, split: Split) -> Components:
    # Kimi keeps attention in BF16 whatever the rest is stored in: its own quantisation leaves self_attn out.
    form = "bf16" if model.family in ("kimi_k3", "kimi_linear") else model.linear_format
    hidden, heads = model.hidden_size, attention.heads // split.tp
    query_dim = attention.qk_nope_head_dim + attention.qk_rope_head_dim
    latent = attention.kv_lora_rank + attention.qk_rope_head_dim
    total = matrix_bytes(heads * (attention.qk_nope_head_dim + attention.v_head_dim), attention.kv_lora_rank, form)
    total += matrix_bytes(hidden, heads * attention.v_head_dim, form)
    if attention.q_lora_rank is None:
        total += matrix_bytes(heads * query_dim, hidden, form) + matrix_bytes(latent, hidden, form)
    else:
        # the two latent down-projections are one fused matrix, copied on every rank
        total += matrix_bytes(attention.q_lora_rank + latent, hidden, form)
        total += matrix_bytes(heads * query_dim, attention.q_lora_rank, form)
    if attention.output_gate:
        total += matrix_bytes(heads * attention.v_head_dim, hidden, form)
    return {"attention": total, "norm": 2 * ((attention.q_lora_rank or 0) + attention.kv_lora_rank)}


def _kda(model: ModelSpec, attention: KdaAttention, split: Split) -> Components:
    hidden, heads = model.hidden_size, attention.heads // split.tp
    width = heads * attention.head_dim
    decay_up = 2 * width * attention.head_dim
    convolution = 4 * 3 * attention.conv_kernel * width
    per_head_and_bias = 4 * heads + 4 * width
    output = 2 * hidden * width
    if attention.full_rank_gate:
        fused_rows = round_up(4 * width + attention.head_dim + heads, 16)  # q, k, v, gate, decay down, beta
        inputs = 2 * hidden * fused_rows
    else:
        low_rank_gate = 2 * attention.head_dim * (hidden + width)
        inputs = 2 * hidden * (3 * width + attention.head_dim + heads) + low_rank_gate
    return {
        "attention": inputs + decay_up + convolution + per_head_and_bias + output,
        "norm": 2 * attention.head_dim,
    }


def kda_decode_buffers(attention: KdaAttention, split: Split) -> Components:
    """Copies that the fused KDA decode kernel keeps beside the parameters, where it fits the head count."""
    heads = attention.heads // split.tp
    if heads not in FUSED_DECODE_LOCAL_HEADS or not attention.full_rank_gate:
        return {}
    width = heads * attention.head_dim
    return {"attention": 4 * 3 * attention.conv_kernel * width, "norm": 4 * attention.head_dim}


def _v4(model: ModelSpec, attention: V4Attention, split: Split) -> Components:
    form, hidden, head_dim = model.linear_format, model.hidden_size, attention.head_dim
    heads, groups = attention.heads // split.tp, attention.o_groups // split.tp
    group_rows = groups * attention.o_lora_rank
    components = {
        "attention": (
            matrix_bytes(attention.q_lora_rank, hidden, form)  # both down-projections are copied on every rank
            + matrix_bytes(head_dim, hidden, form)
            + matrix_bytes(heads * head_dim, attention.q_lora_rank, form)
            + matrix_bytes(group_rows, attention.heads * head_dim // attention.o_groups, form)
            + matrix_bytes(hidden, group_rows, form)
            + 4 * max(SINK_PADDING_HEADS, heads)
        ),
        "norm": 2 * (attention.q_lora_rank + head_dim),
    }
    if attention.compress_ratio:
        streams = 2 if attention.compress_ratio == 4 else 1
        components["compressor"] = (
            4 * attention.compress_ratio * streams * head_dim + 2 * head_dim + 2 * 2 * streams * head_dim * hidden
        )
    if attention.compress_ratio == 4:
        components["indexer"] = _v4_indexer(attention, hidden, model)
    return components


def _v4_indexer(attention: V4Attention, hidden: int, model: ModelSpec) -> int:
    width = attention.index_head_dim
    return (
        matrix_bytes(attention.index_heads * width, attention.q_lora_rank, model.linear_format)
        + 2 * attention.index_heads * hidden
        + 2 * width
        + 4 * attention.compress_ratio * 2 * width
        + 2 * 2 * 2 * width * hidden
    )
