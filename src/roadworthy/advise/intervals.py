"""How sure a number of a run is: 95 % intervals that know that requests close in time share their luck.

Requests in flight together wait in one queue, so their latencies are no independent draws, and resampling them one by
one would promise too much. Whole stretches of the run are resampled instead: blocks of requests that follow each other
(Künsch 1989), as long as an answer takes, as long as neighbours resemble each other, and at least the cube root of
their number, but never fewer than ``MIN_BLOCKS`` of them. A share, such as that of requests within a limit, takes the
exact interval of Clopper and Pearson when its requests count as independent.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple

from roadworthy.core.latency import percentile

if TYPE_CHECKING:
    from roadworthy.advise.objectives import Objective
    from roadworthy.core.records import RequestRecord

CONFIDENCE = 0.95
RESAMPLES = 400
MIN_BLOCKS = 20
"""Fewer stretches cannot show how much they differ; a run that has not even so many gets no interval."""
_WORK = 8_000_000
"""Values looked at for one latency: a large run is resampled less often, and needs it less."""

MOST_LAGS = 200
"""Neighbours that are compared; values alike beyond that get the longest stretches there are."""

PERCENTS = (50, 90, 95, 99)


class Interval(NamedTuple):
    """The true value lies between these in 95 of 100 runs like this one."""

    low: float
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocks:
    """Which stretch each request belongs to. ``of`` has one entry for each request, ``count`` stretches in all."""

    of: tuple[int, ...]
    count: int

    @classmethod
    def along(cls, records: Sequence[RequestRecord]) -> Blocks:
        """Stretches of ``records``, which are in the order of their scheduled times."""
        return cls.of_times(
            [record.t_sched_s for record in records],
            [record.user_e2e_s for record in records],
            [record.user_ttft_s or 0.0 for record in records],
        )

    @classmethod
    def of_times(cls, times_s: Sequence[float], lengths_s: Sequence[float], waits_s: Sequence[float]) -> Blocks:
        """Stretches of requests that came at ``times_s``, rising, took ``lengths_s`` and waited ``waits_s``."""
        number = len(times_s)
        if number < MIN_BLOCKS:
            return cls(of=tuple(range(number)), count=number)
        span_s = times_s[-1] - times_s[0]
        in_flight = number * percentile(sorted(lengths_s), 95) / span_s if span_s > 0 else 1.0
        length = max(number ** (1 / 3), in_flight, 3 * correlation_length(waits_s))
        count = max(MIN_BLOCKS, min(number, round(number / length)))
        return cls(of=tuple(place * count // number for place in range(number)), count=count)

    def resamples(self, seed: int, times: int) -> list[list[int]]:
        """How often each stretch occurs in each of ``times`` resampled runs."""
        rng = random.Random(f"blocks:{seed}")
        drawn = []
        for _ in range(times):
            weights = [0] * self.count
            for block in rng.choices(range(self.count), k=self.count):
                weights[block] += 1
            drawn.append(weights)
        return drawn


def correlation_length(values: Sequence[float]) -> float:
    """How many neighbours say the same: one plus twice the autocorrelations, up to the first that is near zero.

    Ranks are taken in place of the values, since a single outlier would hide everything else.
    """
    number = len(values)
    ranks = _ranks(values)
    spread = math.fsum(rank * rank for rank in ranks)
    if spread == 0:
        return 1.0
    length = 1.0
    longest = number // MIN_BLOCKS  # longer stretches are not made
    for lag in range(1, min(longest, MOST_LAGS) + 1):
        alike = math.fsum(map(float.__mul__, ranks[lag:], ranks)) / spread
        if alike < 2 / math.sqrt(number):
            break
        length += 2 * alike
    else:
        return float(max(1, longest if longest > MOST_LAGS else length))
    return length


def _ranks(values: Sequence[float]) -> list[float]:
    """Ranks around zero; equal values share theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks, start = [0.0] * len(values), 0
    for place in range(1, len(order) + 1):
        if place == len(order) or values[order[place]] != values[order[start]]:
            for at in order[start:place]:
                ranks[at] = (start + place - len(order)) / 2
            start = place
    return ranks


def resample_count(values: int) -> int:
    """How many resamples a sample of ``values`` gets."""
    return max(100, min(RESAMPLES, _WORK // max(1, values)))


class Resampled:
    """The statistics of one latency in every resampled run.

    Args:
        values: one for each request that has it, and ``blocks`` the stretch of each.
        weights: of ``Blocks.resamples``.
    """

    def __init__(self, values: Sequence[float], blocks: Sequence[int], weights: Sequence[Sequence[int]]) -> None:
        order = sorted(range(len(values)), key=values.__getitem__)
        self._ordered = [values[place] for place in order]
        self._blocks = [blocks[place] for place in order]
        self.stats: dict[str, list[float]] = {name: [] for name in ("mean", *(f"p{percent}" for percent in PERCENTS))}
        for one in weights:
            self._take(one)

    def interval(self, name: str) -> Interval | None:
        """Of ``mean``, ``p50``, ...; None when some resampled run had no value at all."""
        found = sorted(self.stats[name])
        if not found or math.isnan(found[-1]) or len(self._ordered) < MIN_BLOCKS:
            return None
        edge = 100 * (1 - CONFIDENCE) / 2
        return Interval(percentile(found, edge), percentile(found, 100 - edge))

    def _take(self, weights: Sequence[int]) -> None:
        counts = [weights[block] for block in self._blocks]
        cumulated = list(accumulate(counts))
        total = cumulated[-1] if cumulated else 0
        self.stats["mean"].append(
            math.fsum(map(float.__mul__, self._ordered, map(float, counts))) / total if total else math.nan
        )
        for percent in PERCENTS:
            self.stats[f"p{percent}"].append(self._percentile(cumulated, total, percent))

    def _percentile(self, cumulated: Sequence[int], total: int, percent: float) -> float:
        """As :func:`core.latency.percentile` of the resampled values, without writing them out."""
        if not total:
            return math.nan
        position = (total - 1) * percent / 100
        low = math.floor(position)
        first = self._ordered[bisect_right(cumulated, low)]
        second = self._ordered[bisect_right(cumulated, min(low + 1, total - 1))]
        return first + (second - first) * (position - low)


def latency_intervals(
    records: Sequence[RequestRecord], latencies: Mapping[str, Callable[[RequestRecord], float | None]], *, seed: int = 0
) -> dict[str, dict[str, Interval]]:
    """95 % intervals of the mean and the percentiles of each of ``latencies`` over completed requests.

    Empty for a latency with fewer than ``MIN_BLOCKS`` values.
    """
    done = sorted((record for record in records if record.ok), key=lambda record: record.t_sched_s)
    blocks = Blocks.along(done)
    weights = blocks.resamples(seed, resample_count(len(done))) if done else []
    found: dict[str, dict[str, Interval]] = {}
    for name, latency in latencies.items():
        pairs = [(value, block) for record, block in zip(done, blocks.of, strict=True)
                 if (value := latency(record)) is not None]  # fmt: skip
        if len(pairs) < MIN_BLOCKS:
            found[name] = {}
            continue
        resampled = Resampled([value for value, _ in pairs], [block for _, block in pairs], weights)
        intervals = {stat: resampled.interval(stat) for stat in resampled.stats}
        found[name] = {stat: interval for stat, interval in intervals.items() if interval is not None}
    return found


def with_intervals(
    objectives: Sequence[Objective], records: Sequence[RequestRecord], latency: Mapping[str, Mapping[str, Interval]]
) -> tuple[Objective, ...]:
    """``objectives`` with the interval of each: of latencies from ``latency`` (``latency_intervals`` under the names
    ``ttft`` and ``tpot``), of success from the count of ``records``."""
    found = []
    for item in objectives:
        word, _, stat = item.name.partition("_")
        interval = latency.get(word, {}).get(stat)
        if item.name == "success" and records:
            interval = share_interval(sum(record.ok for record in records), len(records))
        found.append(item if interval is None else replace(item, low=interval.low, high=interval.high))
    return tuple(found)


def share_interval(hits: int, of: int, *, confidence: float = CONFIDENCE) -> Interval:
    """The share behind ``hits`` of ``of`` independent trials: Clopper and Pearson's interval, never too narrow."""
    if of <= 0:
        return Interval(0.0, 1.0)
    tail = (1 - confidence) / 2
    low = 0.0 if hits == 0 else _beta_quantile(tail, hits, of - hits + 1)
    high = 1.0 if hits == of else _beta_quantile(1 - tail, hits + 1, of - hits)
    return Interval(low, high)


def _beta_quantile(share: float, a: float, b: float) -> float:
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if beta_cdf(middle, a, b) < share:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def beta_cdf(x: float, a: float, b: float) -> float:
    """The regularised incomplete beta function, by its continued fraction (DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - beta_cdf(1 - x, b, a)
    front = math.exp(
        math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x) - math.log(a)
    )
    tiny = 1e-300
    c, d = 1.0, 1 - (a + b) * x / (a + 1)
    d = 1 / (d if abs(d) > tiny else tiny)
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 + term * d
            d = 1 / (d if abs(d) > tiny else tiny)
            c = 1 + term / c
            c = c if abs(c) > tiny else tiny
            fraction *= c * d
        if abs(c * d - 1) < 1e-13:
            break
    return front * fraction
