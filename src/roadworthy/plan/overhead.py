"""What a rank needs besides weights and KV pool: transient peak, workspaces, collectives, CUDA graphs, context.

Exact where vLLM's sizes follow from shapes; one labelled assumption covers the rest. For the model classes that were
measured on a GPU (facts: gpu_measured.json) the modelled parts stand alone; for the others the total is not let below
5 GiB, or 8 GiB with data-parallel attention on single-GPU ranks (facts: models.md section 6), and the difference is
shown as assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB, MIB
from roadworthy.plan.layouts import mla_attention, routed_experts
from roadworthy.plan.weights.formats import round_up
from roadworthy.spec.model import DenseMlp, ModelSpec, V4Attention

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout

NON_TORCH_GROWTH_BYTES = round(0.24 * GIB)
"""Kernel libraries' own workspaces, measured 0.22 and 0.24 GiB on H200 at TP1."""
CUSTOM_ALL_REDUCE_BYTES = 64 * MIB
SYMMETRIC_MEMORY_BYTES = 64 * MIB
"""Upper ends in `vllm/distributed/device_communicators/all_reduce_utils.py`; used when tp > 1."""
NCCL_BYTES = {1: 0, 2: 342 * MIB}
NCCL_BYTES_MANY = 392 * MIB
"""NCCL's buffers by world size; taken before the engine's baseline snapshot, so outside the budget."""
GRAPH_BYTES_PER_SIZE = round(19.4 * MIB)
"""One captured batch size costs this: 0.99 GiB for 51 sizes (32 layers) and 0.35 GiB for 19 (27 layers) measured."""
MEASURED_FAMILIES = frozenset({"llama", "kimi_linear"})
ASSUMED_TOTAL_BYTES, ASSUMED_TOTAL_DP_BYTES = 5 * GIB, 8 * GIB
ASSUMED_BAND_BYTES, MEASURED_BAND_BYTES = 3 * GIB, GIB // 2
MOE_CHUNK_TOKENS = 16_384
"""Fused-MoE kernels work through a batch in pieces of at most this many tokens."""
MLA_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Bytes of one rank of one stage. ``assumed_bytes`` is the part of ``activation_bytes`` that is not modelled;
    ``band_bytes`` is how far the sum may be off either way."""

    activation_bytes: int
    assumed_bytes: int
    comm_bytes: int
    cudagraph_bytes: int
    runtime_bytes: int
    band_bytes: int

    @property
    def in_budget_bytes(self) -> int:
        """What counts against the utilisation budget."""
        return self.activation_bytes + self.comm_bytes + self.cudagraph_bytes


def overhead(
    model: ModelSpec,
    layout: Layout,
    gpu: Gpu,
    *,
    stage: int,
    block_tokens: int,
    max_model_len_tokens: int,
    max_num_seqs: int,
    max_num_batched_tokens: int,
    cuda_graphs: bool = True,
    scratch_capped: bool = True,
) -> Overhead:
    """The parts for a rank of ``stage``; zero on the CPU, where none of it is modelled.

    Args:
        scratch_capped: False for vLLM before 0.32, see :func:`mla_scratch_bytes`.
    """
    if gpu.id == "cpu":
        return Overhead(
            activation_bytes=0, assumed_bytes=0, comm_bytes=0, cudagraph_bytes=0, runtime_bytes=0, band_bytes=0
        )
    last = stage == layout.pp - 1
    transient = transient_bytes(
        model, layout, tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs if last else 0,
        max_model_len_tokens=max_model_len_tokens,
    )  # fmt: skip
    transient += mla_scratch_bytes(
        model,
        tp=layout.tp,
        block_tokens=block_tokens,
        max_model_len_tokens=max_model_len_tokens,
        max_num_seqs=max_num_seqs,
        capped=scratch_capped,
    )
    comm = CUSTOM_ALL_REDUCE_BYTES + SYMMETRIC_MEMORY_BYTES if layout.tp > 1 else 0
    graphs = 0
    if cuda_graphs:
        graphs = len(capture_sizes(max_num_seqs)) * GRAPH_BYTES_PER_SIZE
    modelled = transient + NON_TORCH_GROWTH_BYTES
    assumed, band = 0, MEASURED_BAND_BYTES
    if model.family not in MEASURED_FAMILIES:
        total = ASSUMED_TOTAL_DP_BYTES if layout.tp == 1 and layout.dp > 1 else ASSUMED_TOTAL_BYTES
        assumed, band = max(0, total - modelled - comm - graphs), ASSUMED_BAND_BYTES
    nccl = NCCL_BYTES.get(layout.world_size, NCCL_BYTES_MANY)
    return Overhead(
        activation_bytes=modelled + assumed,
        assumed_bytes=assumed,
        comm_bytes=comm,
        cudagraph_bytes=graphs,
        runtime_bytes=gpu.context_bytes + nccl,
        band_bytes=band,
    )


def transient_bytes(
    model: ModelSpec, layout: Layout, *, tokens: int, max_num_seqs: int, max_model_len_tokens: int
) -> int:
    """Peak of the profile run: hidden states, the widest MLP's intermediates, V4 workspaces, or the logits if larger.

    Reproduces 1.78 GiB (Llama-3.1-8B) and 3.49 GiB (Kimi-Linear with its MLA scratch) measured at 16,384 tokens.
    """
    hidden_states = 3 * 2 * tokens * model.hidden_size * max(1, model.hyper_connections)
    forward = hidden_states + _mlp_intermediate_bytes(model, layout, tokens)
    if model.family == "deepseek_v4":
        forward += _v4_gather_bytes(model, tokens=tokens, max_model_len_tokens=max_model_len_tokens)
    logits = 4 * max_num_seqs * model.vocab_size
    return max(forward, logits)


def _mlp_intermediate_bytes(model: ModelSpec, layout: Layout, tokens: int) -> int:
    moe = routed_experts(model)
    if moe is None:
        widest = max(layer.mlp.intermediate for layer in model.layers if isinstance(layer.mlp, DenseMlp))
        return 2 * tokens * 3 * widest // layout.tp  # gate and up, then their product
    columns = moe.intermediate if layout.ep > 1 else -(-moe.intermediate // layout.tp)
    width = moe.latent_width or model.hidden_size
    gathered = min(tokens * layout.dp, MOE_CHUNK_TOKENS)
    # two workspaces: gate and up, reused for the down projection; then their product, reused for the output
    return 2 * gathered * moe.experts_per_token * (max(2 * columns, width) + max(columns, width))


def _v4_gather_bytes(model: ModelSpec, *, tokens: int, max_model_len_tokens: int) -> int:
    ratios = {layer.attention.compress_ratio for layer in model.layers if isinstance(layer.attention, V4Attention)}
    densest = min((ratio for ratio in ratios if ratio), default=0)
    compressed = max_model_len_tokens // densest if densest else 0
    return 4 * (compressed + 128 + tokens) * 1024


def mla_scratch_bytes(
    model: ModelSpec, *, tp: int, block_tokens: int, max_model_len_tokens: int, max_num_seqs: int, capped: bool = True
) -> int:
    """MLA's prefill workspace: latents, and the up-projected chunk where the layer reserves it (not in Kimi-K3).

    ``capped`` is vLLM 0.33. In 0.26 the rows were at least ``max_num_seqs`` blocks: 29.5 GiB for Kimi-Linear at 1024
    sequences.
    """
    attention = mla_attention(model)
    if attention is None:
        return 0
    rows = max(min(max(8 * max_model_len_tokens, 4 * max_num_seqs * block_tokens), MLA_ROWS_MAX), block_tokens)
    if not capped:
        rows = max(rows, max_num_seqs * block_tokens)
    rows = round_up(rows, block_tokens)
    latents = rows * (attention.kv_lora_rank + attention.qk_rope_head_dim) * 2
    if model.family == "kimi_k3":
        return latents
    width = attention.qk_nope_head_dim + attention.v_head_dim
    return latents + rows * (attention.heads // tp) * width * 2


def capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Batch sizes that vLLM captures as CUDA graphs by default."""
    largest = min(2 * max_num_seqs, 512)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)
