"""Latency words, defined once.

For request i with ``t_sched`` (arrival by the schedule), ``t_send``, ``t_first`` (first content token), ``t_last``,
``n_out`` output tokens:

=====================  =======================================================================================
TTFT                   t_first - t_send
E2E                    t_last - t_send
TPOT                   (E2E - TTFT) / (n_out - 1), only for n_out >= 2 (vllm-project/vllm:vllm/benchmarks/serve.py)
ITL                    gap between two successive stream events, pooled over all requests
client queue           t_send - t_sched: where a concurrency cap hides
user TTFT, user E2E    metric + client queue; an open-loop test is judged on these
goodput                completed requests that meet every per-request limit / duration
attainment             the same count / (completed + failed)
duration               last t_last - first t_sched, drain included
=====================  =======================================================================================

A percentile interpolates linearly over completed requests. With n = 1,000 the 95 % interval of P99 spans the 984th
to the 996th value; below the minimum sample a percentile is shown and never judged.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

MIN_SAMPLES = {50: 1, 90: 100, 95: 200, 99: 1000}
"""Completed requests below which a verdict on that percentile is withheld (facts: economics_and_sla, section 1)."""


def percentile(ordered: Sequence[float], percent: float) -> float:
    """The ``percent``-th percentile of ascending values, linearly interpolated; NaN of nothing."""
    if not ordered:
        return math.nan
    position = (len(ordered) - 1) * percent / 100
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def tpot_s(*, e2e_s: float, ttft_s: float, output_tokens: int) -> float | None:
    """Seconds per output token after the first, or None when there was no second token."""
    return (e2e_s - ttft_s) / (output_tokens - 1) if output_tokens >= 2 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class LatencySummary:
    """Mean and percentiles of one latency, in seconds; NaN where there is no sample."""

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float

    @classmethod
    def of(cls, values_s: Iterable[float]) -> LatencySummary:
        ordered = sorted(values_s)
        return cls(
            count=len(ordered),
            mean=math.fsum(ordered) / len(ordered) if ordered else math.nan,
            p50=percentile(ordered, 50),
            p90=percentile(ordered, 90),
            p95=percentile(ordered, 95),
            p99=percentile(ordered, 99),
        )
