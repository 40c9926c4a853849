"""The fixed cost: three ways to say it, what adds up, and what the catalog stands in for."""

from __future__ import annotations

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.core.errors import SpecError
from roadworthy.cost.fixed import capital_per_month, fixed_cost, fixed_with, power_per_month
from roadworthy.spec.values import ClusterSpec, CostSpec

H100 = gpu_by_name("H100-80GB")
CLUSTER = ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100-80GB")


def month(cost: CostSpec) -> float:
    fixed = fixed_cost(cost, CLUSTER, H100)
    assert fixed is not None
    assert sum(money for _, money in fixed.parts) == pytest.approx(fixed.per_month)
    return fixed.per_month


def test_without_interest_capital_is_the_loss_in_value_spread_over_the_months() -> None:
    assert capital_per_month(1200, months=12, interest_ratio=0, resale=240) == pytest.approx(80)


def test_capital_pays_the_loan_back() -> None:
    """Twelve annuities and the resale, discounted, are worth the purchase."""
    rate, monthly = 0.12, 0.01
    paid = capital_per_month(1000, months=12, interest_ratio=rate, resale=100)
    worth = sum(paid / (1 + monthly) ** n for n in range(1, 13)) + 100 / (1 + monthly) ** 12
    assert worth == pytest.approx(1000)


def test_power_counts_the_site_and_all_hours() -> None:
    assert power_per_month(40.8, pue=1.3, kwh_price=0.1) == pytest.approx(3871.92)


def test_staff_network_and_other_come_on_top_of_the_gpu_hour() -> None:
    alone = month(CostSpec(gpu_hour=2.0))
    assert month(CostSpec(gpu_hour=2.0, staff_per_month=100, network_per_month=20, other_per_month=3)) == alone + 123


def test_no_staff_is_assumed_beside_a_gpu_hour() -> None:
    assert month(CostSpec(gpu_hour=2.0)) == 2.0 * 32 * 730


def test_the_stated_month_goes_before_the_gpu_hour() -> None:
    assert month(CostSpec(fixed_per_month=57_000, gpu_hour=99)) == 57_000


def test_a_spare_node_costs_like_the_others() -> None:
    assert month(CostSpec(gpu_hour=2.0, spare_nodes=1)) == pytest.approx(month(CostSpec(gpu_hour=2.0)) * 5 / 4)
    owned, spared = month(CostSpec(staff_per_month=0)), month(CostSpec(staff_per_month=0, spare_nodes=1))
    assert spared == pytest.approx(owned * 5 / 4)


def test_power_of_a_node_and_of_a_gpu_are_two_ways_to_say_one_thing() -> None:
    assert month(CostSpec(node_power_w=10_200)) == pytest.approx(month(CostSpec(power_per_gpu_w=1275)))


def test_the_catalogs_node_power_is_that_of_the_nameplate() -> None:
    assert month(CostSpec()) == pytest.approx(month(CostSpec(node_power_w=10_200)))


def test_a_catalog_price_needs_a_rate_for_another_currency() -> None:
    with pytest.raises(SpecError) as caught:
        fixed_cost(CostSpec(currency="EUR"), CLUSTER, H100)
    assert caught.value.problems[0].path == "cost.usd_rate"
    assert month(CostSpec(currency="EUR", usd_rate=0.9)) == pytest.approx(0.9 * month(CostSpec()))


def test_figures_all_in_another_currency_need_no_rate() -> None:
    fixed = fixed_cost(CostSpec(currency="EUR", gpu_hour=2.0), CLUSTER, H100)
    assert fixed is not None
    assert fixed.currency == "EUR"


def test_a_gpu_without_purchase_price_takes_the_catalogs_hour_with_its_range() -> None:
    fixed = fixed_cost(CostSpec(), CLUSTER, gpu_by_name("H200"))
    assert fixed is not None
    assert fixed.range == pytest.approx((1.41 * 32 * 730, 1.74 * 32 * 730))
    assert fixed.per_month == fixed.range[1]


@pytest.mark.parametrize("cost", [CostSpec(), CostSpec(gpu_hour=2.0, staff_per_month=500.0), CostSpec(spare_nodes=2)])
def test_moving_an_input_to_where_it_stands_changes_nothing(cost: CostSpec) -> None:
    fixed = fixed_cost(cost, CLUSTER, H100)
    assert fixed is not None
    for one in fixed.inputs:
        assert fixed_with(fixed, one.name, one.band.base, cost, CLUSTER) == pytest.approx(fixed.per_month), one.name


def test_every_default_names_its_source() -> None:
    fixed = fixed_cost(CostSpec(), CLUSTER, H100)
    assert fixed is not None
    assert all(one.band.source and not one.stated for one in fixed.inputs)
