"""N twins, the gateway's routing and governance, and an open-loop schedule, in virtual time.

Time moves from event to event: an arrival, an answer that ends, a scrape, a tick of the queue, an engine that dies or
comes back. An answer that ends may bring the next turn of its session and lets a waiting request in, so engines stand
still at every end until the schedule and the gate have heard of it. Nothing but the engines takes time: network,
gateway and tokenisation are not modelled.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING, Protocol

from roadworthy.core.errors import Refused
from roadworthy.route.pick import choose
from roadworthy.route.prefix import salt_of
from roadworthy.route.settings import RoutingSettings
from roadworthy.route.state import RoutingState
from roadworthy.route.values import ChosenBy, Decision, EndpointView, RouteRequest
from roadworthy.simulate.fleet import Fleet, SimulatedEngine, engine_name
from roadworthy.simulate.flight import Flight, Gate, OpenGate
from roadworthy.simulate.gaps import weighted_percentile_s
from roadworthy.simulate.log import RunLog
from roadworthy.simulate.prompts import BYTES_PER_TOKEN, own_key, prompt_keys
from roadworthy.simulate.result import Preempted, SimulatedRun
from roadworthy.simulate.timetable import Timetable
from roadworthy.twin.requests import TwinRequest

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import PlannedRequest, Schedule
    from roadworthy.simulate.outages import EngineFault, Outage
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import Finished

CHARGE_EVERY_S = 1.0
"""While something waits, so often fairness is told how far running answers have come."""

UNBEGUN_MOST = 128
"""Flights of one engine that are remembered before those whose prompts are computed are forgotten."""

GAPS_JUDGED = 20
"""Gaps between tokens below which a request's own P99 says nothing (facts: ops, section 7)."""


class Pick(Protocol):
    """A choice of an engine that is not the gateway's, to compare with."""

    def __call__(
        self, endpoints: Sequence[EndpointView], request: RouteRequest, *, tried: Collection[str]
    ) -> Decision: ...


def simulate(
    configs: Sequence[TwinConfig],
    arrivals: Schedule,
    *,
    routing: RoutingSettings | None = None,
    pick: Pick | None = None,
    priorities: Mapping[str, int] | None = None,
    gate: Gate | None = None,
    outages: Sequence[Outage] = (),
    faults: Sequence[EngineFault] = (),
    scrape_s: float | None = None,
    keep_gaps: bool = True,
    until_preempted: bool = False,
    shared_text: bool = True,
    progress: Callable[[int], None] | None = None,
) -> SimulatedRun:
    """Send the whole schedule through twins of ``configs`` and drain them.

    Args:
        routing: how the gateway routes. None is the default of the document.
        pick: chooses instead, without a memory.
        priorities: engine priority by tenant, for the ``priority`` policy; a gate decides it otherwise.
        gate: governance; None lets everybody in.
        outages: engines that die and come back.
        faults: engines that get worse, and perhaps better again.
        scrape_s: how often routing looks at what engines say of themselves; None: always as they are now.
        keep_gaps: keep the gaps between tokens of every request rather than their distribution alone.
        until_preempted: give up, and raise ``Preempted``, when an engine has preempted a request; it is looked at with
            each scrape and at the end.
        shared_text: prompts may have beginnings in common; False, where it is known that none has, saves routing's keys
            of them, and changes nothing else.
        progress: hears how many requests have ended, at each end.
    """
    gate = gate or OpenGate(dict(priorities or {}))
    # when each token came is only known where somebody asks for it
    fleet = Fleet(configs, faults, detail="requests" if keep_gaps or gate.judges_gaps else "ends")
    run = _Run(
        fleet,
        Timetable(arrivals, outages=outages, scrape_s=scrape_s),
        routing or RoutingSettings(),
        pick,
        gate,
        RunLog(keep_gaps=keep_gaps),
        progress,
        until_preempted,
        shared_text,
    )
    run.to_the_end()
    return run.result()


class _Run:
    def __init__(
        self,
        fleet: Fleet,
        timetable: Timetable,
        routing: RoutingSettings,
        pick: Pick | None,
        gate: Gate,
        log: RunLog,
        progress: Callable[[int], None] | None,
        until_preempted: bool,
        shared_text: bool,
    ) -> None:
        self._until_preempted = until_preempted
        self._shared_text = shared_text
        self._fleet, self._timetable, self._gate, self._log, self._progress = fleet, timetable, gate, log, progress
        configs = [engine.config for engine in fleet.engines]
        self._model = configs[0].models[0]
        self._max_model_len = min(config.max_model_len for config in configs)
        self._routing = RoutingState(routing, fleet.by_url)
        for name, config in zip(fleet.by_url, configs, strict=True):
            self._routing.capacity(name, (config.kv_blocks - 1) * config.cache.block_tokens)
        self._long_above_tokens = routing.long_lane.above_tokens if routing.long_lane is not None else math.inf
        self._pick = pick
        self._live = timetable.scrape_s is None
        self._chosen_by: Counter[ChosenBy] = Counter()
        self._salts: dict[str, int] = {}
        self._under_way: dict[str, Flight] = {}
        self._unbegun: dict[str, deque[Flight]] = {name: deque() for name in fleet.by_url}  # by engine, oldest first
        self._unbegun_most = UNBEGUN_MOST
        self._order = 0
        self._charged_s = -math.inf
        gate.fleet_changed(fleet.engines)

    def to_the_end(self) -> None:
        fleet, timetable = self._fleet, self._timetable
        while True:
            until_s = timetable.next_s()
            told = fleet.run(until_s)
            if told is not None:
                engine, outputs = told
                for output in outputs:
                    if output.finished is not None:
                        self._end(engine, output.request_id, output.finished)
                if self._gate.full_of_prompts:
                    self._tell_of_first_tokens(outputs[-1].at_s)
                self._let_in(outputs[-1].at_s)
                continue
            if until_s == math.inf:
                self._look_for_preemptions()
                return
            self._keep_appointment(until_s)

    def result(self) -> SimulatedRun:
        stats = tuple(engine.stats() for engine in self._fleet.engines)
        for engine in self._fleet.engines:
            for gaps in engine.gaps():
                self._log.gaps.merge(gaps)
        lasted_s = self._log.lasted_s
        busy_s = sum(engine.busy_s for engine in stats) / len(stats)
        return SimulatedRun(
            log=self._log,
            engines=stats,
            utilisation_ratio=busy_s / lasted_s if lasted_s > 0 else 0.0,
            chosen_by=dict(self._chosen_by),
            borrowed=dict(self._gate.borrowed),
            timeline=self._fleet.timeline,
        )

    def _keep_appointment(self, now_s: float) -> None:
        """What the timetable has for ``now_s``."""
        timetable, gate = self._timetable, self._gate
        planned = timetable.pop_arrival(now_s)
        if planned is not None:
            self._arrive(planned)
        elif (outage := timetable.pop_outage(now_s)) is not None:
            self._lose(outage.engine, now_s) if outage.down else self._find_again(outage.engine, now_s)
        elif timetable.pop_tick(now_s):
            self._tick(now_s)
            for flight, refused in gate.expired(now_s):
                self._fail(flight.planned, refused.code, now_s, waited_s=now_s - flight.planned.t_sched_s)
            self._let_in(now_s)
        else:
            self._fleet.scrape(now_s)
            self._look_for_preemptions()
            if gate.follows_streams:
                self._tell_streams(now_s)
            gate.scraped(self._fleet.engines)
            self._let_in(now_s)
            timetable.scraped(now_s, busy=bool(self._under_way))
        if gate.waiting:
            timetable.tick_by(now_s + gate.tick_s)

    def _look_for_preemptions(self) -> None:
        if self._until_preempted and any(engine.stats().preemptions for engine in self._fleet.engines):
            raise Preempted

    def _tick(self, now_s: float) -> None:
        """Charge running answers as far as they have come: only who goes next depends on it, so only while somebody
        waits."""
        if now_s - self._charged_s >= CHARGE_EVERY_S:
            self._charged_s = now_s
            self._tell_streams(now_s)
        self._tell_of_first_tokens(now_s, all_of_them=True)

    def _tell_of_first_tokens(self, now_s: float, *, all_of_them: bool = False) -> None:
        """Tell the gate whose prompts are computed. Engines take them in order but for priorities, so that a look at
        those in front is enough for most times."""
        for url, flights in self._unbegun.items():
            if all_of_them:
                self._unbegun[url] = deque(flight for flight in flights if not self._begun(flight, now_s))
            else:
                while flights and self._begun(flights[0], now_s):
                    flights.popleft()

    def _begun(self, flight: Flight, now_s: float) -> bool:
        """Whether the gate knows, or knows now, that the prompt of ``flight`` is computed or no longer will be."""
        if not self._gate.awaits_first(flight):
            return True
        engine = flight.engine
        if engine is None or engine.progress(flight.id, now_s)[0] is None:
            return False
        self._gate.began(flight)
        return True

    def _tell_streams(self, now_s: float) -> None:
        for request_id, flight in self._under_way.items():
            if flight.permit is not None and flight.engine is not None:
                flight.permit.streamed(flight.engine.progress(request_id, now_s)[1])

    def _arrive(self, planned: PlannedRequest) -> None:
        """Let the request in, or have it wait, or turn it away."""
        now_s = planned.t_sched_s
        if planned.prompt_tokens >= self._max_model_len:
            self._fail(planned, "context_length_exceeded", now_s)
            return
        self._order += 1
        flight = Flight(planned, self._asked(planned), self._order)
        if self._gate.full_of_prompts:
            self._tell_of_first_tokens(now_s)
        try:
            goes = self._gate.arrive(flight, now_s)
        except Refused as refused:
            self._fail(planned, refused.code, now_s)
            return
        if goes:
            self._dispatch(flight, now_s)
        else:
            self._let_in(now_s)  # one that waits may let another by that fits

    def _let_in(self, now_s: float) -> None:
        for flight in self._gate.ready(now_s):
            flight.waited_s = now_s - flight.planned.t_sched_s
            self._dispatch(flight, now_s)

    def _dispatch(self, flight: Flight, now_s: float) -> None:
        """Give the request to the engine that routing picks; one that refuses it is not asked again."""
        planned, asked, fleet, routing = flight.planned, flight.asked, self._fleet, self._routing
        request = TwinRequest(
            id=flight.id,
            segments=planned.segments,
            output_tokens=planned.output_tokens,
            answer_id=planned.answer_id if planned.turns > 1 else "",  # else no later prompt contains it
            priority=flight.priority,
            cache_salt=planned.tenant,  # the gateway gives each tenant its own
        )
        if self._live:
            fleet.scrape(now_s)
        tried: Collection[str] = ()
        refusal = ""
        while True:
            if self._pick is None:
                decision = choose(fleet.engines, asked, tried=tried, state=routing)
            else:
                decision = self._pick(fleet.engines, asked, tried=tried)
            if decision.endpoint is None:
                self._gate.leave(flight, "failed", now_s, output_tokens=0)
                self._fail(planned, refusal or decision.outcome, now_s, waited_s=flight.waited_s)
                return
            engine = fleet.by_url[decision.endpoint]
            try:
                if not engine.healthy:
                    raise Refused("the engine is down", code="no_engine", status=503)
                fleet.add(engine, request, now_s)
            except Refused as refused:
                tried, refusal = {*tried, engine.url}, refused.code
            else:
                engine.in_flight += 1
                engine.last_dispatch = flight.order
                self._chosen_by[decision.by] += 1
                flight.engine, flight.placement = engine, routing.dispatched(asked, engine.url)
                self._under_way[request.id] = flight
                if self._gate.bounds_prompts:
                    self._gate.placed(flight, engine.url, now_s)
                    unbegun = self._unbegun[engine.url]
                    unbegun.append(flight)
                    if len(unbegun) > self._unbegun_most:  # most have begun, though nobody waited to hear of it
                        self._unbegun[engine.url] = left = deque(filter(self._gate.awaits_first, unbegun))
                        self._unbegun_most = max(UNBEGUN_MOST, 2 * len(left))
                return

    def _asked(self, planned: PlannedRequest) -> RouteRequest:
        """The request as the gateway would describe it; a client names its conversation if it has several turns."""
        tenant, prompt_tokens = planned.tenant, planned.prompt_tokens
        salt = self._salts.get(tenant)
        if salt is None:
            salt = self._salts[tenant] = salt_of(tenant, self._model)
        keys: tuple[int, ...] = ()
        if self._routing.prefixes:
            shared = self._shared_text
            keys = prompt_keys(planned.segments, salt) if shared else own_key(prompt_tokens, salt, self._order)
        return RouteRequest(
            tenant_id=tenant,
            model=self._model,
            stream=True,
            prompt_bytes=prompt_tokens * BYTES_PER_TOKEN,
            session_id=str(planned.session) if planned.turns > 1 or self._timetable.has_sessions else None,
            prompt_tokens=prompt_tokens,
            prefix_keys=keys,
            text_bytes=prompt_tokens * BYTES_PER_TOKEN,
            lane="long" if prompt_tokens > self._long_above_tokens else "main",
        )

    def _end(self, engine: SimulatedEngine, request_id: str, finished: Finished) -> None:
        flight = self._under_way.pop(request_id)
        engine.in_flight -= 1
        planned, last_s, log = flight.planned, finished.last_token_s, self._log
        assert flight.placement is not None  # it was under way
        self._routing.ended(flight.placement, answered=True, prompt_tokens=finished.prompt_tokens)
        itl_p99_s = None
        if self._gate.judges_gaps and finished.output_tokens > GAPS_JUDGED:
            itl_p99_s = weighted_percentile_s(finished.tokens.gaps(), 99)
        self._gate.leave(
            flight,
            "completed",
            last_s,
            output_tokens=finished.output_tokens,
            cached_tokens=finished.cached_tokens,
            ttft_s=finished.first_token_s - planned.t_sched_s,
            itl_p99_s=itl_p99_s,
        )
        log.ended(
            planned,
            first_s=finished.first_token_s,
            last_s=last_s,
            output_tokens=finished.output_tokens,
            cached_tokens=finished.cached_tokens,
            engine=engine.url,
            waited_s=flight.waited_s,
            gaps_s=_gaps_s(finished) if log.gaps_of is not None else (),
        )
        if self._progress is not None:
            self._progress(len(log))
        self._timetable.answered(planned, finished_s=last_s, output_tokens=finished.output_tokens)

    def _lose(self, at: int, now_s: float) -> None:
        """An engine dies: what has sent no token yet is sent to another one, the rest is lost (as in the gateway)."""
        engine = self._fleet.engines[at]
        self._routing.engine_gone(engine.url)
        orphans = [flight for flight in self._under_way.values() if flight.engine is engine]
        progress = [engine.progress(flight.id, now_s) for flight in orphans]
        self._fleet.lose(engine)
        self._gate.fleet_changed(self._fleet.engines)
        for flight, (first_s, output_tokens) in zip(orphans, progress, strict=True):
            del self._under_way[flight.id]
            assert flight.placement is not None  # it was under way
            self._routing.ended(flight.placement, answered=first_s is not None)
            if first_s is None:
                self._dispatch(flight, now_s)
                continue
            self._gate.leave(flight, "failed", now_s, output_tokens=output_tokens)
            self._fail(
                flight.planned,
                "engine_lost",
                now_s,
                first_s=first_s,
                output_tokens=output_tokens,
                engine=engine.url,
                waited_s=flight.waited_s,
            )

    def _find_again(self, at: int, now_s: float) -> None:
        self._fleet.find_again(self._fleet.engines[at])
        self._gate.fleet_changed(self._fleet.engines)
        self._let_in(now_s)

    def _fail(
        self,
        planned: PlannedRequest,
        error: str,
        at_s: float,
        *,
        first_s: float | None = None,
        output_tokens: int = 0,
        engine: str | None = None,
        waited_s: float = 0.0,
    ) -> None:
        self._log.failed(
            planned, error, at_s, first_s=first_s, output_tokens=output_tokens, engine=engine, waited_s=waited_s
        )
        if self._progress is not None:
            self._progress(len(self._log))
        self._timetable.failed(planned, at_s=at_s)


def _gaps_s(finished: Finished) -> tuple[float, ...]:
    return tuple([after - before for before, after in pairwise(finished.token_times_s)])


def routing_of(deployment: Deployment, engines: int) -> RoutingSettings:
    """The document's routing with the simulated engines' names: engines of a lane are taken by their place in
    ``engine.endpoints``. A lane of engines that are not simulated, or of all that are, is left out."""
    settings = RoutingSettings.of(deployment.gateway)
    lane = settings.long_lane
    if lane is None or not lane.engines:
        return settings
    places = [at for at, one in enumerate(deployment.engine.endpoints[:engines]) if one.url in lane.engines]
    if not 0 < len(places) < engines:
        return replace(settings, long_lane=None)
    return replace(settings, long_lane=replace(lane, engines=tuple(engine_name(at) for at in places)))
