"""What comes up and is still worth knowing before it does: numbers, and the setting that mends it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB, format_gib
from roadworthy.plan.eplb import slot_bytes
from roadworthy.plan.layouts import routed_experts
from roadworthy.plan.operating import operating_point
from roadworthy.plan.overhead import capture_sizes
from roadworthy.plan.startup import FP8_CAPABILITY, scratch_words, stored_method
from roadworthy.plan.timing import StepLoad
from roadworthy.plan.values import StartupWarning
from roadworthy.plan.weights import Split
from roadworthy.plan.weights.mlp import expert_bytes, local_experts
from roadworthy.spec.model import MoeMlp

if TYPE_CHECKING:
    from roadworthy.plan.startup import Scratch, StartupCase
    from roadworthy.plan.values import Layout, LayoutPlan

DEEPEP_BACKENDS = ("deepep_low_latency", "deepep_high_throughput", "deepep_v2")
RETIRED_BACKENDS = ("naive", "pplx")
TIGHT_OUTSIDE_BYTES = GIB
"""Kernel workspaces outside the pool have been seen at 1.6 GiB; less than this beside the budget is worth a word."""

FRONT_REQUEST_S, FRONT_TOKEN_S = 4.5e-3, 65e-6
"""What a request and a streamed token take of an API server process of vLLM 0.26, on the slower of two H200 hosts:
fitted to one live run of each, held to others (``scripts/twin_against_gpu.py``). Prompts were of some 200 tokens."""
WORTH_A_WORD_RATIO = 1.05
FRONT_BUSY_RATIO = 0.5
"""Of an API server's time; from here on its own queue shows: at 0.75 of it 39 ms of 68 to the first token, at 0.34 12
of 28."""


def warnings(case: StartupCase, judged: LayoutPlan, scratch: Scratch | None) -> tuple[StartupWarning, ...]:
    """What would come up, and is still worth knowing before it does."""
    rules: Sequence[Iterator[StartupWarning]] = (
        _warn_scratch(case, judged, scratch), _warn_padding(case, judged), _warn_eplb(case, judged),
        _warn_lora(case, judged), _warn_graphs(case, judged), _warn_outside(case, judged), _warn_hosts(case, judged),
        _warn_formats(case), _warn_backend(case), _warn_speculation(case, judged), _warn_front(case, judged),
        _warn_batches(judged),
    )  # fmt: skip
    return tuple(warning for rule in rules for warning in rule)


def _warn_scratch(case: StartupCase, judged: LayoutPlan, scratch: Scratch | None) -> Iterator[StartupWarning]:
    if scratch is None:
        return
    chosen = judged.settings["max_num_seqs"].value
    kept = case.settings.get("max_num_seqs") is not None
    yield StartupWarning(
        code="mla_workspace",
        message=scratch_words(case, scratch) if kept else "left to its default, " + scratch_words(case, scratch),
        mend=f"max_num_seqs: {scratch.mending_sequences}" if kept else f"max_num_seqs: {chosen}, as planned",
        size_bytes=scratch.size_bytes,
    )


def _stages(layout: Layout) -> Iterator[range]:
    start = 0
    for count in layout.stage_layers:
        yield range(start, start + count)
        start += count


def _warn_padding(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    moe, layout, model = routed_experts(case.model), judged.layout, case.model
    if moe is None or layout.ep > 1 or layout.tp == 1:
        return
    split = case.split(layout)
    whole = expert_bytes(model, moe, Split())
    padding = local_experts(moe, split) * (expert_bytes(model, moe, split) - whole // layout.tp)
    count = max(sum(isinstance(model.layers[index].mlp, MoeMlp) for index in stage) for stage in _stages(layout))
    share = expert_bytes(model, moe, split) * layout.tp / whole
    if share > 1.05:
        yield StartupWarning(
            code="expert_padding",
            message=f"without expert parallelism TP{layout.tp} pads each expert's {moe.intermediate // layout.tp} "
            f"columns: {share:.2f} times the expert memory, {format_gib(padding * count)} more on a rank",
            mend="enable_expert_parallel: true",
            size_bytes=padding * count,
        )


def _warn_eplb(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    if case.eplb is None:
        return
    if not case.balances:
        yield StartupWarning(
            code="eplb_ignored",
            message=f"enable_eplb is accepted and does nothing: {case.model.architecture} registers no experts with it",
            mend="leave enable_eplb and eplb_config out",
        )
        return
    split, stages = case.split(judged.layout), list(_stages(judged.layout))
    slot = max(slot_bytes(case.model, split=split, layers=stage) for stage in stages)
    state = max(case.eplb.state_bytes(case.model, split=split, layers=stage) for stage in stages)
    slots = case.eplb.redundant // max(1, judged.layout.ep)
    yield StartupWarning(
        code="eplb_memory",
        message=f"EPLB takes {format_gib(slots * slot + state)} of a rank: {slots} more expert slots of "
        f"{format_gib(slot)} each, {format_gib(state)} of window, maps and transfer buffer",
        mend="num_redundant_experts: 0 keeps the balancing without more slots",
        size_bytes=slots * slot + state,
    )


def _warn_lora(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    if case.lora is None:
        return
    split = case.split(judged.layout)
    sizes = [case.lora.bytes_on_rank(case.model, split=split, layers=stage) for stage in _stages(judged.layout)]
    known = [size for size in sizes if size is not None]
    per = f"{case.lora.max_loras} slots of rank {case.lora.max_lora_rank}"
    if len(known) < len(sizes):
        yield StartupWarning(
            code="lora_slots",
            message=f"{per} are allocated at start-up; their size beside this attention is not modelled",
        )
        return
    yield StartupWarning(
        code="lora_slots",
        message=f"{per} take {format_gib(max(known))} of a rank from the start, whether adapters are loaded or not; "
        "graphs are captured with and without adapters",
        mend="max_loras and max_lora_rank as small as the adapters allow",
        size_bytes=max(known),
    )


def _warn_graphs(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    fixed = case.settings.get("max_num_seqs")
    if not isinstance(fixed, int) or not judged.ranks or case.settings.get("max_cudagraph_capture_size") is not None:
        return
    tightest = next(rank for rank in judged.ranks if rank.rank == judged.tightest_rank)
    if tightest.cudagraph_bytes * 8 <= tightest.kv_pool_bytes:
        return
    sizes, fewer = capture_sizes(fixed), capture_sizes(32)
    if len(sizes) <= len(fewer):
        return
    saved = tightest.cudagraph_bytes * (len(sizes) - len(fewer)) // len(sizes)
    yield StartupWarning(
        code="cuda_graphs",
        message=f"max_num_seqs {fixed} captures {len(sizes)} graph sizes, {format_gib(tightest.cudagraph_bytes)} "
        f"beside a pool of {format_gib(tightest.kv_pool_bytes)}",
        mend=f"max_cudagraph_capture_size: 64 captures {len(fewer)} and frees {format_gib(saved)}; larger batches then "
        "run without graphs",
        size_bytes=tightest.cudagraph_bytes,
    )


def _warn_outside(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    if case.gpu.id == "cpu" or not judged.ranks or case.settings.get("gpu_memory_utilization") is None:
        return
    free = min(rank.free_bytes for rank in judged.ranks)
    if 0 <= free < TIGHT_OUTSIDE_BYTES:
        yield StartupWarning(
            code="tight_outside",
            message=f"{format_gib(free)} stay free beside budget, CUDA context and NCCL; kernel workspaces that "
            "start-up does not see (1.6 GiB reported for some MXFP4 kernels) come out of it",
            mend="a lower gpu_memory_utilization",
            size_bytes=free,
        )


def _warn_hosts(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    layout, step, forecast = judged.layout, judged.step_time, judged.predicted
    if layout.tp <= case.gpus_per_node or step is None or forecast is None:
        return
    running = max(1, round(forecast.concurrency / layout.dp / layout.pp))
    load = StepLoad(decode_sequences=running)
    comm_s = step.step_s(load) - replace(step, comm_latency_s=0.0, comm_bytes_per_token=0.0).step_s(load)
    yield StartupWarning(
        code="tp_across_hosts",
        message=f"TP{layout.tp} spans {layout.tp // case.gpus_per_node} hosts: the all-reduces of every layer cross "
        f"the NICs, {comm_s * 1e3:.1f} ms of each decode step at {running} requests",
        mend=f"tensor_parallel_size: {case.gpus_per_node} with pipeline stages, or independent replicas",
    )


def _warn_formats(case: StartupCase) -> Iterator[StartupWarning]:
    asked, stored, gpu = case.settings.get("quantization"), stored_method(case.model), case.gpu
    if gpu.id == "cpu":
        return
    if isinstance(asked, str) and asked != stored:
        if case.model.family == "deepseek_v4":
            yield StartupWarning(
                code="quantization_ignored",
                message=f"quantization {asked} is ignored: V4 always resolves to deepseek_v4_fp8",
                mend="leave it out",
            )
        else:
            yield StartupWarning(
                code="quantised_at_load",
                message=f"quantization {asked} converts BF16 weights while loading; the plan counts them as stored",
                mend="model.weights: fp8 plans the converted weights",
            )
    if "fp8" in case.model.linear_format and gpu.compute_capability < FP8_CAPABILITY:
        yield StartupWarning(
            code="weight_only", message=f"{gpu.id} has no FP8 arithmetic: FP8 weights save memory, not time"
        )
    kind = str(case.settings.get("kv_cache_dtype"))
    if kind.startswith("fp8") and gpu.compute_capability < FP8_CAPABILITY:
        yield StartupWarning(
            code="fp8_cache",
            message=f"an FP8 cache on {gpu.id} needs FlashInfer in the image; the Triton kernels have FP8 from SM89 on",
            mend="kv_cache_dtype: auto",
        )


def _warn_backend(case: StartupCase) -> Iterator[StartupWarning]:
    backend = case.settings.get("all2all_backend")
    if backend in DEEPEP_BACKENDS:
        limits = "; its defaults drop to 256 tokens and 256 sequences" if backend == "deepep_low_latency" else ""
        yield StartupWarning(
            code="deepep",
            message=f"all2all_backend {backend} asserts on the package deep_ep, which no vLLM wheel brings{limits}; "
            "its buffers are not modelled",
            mend="prove `import deep_ep` in the image first",
        )
    elif backend in RETIRED_BACKENDS:
        yield StartupWarning(
            code="retired_backend",
            message=f"all2all_backend {backend} falls back to allgather_reducescatter with a warning",
            mend="leave it out",
        )


def _warn_speculation(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    """A drafter that is not known here, and one that slows the workload down."""
    speculation, forecast, step = case.speculation, judged.predicted, judged.step_time
    if speculation is None or step is None or forecast is None or judged.demand is None:
        return
    if not speculation.modelled:
        yield StartupWarning(
            code="speculation_not_modelled",
            message=f"speculative_config: the memory and the speed of {speculation.method} are not modelled; the plan "
            "is that without it",
            mend="keep gpu_memory_utilization low enough for the drafter's weights and cache",
        )
        return
    sequences = max(1.0, forecast.concurrency / judged.layout.dp / judged.layout.pp)
    context = sequences * judged.demand.context_mean
    plain_s = replace(step, draft_tokens=0).seconds(0, 0, sequences, context)
    if step.seconds(0, 0, sequences, context) > plain_s:
        needed = step.real_step()(0, 0, sequences, context) / plain_s
        yield StartupWarning(
            code="speculation_slower",
            message=f"at {sequences:.0f} sequences in a step drafting costs more than it gains: a step would have to "
            f"yield {needed:.2f} tokens, and yields {speculation.tokens_per_step:.2f} at "
            f"{speculation.acceptance_ratio:.0%} accepted",
            mend="leave speculative_config out, or draft fewer tokens",
        )


def _warn_front(case: StartupCase, judged: LayoutPlan) -> Iterator[StartupWarning]:
    """What one replica's API servers have to stream at its share of the load. vLLM starts as many of them as there are
    data-parallel ranks unless told otherwise."""
    if case.gpu.id == "cpu" or judged.predicted is None:
        return
    asked = case.settings.get("api_server_count")
    servers = asked if isinstance(asked, int) and asked > 0 else judged.layout.dp
    forecast = judged.predicted
    requests, tokens = forecast.request_rate_per_s, forecast.output_tokens_per_s
    work = requests * FRONT_REQUEST_S + tokens * FRONT_TOKEN_S
    if work <= FRONT_BUSY_RATIO * servers:
        return
    yield StartupWarning(
        code="api_server",
        message=f"{requests:.1f} requests/s and {tokens:,.0f} streamed tokens/s keep "
        f"{'one API server process' if servers == 1 else f'each of {servers} API server processes'} busy for "
        f"{work / servers:.0%} of its time (vLLM 0.26 took {FRONT_REQUEST_S * 1e3:g} ms a request and "
        f"{FRONT_TOKEN_S * 1e6:g} µs a token): first tokens wait there, which the figures here leave out",
        mend=f"api_server_count: {math.ceil(work / FRONT_BUSY_RATIO)}",
    )


def _warn_batches(judged: LayoutPlan) -> Iterator[StartupWarning]:
    """A pipeline whose batches merge, see :mod:`twin.core_loop`."""
    step, demand, forecast = judged.step_time, judged.demand, judged.predicted
    if step is None or demand is None or forecast is None or judged.layout.pp == 1 or judged.scheduled_ahead:
        return
    budget = judged.settings["max_num_batched_tokens"].value
    with_it = operating_point(
        step, demand, concurrency=forecast.concurrency / judged.layout.dp,
        max_num_batched_tokens=budget if isinstance(budget, int) else 8192, scheduled_ahead=True,
    )  # fmt: skip
    if with_it.tpot_p50_s * WORTH_A_WORD_RATIO > forecast.tpot_p50_s:
        return
    yield StartupWarning(
        code="pipeline_batches",
        message="without asynchronous scheduling vLLM's core looks for new requests only when a result comes, so that "
        f"batches of the pipeline merge: half of the answers take {forecast.tpot_p50_s * 1e3:.1f} ms a token or more, "
        f"{with_it.tpot_p50_s * 1e3:.1f} with it at as many in flight",
        mend="leave async_scheduling out: vLLM schedules so by itself",
    )
