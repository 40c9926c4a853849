"""How fast a queue moves, told from what was seen while something waited."""

from __future__ import annotations

import pytest

from roadworthy.route.govern.pace import Pace


def steady(gap_s: float, starts: int) -> tuple[Pace, float]:
    pace, now_s = Pace(), 100.0
    pace.backlog_began(now_s)
    for _ in range(starts):
        now_s += gap_s
        pace.started(now_s)
    return pace, now_s


@pytest.mark.parametrize("gap_s", [0.01, 0.5, 2.0, 10.0])
def test_an_even_pace_is_told_exactly(gap_s: float) -> None:
    pace, now_s = steady(gap_s, 100)
    assert pace.per_s(now_s) == pytest.approx(1 / gap_s, rel=1e-6)


def test_nothing_is_said_before_enough_was_seen() -> None:
    pace, now_s = steady(0.1, 3)
    assert pace.per_s(now_s) is None
    pace, now_s = steady(5.0, 1)
    assert pace.per_s(now_s) is None


def test_a_queue_that_stands_still_is_slower_with_every_second() -> None:
    pace, now_s = steady(1.0, 50)
    rates = [pace.per_s(now_s + later) or 0.0 for later in range(600)]
    assert rates[0] == pytest.approx(1.0)
    assert rates == sorted(rates, reverse=True)
    assert rates[-1] == pytest.approx(1 / 599)


def test_time_without_a_queue_does_not_count() -> None:
    pace, now_s = steady(1.0, 50)
    pace.backlog_began(now_s + 10_000.0)
    assert pace.per_s(now_s + 10_000.0) == pytest.approx(1.0, rel=1e-6)


def test_several_starts_at_one_moment_are_as_many() -> None:
    pace, now_s = Pace(), 0.0
    pace.backlog_began(now_s)
    for _ in range(200):
        now_s += 4.0
        for _ in range(8):
            pace.started(now_s)
    assert pace.per_s(now_s) == pytest.approx(2.0, rel=0.15)
