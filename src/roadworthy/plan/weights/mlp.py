"""Feed-forward parameters of one layer on one rank, as bytes by component.

Sources, vLLM 0.33.0: `vllm/models/deepseek_v4/nvidia/model.py`, `vllm/models/kimi_k3/nvidia/model.py`,
`vllm/model_executor/layers/fused_moe/` (padding of expert columns in `oracle/mxfp4.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.plan.weights.formats import BLOCK, Split, matrix_bytes, round_up
from roadworthy.spec.model import DenseMlp, Mlp, ModelSpec, MoeMlp

if TYPE_CHECKING:
    from roadworthy.plan.weights.attention import Components

GPT_OSS_EXPERT_COLUMNS = 64
"""gpt-oss rounds an expert's columns on a rank up to this in the Triton kernels, vLLM's first choice on Hopper."""
KIMI_EXPERT_COLUMNS_MIN = 256
"""Kimi's expert kernels pad each expert's shard to this many columns (vllm-project/vllm issue 51124)."""


def mlp_bytes(model: ModelSpec, mlp: Mlp, split: Split) -> Components:
    """Parameter bytes of one MLP on one rank."""
    if isinstance(mlp, DenseMlp):
        # Kimi-K3 runs its dense layer on sequence shards as well, so it is copied there
        ways = split.shared_tp if model.family == "kimi_k3" else split.tp
        return {"dense_mlp": _gated(mlp.intermediate // ways, model.hidden_size, model)}
    return {
        "router": router_bytes(model, mlp),
        "routed_experts": routed_expert_bytes(model, mlp, split),
        "shared_experts": _shared_experts(model, mlp, split),
        "latent_moe_proj": _latent_projections(model, mlp),
    }


def _gated(columns: int, hidden: int, model: ModelSpec) -> int:
    """Gate, up and down projections of ``columns`` inner width."""
    return 2 * matrix_bytes(columns, hidden, model.linear_format) + matrix_bytes(hidden, columns, model.linear_format)


def router_bytes(model: ModelSpec, mlp: MoeMlp) -> int:
    """Router weights (BF16), copied on every rank; with them the bias (F32), or the int32 table of a hash layer."""
    weights = 2 * mlp.experts * model.hidden_size
    if mlp.hash_routed:
        return weights + 4 * model.vocab_size * mlp.experts_per_token
    return weights + (router_bias_bytes(model) * mlp.experts if mlp.router_bias else 0)


def router_bias_bytes(model: ModelSpec) -> int:
    """Bytes of one expert's router bias on a rank: float32, and BF16 in gpt-oss."""
    return 2 if model.family == "gpt_oss" else 4


def local_experts(mlp: MoeMlp, split: Split) -> int:
    """Whole experts on one rank, redundant ones included."""
    return (mlp.experts + split.redundant_experts) // split.expert_ranks


def expert_columns(model: ModelSpec, mlp: MoeMlp, split: Split) -> int:
    """Inner width of one expert on one rank, padding included. Whole under expert parallelism."""
    if model.family == "gpt_oss":
        ways = 1 if split.expert_ranks > 1 else split.tp
        return round_up(-(-mlp.intermediate // ways), GPT_OSS_EXPERT_COLUMNS)
    if split.expert_ranks > 1 or split.tp == 1:
        return mlp.intermediate
    columns = -(-mlp.intermediate // split.tp)
    if model.family == "deepseek_v4":
        return round_up(columns, BLOCK)
    if model.family in ("kimi_k3", "kimi_linear"):
        return max(columns, KIMI_EXPERT_COLUMNS_MIN)
    return columns


def expert_bytes(model: ModelSpec, mlp: MoeMlp, split: Split) -> int:
    """One routed expert of one layer on one rank that holds it, or its share of the expert without EP."""
    width = mlp.latent_width or model.hidden_size
    columns = expert_columns(model, mlp, split)
    gate_and_up = 2 * matrix_bytes(columns, width, model.expert_format)
    biases = 2 * (2 * columns + width) if mlp.expert_bias else 0
    return gate_and_up + matrix_bytes(width, columns, model.expert_format) + biases


def routed_expert_bytes(model: ModelSpec, mlp: MoeMlp, split: Split) -> int:
    """All routed experts of one layer on one rank."""
    return local_experts(mlp, split) * expert_bytes(model, mlp, split)


def _shared_experts(model: ModelSpec, mlp: MoeMlp, split: Split) -> int:
    if not mlp.shared_experts:
        return 0
    columns = -(-mlp.shared_experts * mlp.intermediate // split.shared_tp)
    if model.family == "deepseek_v4":
        columns = round_up(columns, BLOCK)
    return _gated(columns, model.hidden_size, model)


def _latent_projections(model: ModelSpec, mlp: MoeMlp) -> int:
    if mlp.latent_width is None:
        return 0
    down = matrix_bytes(mlp.latent_width, model.hidden_size, model.linear_format)
    up = matrix_bytes(model.hidden_size, mlp.latent_width, model.linear_format)
    return down + up + 2 * mlp.latent_width
