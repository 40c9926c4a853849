"""What a rank needs besides weights and KV pool: transient peak, workspaces, collectives, CUDA graphs, context.

Sizes follow from shapes; what the shapes do not give was measured on H200 (docs/reference/plan-accuracy.md recomputes
every case). Kimi-K3 could not be measured: its total is not let below 5 GiB, or 8 GiB with data-parallel attention on
single-GPU ranks, and the difference is shown as assumed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB, MIB
from roadworthy.plan.layouts import mla_attention, routed_experts
from roadworthy.plan.weights.formats import round_up
from roadworthy.spec.model import DenseMlp, GqaAttention, MlaAttention, ModelSpec, V4Attention

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout

NON_TORCH_GROWTH_BYTES, NON_TORCH_GROWTH_GROUP_BYTES = round(0.24 * GIB), round(0.10 * GIB)
"""Kernel libraries' own workspaces, as they grow once the engine counts: 0.22 to 0.26 GiB in a world of one, 0.07 to
0.15 GiB (set on three rows, two kept out) where ranks have met before."""
CUSTOM_ALL_REDUCE_BYTES = 64 * MIB
SYMMETRIC_MEMORY_BYTES = 64 * MIB
"""Upper ends in `vllm/distributed/device_communicators/all_reduce_utils.py`; used when tp > 1."""
NCCL_BYTES, NCCL_BYTES_MANY = 473 * MIB, 542 * MIB
"""One NCCL communicator of two ranks: two of them took 0.92 GiB and three 1.39 (H200, no multicast). Of more ranks:
larger by as much as NCCL's own buffers are said to be, not measured."""
GRAPH_BYTES_DENSE = 630_000
"""A captured batch size of one layer, dense models: 0.98 GiB for 51 sizes of 32 layers, 1.00 for 36 layers; 0.72 at
TP2."""
GRAPH_BYTES_MOE, GRAPH_BYTES_LATENT = 140_000, 220_000
"""One graph of one layer as start-up estimates it and charges: mixtures of experts with grouped attention (0.64 and
0.71 GiB for 102 graphs of 48 layers, 1.06 for 94 layers), and with MLA, beside its up-projected chunk (1.16 GiB for 102
graphs of 61 layers, 0.28 for 30 of 27)."""
V4_INDEXER_BYTES = 512 * MIB
"""Stands for the indexer's logits in a run without metadata (`VLLM_SPARSE_INDEXER_MAX_LOGITS_MB`)."""
SAMPLING_BYTES, SAMPLING_DENSE_BYTES, SAMPLING_DENSE_TP_BYTES = 14, 8, 4
"""Per sequence and vocabulary entry while the profile run samples. Dense models run on vLLM's newer model runner: two
float32 copies of the logits (Llama-3.1-8B and Qwen3-8B, to 1 MB); at TP8 half of it (Llama-3.1-70B). The others sort:
logits, float32 logits and 64-bit indices (Qwen3-30B, Qwen3-235B and DeepSeek-V3, to 0.1 GiB)."""
V4_LOADED_BYTES, V4_SECOND_TABLE_BYTES = 350_000_000, 268_435_456
"""DeepSeek-V4's logged weights beyond parameters and buffers, whatever TP and number of layers: 333 and 349 MB for
Flash, 612 and 644 MB for Pro, which has one rotary table less among its buffers and seems to load it all the same."""
STREAMS, V4_STREAMS = 4, 2.55
"""Hidden states alive at the peak of a layer (V4: each of its hyper-connection streams), fitted. V4's was set on two
rows and holds for the other three of its peaks within 0.07 GiB."""
V4_KERNEL_HEADS = (64, 128)
MEASURED_FAMILIES = frozenset({"llama", "kimi_linear", "qwen3_moe", "deepseek_v3", "deepseek_v4"})
ASSUMED_TOTAL_BYTES, ASSUMED_TOTAL_DP_BYTES = 5 * GIB, 8 * GIB
ASSUMED_BAND_BYTES, STAGES_BAND_BYTES, MEASURED_BAND_BYTES = 3 * GIB, GIB, GIB // 2
V4_GRAPHS_BAND_BYTES = GIB
MOE_CHUNK_TOKENS = 16_384
"""Fused-MoE kernels work through a batch in pieces of at most this many tokens."""
MLA_ROWS_MAX = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Overhead:
    """Bytes of one rank of one stage.

    Args:
        assumed_bytes: the part of ``activation_bytes`` that is not modelled.
        comm_bytes: communicators and all-reduce buffers, which exist before the engine counts what is free.
        cudagraph_bytes: what the graphs take.
        cudagraph_charged: start-up estimates them and takes them off the pool; else they come out of what the budget
            leaves, as for dense models.
        loaded_bytes: what loading leaves beside parameters and buffers, part of the weights that the engine logs.
        band_bytes: how far the sum may be off either way.
    """

    activation_bytes: int
    assumed_bytes: int
    comm_bytes: int
    cudagraph_bytes: int
    runtime_bytes: int
    band_bytes: int
    cudagraph_charged: bool = True
    loaded_bytes: int = 0

    @property
    def in_budget_bytes(self) -> int:
        """What counts against the utilisation budget."""
        return self.activation_bytes + (self.cudagraph_bytes if self.cudagraph_charged else 0)

    @property
    def outside_bytes(self) -> int:
        """What is taken before the engine looks at the device: context and collectives."""
        return self.runtime_bytes + self.comm_bytes


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
    captured: tuple[int, ...] | None = None,
    scratch_capped: bool = True,
) -> Overhead:
    """The parts for a rank of ``stage``; zero on the CPU, where none of it is modelled.

    Args:
        captured: batch sizes of the graphs; None for the engine's own choice.
        scratch_capped: False for vLLM before 0.32, see :func:`mla_scratch_bytes`.
    """
    if gpu.id == "cpu":
        return Overhead(
            activation_bytes=0, assumed_bytes=0, comm_bytes=0, cudagraph_bytes=0, runtime_bytes=0, band_bytes=0
        )
    last = stage == layout.pp - 1
    scratch = _mla_scratch(
        model, tp=layout.tp, block_tokens=block_tokens, max_model_len_tokens=max_model_len_tokens,
        max_num_seqs=max_num_seqs, capped=scratch_capped,
    )  # fmt: skip
    peak = peak_bytes(
        model, layout, tokens=max_num_batched_tokens, max_num_seqs=max_num_seqs if last else 0,
        max_model_len_tokens=max_model_len_tokens, mla_scratch=scratch,
    )  # fmt: skip
    sizes = capture_sizes(max_num_seqs) if captured is None else captured
    graphs = 0
    if cuda_graphs:
        graphs = graph_bytes(
            model, layers=layout.stage_layers[stage], sizes=sizes, max_num_seqs=max_num_seqs,
            expanded_bytes=scratch[1],
        )  # fmt: skip
    modelled = peak + (NON_TORCH_GROWTH_GROUP_BYTES if layout.world_size > 1 else NON_TORCH_GROWTH_BYTES)
    assumed = 0
    if model.family not in MEASURED_FAMILIES:
        total = ASSUMED_TOTAL_DP_BYTES if layout.tp == 1 and layout.dp > 1 else ASSUMED_TOTAL_BYTES
        assumed = max(0, total - modelled - graphs)
    return Overhead(
        activation_bytes=modelled + assumed,
        assumed_bytes=assumed,
        comm_bytes=comm_bytes(model, layout),
        cudagraph_bytes=graphs,
        cudagraph_charged=routed_experts(model) is not None,
        loaded_bytes=loaded_bytes(model),
        runtime_bytes=gpu.context_bytes,
        band_bytes=_band_bytes(model, layout, graphs=graphs > 0),
    )


def comm_bytes(model: ModelSpec, layout: Layout) -> int:
    """Communicators of a rank and its all-reduce buffers.

    One communicator for the world and one for each kind of group that has more than one rank; a mixture of experts has
    a group of its own for them, with or without expert parallelism.
    """
    if layout.world_size == 1:
        return 0
    experts = routed_experts(model) is not None and layout.tp * layout.dp > 1
    groups = 1 + (layout.tp > 1) + (layout.pp > 1) + (layout.dp > 1) + experts
    each = NCCL_BYTES if layout.world_size == 2 else NCCL_BYTES_MANY
    return groups * each + (CUSTOM_ALL_REDUCE_BYTES + SYMMETRIC_MEMORY_BYTES if layout.tp > 1 else 0)


def loaded_bytes(model: ModelSpec) -> int:
    """What loading leaves beside parameters and buffers: measured for DeepSeek-V4, not explained; elsewhere < 0.5 %."""
    if model.family != "deepseek_v4":
        return 0
    compressed = {
        layer.attention.compress_ratio > 0 for layer in model.layers if isinstance(layer.attention, V4Attention)
    }
    return V4_LOADED_BYTES + (V4_SECOND_TABLE_BYTES if compressed == {True} else 0)


def _band_bytes(model: ModelSpec, layout: Layout, *, graphs: bool) -> int:
    """Half a GiB where the kind of layout was measured; pipelines were not, data-parallel attention once."""
    if model.family not in MEASURED_FAMILIES or layout.dp > 1:
        return ASSUMED_BAND_BYTES
    if layout.pp > 1:
        return STAGES_BAND_BYTES
    return V4_GRAPHS_BAND_BYTES if graphs and model.family == "deepseek_v4" else MEASURED_BAND_BYTES


def graph_bytes(
    model: ModelSpec, *, layers: int, sizes: tuple[int, ...], max_num_seqs: int, expanded_bytes: int
) -> int:
    """What CUDA graphs take, or what start-up charges for them, in a stage of ``layers``.

    Each of ``sizes`` is captured for batches with prompts, and again for decoding where that many sequences can run.
    Of a model with MLA in every layer, the first graph's trial run allocates the up-projected chunk once more
    (`vllm/model_executor/layers/attention/mla_attention.py`, the branch without metadata), and start-up charges it:
    4.1 GiB for the first six layers of DeepSeek-V3 at TP1, 2.2 at TP2. Kimi-Linear's charge does not hold it. V4's
    indexer does the same with its logits; the one row that there is took 0.36 GiB more, hence its wider band. What a
    captured exchange between data-parallel ranks adds is left to their band: it was 1.4 GiB in the one row there is.
    """
    if routed_experts(model) is None:
        return len(sizes) * layers * GRAPH_BYTES_DENSE
    graphs = layers * (len(sizes) + sum(size <= max_num_seqs for size in sizes))
    if all(isinstance(layer.attention, GqaAttention) for layer in model.layers):
        return graphs * GRAPH_BYTES_MOE
    first = 0
    if model.family == "deepseek_v4":
        first = V4_INDEXER_BYTES
    elif all(isinstance(layer.attention, MlaAttention) for layer in model.layers):
        first = expanded_bytes
    return graphs * GRAPH_BYTES_LATENT + first


def peak_bytes(
    model: ModelSpec, layout: Layout, *, tokens: int, max_num_seqs: int, max_model_len_tokens: int,
    mla_scratch: tuple[int, int],
) -> int:  # fmt: skip
    """Peak of the profile run: the forward pass, or sampling if that is more (the last stage's alone).

    The experts' workspaces and MLA's latents stay allocated; the layers' streams and MLA's up-projection do not.
    """
    latents, expanded = mla_scratch
    kept = latents + _expert_workspace_bytes(model, layout, tokens)
    stream = 2 * tokens * model.hidden_size
    if model.family == "deepseek_v4":
        forward = round(V4_STREAMS * model.hyper_connections * stream)
        forward += _v4_attention_bytes(model, layout, tokens)
        forward += _v4_gather_bytes(model, tokens=tokens, max_model_len_tokens=max_model_len_tokens)
    else:
        forward = STREAMS * stream + _dense_intermediate_bytes(model, layout, tokens) + expanded
    if routed_experts(model) is not None:
        each = SAMPLING_BYTES
    else:
        each = SAMPLING_DENSE_BYTES if layout.tp == 1 else SAMPLING_DENSE_TP_BYTES
    sampling = 2 * stream + each * max_num_seqs * model.vocab_size
    return kept + max(forward, sampling)


def _dense_intermediate_bytes(model: ModelSpec, layout: Layout, tokens: int) -> int:
    """Gate and up, then their product, of a dense model's layers; a few dense layers among experts never peak."""
    if routed_experts(model) is not None:
        return 0
    widest = max(layer.mlp.intermediate for layer in model.layers if isinstance(layer.mlp, DenseMlp))
    return 2 * tokens * 3 * widest // layout.tp


def _expert_workspace_bytes(model: ModelSpec, layout: Layout, tokens: int) -> int:
    """Two workspaces of a row for each token and expert, as wide as gate and up or the output, whichever is more."""
    moe = routed_experts(model)
    if moe is None:
        return 0
    columns = moe.intermediate if layout.ep > 1 else -(-moe.intermediate // layout.tp)
    width = moe.latent_width or model.hidden_size
    rows = min(tokens * layout.dp, MOE_CHUNK_TOKENS) * moe.experts_per_token
    return 2 * rows * (max(columns, width) + max(2 * columns, width))


def _v4_attention_bytes(model: ModelSpec, layout: Layout, tokens: int) -> int:
    """Queries and outputs of a layer. The kernel takes 64 or 128 heads, so a rank with fewer fills up a copy of its
    queries (`vllm/models/deepseek_v4/attention.py`): more tensor parallelism saves little.
    """
    # all V4 layers have the same heads
    shape = next(layer.attention for layer in model.layers if isinstance(layer.attention, V4Attention))
    heads = shape.heads // layout.tp
    filled = next((count for count in V4_KERNEL_HEADS if heads <= count), heads)
    queries = heads if heads == filled else heads + filled
    return 2 * tokens * (queries + filled) * shape.head_dim


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
    return sum(
        _mla_scratch(
            model,
            tp=tp,
            block_tokens=block_tokens,
            max_model_len_tokens=max_model_len_tokens,
            max_num_seqs=max_num_seqs,
            capped=capped,
        )
    )


def _mla_scratch(
    model: ModelSpec, *, tp: int, block_tokens: int, max_model_len_tokens: int, max_num_seqs: int, capped: bool
) -> tuple[int, int]:
    """Bytes of the latents, which stay, and of the chunk they are up-projected to, which does not."""
    attention = mla_attention(model)
    if attention is None:
        return 0, 0
    rows = max(min(max(8 * max_model_len_tokens, 4 * max_num_seqs * block_tokens), MLA_ROWS_MAX), block_tokens)
    if not capped:
        rows = max(rows, max_num_seqs * block_tokens)
    rows = round_up(rows, block_tokens)
    latents = rows * (attention.kv_lora_rank + attention.qk_rope_head_dim) * 2
    if model.family == "kimi_k3":
        return latents, 0
    width = attention.qk_nope_head_dim + attention.v_head_dim
    return latents, rows * (attention.heads // tp) * width * 2


def capture_sizes(max_num_seqs: int) -> tuple[int, ...]:
    """Batch sizes that vLLM captures as CUDA graphs by default."""
    largest = min(2 * max_num_seqs, 512)
    sizes = [1, 2, 4, *range(8, 256, 8), *range(256, largest + 1, 16)]
    return tuple(size for size in sizes if size <= largest)
