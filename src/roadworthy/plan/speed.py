"""Step time of a layout from its shape and the hardware: a roofline with achieved, not nameplate, rates.

Every constant that was fitted says on what. Not modelled: overlap of collectives with compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING

from roadworthy.plan.cache_groups import CacheOptions, state_bytes_per_layer, token_bytes
from roadworthy.plan.expert_load import expert_load
from roadworthy.plan.layouts import routed_experts
from roadworthy.plan.speculation import Speculation, draft_cost, grows_with_context
from roadworthy.plan.timing import RooflineStepTime
from roadworthy.plan.weights import Split, split_of, stage_weights
from roadworthy.spec.model import GqaAttention, KdaAttention, Layer, MlaAttention, ModelSpec, MoeMlp, V4Attention

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import Layout
    from roadworthy.spec.values import ClusterSpec

HBM_ACHIEVED_RATIO = 0.81
"""Slope of decode time against bytes read, Llama-3.1-8B on H200: TPOT 4.88 to 7.07 ms for 15.0 to 23.7 GB."""
NVLINK_ACHIEVED_RATIO = 0.67
"""All-reduce bus bandwidth of 301 GB/s against 450 GB/s a direction, two H200."""
NIC_ACHIEVED_RATIO = 0.8
"""Assumed, not measured."""
NIC_DEFAULT_BYTES_PER_S = 50e9
"""One 400 Gb/s NIC a GPU, when the document names none."""
REQUEST_OVERHEAD_S = 0.004
"""Tokenising, scheduling and the first response: what prompts of 128 to 1,024 tokens take beyond their step (H200)."""
ALL_REDUCE_PAIR_LATENCY_S = 9e-6
"""Of a small message between two GPUs inside a CUDA graph: what Llama-3.1-8B decodes take beyond the rest at TP2; the
decodes of Qwen3-30B and Kimi-Linear at TP2 were kept out."""
ALL_REDUCE_LATENCY_S, CROSS_HOST_ALL_REDUCE_LATENCY_S = 20e-6, 75e-6
ALL_TO_ALL_LATENCY_S, CROSS_HOST_ALL_TO_ALL_LATENCY_S = 30e-6, 150e-6
"""The same among eight and more: assumed, chosen with the launch costs below so that the anchors hold."""
EAGER_GROUP_S_PER_LAYER = 0.45e-3
"""What launching a layer from the host takes longer when two ranks act together: prompts of 1,024 tokens, Llama at TP2.
Not carried over to larger groups: nothing was measured there, and a second opinion on TP8 contradicts it by a half."""
STAGE_HOP_LATENCY_S = 0.2e-3
"""Handing a batch to the next stage goes through the host (`vllm/distributed/parallel_state.py` send_tensor_dict sends
the metadata over the CPU group first): assumed."""
CPU_STEP_S = 5e-3
"""A step of a tiny model on a CPU: assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a family achieves: fixed cost of a layer a step (the extra where a prompt is part of it, and how long the
    host needs to launch it where no CUDA graph is large enough) and of a sequence, share of nameplate compute, what of
    reading and computing does not overlap, and how far all that may be off."""

    launch_s_per_layer: float
    prefill_launch_s_per_layer: float
    compute_ratio: float
    error_band: float
    source: str
    sequence_s: float = 0.0
    unhidden_ratio: float = 0.0
    eager_s_per_layer: float = 0.0


CALIBRATIONS = {
    "llama": Calibration(
        launch_s_per_layer=31e-6, prefill_launch_s_per_layer=0.0, compute_ratio=0.63, error_band=0.15,
        sequence_s=12e-6, eager_s_per_layer=0.7e-3,
        source="roofline fitted to Llama-3.1-8B and Qwen3-8B on one H200 (vLLM 0.26)",
    ),
    "kimi_linear": Calibration(
        launch_s_per_layer=89e-6, prefill_launch_s_per_layer=2e-3, compute_ratio=0.46, error_band=0.30,
        eager_s_per_layer=2.9e-3,
        source="roofline fitted to Kimi-Linear on one H200 (vLLM 0.26, dummy weights)",
    ),
    "qwen3_moe": Calibration(
        launch_s_per_layer=55e-6, prefill_launch_s_per_layer=0.1e-3, compute_ratio=0.50, error_band=0.30,
        unhidden_ratio=0.8, eager_s_per_layer=1.0e-3,
        source="roofline fitted to Qwen3-30B-A3B on one H200 (vLLM 0.26, dummy weights)",
    ),
    "deepseek_v3": Calibration(
        launch_s_per_layer=89e-6, prefill_launch_s_per_layer=0.5e-3, compute_ratio=0.30, error_band=0.40,
        source="roofline, launch cost assumed as Kimi-Linear's; not measured",
    ),
    "deepseek_v4": Calibration(
        launch_s_per_layer=180e-6, prefill_launch_s_per_layer=0.35e-3, compute_ratio=0.25, error_band=0.35,
        source="roofline, launch cost and compute set by public 8xH200 figures (TPOT 29-30 ms at 15 streams, 623 ms "
        "to the first token of 8k); DeepSeek-V4-Flash on two H200 decodes 26% faster alone, 19% slower at 64",
    ),
    "kimi_k3": Calibration(
        launch_s_per_layer=170e-6, prefill_launch_s_per_layer=0.35e-3, compute_ratio=0.20, error_band=0.45,
        source="roofline, launch cost set by aiconfigurator's 32xH100 estimates; not measured",
    ),
    "gemma3": Calibration(
        launch_s_per_layer=40e-6, prefill_launch_s_per_layer=0.0, compute_ratio=0.60, error_band=0.40,
        source="roofline, constants assumed near Llama's (four norms a layer); not measured",
    ),
    "gpt_oss": Calibration(
        launch_s_per_layer=60e-6, prefill_launch_s_per_layer=0.4e-3, compute_ratio=0.25, error_band=0.45,
        source="roofline, launch cost assumed as Qwen3-MoE's; not measured",
    ),
}  # fmt: skip
"""Anchors: docs/reference/plan-accuracy.md; public V4-Pro and K3 figures in tests/unit/plan/test_speed.py."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Achieved rate of one direction of one GPU's links."""

    nvlink_bytes_per_s: float
    nic_bytes_per_s: float


CPU_CALIBRATION = Calibration(
    launch_s_per_layer=0.0,
    prefill_launch_s_per_layer=0.0,
    compute_ratio=0.5,
    error_band=1.0,
    source="a step on a CPU is assumed to take 5 ms and more with load; not measured",
)


def calibration_of(model: ModelSpec, gpu: Gpu) -> Calibration:
    """The constants for ``model`` on ``gpu``, with where they come from."""
    return CPU_CALIBRATION if gpu.id == "cpu" else CALIBRATIONS[model.family]


def links_of(cluster: ClusterSpec, gpu: Gpu) -> Links:
    """What the document says of the links, or the catalog and :data:`NIC_DEFAULT_BYTES_PER_S`."""
    both = gpu.nvlink_bytes_per_s if cluster.nvlink_bytes_per_s is None else cluster.nvlink_bytes_per_s
    nics = sum(nic.count * nic.rate_bytes_per_s for nic in cluster.nics) / cluster.gpus_per_node
    nic = (nics or NIC_DEFAULT_BYTES_PER_S) * NIC_ACHIEVED_RATIO
    # without NVLink, GPUs of a host meet over PCIe, for which the NIC's rate is a fair stand-in
    return Links(nvlink_bytes_per_s=both / 2 * NVLINK_ACHIEVED_RATIO or nic, nic_bytes_per_s=nic)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What of the traffic a step time depends on.

    Args:
        context_tokens: mean context, which bounds how many entries V4's top-k reads.
        expert_skew: Zipf's exponent of how popular experts are; 0 is uniform routing.
    """

    context_tokens: float
    expert_skew: float = 0.0


def step_time_of(
    model: ModelSpec, layout: Layout, cluster: ClusterSpec, gpu: Gpu, *, cache: CacheOptions, traffic: Traffic,
    speculation: Speculation | None = None, redundant_experts: int | None = None,
) -> RooflineStepTime:  # fmt: skip
    """The analytic step time of one data-parallel rank of ``layout``.

    Args:
        redundant_experts: slots that the expert balancer fills; None where it is off.
    """
    calibration, links = calibration_of(model, gpu), links_of(cluster, gpu)
    split = split_of(tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep)
    whole = range(model.num_layers)
    weights = stage_weights(model, split=split, layers=whole).parameters
    wide = stage_weights(replace(model, linear_format="bf16", expert_format="bf16"), split=split, layers=whole)
    moe = routed_experts(model)
    pick = moe.experts_per_token / moe.experts if moe else 0.0
    layer_parameters = {name: size / 2 for name, size in wide.parameters.items() if name not in _NOT_PER_TOKEN}
    routed = layer_parameters.pop("routed_experts", 0.0)
    comm = _communication(model, layout, cluster, links)
    attention = _attention_cost(model, layout.tp, cache, traffic.context_tokens)
    # the fullest stage sets the pace of a pipeline, so a walk counts as that stage's time for each stage
    uneven = layout.pp * max(layout.stage_layers) / model.num_layers
    on_cpu = gpu.id == "cpu"
    step = RooflineStepTime(
        pipeline_stages=layout.pp,
        launch_s=CPU_STEP_S if on_cpu else calibration.launch_s_per_layer * model.num_layers * uneven,
        fixed_weight_bytes=uneven * sum(size for name, size in weights.items() if name not in _NOT_READ),
        expert_weight_bytes=uneven * weights.get("routed_experts", 0),
        expert_pick_ratio=pick,
        kv_bytes_per_context_token=attention.kv_bytes,
        state_bytes_per_sequence=attention.state_bytes,
        flops_per_token=2 * sum(layer_parameters.values()),
        routed_flops_per_token=2 * routed * pick * layout.dp,
        flops_per_context_pair=attention.pair_flops,
        hbm_bytes_per_s=gpu.hbm_bytes_per_s * HBM_ACHIEVED_RATIO,
        flops_per_s=_flops_per_s(model, gpu) * calibration.compute_ratio,
        comm_bytes_per_token=comm.bytes_per_token,
        link_bytes_per_s=links.nvlink_bytes_per_s or 1.0,
        comm_latency_s=0.0 if on_cpu else comm.latency_s,
        prefill_launch_s=calibration.prefill_launch_s_per_layer * model.num_layers,
        eager_s=_eager_s(calibration, model, layout),
        sequence_s=calibration.sequence_s / layout.tp,
        unhidden_ratio=calibration.unhidden_ratio,
        expert_batch_ranks=layout.dp if layout.ep > 1 else 1,
    )
    if moe is not None:
        step = _with_expert_load(step, moe, layout, traffic.expert_skew, redundant_experts)
    if speculation is None or not speculation.modelled:
        return step
    launch_s = 0.0
    if speculation.draft(model) is not None and not on_cpu:
        launch_s = calibration.launch_s_per_layer + comm.latency_s_per_layer
    return _with_drafts(step, model, split, layout, cache, speculation, launch_s=launch_s)


def _eager_s(calibration: Calibration, model: ModelSpec, layout: Layout) -> float:
    """Launching a step from the host; not known where no family's is."""
    if not calibration.eager_s_per_layer:
        return 0.0
    group_s = EAGER_GROUP_S_PER_LAYER if layout.tp == 2 else 0.0
    return model.num_layers * (calibration.eager_s_per_layer + group_s)


def _with_expert_load(
    step: RooflineStepTime, moe: MoeMlp, layout: Layout, skew: float, redundant_experts: int | None
) -> RooflineStepTime:
    load = expert_load(
        experts=moe.experts, per_token=moe.experts_per_token, ranks=layout.ep, skew=skew, redundant=redundant_experts
    )
    slots = (moe.experts + (redundant_experts or 0)) / moe.experts if layout.ep > 1 else 1.0
    return replace(
        step,
        expert_weight_bytes=step.expert_weight_bytes * slots,
        expert_floor=load.floor,
        expert_spread=load.spread,
        expert_excess_ratio=load.excess_ratio,
        expert_noise=load.noise,
        expert_read_noise=load.read_noise,
    )


def _with_drafts(
    step: RooflineStepTime, model: ModelSpec, split: Split, layout: Layout, cache: CacheOptions,
    speculation: Speculation, *, launch_s: float,
) -> RooflineStepTime:  # fmt: skip
    """``step`` with drafting: the last stage runs it after its own layers, so it adds to the walk once."""
    cost, layer = draft_cost(speculation, model, split), speculation.draft(model)
    kv_bytes = token_bytes(model, model.num_layers - 1, layout.tp, cache) if layer and grows_with_context(layer) else 0
    return replace(
        step,
        draft_tokens=speculation.tokens,
        tokens_per_step=speculation.tokens_per_step,
        draft_launch_s=launch_s,
        draft_weight_bytes=float(cost.read_bytes),
        draft_expert_bytes=float(cost.expert_bytes),
        draft_flops_per_token=2 * (cost.parameters + cost.expert_parameters * step.expert_pick_ratio * layout.dp),
        draft_kv_bytes_per_context_token=float(kv_bytes),
    )


_NOT_READ = frozenset({"routed_experts", "embedding", "vision_tower", "mm_projector"})
_NOT_PER_TOKEN = frozenset({"embedding", "lm_head", "vision_tower", "mm_projector", "norm", "mhc"})


def _flops_per_s(model: ModelSpec, gpu: Gpu) -> float:
    """Nameplate compute in the format the matrix units work in: FP8 when weights are, else BF16 (FP4 is unpacked)."""
    native_fp8 = model.linear_format.startswith("fp8") and model.expert_format.startswith("fp8")
    rates = gpu.dense_flops_per_s
    return rates.get("fp8" if native_fp8 else "bf16") or rates.get("bf16") or max(rates.values())


@dataclass(frozen=True, slots=True)
class _AttentionCost:
    """Of all layers on one rank: bytes read for a token of context, moved for a sequence, FLOPs of a context pair."""

    kv_bytes: float
    state_bytes: float
    pair_flops: float


@lru_cache(maxsize=256)
def _attention_cost(model: ModelSpec, tp: int, cache: CacheOptions, context_tokens: float) -> _AttentionCost:
    return _AttentionCost(
        kv_bytes=sum(_kv_read_bytes(model, index, tp, cache) for index in range(model.num_layers)),
        state_bytes=_state_read_bytes(model, tp, cache, context_tokens),
        pair_flops=sum(_pair_flops(layer, tp) for layer in model.layers),
    )


def _kv_read_bytes(model: ModelSpec, index: int, tp: int, cache: CacheOptions) -> float:
    """Bytes a decode step reads for each token of context in one layer on one rank."""
    attention = model.layers[index].attention
    if isinstance(attention, KdaAttention):
        return 0.0
    if isinstance(attention, GqaAttention) and attention.window_tokens is not None:
        return 0.0  # a window does not grow with the context
    if isinstance(attention, V4Attention):
        entry = 2 * attention.head_dim if cache.kv_dtype == "bfloat16" else attention.head_dim + 72
        if attention.compress_ratio == 4:
            return (attention.index_head_dim + 4) / 4  # every index key; of the content only the top-k
        return entry / attention.compress_ratio if attention.compress_ratio else 0.0
    return float(token_bytes(model, index, tp, cache))


def _state_read_bytes(model: ModelSpec, tp: int, cache: CacheOptions, context_tokens: float) -> float:
    """Bytes a decode step moves for a sequence whatever its context; the step model counts them twice."""
    total = 0.0
    for index, layer in enumerate(model.layers):
        attention = layer.attention
        if isinstance(attention, GqaAttention) and attention.window_tokens is not None:
            held = min(context_tokens, attention.window_tokens)
            total += held * token_bytes(model, index, tp, cache) / 2  # read only
        elif isinstance(attention, KdaAttention):
            total += state_bytes_per_layer(attention, tp=tp, state_dtype=cache.state_dtype)
        elif isinstance(attention, V4Attention):
            entries = min(context_tokens, attention.window_tokens)
            if attention.compress_ratio == 4:
                entries += min(context_tokens / 4, attention.index_topk)
            total += entries * (attention.head_dim + 72) / 2  # read only
    return total


def _pair_flops(layer: Layer, tp: int) -> float:
    """Attention FLOPs for one (token, context token) pair in one layer on one rank."""
    attention = layer.attention
    if isinstance(attention, KdaAttention):
        return 0.0
    heads = attention.heads / tp
    if isinstance(attention, GqaAttention) and attention.window_tokens is not None:
        return 0.0  # pairs within a window grow with the tokens alone, and are few
    if isinstance(attention, GqaAttention):
        return 4 * attention.head_dim * heads
    if isinstance(attention, MlaAttention):
        query = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        return 2 * (query + attention.v_head_dim) * heads
    if attention.compress_ratio == 4:
        return 2 * attention.index_heads * attention.index_head_dim / 4
    return 4 * attention.head_dim * heads / attention.compress_ratio if attention.compress_ratio else 0.0


def _all_reduce_latency_s(ranks: int) -> float:
    """Measured for two ranks, assumed for eight, and in between by the number of doublings."""
    doublings = min(math.log2(ranks) - 1, 2) / 2
    return ALL_REDUCE_PAIR_LATENCY_S + doublings * (ALL_REDUCE_LATENCY_S - ALL_REDUCE_PAIR_LATENCY_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Communication:
    bytes_per_token: float
    latency_s: float
    latency_s_per_layer: float


def _communication(model: ModelSpec, layout: Layout, cluster: ClusterSpec, links: Links) -> _Communication:
    """Bytes over NVLink and NIC, the latter weighed by how much slower it is, and latencies of a step."""
    hidden_bytes, layers = 2 * model.hidden_size, model.num_layers
    nvlink, nic, per_layer_s, hops_s = 0.0, 0.0, 0.0, 0.0
    crosses = layout.tp > cluster.gpus_per_node
    if layout.tp > 1:
        reduced = 2 * layers * hidden_bytes * 2 * (layout.tp - 1) / layout.tp
        nvlink, nic = (0.0, reduced) if crosses else (reduced, 0.0)
        per_layer_s += 2 * (CROSS_HOST_ALL_REDUCE_LATENCY_S if crosses else _all_reduce_latency_s(layout.tp))
    if layout.dp > 1:
        local = max(1, min(layout.dp, cluster.gpus_per_node // layout.tp))
        far = layout.dp - local
        exchanged = 2 * layers * hidden_bytes
        nvlink += exchanged * (local - 1)
        nic += exchanged * far
        per_layer_s += 2 * (CROSS_HOST_ALL_TO_ALL_LATENCY_S if far else ALL_TO_ALL_LATENCY_S)
    if layout.pp > 1:
        streams = max(1, model.hyper_connections)
        nic += (layout.pp - 1) * hidden_bytes * streams
        hops_s = (layout.pp - 1) * STAGE_HOP_LATENCY_S
    return _Communication(
        bytes_per_token=nvlink + nic * links.nvlink_bytes_per_s / links.nic_bytes_per_s,
        latency_s=layers * per_layer_s + hops_s,
        latency_s_per_layer=per_layer_s,
    )
