"""The engines of a run: which of them has something to tell next, and what routing sees of each."""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

from roadworthy.simulate.counters import added
from roadworthy.simulate.timeline import Timeline
from roadworthy.twin.engine import Engine
from roadworthy.twin.faults import FaultyEngine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.simulate.outages import EngineFault
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.engine import Detail
    from roadworthy.twin.faults import Fault
    from roadworthy.twin.requests import EngineStats, Output, TwinRequest
    from roadworthy.twin.times import GapHistogram


class SimulatedEngine:
    """One twin as the gateway knows it (a ``route.values.EndpointView``).

    ``in_flight`` is counted at dispatch and never stale; ``waiting`` and ``kv_usage_ratio`` are those of the last
    scrape. ``healthy`` is False while it is down.
    """

    __slots__ = (
        "_before",
        "_detail",
        "_faults",
        "_gaps_before",
        "at",
        "backlogged",
        "clock_s",
        "config",
        "draining",
        "healthy",
        "in_flight",
        "kv_usage_ratio",
        "last_dispatch",
        "models",
        "twin",
        "url",
        "waiting",
    )

    def __init__(
        self, at: int, config: TwinConfig, faults: Sequence[Fault] = (), *, detail: Detail = "requests"
    ) -> None:
        self.at = at
        self._detail: Detail = detail
        self.url = engine_name(at)
        self.config = config
        self.models = frozenset(config.models)
        self.healthy, self.draining = True, False
        self.backlogged = False
        self.last_dispatch = 0
        self._faults = tuple(faults)
        self._before: list[EngineStats] = []
        self._gaps_before: list[GapHistogram] = []
        self._start()

    def restart(self) -> None:
        """A new process: it holds nothing and knows nothing."""
        self._before.append(self.twin.stats())
        self._gaps_before.append(self.twin.gaps)
        self._start()

    def stats(self) -> EngineStats:
        """The counters of all its processes together, and the state of the last."""
        now = self.twin.stats()
        for before in self._before:
            now = added(now, before)
        return now

    @property
    def busy_s(self) -> float:
        """Time that a pipeline stage of it has computed, in all its processes."""
        return self.twin.busy_s + sum([before.busy_s for before in self._before])

    def gaps(self) -> list[GapHistogram]:
        """Gaps between tokens, of each of its processes."""
        return [*self._gaps_before, self.twin.gaps]

    def _start(self) -> None:
        if self._faults:
            self.twin: Engine = FaultyEngine(self.config, self._faults, detail=self._detail)
        else:
            self.twin = Engine(self.config, detail=self._detail)
        self.clock_s = -math.inf
        self.in_flight = self.waiting = 0
        self.kv_usage_ratio = 0.0

    def scrape(self, now_s: float) -> None:
        """What `/metrics` would say now; nothing may be due before."""
        self.move_clock(now_s)
        twin = self.twin
        self.waiting = twin.waiting
        self.kv_usage_ratio = twin.kv_usage_ratio

    def progress(self, request_id: str, now_s: float) -> tuple[float | None, int]:
        """When the first token of a request came, and how many have come by now; nothing may be due before."""
        self.move_clock(now_s)
        return self.twin.progress(request_id)

    def move_clock(self, now_s: float) -> None:
        """Let the time before ``now_s`` pass, in which nothing is due; what is due at ``now_s`` itself stays due."""
        before_s = math.nextafter(now_s, -math.inf)
        if before_s > self.clock_s:
            self.clock_s = before_s
            self.twin.advance(before_s)


class Fleet:
    """All engines, and whose turn it is.

    The heap holds (moment, engine, ticket) for each engine that has something to do; an entry whose ticket is not the
    engine's current one is void.

    Args:
        detail: what engines say of a request that ended.
    """

    def __init__(
        self, configs: Sequence[TwinConfig], faults: Sequence[EngineFault] = (), *, detail: Detail = "requests"
    ) -> None:
        if not configs:
            raise ValueError("no engine to simulate")
        self.engines = tuple(
            SimulatedEngine(at, config, [one.fault for one in faults if one.engine == at], detail=detail)
            for at, config in enumerate(configs)
        )
        self.timeline = Timeline()
        self.by_url = {engine.url: engine for engine in self.engines}
        self._due: list[tuple[float, int, int]] = []
        self._tickets = [0] * len(self.engines)

    def add(self, engine: SimulatedEngine, request: TwinRequest, now_s: float) -> None:
        """Give ``request`` to ``engine``; raises Refused when its queue is full."""
        engine.twin.add(request, now_s)
        engine.clock_s = now_s
        self._reschedule(engine)

    def run(self, until_s: float) -> tuple[SimulatedEngine, tuple[Output, ...]] | None:
        """Let engines work until the first of them has something to tell, at most until ``until_s``; None when none
        has by then."""
        due, tickets, engines = self._due, self._tickets, self.engines
        while due:
            at_s, at, ticket = due[0]
            if ticket != tickets[at]:
                heappop(due)
                continue
            if at_s >= until_s:
                return None
            heappop(due)
            engine = engines[at]
            to_s = due[0][0] if due and due[0][0] < until_s else until_s
            twin = engine.twin
            outputs = twin.advance(to_s, stop_at_output=True)
            engine.clock_s = outputs[-1].at_s if outputs else to_s
            next_s = twin.next_event_s()
            if next_s is not None:  # the ticket that was taken out of the heap is still its own
                heappush(due, (next_s, at, ticket))
            if outputs:
                return engine, outputs
        return None

    def scrape(self, now_s: float) -> None:
        """Look at every engine that is up."""
        for engine in self.engines:
            if engine.healthy:
                engine.scrape(now_s)
        self.timeline.look(now_s, self.engines)

    def lose(self, engine: SimulatedEngine) -> None:
        """The engine dies with all it has; ``find_again`` brings it back, empty."""
        engine.healthy = False
        engine.restart()
        self._tickets[engine.at] += 1

    def find_again(self, engine: SimulatedEngine) -> None:
        engine.healthy = True

    def _reschedule(self, engine: SimulatedEngine) -> None:
        at = engine.at
        ticket = self._tickets[at] = self._tickets[at] + 1
        next_s = engine.twin.next_event_s()
        if next_s is not None:
            heappush(self._due, (next_s, at, ticket))
        if len(self._due) > 64 + 4 * len(self.engines):
            self._due = [entry for entry in self._due if entry[2] == self._tickets[entry[1]]]
            heapify(self._due)


def engine_name(at: int) -> str:
    """What the simulated engine at ``at`` is called."""
    return f"engine-{at}"
