"""Stretches of steps, when their tokens came, and gaps counted over all requests."""

from __future__ import annotations

import itertools
import random

import pytest

from roadworthy.twin.times import GapHistogram, History, Span, Stretch, TokenTimes


def stretch(first: int = 1, steps: int = 10, start_s: float = 0.0) -> Stretch:
    """Steps of 10 ms, each 1 ms longer than the one before."""
    return Stretch(first, steps, start_s, 0.010, 0.001)


def test_the_moments_of_a_stretch_are_sums_of_its_steps() -> None:
    expected = list(itertools.accumulate(0.010 + 0.001 * index for index in range(10)))
    assert [stretch().end_s(count) for count in range(1, 11)] == pytest.approx(expected)


@pytest.mark.parametrize("growth_s", [0.0, 0.001, 1e-9])
def test_a_step_has_ended_at_its_very_end_and_not_before(growth_s: float) -> None:
    steps = Stretch(1, 200, 5.0, 0.010, growth_s)
    for count in range(1, 201):
        end_s = steps.end_s(count)
        assert steps.ended(end_s) == count
        assert steps.ended(end_s - 1e-7) == count - 1
    assert (steps.ended(4.0), steps.ended(1e9)) == (0, 200)


def test_a_history_gives_the_part_that_was_asked() -> None:
    history, start_s = History(), 0.0
    for first, steps in ((1, 4), (5, 1), (6, 10)):
        one = stretch(first, steps, start_s)
        start_s = one.end_s(steps)
        history.add(one, start_s)
    whole = TokenTimes((Span(history, 0, 15),)).moments_s()
    assert len(whole) == 15
    assert history.last_s == whole[-1]
    for after, to in ((0, 3), (2, 9), (4, 5), (7, 15), (5, 15)):
        assert TokenTimes((Span(history, after, to),)).moments_s() == pytest.approx(whole[after:to])


def test_gaps_are_told_by_the_stretch_and_add_up_to_the_whole() -> None:
    history = History()
    history.add(stretch(1, 10, 1.0), stretch(1, 10, 1.0).end_s(10))
    history.add(Stretch(11, 5, 1.145, 0.02, 0.0), 1.245)
    times = TokenTimes((1.0, Span(history, 0, 15)))
    gaps, moments = times.gaps(), times.moments_s()
    assert [count for _, count in gaps] == [10, 5]
    assert sum(gap_s * count for gap_s, count in gaps) == pytest.approx(moments[-1] - moments[0])
    assert TokenTimes((Span(history, 0, 15),)).gaps()[0][1] == 9, "the first token has no gap before it"


def test_percentiles_of_gaps_are_within_half_a_per_cent() -> None:
    rng, histogram = random.Random(1), GapHistogram()
    gaps = [rng.lognormvariate(-4, 0.7) for _ in range(20_000)]
    for gap_s in gaps:
        histogram.add(gap_s, 1)
    assert (histogram.count, histogram.sum_s) == (20_000, pytest.approx(sum(gaps)))
    for ratio in (0.01, 0.5, 0.9, 0.99, 1.0):
        exact = sorted(gaps)[max(0, round(ratio * len(gaps)) - 1)]
        assert histogram.percentile_s(ratio) == pytest.approx(exact, rel=0.0051)


def test_histograms_of_several_engines_merge() -> None:
    one, other, both = GapHistogram(), GapHistogram(), GapHistogram()
    for histogram in (one, both):
        histogram.add(0.01, 5)
    for histogram in (other, both):
        histogram.add(0.02, 7)
        histogram.add(0.0, 2)
    one.merge(other)
    assert (one.count, one.sum_s, one.buckets) == (both.count, both.sum_s, both.buckets)
    assert one.percentile_s(0.1) == 0.0
    assert GapHistogram().percentile_s(0.5) is None
