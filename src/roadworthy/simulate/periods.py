"""A long run as several periods, and several runs as one.

Periods are independent: each has a seed of its own and starts with an empty service, so they run side by side in as
many processes as there are cores. How a run is cut depends on its length alone, never on the machine: same document,
same seed, same numbers everywhere.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.simulate.counters import added
from roadworthy.simulate.result import SimulatedRun

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.values import ChosenBy
    from roadworthy.simulate.log import RunLog
    from roadworthy.twin.requests import EngineStats

PERIOD_REQUESTS = 125_000
"""Hours of traffic of most services; filling up and draining are then well below 1 % of a period."""

_SEEDS_APART = 1_000_003


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """``requests`` requests under ``seed``."""

    seed: int
    requests: int


def periods_of(requests: int, seed: int) -> tuple[Period, ...]:
    """The periods of a run: one up to ``PERIOD_REQUESTS``, else as few and as even as it takes. The first has the
    run's own seed."""
    count = -(-requests // PERIOD_REQUESTS)
    each, more = divmod(requests, count)
    return tuple(Period(seed=seed + place * _SEEDS_APART, requests=each + (place < more)) for place in range(count))


def pooled(runs: Sequence[SimulatedRun]) -> SimulatedRun:
    """Runs of the same engines as one, one after another in time. The first one's log and timeline grow."""
    first = runs[0]
    if len(runs) == 1:
        return first
    log: RunLog = first.log
    chosen_by: Counter[ChosenBy] = Counter(first.chosen_by)
    borrowed: Counter[str] = Counter(first.borrowed)
    lasted_s = [run.log.lasted_s for run in runs]
    ends_s = max(log.t_last_s, default=0.0)
    for run in runs[1:]:
        log.follow(run.log, later_s=ends_s)
        first.timeline.follow(run.timeline, later_s=ends_s)
        ends_s += max(run.log.t_last_s, default=0.0)
        chosen_by.update(run.chosen_by)
        borrowed.update(run.borrowed)
    busy_s = sum(run.utilisation_ratio * lasted for run, lasted in zip(runs, lasted_s, strict=True))
    return SimulatedRun(
        log=log,
        engines=tuple(_added(counters) for counters in zip(*(run.engines for run in runs), strict=True)),
        utilisation_ratio=busy_s / sum(lasted_s) if sum(lasted_s) > 0 else 0.0,
        chosen_by=dict(chosen_by),
        borrowed=dict(borrowed),
        timeline=first.timeline,
    )


def _added(counters: Sequence[EngineStats]) -> EngineStats:
    """The counters of one engine's runs added up; its state is that of the last."""
    total = counters[-1]
    for other in counters[:-1]:
        total = added(total, other)
    return total
