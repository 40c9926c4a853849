"""Break-even within capacity or none, clusters for a volume, and a term with its ramp."""

from __future__ import annotations

import pytest

from roadworthy.cost.compare import Term, break_even, clusters_needed, compare_term
from roadworthy.cost.estimate import SECONDS_PER_MONTH

FULL = 1000 * SECONDS_PER_MONTH


def test_a_break_even_within_capacity_stands() -> None:
    even = break_even(1000, 2.0, 1000.0)
    assert even.tokens_per_month == pytest.approx(5e8)
    assert even.limit_tokens_per_month == FULL


def test_own_variable_cost_moves_it_away_and_above_the_price_there_is_none() -> None:
    assert break_even(1000, 2.0, 1000.0, variable=1.0).tokens_per_month == pytest.approx(1e9)
    none = break_even(1000, 2.0, 1000.0, variable=2.0)
    assert (none.tokens_per_month, none.wanted_tokens_per_month, none.needed_tokens_per_s) == (None, None, None)


@pytest.mark.parametrize("what", ["throughput", "price"])
def test_what_is_said_to_make_a_break_even_makes_one(what: str) -> None:
    none = break_even(10_000, 2.0, 1000.0)
    assert none.tokens_per_month is None
    assert none.needed_tokens_per_s is not None
    assert none.needed_price_per_mtok is not None
    if what == "throughput":
        assert break_even(10_000, 2.0, none.needed_tokens_per_s * 1.0001).tokens_per_month is not None
        assert break_even(10_000, 2.0, none.needed_tokens_per_s * 0.9999).tokens_per_month is None
    else:
        assert break_even(10_000, none.needed_price_per_mtok * 1.0001, 1000.0).tokens_per_month is not None
        assert break_even(10_000, none.needed_price_per_mtok * 0.9999, 1000.0).tokens_per_month is None


def test_clusters_under_one_staff_can_make_a_break_even() -> None:
    """A full cluster is worth 5,256 a month, its hardware costs 5,000, the staff 1,000: the fourth pays it."""
    even = break_even(6000, 2.0, 1000.0, shared_per_month=1000.0)
    assert even.tokens_per_month is None
    assert even.needed_clusters == 4
    worth = 2.0 * FULL / 1e6
    assert 4 * worth >= 4 * 5000 + 1000
    assert 3 * worth < 3 * 5000 + 1000


def test_hardware_dearer_than_the_api_makes_none_with_any_number() -> None:
    assert break_even(9000, 2.0, 1000.0, shared_per_month=1000.0).needed_clusters is None


@pytest.mark.parametrize(("volume", "most", "clusters"), [
    (0, 1.0, 1), (FULL, 1.0, 1), (FULL * 1.01, 1.0, 2), (FULL, 0.5, 2), (FULL * 3, 1.0, 3),
])  # fmt: skip
def test_clusters_for_a_volume(volume: float, most: float, clusters: int) -> None:
    assert clusters_needed(volume, 1000.0, most) == clusters


def test_nothing_served_serves_no_volume() -> None:
    with pytest.raises(ValueError, match="serve no volume"):
        clusters_needed(1.0, 0.0)


def test_a_ramp_rises_in_a_line_and_averages_half() -> None:
    term = Term(months=12, volume_tokens_per_month=100.0, ramp_months=4)
    assert [term.volume(month) for month in range(1, 6)] == [12.5, 37.5, 62.5, 87.5, 100.0]


def test_growth_doubles_the_volume_in_a_year() -> None:
    term = Term(months=24, volume_tokens_per_month=100.0, growth_ratio=1.0)
    assert term.volume(12) == pytest.approx(200.0)


def test_without_interest_paid_and_present_are_one() -> None:
    result = compare_term(
        Term(months=24, volume_tokens_per_month=1e9, setup_cost=50, exit_cost=7),
        fixed_per_month=1000, price=2.0, tokens_per_s=1000.0,
    )  # fmt: skip
    assert result.own == result.own_present == 24 * 1000 + 57
    assert result.api == result.api_present == 24 * 2000
    assert result.payback_month == 1
    assert [year.year for year in result.years] == [1, 2]


def test_both_streams_are_discounted_at_the_same_rate() -> None:
    result = compare_term(
        Term(months=36, volume_tokens_per_month=5e8, interest_ratio=0.12),
        fixed_per_month=1000, price=2.0, tokens_per_s=1000.0,
    )  # fmt: skip
    assert result.own_present == pytest.approx(1000 * (1 - 1.01**-36) / 0.01)
    assert result.saving_present == pytest.approx(0, abs=1e-6)


def test_a_ramp_puts_the_payback_off() -> None:
    def payback(ramp: int) -> int | None:
        term = Term(months=36, volume_tokens_per_month=1e9, ramp_months=ramp)
        return compare_term(term, fixed_per_month=1000, price=2.0, tokens_per_s=1000.0).payback_month

    quick, slow = payback(0), payback(12)
    assert quick == 0, "cheaper from the start"
    assert slow is not None
    assert slow > 10


def test_clusters_are_added_as_the_volume_grows_and_kept() -> None:
    result = compare_term(
        Term(months=36, volume_tokens_per_month=FULL * 0.9, growth_ratio=1.0),
        fixed_per_month=1000, price=2.0, tokens_per_s=1000.0,
    )  # fmt: skip
    assert [year.clusters for year in result.years] == [2, 4, 8]


def test_with_overflow_a_cluster_is_added_only_once_it_is_worth_it() -> None:
    """A full cluster serves 2.63 B; the API takes 1,000 for half a billion, as much as a cluster costs."""
    term = Term(months=24, volume_tokens_per_month=FULL + 4e8, growth_ratio=1.0)
    known = {"fixed_per_month": 1000, "price": 2.0, "tokens_per_s": 1000.0}
    plain, mixed = compare_term(term, **known), compare_term(term, **known, overflow=True)
    assert mixed.own < plain.own
    assert mixed.years[0].clusters <= plain.years[0].clusters
    one_month = compare_term(Term(months=1, volume_tokens_per_month=FULL + 4e8), **known, overflow=True)
    assert one_month.own == pytest.approx(1000 + 800)


def test_a_busy_hour_bounds_the_break_even() -> None:
    """Traffic that can fill half of the month at most halves what one cluster serves, and doubles what it takes."""
    flat, peaked = break_even(4000, 2.0, 1000.0), break_even(4000, 2.0, 1000.0, max_utilisation_ratio=0.5)
    assert flat.tokens_per_month == pytest.approx(2e9)
    assert peaked.tokens_per_month is None
    assert peaked.limit_tokens_per_month == FULL / 2
    assert peaked.needed_tokens_per_s == pytest.approx(2 * 2e9 / SECONDS_PER_MONTH)
