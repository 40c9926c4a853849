"""One measured run, start to end: ask the target, drive the load, judge what came back."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
from roadworthy.adapters.load_client import LoadClient, Origin
from roadworthy.adapters.load_target import ServedModel, calibrate, check_keys, served_model
from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.verdict import SlaReport, judge
from roadworthy.bench.driver import DriveResult, Load, Progress, drive
from roadworthy.bench.sections import RunSection
from roadworthy.core.units import format_duration
from roadworthy.spec.values import RequestProfile, Sla, Tenant

if TYPE_CHECKING:
    from roadworthy.bench.prompts import Calibration

WATCH_EVERY_S = 0.5
FIRST_ANSWER_TIMEOUT_S = 10.0
"""For the list of models, which needs no engine step: longer than this and nobody is there."""
PROBE_TIMEOUT_S = 60.0
"""For each question before the load; an engine that compiles its kernels answers the first completion late."""
CPU_WINDOW_S = 5.0
CONTEXT_USED_RATIO = 0.95
"""Planned share of the model's context at most: prompts are sized in words, so tokens come out a little off."""

Watcher = Callable[[Progress, float], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRequest:
    """What to measure.

    Args:
        url: the target, ``http://host:port``.
        keys: API key of each tenant id; of the empty id when there are no tenants.
        requests: how many to send, or None; ``duration_s`` likewise; at least one is given.
        warmup_s: requests scheduled this soon after the first count in no number.
        timeout_s: of one request.
        salt: the texts of the prompts follow from it; a fresh one meets no prefix that an earlier run left cached.
    """

    url: str
    workload: RequestProfile
    sla: Sla = field(default_factory=Sla)
    tenants: tuple[Tenant, ...] = ()
    keys: Mapping[str, str | None] = field(default_factory=dict, repr=False)
    seed: int = 0
    requests: int | None = None
    duration_s: float | None = None
    model: str | None = None
    max_concurrency: int | None = None
    warmup_s: float = 0.0
    timeout_s: float = 600.0
    salt: str = field(default_factory=lambda: secrets.token_hex(4))

    @property
    def first_key(self) -> str | None:
        return next(iter(self.keys.values()), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchRun:
    """What was measured. ``client_cpu_ratio`` is the busiest stretch of the load generator, in cores."""

    request: BenchRequest
    target: str
    model: ServedModel
    calibration: Calibration
    drive: DriveResult
    report: SlaReport
    client_cpu_ratio: float

    @property
    def simulated(self) -> bool:
        return self.drive.simulated or self.model.simulated

    def facts(self) -> tuple[tuple[str, str], ...]:
        """What a reader needs to run it again."""
        asked = self.request
        length = f"{asked.requests:,} requests" if asked.requests else ""
        length += f"{', ' if length and asked.duration_s else ''}{asked.duration_s:g} s" if asked.duration_s else ""
        shape = asked.workload
        facts = (
            ("target", self.target),
            ("model", self.model.id + (" (simulated engine)" if self.simulated else "")),
            ("load", f"open loop, Poisson, {shape.rate_per_s:g} requests a second, {length}"),
            ("seed, salt", f"{asked.seed}, {asked.salt}"),
            ("prompt tokens", _quantiles(shape.prompt_tokens.p50, shape.prompt_tokens.p90, shape.prompt_tokens.p99)),
            ("output tokens", _quantiles(shape.output_tokens.p50, shape.output_tokens.p90, shape.output_tokens.p99)),
            (
                "sessions",
                f"{shape.sessions.turns:g} turns on average, think time {format_duration(shape.sessions.think_time_s)}",
            ),
            ("prompt sizing", f"words, {self.calibration.tokens_per_word:.2f} tokens each by the target's own count"),
            ("concurrency cap", "none" if asked.max_concurrency is None else f"{asked.max_concurrency}"),
            ("load generator", f"{self.client_cpu_ratio:.0%} of a core at its busiest"),
        )
        return tuple((name, value) for name, value in facts if shape.sessions.turns > 1 or name != "sessions")

    def notes(self) -> tuple[str, ...]:
        """What stands beside the numbers."""
        notes = []
        if self.drive.abandoned:
            notes.append(f"{self.drive.abandoned:,} requests were in flight when the run was ended; none is counted.")
        if self.drive.cut_sessions:
            notes.append(f"{self.drive.cut_sessions:,} conversations went on beyond the end; that part was not sent.")
        if self.drive.uncounted:
            notes.append(
                f"{self.drive.uncounted:,} answers came without usage: their tokens are counted as stream events."
            )
        return tuple(notes)

    def section(self, title: str) -> RunSection:
        """This run as part of a report."""
        return RunSection(
            title=title,
            report=self.report,
            records=self.drive.records,
            facts=self.facts(),
            notes=self.notes(),
            simulated=self.simulated,
        )


def _quantiles(p50: int, p90: int, p99: int) -> str:
    return f"P50 {p50:,}, P90 {p90:,}, P99 {p99:,}"


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
    origin = Origin.of_url(request.url)
    where = str(origin)
    raise_descriptor_limit()
    async with LoadClient(origin, model="", timeout_s=FIRST_ANSWER_TIMEOUT_S) as scout:
        model = await served_model(scout, where, wanted=request.model, key=request.first_key)
        await check_keys(scout, where, request.keys.items())
    async with LoadClient(origin, model=model.id, timeout_s=PROBE_TIMEOUT_S) as scout:
        calibration, simulated = await calibrate(scout, where, request.first_key)
    async with LoadClient(origin, model=model.id, timeout_s=request.timeout_s) as client:
        load = Load(
            arrivals=_arrivals(request, model),
            keys=request.keys,
            calibration=calibration,
            salt=request.salt,
            until_s=request.duration_s,
            max_concurrency=request.max_concurrency,
        )
        result, cpu_ratio = await _driven(load, client, watch)
    report = judge(
        result.records,
        request.sla,
        asked_rate_per_s=request.workload.rate_per_s,
        client_cpu_ratio=cpu_ratio,
        max_concurrency=request.max_concurrency,
        warmup_s=request.warmup_s,
        partial=result.partial,
    )
    return BenchRun(
        request=request,
        target=where,
        model=replace(model, simulated=model.simulated or simulated),
        calibration=calibration,
        drive=result,
        report=report,
        client_cpu_ratio=cpu_ratio,
    )


def _arrivals(request: BenchRequest, model: ServedModel) -> Arrivals:
    length = model.max_model_len_tokens
    return Arrivals(
        request.workload,
        seed=request.seed,
        requests=request.requests,
        duration_s=request.duration_s,
        tenants=request.tenants,
        max_context_tokens=max(2, int(length * CONTEXT_USED_RATIO)) if length else None,
    )


async def _driven(load: Load, client: LoadClient, watch: Watcher | None) -> tuple[DriveResult, float]:
    progress, stop, cpu = Progress(), asyncio.Event(), _CpuMeter()
    watching = asyncio.create_task(_watch(progress, cpu, watch))
    try:
        with _stop_on_signals(stop):
            result = await drive(load, client, now_s=time.monotonic, stop=stop, progress=progress)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    cpu.sample()
    return result, cpu.busiest_ratio


async def _watch(progress: Progress, cpu: _CpuMeter, watch: Watcher | None) -> None:
    start_s = time.monotonic()
    while True:
        await asyncio.sleep(WATCH_EVERY_S)
        if time.monotonic() - cpu.since_s >= CPU_WINDOW_S:
            cpu.sample()
        if watch is not None:
            watch(progress, time.monotonic() - start_s)


class _CpuMeter:
    """CPU time of this process in stretches; the mean over a whole run would hide the busy part behind the drain."""

    def __init__(self) -> None:
        self.since_s = time.monotonic()
        self._cpu_s = time.process_time()
        self.busiest_ratio = 0.0

    def sample(self) -> None:
        now_s, cpu_s = time.monotonic(), time.process_time()
        if now_s - self.since_s >= 0.5 or self.busiest_ratio == 0.0:
            self.busiest_ratio = max(self.busiest_ratio, (cpu_s - self._cpu_s) / max(now_s - self.since_s, 1e-3))
        self.since_s, self._cpu_s = now_s, cpu_s


@contextlib.contextmanager
def _stop_on_signals(stop: asyncio.Event) -> Iterator[None]:
    """The first Ctrl-C ends the load; a second one, or any where handlers cannot be set, interrupts as usual."""
    loop = asyncio.get_running_loop()
    numbers = (signal.SIGINT, signal.SIGTERM)

    def ended() -> None:
        stop.set()
        for number in numbers:
            loop.remove_signal_handler(number)

    try:
        for number in numbers:
            loop.add_signal_handler(number, ended)
    except (NotImplementedError, RuntimeError, ValueError):  # not the main thread, or not POSIX
        yield
        return
    try:
        yield
    finally:
        for number in numbers:
            loop.remove_signal_handler(number)
