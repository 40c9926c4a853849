"""Gaps between tokens, counted: 200 million of them are too many to keep and too many to sort.

A gap falls into a bin 1 % wide, so a percentile is off by at most half of that; count and mean are exact.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.core.latency import LatencySummary

if TYPE_CHECKING:
    from collections.abc import Iterable

BIN_RATIO = 1.01
_BINS_PER_E = 1 / math.log(BIN_RATIO)
_LEAST_S = 1e-9


class GapCounts:
    """How many gaps of which length. Gaps of 0 (tokens that came together) count as a nanosecond."""

    __slots__ = ("_bins", "count", "total_s")

    def __init__(self) -> None:
        self._bins: dict[int, int] = {}
        self.count = 0
        self.total_s = 0.0

    def tell(self, gap_s: float, times: int = 1) -> None:
        """``times`` gaps of ``gap_s``."""
        number = round(math.log(max(gap_s, _LEAST_S)) * _BINS_PER_E)
        self._bins[number] = self._bins.get(number, 0) + times
        self.count += times
        self.total_s += gap_s * times

    def tell_all(self, gaps_s: Iterable[float]) -> None:
        for gap_s in gaps_s:
            self.tell(gap_s)

    def add(self, other: GapCounts) -> None:
        """Those of ``other`` too."""
        for number, times in other._bins.items():
            self._bins[number] = self._bins.get(number, 0) + times
        self.count += other.count
        self.total_s += other.total_s

    def quantiles_s(self, percents: Iterable[float]) -> list[float]:
        """The gap below which ``percent`` of all lie, for each; NaN of nothing."""
        ordered = sorted(self._bins.items())
        answers = []
        for percent in percents:
            wanted, below, answer_s = self.count * percent / 100, 0, math.nan
            for number, times in ordered:
                below += times
                answer_s = BIN_RATIO**number
                if below >= wanted:
                    break
            answers.append(answer_s)
        return answers

    def summary(self) -> LatencySummary:
        p50, p90, p95, p99 = self.quantiles_s((50, 90, 95, 99))
        mean = self.total_s / self.count if self.count else math.nan
        return LatencySummary(count=self.count, mean=mean, p50=p50, p90=p90, p95=p95, p99=p99)
