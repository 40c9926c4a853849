"""N twins, the gateway's routing and an open-loop schedule, in virtual time.

Time moves from event to event: an arrival, or the next step of the engine that is due first. An answer that ends may
bring the next turn of its session, so engines stand still at every end until the schedule has heard of it. Nothing
but the engines takes time: network, gateway and tokenisation are not modelled.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import count, pairwise
from typing import TYPE_CHECKING, Protocol

from roadworthy.core.errors import Refused
from roadworthy.core.records import RequestRecord
from roadworthy.route.pick import choose
from roadworthy.route.prefix import salt_of
from roadworthy.route.settings import RoutingSettings
from roadworthy.route.state import Placement, RoutingState
from roadworthy.route.values import ChosenBy, Decision, EndpointSnapshot, EndpointView, RouteRequest
from roadworthy.simulate.prompts import BYTES_PER_TOKEN, prompt_keys
from roadworthy.twin.engine import Engine
from roadworthy.twin.requests import TwinRequest

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import Arrivals, PlannedRequest
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import EngineStats, Finished


class Pick(Protocol):
    """A choice of an engine that is not the gateway's, to compare with."""

    def __call__(
        self, endpoints: Sequence[EndpointView], request: RouteRequest, *, tried: Collection[str]
    ) -> Decision: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedRun:
    """What came of a run. ``utilisation_ratio`` is the mean share of time that a pipeline stage computed, from the
    first arrival to the last token; ``engines`` are the counters of each twin at the end; ``chosen_by`` counts what
    tipped the scales of each routing decision."""

    records: tuple[RequestRecord, ...]
    engines: tuple[EngineStats, ...]
    utilisation_ratio: float
    chosen_by: Mapping[ChosenBy, int] = field(default_factory=dict)

    @property
    def cached_ratio(self) -> float:
        """Share of all prompt tokens that were not computed because an engine held them; 0 without any prompt."""
        answered = [record for record in self.records if record.ok]
        prompt_tokens = sum(record.n_in for record in answered)
        return sum(record.cached_tokens or 0 for record in answered) / prompt_tokens if prompt_tokens else 0.0


def simulate(
    configs: Sequence[TwinConfig],
    arrivals: Arrivals,
    *,
    routing: RoutingSettings | None = None,
    pick: Pick | None = None,
    priorities: Mapping[str, int] | None = None,
    progress: Callable[[int], None] | None = None,
) -> SimulatedRun:
    """Send the whole schedule through twins of ``configs`` and drain them.

    Args:
        routing: how the gateway routes; it sees every engine as it is at the moment of the arrival (a real gateway's
            view is up to a scrape older). None is the default of the document.
        pick: chooses instead, without a memory.
        priorities: engine priority by tenant, for the ``priority`` policy.
        progress: hears how many requests have ended, at each end.
    """
    if not configs:
        raise ValueError("no engine to simulate")
    run = _Run(configs, arrivals, routing or RoutingSettings(), pick, priorities or {}, progress)
    run.to_the_end()
    return run.result()


class _Run:
    def __init__(
        self,
        configs: Sequence[TwinConfig],
        arrivals: Arrivals,
        routing: RoutingSettings,
        pick: Pick | None,
        priorities: Mapping[str, int],
        progress: Callable[[int], None] | None,
    ) -> None:
        self._engines = {engine_name(index): Engine(config) for index, config in enumerate(configs)}
        self._models = {name: frozenset(config.models) for name, config in zip(self._engines, configs, strict=True)}
        self._model = configs[0].models[0]
        self._max_model_len = min(config.max_model_len for config in configs)
        self._arrivals = arrivals
        self._routing = RoutingState(routing, self._engines)
        for name, config in zip(self._engines, configs, strict=True):
            self._routing.capacity(name, (config.kv_blocks - 1) * config.cache.block_tokens)
        self._pick: Pick = pick or partial(choose, state=self._routing)
        self._chosen_by: Counter[ChosenBy] = Counter()
        self._priorities = priorities
        self._progress = progress
        self._first_turns = arrivals.first_turns()
        self._later_turns: list[tuple[float, int, PlannedRequest]] = []
        self._next_first = next(self._first_turns, None)
        self._under_way: dict[str, tuple[PlannedRequest, Placement]] = {}
        self._last_dispatch = dict.fromkeys(self._engines, 0)
        self._order = count(1)
        self._records: list[RequestRecord] = []

    def to_the_end(self) -> None:
        engines = self._engines
        while True:
            arrival_s = self._next_arrival_s()
            due_s, second_s, due = math.inf, math.inf, ""
            for name, engine in engines.items():
                at_s = engine.next_event_s()
                if at_s is None:
                    continue
                if at_s < due_s:
                    due_s, second_s, due = at_s, due_s, name
                elif at_s < second_s:
                    second_s = at_s
            if arrival_s <= due_s:
                if arrival_s == math.inf:
                    return
                self._arrive(self._pop_arrival())
                continue
            for output in engines[due].advance(min(arrival_s, second_s), stop_at_output=True):
                if output.finished is not None:
                    self._end(output.request_id, output.finished)

    def result(self) -> SimulatedRun:
        stats = tuple(engine.stats() for engine in self._engines.values())
        records = tuple(self._records)
        lasted_s = 0.0
        if records:
            lasted_s = max(record.t_last_s for record in records) - min(record.t_sched_s for record in records)
        busy_s = sum(engine.busy_s for engine in stats) / len(stats)
        return SimulatedRun(
            records=records,
            engines=stats,
            utilisation_ratio=busy_s / lasted_s if lasted_s > 0 else 0.0,
            chosen_by=dict(self._chosen_by),
        )

    def _next_arrival_s(self) -> float:
        first_s = self._next_first.t_sched_s if self._next_first is not None else math.inf
        return min(first_s, self._later_turns[0][0]) if self._later_turns else first_s

    def _pop_arrival(self) -> PlannedRequest:
        first = self._next_first
        if first is not None and (not self._later_turns or first.t_sched_s <= self._later_turns[0][0]):
            self._next_first = next(self._first_turns, None)
            return first
        return heappop(self._later_turns)[2]

    def _arrive(self, planned: PlannedRequest) -> None:
        """Give the request to the engine that routing picks; one that refuses it is not asked again."""
        if planned.prompt_tokens >= self._max_model_len:
            self._fail(planned, "context_length_exceeded")
            return
        order = next(self._order)
        request = TwinRequest(
            id=str(order),
            segments=planned.segments,
            output_tokens=planned.output_tokens,
            answer_id=planned.answer_id,
            priority=self._priorities.get(planned.tenant, 0),
        )
        asked = self._asked(planned)
        tried: set[str] = set()
        while True:
            decision = self._pick(self._views(), asked, tried=tried)
            if decision.endpoint is None:
                self._fail(planned, "queue_full" if tried else decision.outcome)
                return
            try:
                self._engines[decision.endpoint].add(request, planned.t_sched_s)
            except Refused:
                tried.add(decision.endpoint)
            else:
                self._last_dispatch[decision.endpoint] = order
                self._chosen_by[decision.by] += 1
                self._under_way[request.id] = (planned, self._routing.dispatched(asked, decision.endpoint))
                return

    def _asked(self, planned: PlannedRequest) -> RouteRequest:
        """The request as the gateway would describe it; a client names its conversation if it has several turns."""
        routing = self._routing
        long_lane = routing.settings.long_lane
        is_long = long_lane is not None and planned.prompt_tokens > long_lane.above_tokens
        return RouteRequest(
            tenant_id=planned.tenant,
            model=self._model,
            stream=True,
            max_tokens=planned.output_tokens,
            prompt_bytes=planned.prompt_tokens * BYTES_PER_TOKEN,
            session_id=str(planned.session) if self._arrivals.has_sessions else None,
            prompt_tokens=planned.prompt_tokens,
            prefix_keys=prompt_keys(planned.segments, salt_of(planned.tenant, self._model)) if routing.prefixes else (),
            text_bytes=planned.prompt_tokens * BYTES_PER_TOKEN,
            lane="long" if is_long else "main",
        )

    def _views(self) -> list[EndpointSnapshot]:
        views = []
        for name, engine in self._engines.items():
            stats = engine.stats()
            views.append(
                EndpointSnapshot(
                    url=name,
                    in_flight=stats.running + stats.waiting,
                    waiting=stats.waiting,
                    kv_usage_ratio=stats.kv_usage_ratio,
                    models=self._models[name],
                    last_dispatch=self._last_dispatch[name],
                )
            )
        return views

    def _end(self, request_id: str, finished: Finished) -> None:
        planned, placement = self._under_way.pop(request_id)
        self._routing.ended(placement, answered=True, prompt_tokens=finished.prompt_tokens)
        times_s = finished.token_times_s
        self._record(
            RequestRecord(
                t_sched_s=planned.t_sched_s,
                t_send_s=planned.t_sched_s,
                t_first_s=finished.first_token_s,
                t_last_s=finished.last_token_s,
                n_in=finished.prompt_tokens,
                n_out=finished.output_tokens,
                ok=True,
                itl_s=tuple([after - before for before, after in pairwise(times_s)]),
                tenant=planned.tenant,
                engine=placement.url,
                session=planned.session,
                turn=planned.turn,
                cached_tokens=finished.cached_tokens,
            )
        )
        follow_up = self._arrivals.follow_up(
            planned, finished_s=finished.last_token_s, output_tokens=finished.output_tokens
        )
        if follow_up is not None:
            heappush(self._later_turns, (follow_up.t_sched_s, next(self._order), follow_up))

    def _fail(self, planned: PlannedRequest, error: str) -> None:
        """A request that no engine took; its session ends there."""
        self._record(
            RequestRecord(
                t_sched_s=planned.t_sched_s,
                t_send_s=planned.t_sched_s,
                t_first_s=None,
                t_last_s=planned.t_sched_s,
                n_in=planned.prompt_tokens,
                n_out=0,
                ok=False,
                tenant=planned.tenant,
                session=planned.session,
                turn=planned.turn,
                error=error,
            )
        )

    def _record(self, record: RequestRecord) -> None:
        self._records.append(record)
        if self._progress is not None:
            self._progress(len(self._records))


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


def engine_name(index: int) -> str:
    """What the simulated engine at ``index`` is called."""
    return f"engine-{index}"
