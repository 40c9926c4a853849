"""Intervals hold what they promise, also where neighbours share their luck."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.intervals import (
    MIN_BLOCKS,
    Blocks,
    Resampled,
    beta_cdf,
    correlation_length,
    latency_intervals,
    share_interval,
)
from roadworthy.core.latency import percentile
from roadworthy.core.records import RequestRecord


def resampled(values: list[float], seed: int = 0, times: int = 200) -> Resampled:
    blocks = Blocks.of_times([float(at) for at in range(len(values))], [0.1] * len(values), values)
    return Resampled(values, blocks.of, blocks.resamples(seed, times))


@given(st.lists(st.floats(0, 10), min_size=1, max_size=60), st.integers(0, 5))
def test_a_resampled_percentile_is_that_of_the_values_written_out(values: list[float], seed: int) -> None:
    blocks = Blocks(of=tuple(at % 7 for at in range(len(values))), count=7)
    (weights,) = blocks.resamples(seed, 1)
    written = sorted(value for value, block in zip(values, blocks.of, strict=True) for _ in range(weights[block]))
    stats = Resampled(values, blocks.of, [weights]).stats
    for percent in (50, 99):
        assert stats[f"p{percent}"][0] == pytest.approx(percentile(written, percent), nan_ok=True)
    assert stats["mean"][0] == pytest.approx(math.fsum(written) / len(written) if written else math.nan, nan_ok=True)


def test_the_true_median_lies_in_about_95_of_100_intervals() -> None:
    hits = 0
    for seed in range(60):
        rng = random.Random(seed)
        interval = resampled([rng.expovariate(1.0) for _ in range(400)], seed, times=150).interval("p50")
        assert interval is not None
        hits += interval.low <= math.log(2) <= interval.high
    assert hits >= 51, "a correct interval misses more than 9 of 60 once in 600 tries"


def test_neighbours_that_share_their_luck_widen_the_interval() -> None:
    rng = random.Random(4)
    level, shared = 0.0, []
    for _ in range(1000):
        level = 0.95 * level + rng.gauss(0, 0.3)
        shared.append(math.exp(level))
    alone = rng.sample(shared, len(shared))
    wide, narrow = resampled(shared).interval("p50"), resampled(alone).interval("p50")
    assert wide is not None
    assert narrow is not None
    assert wide.high - wide.low > 2 * (narrow.high - narrow.low)


def test_the_length_of_correlation_is_one_for_independent_values_and_long_for_a_drift() -> None:
    rng = random.Random(1)
    assert correlation_length([rng.random() for _ in range(2000)]) < 1.2
    assert correlation_length([float(at) for at in range(2000)]) > 50
    assert correlation_length([1.0] * 50) == 1.0


def test_stretches_are_as_long_as_an_answer_takes() -> None:
    times_s = [at * 0.1 for at in range(2000)]
    noise = random.Random(2)
    waits_s = [noise.random() for _ in times_s]
    assert Blocks.of_times(times_s, [0.2] * 2000, waits_s).count > 100
    assert Blocks.of_times(times_s, [8.0] * 2000, waits_s).count == 25


@given(st.integers(1, 3000))
def test_every_request_is_in_one_stretch_and_no_stretch_is_empty(number: int) -> None:
    blocks = Blocks.of_times([float(at) for at in range(number)], [1.0] * number, [0.0] * number)
    assert sorted(set(blocks.of)) == list(range(blocks.count))
    assert len(blocks.of) == number


def record(at_s: float, *, took_s: float, ok: bool = True) -> RequestRecord:
    return RequestRecord(
        t_sched_s=at_s, t_send_s=at_s, t_first_s=at_s + took_s, t_last_s=at_s + 2 * took_s, n_in=1, n_out=2, ok=ok
    )


def test_intervals_of_a_run_cover_completed_requests_only() -> None:
    rng = random.Random(3)
    records = [record(float(at), took_s=rng.uniform(0.1, 0.2)) for at in range(300)]
    records += [record(1000.0 + at, took_s=50.0, ok=False) for at in range(50)]
    found = latency_intervals(records, {"ttft_s": lambda one: one.ttft_s})
    low, high = found["ttft_s"]["p50"]
    assert 0.1 < low <= 0.15 <= high < 0.2


def test_too_few_requests_have_no_interval() -> None:
    records = [record(float(at), took_s=0.1) for at in range(MIN_BLOCKS - 1)]
    assert latency_intervals(records, {"ttft_s": lambda one: one.ttft_s}) == {"ttft_s": {}}
    assert latency_intervals([], {"ttft_s": lambda one: one.ttft_s}) == {"ttft_s": {}}


@pytest.mark.parametrize(
    ("hits", "of", "low", "high"),
    [(0, 10, 0.0, 0.3085), (5, 10, 0.1871, 0.8129), (10, 10, 0.6915, 1.0), (1, 100, 0.000253, 0.05446)],
)
def test_a_share_has_the_interval_of_clopper_and_pearson(hits: int, of: int, low: float, high: float) -> None:
    """Values of the published tables (to their four digits)."""
    found = share_interval(hits, of)
    assert found.low == pytest.approx(low, abs=6e-5)
    assert found.high == pytest.approx(high, abs=6e-5)


@given(st.integers(1, 400), st.data())
def test_the_interval_of_a_share_holds_the_share(of: int, data: st.DataObject) -> None:
    hits = data.draw(st.integers(0, of))
    low, high = share_interval(hits, of)
    assert 0 <= low <= hits / of <= high <= 1


@given(st.integers(1, 30), st.integers(1, 30), st.floats(0.01, 0.99))
def test_the_incomplete_beta_is_the_tail_of_a_binomial(a: int, b: int, x: float) -> None:
    n = a + b - 1
    tail = math.fsum(math.comb(n, k) * x**k * (1 - x) ** (n - k) for k in range(a, n + 1))
    assert beta_cdf(x, a, b) == pytest.approx(tail, abs=1e-9)
