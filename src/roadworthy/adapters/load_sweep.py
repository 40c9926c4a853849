"""Loads one after the other on the same target: a search for the highest rate, or a list of levels."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.event_loop import loop_factory
from roadworthy.adapters.load_client import CANNOT_CONNECT
from roadworthy.adapters.load_meter import Watcher, stop_on_signals
from roadworthy.adapters.load_run import BenchRun, ask_target, drive_once
from roadworthy.advise.gates import CLIENT_GATE
from roadworthy.bench.sweep import Decision, Outcome, RateSearch, decide, settled, surely_missed

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.adapters.load_run import Target
    from roadworthy.core.records import RequestRecord
    from roadworthy.spec.values import Sla

MOST_REPEATS = 3
CHECK_EVERY = 20
"""Requests between two looks at whether a step is already lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One load of a sweep. ``rate_per_s`` or ``users`` is its level; ``repeats`` loads were pooled for its decision."""

    run: BenchRun
    records: tuple[RequestRecord, ...]
    decision: Decision
    repeats: int = 1
    rate_per_s: float | None = None
    users: int | None = None
    ended_early: bool = False

    @property
    def outcome(self) -> Outcome:
        return self.decision.outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep found.

    Args:
        met_per_s: the highest rate that meets the SLA, None when none did.
        not_met_per_s: the lowest rate above it that does not, or that could not be decided; None when none was found.
        limited_by: why the search ended before that, empty when it did not.
        partial: ended by the user.
    """

    target: str
    model: str
    sla: Sla
    steps: tuple[Step, ...]
    met_per_s: float | None = None
    not_met_per_s: float | None = None
    limited_by: str = ""
    partial: bool = False


Told = Callable[[Step], None]


def find_rate(
    request: BenchRequest, sla: Sla, search: RateSearch, *, told: Told, watch: Watcher | None = None
) -> Sweep:
    """Search for the highest rate that meets ``sla``; Ctrl-C ends the search and keeps the steps so far.

    Args:
        request: its ``requests`` are those of one load; its rate is replaced.
        told: hears of each step as it ends.
    """

    async def main() -> Sweep:
        target, stop = await ask_target(request), asyncio.Event()
        with stop_on_signals(stop):
            return await _search(request, sla, search, target, stop, told, watch)

    return _in_a_loop(main)


def run_levels(
    request: BenchRequest, sla: Sla, levels: Sequence[BenchRequest], *, told: Told, watch: Watcher | None = None
) -> Sweep:
    """Run every one of ``levels``, which are ``request`` at other rates or numbers of users."""

    async def main() -> Sweep:
        target, stop = await ask_target(request), asyncio.Event()
        steps: list[Step] = []
        with stop_on_signals(stop):
            for place, level in enumerate(levels):
                run = await drive_once(_salted(level, place), target, stop=stop, watch=watch)
                steps.append(_step(run, sla))
                told(steps[-1])
                if stop.is_set():
                    break
        return Sweep(
            target=str(target.origin), model=target.model.id, sla=sla, steps=tuple(steps), partial=stop.is_set()
        )

    return _in_a_loop(main)


def _in_a_loop(main: Callable[[], Coroutine[Any, Any, Sweep]]) -> Sweep:
    with asyncio.Runner(loop_factory=loop_factory()) as runner:
        return runner.run(main())


async def _search(
    request: BenchRequest, sla: Sla, search: RateSearch, target: Target, stop: asyncio.Event, told: Told,
    watch: Watcher | None,
) -> Sweep:  # fmt: skip
    steps: list[Step] = []
    limited_by = ""
    while (rate_per_s := search.next_rate()) is not None and not stop.is_set():
        workload = replace(request.workload, rate_per_s=rate_per_s)
        level = _salted(replace(request, workload=workload), len(steps))
        step = await _decided(level, sla, target, stop, watch)
        steps.append(step)
        told(step)
        limited_by = _limit(step)
        if limited_by:
            limited_by = f"at {rate_per_s:.3g}/s {limited_by}"
            break
        if not stop.is_set():
            search.tell(rate_per_s, step.outcome)
    return Sweep(
        target=str(target.origin), model=target.model.id, sla=sla, steps=tuple(steps), met_per_s=search.met_per_s,
        not_met_per_s=search.not_met_per_s, limited_by=limited_by, partial=stop.is_set(),
    )  # fmt: skip


def _limit(step: Step) -> str:
    """Why a step says nothing about the service: its client was too slow, or nobody was there. Empty when it does."""
    errors = [record.error for record in step.records]
    if errors and all(error.startswith(CANNOT_CONNECT) for error in errors):
        return f"the target was gone: {errors[0]}"
    gates = (gate for gate in step.run.report.gates if gate.name == CLIENT_GATE and not gate.passed)
    slow_client = next(gates, None)
    return slow_client.why if slow_client is not None and step.outcome != "met" else ""


async def _decided(request: BenchRequest, sla: Sla, target: Target, stop: asyncio.Event, watch: Watcher | None) -> Step:
    """Load the level until it is decided, or ``MOST_REPEATS`` times; their requests count together."""
    pooled: list[RequestRecord] = []
    for repeat in range(MOST_REPEATS):
        lost = _Lost(sla, stop)
        again = replace(request, seed=request.seed + 1000 * repeat, salt=f"{request.salt}r{repeat}")
        run = await drive_once(again, target, stop=lost.event, watch=watch, on_record=lost.look)
        await lost.close()
        after_s = max((record.t_last_s for record in pooled), default=0.0)
        pooled += [_later(record, after_s) for record in run.drive.records]
        decision = settled(decide(pooled, sla), run.steady)
        kept_up = next((gate for gate in run.report.gates if gate.name == "asked rate"), None)
        if decision.outcome != "missed" and kept_up is not None and kept_up.passed is False:
            decision = Decision(outcome="missed", why=f"asked rate: {kept_up.why}")
        if decision.outcome != "unsure" or stop.is_set():
            break
    return Step(
        run=run, records=tuple(pooled), decision=decision, repeats=repeat + 1, ended_early=lost.lost,
        rate_per_s=request.workload.rate_per_s,
    )  # fmt: skip


class _Lost:
    """Ends a load when its requests already show a miss, or when the whole sweep is to stop."""

    def __init__(self, sla: Sla, stop: asyncio.Event) -> None:
        self.event = asyncio.Event()
        self.lost = False
        self._sla = sla
        self._records: list[RequestRecord] = []
        self._passing_on = asyncio.create_task(self._pass_on(stop))

    def look(self, record: RequestRecord) -> None:
        self._records.append(record)
        if (not record.ok or len(self._records) % CHECK_EVERY == 0) and surely_missed(self._records, self._sla):
            self.lost = True
            self.event.set()

    async def close(self) -> None:
        self._passing_on.cancel()
        await asyncio.gather(self._passing_on, return_exceptions=True)

    async def _pass_on(self, stop: asyncio.Event) -> None:
        await stop.wait()
        self.event.set()


def _step(run: BenchRun, sla: Sla) -> Step:
    pattern = run.request.workload.arrivals
    closed = pattern.pattern == "closed"
    return Step(
        run=run,
        records=run.drive.records,
        decision=decide(run.drive.records, sla),
        users=pattern.users if closed else None,
        rate_per_s=None if closed else run.request.workload.rate_per_s,
    )


def _salted(request: BenchRequest, place: int) -> BenchRequest:
    """Texts of its own for each load: the next one must not find the last one's prompts in the cache."""
    return replace(request, salt=f"{request.salt}-{place}", seed=request.seed + place)


def _later(record: RequestRecord, by_s: float) -> RequestRecord:
    """``record`` as part of a longer run, behind what came before."""
    return replace(
        record,
        t_sched_s=record.t_sched_s + by_s,
        t_send_s=record.t_send_s + by_s,
        t_first_s=None if record.t_first_s is None else record.t_first_s + by_s,
        t_last_s=record.t_last_s + by_s,
    )
