"""What a simulated service looked like second by second: how busy its engines were, what ran and what waited."""

from __future__ import annotations

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.simulate.fleet import SimulatedEngine
    from roadworthy.simulate.log import RunLog

LOOK_EVERY_S = 1.0

Points = tuple[tuple[float, float], ...]
"""(seconds from the start, level), rising in time."""


class Timeline:
    """Looks at the engines, in columns. ``busy_s`` is the time that all of them have computed until then."""

    def __init__(self) -> None:
        self.at_s, self.busy_s, self.kv_usage_ratio = array("d"), array("d"), array("d")
        self.running, self.waiting = array("l"), array("l")
        self._next_s = -math.inf

    def look(self, now_s: float, engines: Sequence[SimulatedEngine]) -> None:
        """Note what engines say, unless somebody has looked less than ``LOOK_EVERY_S`` ago."""
        if now_s < self._next_s:
            return
        self._next_s = now_s + LOOK_EVERY_S * 0.999
        twins = [engine.twin for engine in engines]
        self.at_s.append(now_s)
        self.busy_s.append(sum([engine.busy_s for engine in engines]))
        self.running.append(sum([twin.running for twin in twins]))
        self.waiting.append(sum([twin.waiting for twin in twins]))
        self.kv_usage_ratio.append(sum([engine.kv_usage_ratio for engine in engines]) / len(engines))

    def follow(self, other: Timeline, *, later_s: float) -> None:
        """Put what ``other`` saw behind this, its times ``later_s`` later."""
        busy_s = self.busy_s[-1] if self.busy_s else 0.0
        self.at_s.extend([time_s + later_s for time_s in other.at_s])
        self.busy_s.extend([busy_s + time_s for time_s in other.busy_s])
        for column, more in (
            (self.running, other.running),
            (self.waiting, other.waiting),
            (self.kv_usage_ratio, other.kv_usage_ratio),
        ):
            column.extend(more)  # type: ignore[arg-type]  # each of its own kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """A run over time in at most so many points as a plot can show, each the mean of its stretch (of ``queued`` the
    most).

    Args:
        utilisation_ratio: share of the time that engines computed.
        kv_usage_ratio: mean share of the engines' pools in use.
        running: requests that run in engines.
        waiting: requests that wait in engines.
        queued: requests that wait in the gateway's queue.
    """

    utilisation_ratio: Points
    kv_usage_ratio: Points
    running: Points
    waiting: Points
    queued: Points


def levels_of(timeline: Timeline, log: RunLog, engines: int, *, points: int = 240) -> Levels:
    """``timeline`` of so many ``engines``, and what waited in the gateway's queue by the log."""
    if not len(log) or not len(timeline.at_s):
        return Levels(utilisation_ratio=(), kv_usage_ratio=(), running=(), waiting=(), queued=())
    start_s, end_s = min(log.t_sched_s), max(log.t_last_s)
    end_s = max(end_s, timeline.at_s[-1])
    points = max(1, min(points, math.ceil((end_s - start_s) / LOOK_EVERY_S)))  # nothing is known in between looks
    width_s = max(end_s - start_s, 1e-9) / points
    return Levels(
        utilisation_ratio=_busy(timeline, engines, start_s, width_s, points),
        kv_usage_ratio=_means(timeline, timeline.kv_usage_ratio, start_s, width_s, points),
        running=_means(timeline, timeline.running, start_s, width_s, points),
        waiting=_means(timeline, timeline.waiting, start_s, width_s, points),
        queued=_queued(log, start_s, width_s, points),
    )


def _busy(timeline: Timeline, engines: int, start_s: float, width_s: float, points: int) -> Points:
    """Busy time spread over the stretch in which it accrued, from one look to the next."""
    busy = [0.0] * points
    before_s, before_busy_s = start_s, 0.0
    for at_s, busy_s in zip(timeline.at_s, timeline.busy_s, strict=True):
        added_s, length_s = busy_s - before_busy_s, at_s - before_s
        if length_s > 0 and added_s > 0:
            first, last = (at_s - start_s - length_s) / width_s, (at_s - start_s) / width_s
            for place in range(max(0, int(first)), min(points, math.ceil(last))):
                share = min(place + 1, last) - max(place, first)
                busy[place] += added_s * share / (last - first)
        before_s, before_busy_s = at_s, busy_s
    return tuple(((place + 0.5) * width_s, min(1.0, time_s / (width_s * engines))) for place, time_s in enumerate(busy))


def _means(timeline: Timeline, column: Sequence[float], start_s: float, width_s: float, points: int) -> Points:
    """The mean of the looks in each stretch; where nobody looked the service was idle, or the last look stands."""
    sums, counts = [0.0] * points, [0] * points
    for at_s, level in zip(timeline.at_s, column, strict=True):
        place = min(points - 1, max(0, int((at_s - start_s) / width_s)))
        sums[place] += level
        counts[place] += 1
    found, level = [], 0.0
    for place in range(points):
        if counts[place]:
            level = sums[place] / counts[place]
        elif width_s > LOOK_EVERY_S:
            level = 0.0  # an idle service is not looked at
        found.append(((place + 0.5) * width_s, level))
    return tuple(found)


def _queued(log: RunLog, start_s: float, width_s: float, points: int) -> Points:
    """The most that waited at once in each stretch."""
    changes = []
    for sched_s, waited_s in zip(log.t_sched_s, log.waited_s, strict=True):
        if waited_s > 0:
            changes += [(sched_s, 1), (sched_s + waited_s, -1)]
    if not changes:
        return ()
    changes.sort()
    most, level, at = [0] * points, 0, 0
    for place in range(points):
        most[place] = level
        while at < len(changes) and changes[at][0] - start_s < (place + 1) * width_s:
            level += changes[at][1]
            most[place] = max(most[place], level)
            at += 1
    return tuple(((place + 0.5) * width_s, float(level)) for place, level in enumerate(most))
