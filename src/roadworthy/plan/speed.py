"""Step time of a layout from its shape and the hardware, and the latencies it means at a given load.

A roofline with achieved, not nameplate, rates. Every constant that was fitted says on what. Not modelled: queueing at
the asked rate (the twin does that), MoE load imbalance, speculative decoding, overlap of collectives with compute.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.plan.cache_groups import CacheOptions, state_bytes_per_layer, token_bytes
from roadworthy.plan.layouts import routed_experts
from roadworthy.plan.timing import RooflineStepTime, StepLoad
from roadworthy.plan.values import Layout, Predicted
from roadworthy.plan.weights import Split, split_of, stage_weights
from roadworthy.spec.model import GqaAttention, KdaAttention, Layer, MlaAttention, ModelSpec, V4Attention

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import ClusterSpec, Sla

HBM_ACHIEVED_RATIO = 0.81
"""Slope of decode time against bytes read, Llama-3.1-8B on H200: TPOT 4.88 to 7.07 ms for 15.0 to 23.7 GB."""
NVLINK_ACHIEVED_RATIO = 0.67
"""All-reduce bus bandwidth of 301 GB/s against 450 GB/s a direction, two H200."""
NIC_ACHIEVED_RATIO = 0.8
"""Assumed, not measured."""
NIC_DEFAULT_BYTES_PER_S = 50e9
"""One 400 Gb/s NIC a GPU, when the document names none."""
REQUEST_OVERHEAD_S = 0.010
"""Tokenising, scheduling and the first response: Llama-3.1-8B's 1,024-token prompt took 35.8 ms of which 25 compute."""
ALL_REDUCE_LATENCY_S, CROSS_HOST_ALL_REDUCE_LATENCY_S = 20e-6, 75e-6
ALL_TO_ALL_LATENCY_S, CROSS_HOST_ALL_TO_ALL_LATENCY_S = 30e-6, 150e-6
STAGE_HOP_LATENCY_S = 30e-6
"""Small-message latencies inside CUDA graphs: assumed, chosen with the launch costs below so that the anchors hold."""
CPU_STEP_S = 5e-3
"""A step of a tiny model on a CPU: assumed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """What a family achieves: fixed cost of a layer a step (and the extra where a prompt is part of it, outside the
    decode CUDA graphs), share of nameplate compute, and how far that may be off."""

    launch_s_per_layer: float
    prefill_launch_s_per_layer: float
    compute_ratio: float
    error_band: float
    source: str


CALIBRATIONS = {
    "llama": Calibration(
        launch_s_per_layer=31e-6, prefill_launch_s_per_layer=0.0, compute_ratio=0.65, error_band=0.15,
        source="roofline fitted to Llama-3.1-8B on one H200 (vLLM 0.26)",
    ),
    "kimi_linear": Calibration(
        launch_s_per_layer=89e-6, prefill_launch_s_per_layer=2e-3, compute_ratio=0.46, error_band=0.30,
        source="roofline fitted to Kimi-Linear on one H200 (vLLM 0.26, dummy weights)",
    ),
    "qwen3_moe": Calibration(
        launch_s_per_layer=60e-6, prefill_launch_s_per_layer=0.4e-3, compute_ratio=0.30, error_band=0.40,
        source="roofline, launch cost assumed between Llama's and Kimi-Linear's; not measured",
    ),
    "deepseek_v3": Calibration(
        launch_s_per_layer=89e-6, prefill_launch_s_per_layer=0.5e-3, compute_ratio=0.30, error_band=0.40,
        source="roofline, launch cost assumed as Kimi-Linear's; not measured",
    ),
    "deepseek_v4": Calibration(
        launch_s_per_layer=200e-6, prefill_launch_s_per_layer=0.35e-3, compute_ratio=0.25, error_band=0.35,
        source="roofline, launch cost and compute set by public 8xH200 figures (TPOT 29-30 ms at 15 streams, 623 ms "
        "to the first token of 8k); not measured here",
    ),
    "kimi_k3": Calibration(
        launch_s_per_layer=180e-6, prefill_launch_s_per_layer=0.35e-3, compute_ratio=0.20, error_band=0.45,
        source="roofline, launch cost set by aiconfigurator's 32xH100 estimates; not measured",
    ),
}  # fmt: skip
"""Anchors: gpu_measured.json, and public V4-Pro and K3 figures; tests/unit/plan/test_speed.py recomputes them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Links:
    """Achieved rate of one direction of one GPU's links."""

    nvlink_bytes_per_s: float
    nic_bytes_per_s: float


def links_of(cluster: ClusterSpec, gpu: Gpu) -> Links:
    """What the document says of the links, or the catalog and :data:`NIC_DEFAULT_BYTES_PER_S`."""
    both = gpu.nvlink_bytes_per_s if cluster.nvlink_bytes_per_s is None else cluster.nvlink_bytes_per_s
    nics = sum(nic.count * nic.rate_bytes_per_s for nic in cluster.nics) / cluster.gpus_per_node
    nic = (nics or NIC_DEFAULT_BYTES_PER_S) * NIC_ACHIEVED_RATIO
    # without NVLink, GPUs of a host meet over PCIe, for which the NIC's rate is a fair stand-in
    return Links(nvlink_bytes_per_s=both / 2 * NVLINK_ACHIEVED_RATIO or nic, nic_bytes_per_s=nic)


def step_time_of(
    model: ModelSpec, layout: Layout, cluster: ClusterSpec, gpu: Gpu, *, cache: CacheOptions, context_tokens: float
) -> RooflineStepTime:
    """The analytic step time of one data-parallel rank of ``layout``.

    Args:
        context_tokens: mean context, which bounds how many entries V4's top-k reads.
    """
    calibration, links = CALIBRATIONS[model.family], links_of(cluster, gpu)
    split = split_of(tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep)
    whole = range(model.num_layers)
    weights = stage_weights(model, split=split, layers=whole).parameters
    wide = stage_weights(replace(model, linear_format="bf16", expert_format="bf16"), split=split, layers=whole)
    moe = routed_experts(model)
    pick = moe.experts_per_token / moe.experts if moe else 0.0
    layer_parameters = {name: size / 2 for name, size in wide.parameters.items() if name not in _NOT_PER_TOKEN}
    routed = layer_parameters.pop("routed_experts", 0.0)
    comm = _communication(model, layout, cluster, links)
    on_cpu = gpu.id == "cpu"
    return RooflineStepTime(
        pipeline_stages=layout.pp,
        launch_s=CPU_STEP_S if on_cpu else calibration.launch_s_per_layer * model.num_layers,
        fixed_weight_bytes=float(sum(size for name, size in weights.items() if name not in _NOT_READ)),
        expert_weight_bytes=float(weights.get("routed_experts", 0)),
        expert_pick_ratio=pick,
        kv_bytes_per_context_token=sum(_kv_read_bytes(model, index, layout.tp, cache) for index in whole),
        state_bytes_per_sequence=_state_read_bytes(model, layout.tp, cache, context_tokens),
        flops_per_token=2 * (sum(layer_parameters.values()) + routed * pick * layout.dp),
        flops_per_context_pair=sum(_pair_flops(layer, split) for layer in model.layers),
        hbm_bytes_per_s=gpu.hbm_bytes_per_s * HBM_ACHIEVED_RATIO,
        flops_per_s=_flops_per_s(model, gpu) * calibration.compute_ratio,
        comm_bytes_per_token=comm.bytes_per_token,
        link_bytes_per_s=links.nvlink_bytes_per_s or 1.0,
        comm_latency_s=0.0 if on_cpu else comm.latency_s,
        prefill_launch_s=0.0 if on_cpu else calibration.prefill_launch_s_per_layer * model.num_layers,
        expert_batch_ranks=layout.dp if layout.ep > 1 else 1,
    )


_NOT_READ = frozenset({"routed_experts", "embedding", "vision_tower", "mm_projector"})
_NOT_PER_TOKEN = frozenset({"embedding", "lm_head", "vision_tower", "mm_projector", "norm", "mhc"})


def _flops_per_s(model: ModelSpec, gpu: Gpu) -> float:
    """Nameplate compute in the format the matrix units work in: FP8 when weights are, else BF16 (FP4 is unpacked)."""
    native_fp8 = model.linear_format.startswith("fp8") and model.expert_format.startswith("fp8")
    rates = gpu.dense_flops_per_s
    return rates.get("fp8" if native_fp8 else "bf16") or rates.get("bf16") or max(rates.values())


def _kv_read_bytes(model: ModelSpec, index: int, tp: int, cache: CacheOptions) -> float:
    """Bytes a decode step reads for each token of context in one layer on one rank."""
    attention = model.layers[index].attention
    if isinstance(attention, KdaAttention):
        return 0.0
    if isinstance(attention, V4Attention):
        entry = 2 * attention.head_dim if cache.kv_dtype == "bfloat16" else attention.head_dim + 72
        if attention.compress_ratio == 4:
            return (attention.index_head_dim + 4) / 4  # every index key; of the content only the top-k
        return entry / attention.compress_ratio if attention.compress_ratio else 0.0
    return float(token_bytes(model, index, tp, cache))


def _state_read_bytes(model: ModelSpec, tp: int, cache: CacheOptions, context_tokens: float) -> float:
    """Bytes a decode step moves for a sequence whatever its context; the step model counts them twice."""
    total = 0.0
    for layer in model.layers:
        attention = layer.attention
        if isinstance(attention, KdaAttention):
            total += state_bytes_per_layer(attention, tp=tp, state_dtype=cache.state_dtype)
        elif isinstance(attention, V4Attention):
            entries = min(context_tokens, attention.window_tokens)
            if attention.compress_ratio == 4:
                entries += min(context_tokens / 4, attention.index_topk)
            total += entries * (attention.head_dim + 72) / 2  # read only
    return total


def _pair_flops(layer: Layer, split: Split) -> float:
    """Attention FLOPs for one (token, context token) pair in one layer on one rank."""
    attention = layer.attention
    if isinstance(attention, KdaAttention):
        return 0.0
    heads = attention.heads / split.tp
    if isinstance(attention, GqaAttention):
        return 4 * attention.head_dim * heads
    if isinstance(attention, MlaAttention):
        query = attention.qk_nope_head_dim + attention.qk_rope_head_dim
        return 2 * (query + attention.v_head_dim) * heads
    if attention.compress_ratio == 4:
        return 2 * attention.index_heads * attention.index_head_dim / 4
    return 4 * attention.head_dim * heads / attention.compress_ratio if attention.compress_ratio else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Communication:
    bytes_per_token: float
    latency_s: float


def _communication(model: ModelSpec, layout: Layout, cluster: ClusterSpec, links: Links) -> _Communication:
    """Bytes over NVLink and NIC, the latter weighed by how much slower it is, and latencies of a step."""
    hidden_bytes, layers = 2 * model.hidden_size, model.num_layers
    nvlink, nic, latency_s = 0.0, 0.0, 0.0
    crosses = layout.tp > cluster.gpus_per_node
    if layout.tp > 1:
        reduced = 2 * layers * hidden_bytes * 2 * (layout.tp - 1) / layout.tp
        nvlink, nic = (0.0, reduced) if crosses else (reduced, 0.0)
        latency_s += 2 * layers * (CROSS_HOST_ALL_REDUCE_LATENCY_S if crosses else ALL_REDUCE_LATENCY_S)
    if layout.dp > 1:
        local = max(1, min(layout.dp, cluster.gpus_per_node // layout.tp))
        far = layout.dp - local
        exchanged = 2 * layers * hidden_bytes
        nvlink += exchanged * (local - 1)
        nic += exchanged * far
        latency_s += 2 * layers * (CROSS_HOST_ALL_TO_ALL_LATENCY_S if far else ALL_TO_ALL_LATENCY_S)
    if layout.pp > 1:
        streams = max(1, model.hyper_connections)
        nic += (layout.pp - 1) * hidden_bytes * streams
        latency_s += (layout.pp - 1) * STAGE_HOP_LATENCY_S
    return _Communication(
        bytes_per_token=nvlink + nic * links.nvlink_bytes_per_s / links.nic_bytes_per_s, latency_s=latency_s
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Steady state of one data-parallel rank with ``concurrency`` requests in flight."""

    concurrency: float
    rate_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float


def operating_point(
    step: RooflineStepTime, demand: Demand, *, concurrency: float, max_num_batched_tokens: int
) -> OperatingPoint:
    """Latencies and rate with ``concurrency`` requests in flight (Little's law as a fixed point).

    In the time of one walk through all stages every request gains a token and the arriving prompts are computed;
    a new request waits for the stage's running step, then its prompt passes the stages chunk by chunk.
    """
    stages = step.pipeline_stages
    tokens_max = float(max_num_batched_tokens)
    rate = 0.0
    for _ in range(6):
        tpot = _walk_s(step, demand, concurrency, rate, tokens_max)
        ttft = _ttft_s(step, demand, concurrency, demand.prompt_mean, tpot / stages / 2, 0.0, tokens_max)
        asked = concurrency / (ttft + max(demand.output_mean - 1, 0) * tpot)
        rate = asked if rate == 0 else (rate + asked) / 2
    tpot = _walk_s(step, demand, concurrency, rate, tokens_max)
    busy = concurrency + 2.33 * math.sqrt(concurrency)
    tpot_p99 = _walk_s(step, demand, busy, rate * busy / max(concurrency, 1e-9), tokens_max)
    beside = rate * tpot / stages  # other prompts that arrive for the same step
    crowd = (beside + 2.33 * math.sqrt(beside)) * demand.prompt_mean
    return OperatingPoint(
        concurrency=concurrency,
        rate_per_s=rate,
        ttft_p50_s=_ttft_s(step, demand, concurrency, demand.prompt_p50, tpot / stages / 2, 0.0, tokens_max),
        ttft_p99_s=_ttft_s(step, demand, busy, demand.prompt_p99, tpot_p99 / stages, crowd, tokens_max),
        tpot_p50_s=tpot,
        tpot_p99_s=tpot_p99,
    )


def _walk_s(step: RooflineStepTime, demand: Demand, concurrency: float, rate: float, tokens_max: float) -> float:
    """Mean seconds of one walk in steady state, steps with and without a piece of a prompt taken together.

    Mixing comes after the step times, not before: a batch that meets one prompt reads nearly all experts, so a mean
    batch would read too many.
    """
    stages = step.pipeline_stages
    pieces = max(1, math.ceil(demand.prompt_mean / tokens_max))
    piece = demand.prompt_mean / pieces
    decode = StepLoad(
        decode_sequences=max(1, round(concurrency / stages)),
        decode_context_tokens=round(concurrency / stages * demand.context_mean),
    )
    alone = step.step_s(decode)
    beside = step.step_s(_with_prompt(decode, piece, demand.prompt_mean / 2))
    # share of steps with a piece: share = arrivals in the time of a step = rate * pieces * walk / stages
    arrivals = rate * pieces / stages
    slope = arrivals * (beside - alone)
    walk = alone / (1 - slope) if slope < 1 else math.inf
    if arrivals * walk <= 1:
        return walk
    walk = beside
    for _ in range(3):  # several pieces in each step
        together = min(arrivals * walk, tokens_max / piece) * piece
        walk = step.step_s(_with_prompt(decode, together, demand.prompt_mean / 2))
    return walk


def _with_prompt(decode: StepLoad, tokens: float, context: float) -> StepLoad:
    return StepLoad(
        prefill_tokens=max(1, round(tokens)),
        prefill_context_tokens=round(tokens * context),
        decode_sequences=decode.decode_sequences,
        decode_context_tokens=decode.decode_context_tokens,
    )


def _ttft_s(
    step: RooflineStepTime, demand: Demand, concurrency: float, prompt: float, wait_s: float, crowd: float,
    tokens_max: float,
) -> float:  # fmt: skip
    total, done = wait_s + REQUEST_OVERHEAD_S, 0.0
    prompt += crowd
    while done < prompt:
        chunk = min(tokens_max, prompt - done)
        load = StepLoad(
            prefill_tokens=max(1, round(chunk)),
            prefill_context_tokens=round(chunk * (done + chunk / 2)),
            decode_sequences=round(concurrency / step.pipeline_stages),
            decode_context_tokens=round(concurrency / step.pipeline_stages * demand.context_mean),
        )
        # chunks of one prompt follow each other through the pipeline: the walk once, then one stage each
        total += step.step_s(load) if done == 0 else step.step_s(load) / step.pipeline_stages
        done += chunk
    return total


def predict(
    step: RooflineStepTime, demand: Demand, sla: Sla, *, model: ModelSpec, layout: Layout, concurrency_max: int,
    max_num_batched_tokens: int,
) -> Predicted:  # fmt: skip
    """What one replica does at its share of the asked rate, and the most it does within the SLA.

    Args:
        concurrency_max: requests one data-parallel rank can hold at the workload's mean context.
    """

    def at(concurrency: float) -> OperatingPoint:
        return operating_point(step, demand, concurrency=concurrency, max_num_batched_tokens=max_num_batched_tokens)

    ceiling = float(max(1, concurrency_max))
    share = demand.rate_per_s / (layout.replicas * layout.dp)
    full = at(ceiling)
    saturated = full.rate_per_s < share
    point = full if saturated else _bisect(at, ceiling, lambda found: found.rate_per_s >= share, upper=True)
    best = full
    if not _meets(full, sla):
        best = _bisect(at, ceiling, lambda found: not _meets(found, sla), upper=False)
        if not _meets(best, sla):
            best = full
    calibration = CALIBRATIONS[model.family]
    return Predicted(
        ttft_p50_s=point.ttft_p50_s,
        ttft_p99_s=point.ttft_p99_s,
        tpot_p50_s=point.tpot_p50_s,
        tpot_p99_s=point.tpot_p99_s,
        output_tokens_per_s=point.rate_per_s * demand.output_mean * layout.dp,
        source=calibration.source + "; before queueing",
        error_band=calibration.error_band,
        concurrency=point.concurrency * layout.dp,
        request_rate_per_s=point.rate_per_s * layout.dp,
        saturated=saturated,
        capacity_tokens_per_s=best.rate_per_s * demand.output_mean * layout.dp,
        meets_sla=_promises(sla) and _meets(point, sla) and not saturated if _promises(sla) else None,
    )


def _promises(sla: Sla) -> bool:
    return sla.ttft_p99_s is not None or sla.tpot_p99_s is not None


def _meets(point: OperatingPoint, sla: Sla) -> bool:
    return (sla.ttft_p99_s is None or point.ttft_p99_s <= sla.ttft_p99_s) and (
        sla.tpot_p99_s is None or point.tpot_p99_s <= sla.tpot_p99_s
    )


def _bisect(
    at: Callable[[float], OperatingPoint],
    ceiling: float,
    above: Callable[[OperatingPoint], bool],
    *,
    upper: bool,
) -> OperatingPoint:
    """The operating point where ``above`` turns true as concurrency grows; the side of it that ``upper`` says."""
    low, high = 1e-3, ceiling
    for _ in range(14):
        middle = math.sqrt(low * high)
        if above(at(middle)):
            high = middle
        else:
            low = middle
    return at(high if upper else low)
