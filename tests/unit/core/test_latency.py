"""Percentiles interpolate linearly; TPOT leaves the first token out."""

from __future__ import annotations

import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.core.latency import LatencySummary, percentile, tpot_s

latencies = st.lists(st.floats(min_value=0, max_value=1e6), min_size=2, max_size=200)


@given(latencies)
def test_percentiles_agree_with_the_inclusive_definition_of_the_standard_library(values: list[float]) -> None:
    cuts = statistics.quantiles(values, n=100, method="inclusive")
    summary = LatencySummary.of(values)
    for seen, wanted in ((summary.p50, cuts[49]), (summary.p90, cuts[89]), (summary.p99, cuts[98])):
        assert seen == pytest.approx(wanted, rel=1e-9, abs=1e-9)


def test_nothing_measured_has_no_percentile() -> None:
    assert math.isnan(percentile([], 50))
    assert LatencySummary.of([]).count == 0


def test_tpot_counts_the_tokens_after_the_first() -> None:
    assert tpot_s(e2e_s=3.65, ttft_s=0.05, output_tokens=181) == pytest.approx(0.02)


def test_one_token_has_no_tpot() -> None:
    assert tpot_s(e2e_s=1.0, ttft_s=1.0, output_tokens=1) is None
