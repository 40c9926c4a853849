"""Gaps between tokens in percentiles: 200 million of them are too many to keep and too many to sort."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.core.latency import LatencySummary

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.twin.times import GapHistogram


def gap_summary(gaps: GapHistogram) -> LatencySummary:
    """Mean (exact) and percentiles (within half a per cent) of counted gaps."""

    def percentile_s(ratio: float) -> float:
        value_s = gaps.percentile_s(ratio)
        return math.nan if value_s is None else value_s

    return LatencySummary(
        count=gaps.count,
        mean=gaps.sum_s / gaps.count if gaps.count else math.nan,
        p50=percentile_s(0.50),
        p90=percentile_s(0.90),
        p95=percentile_s(0.95),
        p99=percentile_s(0.99),
    )


def weighted_percentile_s(gaps: Sequence[tuple[float, int]], percent: float) -> float:
    """The gap that ``percent`` of all do not exceed, each given as (seconds, how many); NaN of nothing."""
    wanted = math.ceil(sum([times for _, times in gaps]) * percent / 100)
    for gap_s, times in sorted(gaps):
        wanted -= times
        if wanted <= 0:
            return gap_s
    return math.nan
