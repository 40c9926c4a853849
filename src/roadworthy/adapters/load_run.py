"""One measured run, start to end: ask the target, drive the load, judge what came back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
from roadworthy.adapters.load_client import LoadClient, Origin
from roadworthy.adapters.load_meter import (
    ClockMeter,
    CpuMeter,
    Watcher,
    no_pauses,
    stop_on_signals,
    watch_run,
)
from roadworthy.adapters.load_request import BenchRequest, schedule_of
from roadworthy.adapters.load_result import BenchRun
from roadworthy.adapters.load_target import ServedModel, calibrate, check_keys, served_model
from roadworthy.adapters.load_tokenizer import token_counter
from roadworthy.advise.intervals import latency_intervals, with_intervals
from roadworthy.advise.steady import SteadyState, steady_state
from roadworthy.advise.verdict import after_warmup, judge
from roadworthy.bench.driver import DriveResult, Load, Progress, drive
from roadworthy.core.latency import LatencySummary

if TYPE_CHECKING:
    from roadworthy.bench.prompts import Calibration
    from roadworthy.core.records import RequestRecord

__all__ = [
    "BenchRequest",
    "BenchRun",
    "Target",
    "Watcher",
    "ask_target",
    "drive_once",
    "measure",
    "run_bench",
]

FIRST_ANSWER_TIMEOUT_S = 10.0
"""For the list of models, which needs no engine step: longer than this and nobody is there."""
LATENCIES: Mapping[str, Callable[[RequestRecord], float | None]] = {
    "ttft_s": lambda record: record.ttft_s,
    "user_ttft_s": lambda record: record.user_ttft_s,
    "tpot_s": lambda record: record.tpot_s,
    "e2e_s": lambda record: record.e2e_s,
}
"""What intervals are told of, under the names of the report."""

PROBE_TIMEOUT_S = 60.0
"""For each question before the load; an engine that compiles its kernels answers the first completion late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target that answered: which model it serves, how long its prompts come out, and whether its answers can be
    made to be as long as asked."""

    origin: Origin
    model: ServedModel
    calibration: Calibration
    tokens_of: Callable[[str], int] | None = None
    to_its_end: bool = True


def run_bench(request: BenchRequest, *, watch: Watcher | None = None) -> BenchRun:
    """Measure ``request.url``; Ctrl-C or SIGTERM ends the load early and judges what there is.

    Args:
        watch: called a few times a second with the counters and the seconds since the load began.

    Raises:
        ProbeError: the target cannot be reached, turns us away or does not complete a probe.
        SpecError: the URL or the model name is wrong.
    """
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(measure(request, watch=watch))


async def measure(request: BenchRequest, *, watch: Watcher | None = None) -> BenchRun:
    """:func:`run_bench` inside a loop that runs already."""
    target = await ask_target(request)
    stop = asyncio.Event()
    with stop_on_signals(stop):
        return await drive_once(request, target, stop=stop, watch=watch)


async def ask_target(request: BenchRequest) -> Target:
    """Everything to know before the load. Raises as :func:`run_bench`."""
    origin = Origin.of_url(request.url)
    where = str(origin)
    tokens_of = token_counter(request.tokenizer) if request.tokenizer is not None else None
    raise_descriptor_limit()
    async with LoadClient(origin, model="", timeout_s=FIRST_ANSWER_TIMEOUT_S) as scout:
        model = await served_model(scout, where, wanted=request.model, key=request.first_key)
        await check_keys(scout, where, request.keys.items())
    async with LoadClient(origin, model=model.id, timeout_s=PROBE_TIMEOUT_S) as scout:
        manner = await calibrate(scout, where, request.first_key)
    calibration = manner.calibration
    return Target(
        origin=origin,
        model=replace(model, simulated=model.simulated or manner.simulated),
        calibration=calibration if tokens_of is None else calibration.by_tokenizer(tokens_of),
        tokens_of=tokens_of,
        to_its_end=manner.to_its_end,
    )


async def drive_once(
    request: BenchRequest,
    target: Target,
    *,
    stop: asyncio.Event,
    watch: Watcher | None = None,
    on_record: Callable[[RequestRecord], None] | None = None,
) -> BenchRun:
    """One load on a target that was asked already, and its verdict. ``stop`` ends it early; ``on_record`` hears of each
    request as it ends."""
    schedule = schedule_of(request, target.model, tokens_of=target.tokens_of)
    load = Load(
        arrivals=schedule,
        keys=request.keys,
        priorities=request.priorities,
        to_its_end=target.to_its_end,
        calibration=target.calibration,
        salt=request.salt,
        until_s=request.duration_s,
        max_concurrency=request.max_concurrency,
        on_record=on_record,
    )
    clock = ClockMeter()
    client_of = LoadClient(
        target.origin, model=target.model.id, timeout_s=request.timeout_s, temperature=request.temperature
    )
    async with client_of as client:
        result, cpu_ratio = await _driven(load, client, stop, watch)
    steady = steady_state(result.records)
    report = judge(
        result.records,
        request.sla,
        asked_rate_per_s=schedule.asked_rate_per_s,
        even_rate=request.even_rate,
        client_cpu_ratio=cpu_ratio,
        client_lag=LatencySummary.of(result.lags_s),
        stalls_s=tuple(length_s for _, length_s in result.stalls_s),
        max_concurrency=request.max_concurrency,
        warmup_s=_warmup_s(request, steady),
        partial=result.partial,
    )
    counted = after_warmup(result.records, _warmup_s(request, steady))
    intervals = latency_intervals(counted, LATENCIES)
    judged = {"ttft": intervals["user_ttft_s"], "tpot": intervals["tpot_s"]}
    return BenchRun(
        request=request,
        target=str(target.origin),
        model=target.model,
        calibration=target.calibration,
        schedule=schedule,
        to_its_end=target.to_its_end,
        drive=result,
        report=replace(report, objectives=with_intervals(report.objectives, counted, judged)),
        intervals=intervals,
        steady=steady,
        client_cpu_ratio=cpu_ratio,
        clock_jump_s=clock.jump_s(),
    )


def _warmup_s(request: BenchRequest, steady: SteadyState) -> float:
    return steady.from_s if request.warmup_s == "auto" else request.warmup_s


async def _driven(
    load: Load, client: LoadClient, stop: asyncio.Event, watch: Watcher | None
) -> tuple[DriveResult, float]:
    progress, cpu = Progress(), CpuMeter()
    watching = asyncio.create_task(watch_run(progress, cpu, watch))
    try:
        with no_pauses():
            result = await drive(load, client, now_s=time.monotonic, stop=stop, progress=progress)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    cpu.sample()
    return result, cpu.busiest_ratio
