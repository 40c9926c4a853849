"""The 99th percentile of gaps between events, exact for short streams and bounded in memory for long ones."""

from __future__ import annotations

from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.gateway.data.gaps import FEWEST, Gaps, p99_of
from roadworthy.gateway.data.stream import MARKS_KEPT, EventGate


def marks(gaps_s: list[float]) -> list[float]:
    return list(accumulate(gaps_s, initial=100.0))


def test_too_few_gaps_say_nothing() -> None:
    assert p99_of([]) is None
    assert p99_of(marks([0.1] * (FEWEST - 1))) is None
    assert p99_of(marks([0.1] * FEWEST)) == pytest.approx(0.1)


def test_one_long_gap_in_a_hundred_is_not_the_99th_percentile_and_two_are() -> None:
    assert p99_of(marks([0.01] * 99 + [5.0])) == pytest.approx(0.01)
    assert p99_of(marks([0.01] * 98 + [5.0, 5.0])) == pytest.approx(5.0)


@given(st.lists(st.floats(1e-4, 100.0), min_size=FEWEST, max_size=400), st.integers(1, 50))
def test_folding_anywhere_keeps_the_percentile_within_a_bucket(gaps_s: list[float], step: int) -> None:
    times_s = marks(gaps_s)
    folded = Gaps()
    for start in range(0, len(times_s), step):
        folded.fold(times_s[start : start + step])
    exact = p99_of(times_s)
    assert exact is not None
    assert folded.p99_s() == pytest.approx(exact, rel=0.05)
    assert folded.count == len(gaps_s)


def test_a_stream_keeps_few_marks_however_long_it_is() -> None:
    gate = EventGate(1000)
    for at in range(10_000):
        gate.passed(b"data: x\n\n", at * 0.02)
        if at % 100 == 0:
            gate.fold()
    assert len(gate.marks_s) <= MARKS_KEPT + 100
    assert gate.itl_p99_s() == pytest.approx(0.02, rel=0.05)
    assert gate.events == 10_000
