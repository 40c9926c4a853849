"""The tornado: the strongest input first, each with the results at its ends."""

from __future__ import annotations

import pytest

from roadworthy.spec.values import CostSpec
from support.cost import API, report, throughput


def test_the_strongest_comes_first_and_two_are_named() -> None:
    found = report(CostSpec(gpu_hour=2.44, api=API), throughput(error_band=0.35))
    spreads = [one.spread for one in found.influences]
    assert spreads == sorted(spreads, reverse=True)
    assert found.strongest == (found.influences[0].name, found.influences[1].name)
    assert set(found.strongest) == {"utilisation", "API price"}


def test_a_stated_figure_is_moved_by_a_fifth() -> None:
    found = report(CostSpec(gpu_hour=2.5, api=API))
    hour = next(one for one in found.influences if one.name == "GPU-hour")
    assert (hour.low, hour.high) == ("2", "3")
    assert hour.at_low == pytest.approx(found.result * 0.8)
    assert hour.at_high == pytest.approx(found.result * 1.2)


def test_a_catalog_figure_is_moved_over_its_range() -> None:
    found = report(CostSpec(api=API))
    capex = next(one for one in found.influences if one.name == "purchase price")
    assert (capex.low, capex.high) == ("1,100,000", "1,750,000")
    assert capex.at_low < found.result < capex.at_high


def test_prices_of_the_catalog_move_over_their_own_dated_lists() -> None:
    found = report(CostSpec(fixed_per_month=57_000))
    price = next(one for one in found.influences if one.name == "API price")
    assert "2026-04" in price.why
    assert price.at_low > found.result > price.at_high


def test_half_the_use_doubles_the_cost() -> None:
    found = report(CostSpec(fixed_per_month=57_000, api=API, utilisation_ratio=0.6))
    use = next(one for one in found.influences if one.name == "utilisation")
    assert use.at_low == pytest.approx(2 * found.result)
    assert use.at_high == pytest.approx(found.result * 0.6 / 0.9)


@pytest.mark.parametrize(("may_leave", "cost"), [(False, 2 * 57_000), (True, 57_000 + 2.5 * (22_500 - 18_299))])
def test_a_stated_volume_is_moved_instead_and_can_need_another_cluster(may_leave: bool, cost: float) -> None:
    """22.5 B do not fit one cluster: a second one, or the rest at the API where the data may leave."""
    stated = CostSpec(fixed_per_month=57_000, api=API, volume_tokens_per_month=15 * 10**9, data_may_leave=may_leave)
    found = report(stated)
    assert "utilisation" not in {one.name for one in found.influences}
    volume = next(one for one in found.influences if one.name == "volume")
    assert volume.reach[0] <= found.result <= volume.reach[1]
    assert volume.at_high == pytest.approx(cost / 22.5e9 * 1e6 / 2.5, rel=1e-4)


def test_a_price_that_knows_no_cache_is_not_moved_by_it() -> None:
    names = {one.name for one in report(CostSpec(fixed_per_month=57_000, api=API)).influences}
    assert "cached share of input" not in names


def test_without_a_price_the_own_cost_is_what_moves() -> None:
    found = report(CostSpec(fixed_per_month=57_000), model="Nobody/Model")
    assert found.result == pytest.approx(found.unit_cost_per_mtok)
    assert "API price" not in {one.name for one in found.influences}
