"""Laws of the rate: never more than a burst and what time lets through, and never less."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.route.govern.gcra import MINUTE_US, corrected, cost_us, taken, used_units

RATES = st.integers(1, 100_000)
ASKS = st.lists(st.tuples(st.integers(0, 5_000_000), st.integers(1, 50)), max_size=150)


@given(RATES, ASKS)
def test_no_more_than_a_minutes_worth_and_what_time_lets_through(per_minute: int, asks: list[tuple[int, int]]) -> None:
    tat_us, now_us, passed, calls = 0, 10**9, 0, 0
    for gap_us, units in asks:
        now_us += gap_us
        tat_us, wait_us = taken(tat_us, now_us, cost_us(units, per_minute))
        passed += 0 if wait_us else units
        calls += 1
    rounding = calls * per_minute / MINUTE_US  # each cost is rounded down by less than a microsecond
    assert passed <= per_minute + (now_us - 10**9) * per_minute / MINUTE_US + rounding + 1e-6


@given(RATES, ASKS, st.integers(1, 50))
def test_what_is_refused_passes_after_the_time_that_was_told_and_not_before(
    per_minute: int, asks: list[tuple[int, int]], units: int
) -> None:
    tat_us, now_us = 0, 10**9
    for gap_us, before in asks:
        now_us += gap_us
        tat_us, _ = taken(tat_us, now_us, cost_us(before, per_minute))
    more_us = cost_us(units, per_minute)
    unchanged_us, wait_us = taken(tat_us, now_us, more_us)
    if not wait_us:
        return
    assert unchanged_us == tat_us, "a refusal takes nothing"
    if more_us <= MINUTE_US:
        assert taken(tat_us, now_us + wait_us, more_us)[1] == 0
        assert taken(tat_us, now_us + wait_us - 1, more_us)[1] == 1


@given(RATES)
def test_after_a_quiet_minute_the_whole_minute_may_go_at_once(per_minute: int) -> None:
    tat_us, wait_us = taken(-MINUTE_US, 0, cost_us(per_minute, per_minute))
    assert (tat_us, wait_us) == (MINUTE_US, 0)
    assert used_units(tat_us, 0, per_minute) == per_minute
    assert used_units(tat_us, MINUTE_US, per_minute) == 0


@given(RATES, st.floats(0, 1), st.integers(0, 10_000))
def test_a_correction_is_as_if_the_truth_had_been_known(per_minute: int, share: float, used: int) -> None:
    charged = int(per_minute * share)
    tat_us, wait_us = taken(0, 0, cost_us(charged, per_minute))
    assert not wait_us
    assert corrected(tat_us, charged, used, per_minute) == cost_us(used, per_minute)
