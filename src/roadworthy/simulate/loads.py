"""Loads made of others: several side by side, and one that swells and ebbs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import PlannedRequest
    from roadworthy.simulate.timetable import Schedule

SESSIONS_EACH = 10**9
"""Sessions of the schedule at place ``n`` of a mix are numbered from ``n`` times this."""


class Mix:
    """Several schedules at once, each with tenants and lengths of its own.

    The schedule at place ``n`` must number its sessions from ``first_session(n)`` on.
    """

    def __init__(self, schedules: Sequence[Schedule]) -> None:
        self._schedules = tuple(schedules)

    @property
    def has_sessions(self) -> bool:
        return any(schedule.has_sessions for schedule in self._schedules)

    def first_turns(self) -> Iterator[PlannedRequest]:
        return merge(*(schedule.first_turns() for schedule in self._schedules), key=lambda planned: planned.t_sched_s)

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        schedule = self._schedules[request.session // SESSIONS_EACH]
        return schedule.follow_up(request, finished_s=finished_s, output_tokens=output_tokens)


def first_session(place: int) -> int:
    """The first session of the schedule at ``place`` of a mix."""
    return place * SESSIONS_EACH


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """For ``lasts_s`` a load is ``factor`` times its mean."""

    lasts_s: float
    factor: float

    def __post_init__(self) -> None:
        if not self.lasts_s > 0 or not self.factor >= 0:
            raise ValueError(f"a phase of {self.lasts_s} s at {self.factor} times the mean cannot be")


class Phased:
    """A schedule whose conversations start in phases, over and over: busy hours, bursts, lulls.

    Time is stretched where the factor is low and pressed together where it is high, so a Poisson process stays one.
    Later turns follow their answers as before. ``phases`` whose mean factor is not 1 change the mean rate by it.

    Args:
        starts_s: how far into the cycle of phases the schedule begins.
    """

    def __init__(self, schedule: Schedule, phases: Sequence[Phase], *, starts_s: float = 0.0) -> None:
        if not any(phase.factor for phase in phases):
            raise ValueError("a load needs a phase in which requests come")
        self._schedule = schedule
        self._phases = tuple(phases)
        self._starts_s = starts_s

    @property
    def has_sessions(self) -> bool:
        return self._schedule.has_sessions

    def first_turns(self) -> Iterator[PlannedRequest]:
        bounds = self._bounds()
        began_s, before, factor = next(bounds)
        ends_s, after, next_factor = next(bounds)
        for planned in self._schedule.first_turns():
            while planned.t_sched_s > after:
                began_s, before, factor = ends_s, after, next_factor
                ends_s, after, next_factor = next(bounds)
            yield replace(planned, t_sched_s=began_s + (planned.t_sched_s - before) / factor)

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        return self._schedule.follow_up(request, finished_s=finished_s, output_tokens=output_tokens)

    def _bounds(self) -> Iterator[tuple[float, float, float]]:
        """(when a phase begins, what time the schedule shows then, factor), phase after phase."""
        at_s, shown_s = 0.0, 0.0
        skip_s = self._starts_s % sum(phase.lasts_s for phase in self._phases)
        while True:
            for phase in self._phases:
                lasts_s = phase.lasts_s - skip_s
                if lasts_s <= 0:
                    skip_s -= phase.lasts_s
                    continue
                skip_s = 0.0
                yield at_s, shown_s, phase.factor
                at_s += lasts_s
                shown_s += lasts_s * phase.factor
