"""The search: every layout judged for memory and speed, best first, each loser with its reasons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.catalog.engines import sequences_ceiling
from roadworthy.catalog.links import to_host
from roadworthy.core.units import GIB, format_bytes, format_gib
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.cache_groups import cache_layout, in_flight_tokens
from roadworthy.plan.layouts import Pins, candidate_layouts, routed_experts, why_not_built
from roadworthy.plan.memory import Pool, pool_of
from roadworthy.plan.operating import predict
from roadworthy.plan.overhead import (
    ASSUMED_BAND_BYTES,
    ASSUMED_TOTAL_BYTES,
    MEASURED_FAMILIES,
    Overhead,
    overhead,
)
from roadworthy.plan.ranking import ranked
from roadworthy.plan.settings import (
    UTILISATION_MAX_RATIO,
    Fixed,
    Knobs,
    choices,
    context_tokens,
    fixed_settings,
    sequences,
    settings_of,
)
from roadworthy.plan.speculation import with_draft_layer
from roadworthy.plan.speed import Traffic, calibration_of, step_time_of
from roadworthy.plan.startup import (
    StartupCase,
    budget_refusals,
    growing_scratch,
    refusals,
    scratch_refusals,
)
from roadworthy.plan.startup_warnings import warnings
from roadworthy.plan.values import Layout, LayoutPlan, Plan, Predicted
from roadworthy.plan.weights import StageWeights, checkpoint_totals, stage_weights
from roadworthy.plan.workload import Demand, Prefixes, demand_of

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.timing import RooflineStepTime
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment

COMFORTABLE_CONCURRENCY = 2.0
"""Full-length requests that the start-up check should admit before a larger token budget is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    """What every layout is judged against."""

    deployment: Deployment
    model: ModelSpec
    gpu: Gpu
    pins: Pins
    fixed: Fixed
    max_model_len_tokens: int
    startup: StartupCase


def make_plan(deployment: Deployment, model: ModelSpec, gpu: Gpu) -> Plan:
    """Every layout of ``model`` on the deployment's cluster, best first.

    Best is: fits, meets the SLA at the asked rate, then most output tokens a second and GPU at the highest load within
    the SLA; where none meets it, those that carry the asked rate and miss by least. Layouts that the speed model cannot
    tell apart go by wider tensor parallelism, then by KV capacity. Those that do not fit stand last, nearest first.

    Raises:
        SpecError: engine settings or context length that cannot be.
        Unsupported: a cache that is not known here.
    """
    case = _case_of(deployment, model, gpu)
    layouts = [_judge(case, layout) for layout in _layouts(case)]
    totals = checkpoint_totals(model)
    return Plan(
        model=model,
        weights_bytes_total=totals.bytes,
        assumptions=_assumptions(case),
        layouts=ranked(layouts, deployment.sla),
    )


def _case_of(deployment: Deployment, model: ModelSpec, gpu: Gpu) -> _Case:
    fixed = fixed_settings(deployment, model, gpu)
    return _Case(
        deployment=deployment,
        model=model,
        gpu=gpu,
        pins=Pins.of(deployment.engine.settings),
        fixed=fixed,
        max_model_len_tokens=context_tokens(fixed, deployment.workload, model),
        startup=StartupCase.of(deployment, model, gpu),
    )


def check_settings(deployment: Deployment, model: ModelSpec, gpu: Gpu) -> None:
    """Raise SpecError for what :func:`make_plan` would refuse before it looks at a single layout."""
    _case_of(deployment, model, gpu)


def judge_layout(deployment: Deployment, model: ModelSpec, gpu: Gpu, layout: Layout) -> LayoutPlan:
    """One layout judged as :func:`make_plan` judges all. Raises the same errors."""
    return _judge(_case_of(deployment, model, gpu), layout)


def _layouts(case: _Case) -> Sequence[Layout]:
    cluster = case.deployment.cluster
    if case.gpu.id == "cpu" and case.pins == Pins():  # one engine a core set: nothing is split on a CPU unasked
        return [Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(case.model.num_layers,), replicas=cluster.gpus)]
    return list(candidate_layouts(case.model, cluster, case.pins))


def _judge(case: _Case, layout: Layout) -> LayoutPlan:
    """Built at all, then memory and speed, then what start-up would still stumble over."""
    reasons = why_not_built(case.model, layout, case.deployment.cluster, case.gpu, case.pins)
    reasons += refusals(case.startup, layout)
    if reasons:
        return _refused(layout, reasons)
    judged = _measured(case, layout)
    scratch = None
    if not case.fixed.scratch_capped:
        scratch = growing_scratch(
            case.startup, layout, block_tokens=judged.cache.block_tokens,
            max_model_len_tokens=case.max_model_len_tokens, max_num_seqs=case.fixed.max_num_seqs,
        )  # fmt: skip
    against = budget_refusals(case.startup, judged) + scratch_refusals(case.startup, judged, scratch)
    if against:
        judged = replace(judged, feasible=False, reasons=(*against, *judged.reasons))
    return replace(judged, warnings=warnings(case.startup, judged, scratch))


def _measured(case: _Case, layout: Layout) -> LayoutPlan:
    cached_model, stage_layers = with_draft_layer(case.startup.speculation, case.model, layout.stage_layers)
    cache = cache_layout(cached_model, tp=layout.tp, stage_layers=stage_layers, options=case.fixed.cache)
    weights = _weights(case, layout)
    demand = _demand(case, cache)
    step = step_time_of(
        case.model, layout, case.deployment.cluster, case.gpu, cache=case.fixed.cache,
        traffic=Traffic(
            context_tokens=demand.context_mean, expert_skew=case.deployment.workload.expert_skew
        ),
        speculation=case.startup.speculation, redundant_experts=case.startup.redundant_experts,
    )  # fmt: skip
    if case.startup.offload_bytes:
        hosted = sum(-stage.buffers.get("cpu_offload", 0) for stage in weights)
        step = replace(step, launch_s=step.launch_s + hosted / to_host(case.gpu).achieved_bytes_per_s)
    knobs, pool = _settled(case, layout, cache, weights)
    if pool.feasible is False:
        return _plan_of(case, layout, cache, knobs, pool, concurrency=0.0, holds=0)

    limit = case.fixed.max_num_seqs or sequences_ceiling()
    pieces = demand.pieces_mean(knobs.max_num_batched_tokens)
    holds = _holds(demand, cache, pool)
    forecast = _forecast(case, layout, step, demand, knobs, min(holds, limit))
    if demand.cached_mean and case.deployment.workload.sessions.turns > 1:
        kept = round(_kept_ratio(case, layout, demand, cache, pool, forecast), 2)
        if kept < 1:
            demand = _demand(case, cache, kept_ratio=kept)
            forecast = _forecast(case, layout, step, demand, knobs, min(holds, limit))
    if case.fixed.max_num_seqs is None:
        wanted = sequences(forecast.concurrency / layout.dp, holds, stages=layout.pp, pieces=pieces)
        knobs = replace(knobs, max_num_seqs=wanted)
        pool = _pool(case, layout, cache, knobs, weights)
        before, holds = holds, _holds(demand, cache, pool)
        if min(before, limit) != min(holds, limit):
            forecast = _forecast(case, layout, step, demand, knobs, min(holds, limit))
    judged = _plan_of(
        case, layout, cache, knobs, pool, concurrency=forecast.concurrency / layout.dp, holds=holds, pieces=pieces
    )
    return replace(judged, predicted=forecast, step_time=step, demand=demand, scheduled_ahead=_scheduled_ahead(case))


def _demand(case: _Case, cache: CacheLayout, *, kept_ratio: float = 1.0) -> Demand:
    """The workload as the layout's prefix cache leaves it."""
    prefixes = None
    if case.fixed.cache.prefix_caching:
        prefixes = Prefixes(unit_tokens=cache.unit_tokens, kept_ratio=kept_ratio)
    return demand_of(
        case.deployment.workload, prefixes=prefixes, max_model_len_tokens=case.max_model_len_tokens
    )  # fmt: skip


def _kept_ratio(
    case: _Case, layout: Layout, demand: Demand, cache: CacheLayout, pool: Pool, forecast: Predicted
) -> float:
    """Conversations whose cached blocks outlive the pause before the next turn, least recently used going first.

    What running requests leave of the pool turns over once in the time in which the finished ones bring as many tokens;
    pauses are exponential.
    """
    pause_s = case.deployment.workload.sessions.think_time_s
    running = forecast.concurrency / layout.dp * cache.held_blocks(round(demand.context_mean))
    spare_tokens = max(0.0, pool.blocks - 1 - running) / cache.unit_blocks * cache.unit_tokens
    rate = min(demand.rate_per_s / (layout.replicas * layout.dp), forecast.request_rate_per_s / layout.dp)
    brought = rate * (demand.prompt_mean + demand.output_mean) * pause_s
    return 1 - math.exp(-spare_tokens / brought) if brought > 0 else 1.0


def _holds(demand: Demand, cache: CacheLayout, pool: Pool) -> int:
    """Requests of the workload's mean context that one pool holds."""
    return max(0, pool.blocks - 1) // cache.held_blocks(round(demand.context_mean))


def _forecast(
    case: _Case, layout: Layout, step: RooflineStepTime, demand: Demand, knobs: Knobs, concurrency_max: int
) -> Predicted:
    return predict(
        step,
        demand,
        case.deployment.sla,
        calibration=calibration_of(case.model, case.gpu),
        layout=layout,
        concurrency_max=concurrency_max,
        max_num_batched_tokens=knobs.max_num_batched_tokens,
        scheduled_ahead=_scheduled_ahead(case),
    )


def _scheduled_ahead(case: _Case) -> bool:
    """Whether vLLM schedules asynchronously, as it does by itself on GPUs (seen with 0.26; in a pipeline by the source
    of 0.32 and 0.33 with the V2 model runner, the default for every model there), but not on the CPU."""
    wanted = case.deployment.engine.settings.get("async_scheduling", True) is not False
    return wanted and case.gpu.id != "cpu"


def _settled(case: _Case, layout: Layout, cache: CacheLayout, weights: Sequence[StageWeights]) -> tuple[Knobs, Pool]:
    """The first settings under which the layout fits comfortably, else those that come nearest."""
    tried: list[tuple[tuple[float, ...], Knobs, Pool]] = []
    every = choices(case.fixed, case.model, case.gpu, max_model_len_tokens=case.max_model_len_tokens)
    if case.fixed.kv_pool_bytes is None:
        # the last has most memory and asks least of it: where that does not fit, none does, and none comes nearer
        pool = _pool(case, layout, cache, every[-1], weights)
        if pool.feasible is False:
            return every[-1], pool
    for knobs in every:
        pool = _pool(case, layout, cache, knobs, weights)
        admitted = _max_concurrency(case, layout, cache, knobs, pool)
        if pool.feasible is True and admitted >= COMFORTABLE_CONCURRENCY:
            return knobs, pool
        order = {True: 0, "uncertain": 1, False: 2}[pool.feasible]
        # a higher utilisation is worth less than what it leaves for what start-up does not see
        tried.append(((order, pool.short_by_bytes, knobs.utilisation_ratio, -admitted), knobs, pool))
    _, knobs, pool = min(tried, key=lambda entry: entry[0])
    return knobs, pool


def _request_blocks(case: _Case, layout: Layout, cache: CacheLayout, knobs: Knobs) -> int:
    in_flight = in_flight_tokens(pp=layout.pp, max_num_batched_tokens=knobs.max_num_batched_tokens)
    return cache.admission_blocks(case.max_model_len_tokens, in_flight)


def _max_concurrency(case: _Case, layout: Layout, cache: CacheLayout, knobs: Knobs, pool: Pool) -> float:
    return pool.blocks / _request_blocks(case, layout, cache, knobs)


def _pool(case: _Case, layout: Layout, cache: CacheLayout, knobs: Knobs, weights: Sequence[StageWeights]) -> Pool:
    return pool_of(
        layout,
        case.gpu,
        weights=weights,
        overheads=_overheads(case, layout, cache, knobs),
        cache=cache,
        utilisation_ratio=knobs.utilisation_ratio,
        kv_pool_bytes=knobs.kv_pool_bytes,
        request_blocks=_request_blocks(case, layout, cache, knobs),
        request_tokens=case.max_model_len_tokens,
    )  # fmt: skip


def _overheads(case: _Case, layout: Layout, cache: CacheLayout, knobs: Knobs) -> list[Overhead]:
    """Of each stage; stages of equally many layers share one, the last apart."""
    known: dict[tuple[int, bool], Overhead] = {}
    stages = []
    for stage, layers in enumerate(layout.stage_layers):
        kind = layers, stage == layout.pp - 1
        if kind not in known:
            known[kind] = overhead(
                case.model, layout, case.gpu, stage=stage, block_tokens=cache.block_tokens,
                max_model_len_tokens=knobs.max_model_len_tokens, max_num_seqs=knobs.max_num_seqs,
                max_num_batched_tokens=knobs.max_num_batched_tokens, cuda_graphs=knobs.fixed.cuda_graphs,
                scratch_capped=knobs.fixed.scratch_capped,
            )  # fmt: skip
        stages.append(known[kind])
    return stages


def _weights(case: _Case, layout: Layout) -> tuple[StageWeights, ...]:
    split, start, stages = case.startup.split(layout), 0, []
    for count in layout.stage_layers:
        layers = range(start, start + count)
        loaded = stage_weights(case.model, split=split, layers=layers, state_dtype=case.fixed.cache.state_dtype)
        stages.append(case.startup.beside(loaded, split=split, layers=layers))
        start += count
    return tuple(stages)


def _plan_of(
    case: _Case, layout: Layout, cache: CacheLayout, knobs: Knobs, pool: Pool, *, concurrency: float, holds: int,
    pieces: float = 1.0,
) -> LayoutPlan:  # fmt: skip
    length = case.max_model_len_tokens
    most = _max_concurrency(case, layout, cache, knobs, pool)
    resident = max(0, pool.blocks - 1) // cache.held_blocks(length)
    return LayoutPlan(
        layout=layout,
        feasible=pool.feasible,
        reasons=pool.reasons,
        short_by_bytes=pool.short_by_bytes,
        ranks=pool.ranks,
        tightest_rank=pool.tightest_rank,
        cache=cache,
        kv_blocks=pool.blocks,
        kv_capacity_tokens=int(most * length),
        max_concurrency=most,
        kv_resident_tokens=resident * length,
        resident_requests=resident,
        settings=settings_of(
            knobs, case.model, layout, cache, case.gpu, concurrency=concurrency, holds=holds, pieces=pieces
        ),
        predicted=None,
        step_time=None,
    )


def _refused(layout: Layout, reasons: tuple[str, ...]) -> LayoutPlan:
    """A layout that vLLM would not build: no budget, no cache, only the reasons."""
    nothing = CacheLayout(groups=(CacheGroup(kind="full", block_tokens=1, layers=0),), bytes_per_block=(0,))
    return LayoutPlan(
        layout=layout, feasible=False, reasons=reasons, short_by_bytes=0, ranks=(), tightest_rank=0, cache=nothing,
        kv_blocks=0, kv_capacity_tokens=0, max_concurrency=0.0, kv_resident_tokens=0, resident_requests=0, settings={},
        predicted=None, step_time=None,
    )  # fmt: skip


def _assumptions(case: _Case) -> tuple[str, ...]:
    model, gpu, calibration = case.model, case.gpu, calibration_of(case.model, case.gpu)
    lines = []
    if gpu.id == "cpu":
        lines.append("host memory other than the weights and the KV pool: not modelled")
    elif model.family in MEASURED_FAMILIES:
        lines.append(
            "overhead of a rank beside weights: from shapes, held to vLLM on H200 within 0.5 GiB; band 1 GiB in "
            f"pipelines and {ASSUMED_BAND_BYTES // GIB} GiB with data-parallel attention, which were not measured"
        )
    else:
        lines.append(
            f"overhead of a rank beside weights: at least 5 GiB, 8 GiB with data-parallel attention on single GPUs, "
            f"assumed, not measured for {model.id}; band {ASSUMED_BAND_BYTES // GIB} GiB either way"
        )
    if gpu.id != "cpu":
        lines.append(f"{gpu.id} reports {format_gib(gpu.device_bytes)}; CUDA context and NCCL lie outside the budget")
    if model.family == "kimi_k3" and gpu.id != "cpu":
        lines.append(
            "a long chunked prefill of Kimi-K3 takes MLA scratch that vLLM does not set aside (0.71 GiB at TP8, less "
            "with more TP): it has to find room in what the plan calls free"
        )
    workload = case.deployment.workload
    longest = workload.prompt_tokens.p99 + workload.output_tokens.p99
    if longest > case.max_model_len_tokens:
        lines.append(
            f"requests beyond the context of {case.max_model_len_tokens:,} tokens are refused by the engine: a 99th "
            f"percentile prompt and answer take {longest:,}"
        )
    lines.extend(_speculation_lines(case))
    if model.vision is not None:
        lines.append("the vision tower is loaded; --language-model-only would drop it")
    lines.append(f"speed: {calibration.source}; error band {calibration.error_band:.0%}, before queueing")
    lines.append(_prefix_line(case))
    if routed_experts(model) is not None:
        lines.append(
            f"expert popularity falls as rank ** -{workload.expert_skew:g} (Zipf; workload.expert_skew), placed at "
            "random; with expert parallelism the fullest rank sets the pace"
            if workload.expert_skew
            else "experts are equally popular (workload.expert_skew 0); with expert parallelism the fullest rank of "
            "each batch sets the pace"
        )
    lines.append("not modelled: cross-layer overlap, hits of an offloaded KV cache, DeepEP buffers")
    if case.deployment.model.weights != "native":
        lines.append(
            f"weights: {case.deployment.model.weights} means every linear layer requantised, embedding, head, router "
            "and norms as they are" + (", Kimi's attention in BF16" if model.family.startswith("kimi") else "")
        )
    return tuple(lines)


def _speculation_lines(case: _Case) -> list[str]:
    speculation = case.startup.speculation
    if speculation is None:
        if not case.model.draft_layers:
            return []
        return ["served without speculative decoding: the draft layer of the checkpoint is not loaded"]
    if not speculation.modelled:
        return [f"speculative decoding by {speculation.method} is not modelled: memory and speed are those without it"]
    source = "assumed" if speculation.assumed else "workload.draft_acceptance"
    drafts = "1 draft" if speculation.tokens == 1 else f"{speculation.tokens} drafts"
    return [
        f"speculative decoding ({speculation.method}): {drafts} a step, each accepted with "
        f"{speculation.acceptance_ratio:.0%} after those before it ({source}): {speculation.tokens_per_step:.2f} "
        "tokens a step; times are a token's, and tokens come evenly"
    ]


def _prefix_line(case: _Case) -> str:
    workload = case.deployment.workload
    if not case.fixed.cache.prefix_caching:
        return "prefix caching is off: every prompt is computed whole"
    if workload.sessions.turns <= 1 and not workload.shared_prefix_ratio:
        return "no prompt shares a prefix with another (workload.shared_prefix, workload.sessions)"
    if workload.sessions.turns <= 1:
        return "the shared prefix of prompts is cached, in whole blocks"
    return (
        "the shared prefix and a conversation's earlier turns are cached, in whole blocks, as long as the pool keeps "
        "them; its turns go to the engine that has them"
    )


def what_would_fit(plan: Plan, gpu: Gpu, gpus: int) -> str:
    """For a plan where nothing fits: total weights against total memory, and how many GPUs the weights alone need."""
    if not any(judged.ranks for judged in plan.layouts):
        return plan.layouts[0].reasons[0] if plan.layouts else "no split of this model uses all GPUs of the cluster"
    device_total = gpus * gpu.device_bytes
    usable = gpu.device_bytes * UTILISATION_MAX_RATIO - ASSUMED_TOTAL_BYTES
    needed = -(-plan.weights_bytes_total // int(usable)) if usable > 0 else 0
    advice = f"split perfectly they need at least {needed} x {gpu.id} before any KV cache"
    if needed <= gpus:
        nearest = min((judged for judged in plan.layouts if judged.ranks), key=lambda judged: judged.short_by_bytes)
        if not nearest.reasons[0].startswith("rank"):
            return f"The nearest, {nearest.layout.label}: {nearest.reasons[0]}"
        short = format_gib(nearest.short_by_bytes)
        advice = f"the nearest split is short by {short} on its tightest rank: parts are copied and stages are uneven"
    return (
        f"Weights of {plan.weights_bytes_total:,} bytes ({format_bytes(plan.weights_bytes_total)}) against "
        f"{device_total:,} bytes ({format_bytes(device_total)}) on {gpus} x {gpu.id}; {advice}."
    )
