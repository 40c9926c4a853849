"""From when on a run is steady: caches filled, queues at their level.

The warm-up is cut by the marginal standard error rule on means of five (MSER-5, White 1997): of all possible cuts in
the first half, the one that makes the mean of what is left surest. A start that differs makes that mean less sure than
the samples lost by cutting it. Whether the rest is level is then asked by comparing its two halves.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

BATCH = 5
MIN_BATCHES = 16
"""Means of five below which nothing is said: a cut among so few would be chance."""
DRIFT_ERRORS = 3.0
"""Standard errors by which the halves of a level run hardly ever differ."""
LEAST_RATIO = 0.02
"""A warm-up or a drift below this is nobody's concern, however sure it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyState:
    """What of a run is steady.

    Args:
        from_s: seconds after the first scheduled request; what was scheduled before is warm-up.
        requests: of the warm-up.
        drift_ratio: how much higher the second half of the rest is than its first half (0.1: a tenth), None when
            unknown.
        steady: whether the rest is level; None with too few requests to tell.
    """

    from_s: float
    requests: int
    drift_ratio: float | None
    steady: bool | None


def steady_state(records: Sequence[RequestRecord]) -> SteadyState:
    """What of ``records`` is steady, by the time to first token and the time per token of completed requests."""
    done = sorted((record for record in records if record.ok), key=lambda record: record.t_sched_s)
    if len(done) < BATCH * MIN_BATCHES:
        return SteadyState(from_s=0.0, requests=0, drift_ratio=None, steady=None)
    first_s = done[0].t_sched_s
    series = [[record.user_ttft_s or 0.0 for record in done]]
    tpots_s = [record.tpot_s for record in done]
    if all(value is not None for value in tpots_s):
        series.append([value or 0.0 for value in tpots_s])
    cut = max(_worth_cutting(values, mser_cut(values)) for values in series)
    drifts = [_drift(values[cut:]) for values in series]
    ratio, errors = max(drifts, key=lambda one: abs(one[0] or 0.0))
    return SteadyState(
        from_s=done[cut].t_sched_s - first_s if cut else 0.0,
        requests=cut,
        drift_ratio=ratio,
        steady=abs(errors) < DRIFT_ERRORS or (ratio is not None and abs(ratio) < LEAST_RATIO),
    )


def _worth_cutting(values: Sequence[float], cut: int) -> int:
    """``cut``, or 0 where what it cuts is like the rest."""
    if not cut:
        return 0
    before, after = math.fsum(values[:cut]) / cut, math.fsum(values[cut:]) / (len(values) - cut)
    return cut if abs(before - after) > LEAST_RATIO * after else 0


def mser_cut(values: Sequence[float]) -> int:
    """How many of the first ``values`` to leave out; a multiple of ``BATCH``, at most half of them."""
    means = _batch_means(values)
    count = len(means)
    if count < MIN_BATCHES:
        return 0
    sums = [0.0, *accumulate(means)]
    squares = [0.0, *accumulate(mean * mean for mean in means)]
    best, least = 0, math.inf
    for cut in range(count // 2 + 1):
        left = count - cut
        total = sums[count] - sums[cut]
        spread = max(0.0, squares[count] - squares[cut] - total * total / left)
        error = spread / (left * left)
        if error < least * (1 - 1e-9):
            best, least = cut, error
    return best * BATCH


def _batch_means(values: Sequence[float]) -> list[float]:
    return [math.fsum(values[at : at + BATCH]) / BATCH for at in range(0, len(values) - BATCH + 1, BATCH)]


def _drift(values: Sequence[float]) -> tuple[float | None, float]:
    """(relative difference of the halves, the same in standard errors). Errors are taken over stretches, since
    neighbours share a queue."""
    stretches = max(4, round(math.sqrt(len(values))) // 2 * 2)
    size = len(values) // stretches
    if size < 1:
        return None, 0.0
    means = [math.fsum(values[at * size : (at + 1) * size]) / size for at in range(stretches)]
    half = stretches // 2
    early, late = math.fsum(means[:half]) / half, math.fsum(means[half:]) / half
    spread = math.fsum((mean - early) ** 2 for mean in means[:half]) + math.fsum(
        (mean - late) ** 2 for mean in means[half:]
    )
    error = math.sqrt(spread / (stretches - 2) * 2 / half)
    ratio = late / early - 1 if early > 0 else None
    return ratio, (late - early) / error if error > 0 else 0.0
