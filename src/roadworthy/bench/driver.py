"""Open-loop load: every request leaves at its time, however slow the service is.

A slow answer delays nothing but its own session's next turn, which the schedule places after the answer by design.
What the driver itself adds, it reports: ``t_send_s - t_sched_s`` of every record is its lateness, and a pulse measures
how late this loop gets to what is due, which is also how late it may read what has arrived. Time comes in as ``now_s``
and passes by ``asyncio.sleep``, so that a test can run an hour of load on a loop with a clock of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TYPE_CHECKING

from roadworthy.bench.client import EngineClient, GenerateRequest, Message, Outcome
from roadworthy.bench.prompts import Calibration, conversation
from roadworthy.core.records import RequestRecord

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import PlannedRequest, Schedule

PULSE_S = 0.02
STALL_S = 1.0
"""A pulse later than this is no busy moment: the process or its machine stood still."""


@dataclass(slots=True, kw_only=True)
class Progress:
    """Counters of a run under way, for whoever watches; only the driver writes."""

    sent: int = 0
    in_flight: int = 0
    completed: int = 0
    failed: int = 0
    output_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class DriveResult:
    """Every request that ended, and what stands beside the numbers.

    Args:
        records: times are seconds since the run's start.
        abandoned: requests in flight when the run was stopped early; they are in no number.
        cut_sessions: sessions whose next turn would have come after the end of the schedule.
        uncounted: answers without usage, whose tokens were counted as stream events.
        simulated: some answer came from an engine that calls itself simulated.
        partial: the run was stopped early.
        lags_s: how late each pulse of the loop was.
        stalls_s: (since the start, length) of each time that nothing ran: a suspended machine, a stopped process.
    """

    records: tuple[RequestRecord, ...]
    abandoned: int
    cut_sessions: int
    uncounted: int
    simulated: bool
    partial: bool
    lags_s: tuple[float, ...] = ()
    stalls_s: tuple[tuple[float, float], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to send, to whom, as whom.

    Args:
        keys: API key of each tenant id; a tenant that it lacks is sent without one.
        priorities: engine priority of each tenant id; sent only where given.
        to_its_end: answers go on to the planned length; False where the target cannot be told so.
        salt: makes this run's session ids and texts differ from another's.
        until_s: no turn is sent that the schedule places later than this, seconds after the start.
        max_concurrency: requests in flight at most; None, the honest choice for an SLA, sets no cap.
        on_record: hears of each request as it ends.
    """

    arrivals: Schedule
    keys: Mapping[str, str | None] = field(default_factory=dict)
    priorities: Mapping[str, int] = field(default_factory=dict)
    calibration: Calibration = field(default_factory=Calibration)
    to_its_end: bool = True
    salt: str = ""
    until_s: float | None = None
    max_concurrency: int | None = None
    on_record: Callable[[RequestRecord], None] | None = None


async def drive(
    load: Load,
    client: EngineClient,
    *,
    now_s: Callable[[], float],
    stop: asyncio.Event | None = None,
    progress: Progress | None = None,
) -> DriveResult:
    """Send the whole schedule and wait for every answer.

    Args:
        now_s: the clock that ``client`` stamps with.
        stop: set it to end early: what is in flight is abandoned, the result is partial.
    """
    run = _Run(load=load, client=client, now_s=now_s, progress=progress or Progress())
    return await run.to_end(stop or asyncio.Event())


class _Run:
    def __init__(self, *, load: Load, client: EngineClient, now_s: Callable[[], float], progress: Progress) -> None:
        self._load = load
        self._client = client
        self._now_s = now_s
        self._progress = progress
        self._start_s = now_s()
        self._cap = asyncio.Semaphore(load.max_concurrency) if load.max_concurrency else None
        self._records: list[RequestRecord] = []
        self._cut_sessions = 0
        self._uncounted = 0
        self._simulated = False
        self._lags_s: list[float] = []
        self._stalls_s: list[tuple[float, float]] = []

    async def to_end(self, stop: asyncio.Event) -> DriveResult:
        feeding = asyncio.create_task(self._feed())
        stopping = asyncio.create_task(stop.wait())
        pulse = asyncio.create_task(self._pulse())
        try:
            await asyncio.wait({feeding, stopping}, return_when=asyncio.FIRST_COMPLETED)
            partial = not feeding.done()
            abandoned = self._progress.in_flight
            if not partial:
                feeding.result()
        finally:
            for task in (feeding, stopping, pulse):
                task.cancel()
            await asyncio.gather(feeding, stopping, pulse, return_exceptions=True)
        return DriveResult(
            records=tuple(self._records),
            abandoned=abandoned,
            cut_sessions=self._cut_sessions,
            uncounted=self._uncounted,
            simulated=self._simulated,
            partial=partial,
            lags_s=tuple(self._lags_s),
            stalls_s=tuple(self._stalls_s),
        )

    async def _pulse(self) -> None:
        due_s = self._now_s()
        while True:
            due_s += PULSE_S
            await asyncio.sleep(max(0.0, due_s - self._now_s()))
            now_s = self._now_s()
            lag_s = max(0.0, now_s - due_s)
            self._lags_s.append(lag_s)
            if lag_s > STALL_S:
                self._stalls_s.append((due_s - self._start_s, lag_s))
            due_s = max(due_s, now_s - PULSE_S)  # pulses that a stall swallowed are not made up for

    async def _feed(self) -> None:
        """Start every session at its time, and wait for the last one to end."""
        async with asyncio.TaskGroup() as sessions:
            for request in self._load.arrivals.first_turns():
                messages = self._conversation(request, {})  # built before its time, not after
                await self._sleep_until(request.t_sched_s)
                sessions.create_task(self._session(request, self._generate_request(request, messages)))

    async def _session(self, request: PlannedRequest, ready: GenerateRequest) -> None:
        """One session turn by turn; in a closed loop the sessions of one user, one after the other."""
        answers: dict[str, str] = {}
        while True:
            outcome = await self._send(request, ready)
            following = self._following(request, outcome)
            if following is None:
                return
            if self._load.until_s is not None and following.t_sched_s > self._load.until_s:
                self._cut_sessions += following.turn > 0
                return
            if following.session != request.session:
                answers = {}
            else:
                answers[request.answer_id] = outcome.text
            request = following
            ready = self._generate_request(request, self._conversation(request, answers))
            await self._sleep_until(request.t_sched_s)

    def _following(self, request: PlannedRequest, outcome: Outcome) -> PlannedRequest | None:
        finished_s = outcome.t_end_s - self._start_s
        if outcome.error:
            return self._load.arrivals.after_failure(request, finished_s=finished_s)
        return self._load.arrivals.follow_up(request, finished_s=finished_s, output_tokens=_tokens_out(outcome))

    def _conversation(self, request: PlannedRequest, answers: Mapping[str, str]) -> tuple[Message, ...]:
        return conversation(request, answers, self._load.calibration, self._load.salt)

    def _generate_request(self, request: PlannedRequest, messages: tuple[Message, ...]) -> GenerateRequest:
        return GenerateRequest(
            messages=messages,
            output_tokens=request.output_tokens,
            key=self._load.keys.get(request.tenant),
            session=f"bench-{self._load.salt}-{request.session}",
            keep_text=request.turn + 1 < request.turns and not request.said,
            to_its_end=self._load.to_its_end,
            priority=self._load.priorities.get(request.tenant),
        )

    async def _send(self, request: PlannedRequest, ready: GenerateRequest) -> Outcome:
        async with AsyncExitStack() as held:
            if self._cap is not None:
                await held.enter_async_context(self._cap)
            self._progress.sent += 1
            self._progress.in_flight += 1
            try:
                t_send_s = self._now_s()
                outcome = await self._client.generate(ready)
            finally:
                self._progress.in_flight -= 1
        self._note(request, t_send_s, outcome)
        return outcome

    def _note(self, request: PlannedRequest, t_send_s: float, outcome: Outcome) -> None:
        record = _record(request, outcome, t_send_s=t_send_s, start_s=self._start_s)
        self._records.append(record)
        self._simulated |= outcome.simulated
        self._uncounted += record.ok and outcome.n_out is None
        self._progress.output_tokens += record.n_out
        if record.ok:
            self._progress.completed += 1
        else:
            self._progress.failed += 1
        if self._load.on_record is not None:
            self._load.on_record(record)

    async def _sleep_until(self, t_s: float) -> None:
        await asyncio.sleep(0)  # even when late, let answers in flight be read before the next send
        while (left_s := self._start_s + t_s - self._now_s()) > 0:  # noqa: ASYNC110 - it waits for time and nothing else
            await asyncio.sleep(left_s)  # again, since a loop of millisecond timers may wake a little early


def _tokens_out(outcome: Outcome) -> int:
    return len(outcome.token_times_s) if outcome.n_out is None else outcome.n_out


def _record(request: PlannedRequest, outcome: Outcome, *, t_send_s: float, start_s: float) -> RequestRecord:
    times_s = outcome.token_times_s
    error = outcome.error or ("" if times_s else "the answer held no token")
    last_s = outcome.t_end_s if error else times_s[-1]
    return RequestRecord(
        t_sched_s=request.t_sched_s,
        t_send_s=t_send_s - start_s,
        t_first_s=times_s[0] - start_s if times_s else None,
        t_last_s=last_s - start_s,
        n_in=request.prompt_tokens if outcome.n_in is None else outcome.n_in,
        n_out=_tokens_out(outcome),
        ok=not error,
        itl_s=tuple(later - earlier for earlier, later in pairwise(times_s)),
        tenant=request.tenant,
        session=request.session,
        turn=request.turn,
        cached_tokens=outcome.cached_tokens,
        error=error,
        kind=request.kind,
    )
