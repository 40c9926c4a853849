"""What is due when, apart from what engines do: arrivals, outages, scrapes, and looks at the queue."""

from __future__ import annotations

import math
from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.advise.arrivals import PlannedRequest, Schedule
    from roadworthy.simulate.outages import Outage


class Change(NamedTuple):
    """An engine goes down, or comes back."""

    at_s: float
    engine: int
    down: bool


class Timetable:
    """The next of everything. At one moment an arrival goes before an outage, that before a look at the queue, and a
    scrape comes last.

    Args:
        scrape_s: from one scrape to the next; None for none.
    """

    def __init__(self, schedule: Schedule, *, outages: Sequence[Outage] = (), scrape_s: float | None = None) -> None:
        if scrape_s is not None and not scrape_s > 0:
            raise ValueError(f"scrape_s {scrape_s} is not positive")
        self.has_sessions = schedule.has_sessions
        self.scrape_s = scrape_s
        self._schedule = schedule
        self._first_turns = schedule.first_turns()
        self._next_first = next(self._first_turns, None)
        self._first_s = math.inf if self._next_first is None else self._next_first.t_sched_s
        self._later_turns: list[tuple[float, int, PlannedRequest]] = []
        self._order = count()
        self._changes = sorted(change for outage in outages for change in _changes(outage))
        self._changes.reverse()
        self._tick_due_s = math.inf
        self._scrape_due_s = math.inf

    def next_s(self) -> float:
        """The moment of the next appointment; infinity when there is none."""
        next_s, later, changes = self._first_s, self._later_turns, self._changes
        if later and later[0][0] < next_s:
            next_s = later[0][0]
        if self._tick_due_s < next_s:
            next_s = self._tick_due_s
        if self._scrape_due_s < next_s:
            next_s = self._scrape_due_s
        if changes and changes[-1].at_s < next_s:
            next_s = changes[-1].at_s
        return next_s

    def pop_arrival(self, now_s: float) -> PlannedRequest | None:
        """The request that arrives at ``now_s``, if one does."""
        later = self._later_turns
        is_later = bool(later) and later[0][0] < self._first_s
        if (later[0][0] if is_later else self._first_s) > now_s:
            return None
        if self._scrape_due_s == math.inf and self.scrape_s is not None:
            self._scrape_due_s = now_s + self.scrape_s
        if is_later:
            return heappop(later)[2]
        first = self._next_first
        self._next_first = following = next(self._first_turns, None)
        self._first_s = math.inf if following is None else following.t_sched_s
        return first

    def pop_outage(self, now_s: float) -> Change | None:
        if self._changes and self._changes[-1].at_s <= now_s:
            return self._changes.pop()
        return None

    def pop_tick(self, now_s: float) -> bool:
        if self._tick_due_s > now_s:
            return False
        self._tick_due_s = math.inf
        return True

    def tick_by(self, at_s: float) -> None:
        """Look at the queue at ``at_s``, or sooner where that was said before."""
        self._tick_due_s = min(self._tick_due_s, at_s)

    def scraped(self, now_s: float, *, busy: bool) -> None:
        """A scrape was made; an idle service is not looked at again before the next arrival."""
        self._scrape_due_s = now_s + self.scrape_s if busy and self.scrape_s is not None else math.inf

    def answered(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> None:
        """An answer ended: the next turn of its session, if there is one, takes its place."""
        follow_up = self._schedule.follow_up(request, finished_s=finished_s, output_tokens=output_tokens)
        if follow_up is not None:
            self._later(follow_up)

    def failed(self, request: PlannedRequest, *, at_s: float) -> None:
        """A request failed: its session is over, and in a closed loop another takes its place."""
        follow_up = self._schedule.after_failure(request, finished_s=at_s)
        if follow_up is not None:
            self._later(follow_up)

    def _later(self, follow_up: PlannedRequest) -> None:
        heappush(self._later_turns, (follow_up.t_sched_s, next(self._order), follow_up))


def _changes(outage: Outage) -> Iterator[Change]:
    yield Change(outage.at_s, outage.engine, True)
    if outage.lasts_s < math.inf:
        yield Change(outage.at_s + outage.lasts_s, outage.engine, False)
