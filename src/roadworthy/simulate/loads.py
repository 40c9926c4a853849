"""Loads made of others: several side by side, and one that swells and ebbs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from heapq import merge
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import PlannedRequest, Schedule


class Mix:
    """Loads of several tenants at once, each a schedule of its own."""

    def __init__(self, by_tenant: Mapping[str, Schedule]) -> None:
        self._by_tenant = dict(by_tenant)

    @property
    def has_sessions(self) -> bool:
        return any(schedule.has_sessions for schedule in self._by_tenant.values())

    @property
    def asked_rate_per_s(self) -> float | None:
        """All of them together; None when one has no rate."""
        rates = [schedule.asked_rate_per_s for schedule in self._by_tenant.values()]
        known = [rate for rate in rates if rate is not None]
        return sum(known) if len(known) == len(rates) else None

    def first_turns(self) -> Iterator[PlannedRequest]:
        return merge(
            *(_as(tenant, schedule) for tenant, schedule in self._by_tenant.items()),
            key=lambda planned: planned.t_sched_s,
        )

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        schedule = self._by_tenant[request.tenant]
        return schedule.follow_up(request, finished_s=finished_s, output_tokens=output_tokens)

    def after_failure(self, request: PlannedRequest, *, finished_s: float) -> PlannedRequest | None:
        return self._by_tenant[request.tenant].after_failure(request, finished_s=finished_s)


def _as(tenant: str, schedule: Schedule) -> Iterator[PlannedRequest]:
    return (replace(planned, tenant=tenant) for planned in schedule.first_turns())


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

    @property
    def asked_rate_per_s(self) -> float | None:
        """The mean over a cycle of phases."""
        rate_per_s = self._schedule.asked_rate_per_s
        if rate_per_s is None:
            return None
        lasts_s = sum(phase.lasts_s for phase in self._phases)
        return rate_per_s * sum(phase.factor * phase.lasts_s for phase in self._phases) / lasts_s

    def after_failure(self, request: PlannedRequest, *, finished_s: float) -> PlannedRequest | None:
        return self._schedule.after_failure(request, finished_s=finished_s)

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
