"""Hand-worked values that the formulas must give: a brief's economics (57,000 a month, 2.50 per million), corrected."""

from __future__ import annotations

from pathlib import Path

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.prices import ApiPrices, known_prices
from roadworthy.cost import fixed_cost
from roadworthy.cost.compare import (
    Term,
    break_even,
    break_even_price_per_mtok,
    break_even_tokens_per_month,
    clusters_needed,
    compare_term,
)
from roadworthy.cost.estimate import (
    SECONDS_PER_MONTH,
    capacity_tokens_per_month,
    gpu_hour,
    unit_cost_per_mtok,
)
from roadworthy.cost.price import Mix, blended, blended_price, call_cost, peak_ratio
from roadworthy.spec.values import ClusterSpec, CostSpec

FIXED, PRICE, RATE = 57_000.0, 2.5, 6963.2
SLA_TABLE = 238.4 / 435.2
CLUSTER = ClusterSpec(nodes=4, gpus_per_node=8, gpu="H100-80GB")
V4, K3 = known_prices().api("deepseek-v4-pro"), known_prices().api("kimi-k3")
CALL = 131_072


def test_break_even_volume() -> None:
    wanted = break_even_tokens_per_month(FIXED, PRICE)
    assert wanted == pytest.approx(22.8e9)
    assert wanted is not None
    assert wanted / SECONDS_PER_MONTH == pytest.approx(8676, abs=1)


def test_capacity_of_the_tables_throughput() -> None:
    assert capacity_tokens_per_month(RATE) == pytest.approx(18.299e9, rel=1e-4)


def test_the_break_even_of_the_brief_exceeds_its_capacity() -> None:
    even = break_even(FIXED, PRICE, RATE)
    assert even.tokens_per_month is None
    assert even.wanted_tokens_per_month == pytest.approx(22.8e9)
    assert even.needed_tokens_per_s == pytest.approx(8676, abs=1)
    assert even.needed_price_per_mtok == pytest.approx(3.11, abs=0.01)
    assert even.needed_clusters is None


@pytest.mark.parametrize(("use", "cost"), [(1.0, 3.11), (0.5, 6.23)])
def test_unit_cost_at_full_and_half_use(use: float, cost: float) -> None:
    assert unit_cost_per_mtok(FIXED, capacity_tokens_per_month(RATE, use)) == pytest.approx(cost, abs=0.01)


def test_blended_price_off_peak_peak_and_over_a_flat_week() -> None:
    off_peak = Mix(input_ratio=SLA_TABLE)
    assert blended(off_peak, V4) == pytest.approx(1.257, abs=5e-4)
    assert blended(Mix(input_ratio=SLA_TABLE, peak_ratio=1.0), V4) == pytest.approx(2.514, abs=1e-3)
    assert peak_ratio((), V4) == pytest.approx(35 / 168)
    assert blended(Mix(input_ratio=SLA_TABLE, peak_ratio=peak_ratio((), V4)), V4) == pytest.approx(1.52, abs=0.005)


def test_blended_price_of_the_april_list() -> None:
    assert blended(Mix(input_ratio=SLA_TABLE), known_prices().api("deepseek-v4-pro-2026-04")) == pytest.approx(
        2.53, abs=0.005
    )


def test_blended_price_with_cache_hits() -> None:
    assert blended(Mix(input_ratio=8 / 9, hit_ratio=0.5), V4) == pytest.approx(0.52, abs=0.005)
    assert blended(Mix(input_ratio=64_000 / 64_400, hit_ratio=0.9), V4) == pytest.approx(0.10, abs=0.005)


@pytest.mark.parametrize(
    ("price", "cost"),
    [
        (0.66, 0.0865), (1.32, 0.173), (0.022, 0.003), (0.044, 0.006), (PRICE, 0.33), (3.0, 0.39), (6.1035, 0.8),
    ],
)  # fmt: skip
def test_cost_of_a_call_of_128k(price: float, cost: float) -> None:
    assert call_cost(CALL, price) == pytest.approx(cost, rel=0.03, abs=3e-4)


def test_gpu_hour() -> None:
    assert gpu_hour(FIXED, 32) == pytest.approx(2.440, abs=5e-4)


MIXES = {
    "238/197": Mix(input_ratio=238 / 435),
    "8k/1k": Mix(input_ratio=8 / 9),
    "8k/1k, half cached": Mix(input_ratio=8 / 9, hit_ratio=0.5),
    "64k/400, 90 % cached": Mix(input_ratio=64_000 / 64_400, hit_ratio=0.9),
}


@pytest.mark.parametrize(
    ("mix", "api", "peak", "volume", "tokens_per_s"),
    [
        ("238/197", V4, 0.0, 45.3e9, 17_256), ("238/197", V4, 1.0, 22.7e9, 8_628), ("238/197", K3, 0.0, 6.8e9, 2_574),
        ("8k/1k", V4, 0.0, 70.7e9, 26_888), ("8k/1k", V4, 1.0, 35.3e9, 13_444), ("8k/1k", K3, 0.0, 13.2e9, 5_005),
        ("8k/1k, half cached", V4, 0.0, 109e9, 41_463), ("8k/1k, half cached", V4, 1.0, 54.5e9, 20_731),
        ("8k/1k, half cached", K3, 0.0, 18.2e9, 6_922), ("64k/400, 90 % cached", V4, 0.0, 584e9, 222_308),
        ("64k/400, 90 % cached", V4, 1.0, 292e9, 111_154), ("64k/400, 90 % cached", K3, 0.0, 86.4e9, 32_881),
    ],
)  # fmt: skip
def test_break_even_by_price_and_mix(mix: str, api: ApiPrices, peak: float, volume: float, tokens_per_s: float) -> None:
    held = MIXES[mix]
    price = blended_price(
        held, input_hit=api.input_hit, input_miss=api.input_miss, output=api.output
    ) * (1 + peak * (api.peak_multiplier - 1))  # fmt: skip
    wanted = break_even_tokens_per_month(FIXED, price)
    assert wanted == pytest.approx(volume, rel=8e-3)
    assert wanted is not None
    assert wanted / SECONDS_PER_MONTH == pytest.approx(tokens_per_s, rel=2e-3)


@pytest.mark.parametrize(
    ("tokens_per_s", "cost"),
    [(4_735, 4.58), (3_810, 5.69), (17_168, 1.26), (13_457, 1.61), (1_077, 20.1), (2_347, 9.24)],
)
def test_own_cost_at_full_use(tokens_per_s: float, cost: float) -> None:
    assert unit_cost_per_mtok(FIXED, capacity_tokens_per_month(tokens_per_s)) == pytest.approx(cost, rel=3e-3)


@pytest.mark.parametrize(("daily", "saving"), [(1e9, 0.24), (2e9, 0.62), (1.2667e9, 0.40)])
def test_saving_with_one_cluster_that_could_serve_it(daily: float, saving: float) -> None:
    assert 1 - FIXED / (daily * 30 * PRICE / 1e6) == pytest.approx(saving, abs=0.005)


def test_a_billion_a_day_needs_two_such_clusters_and_they_cost_more_than_the_api() -> None:
    volume = 30e9
    assert clusters_needed(volume, RATE) == 2
    assert FIXED * clusters_needed(volume, RATE) == 114_000
    assert volume * PRICE / 1e6 == 75_000
    assert break_even_price_per_mtok(FIXED, volume, RATE) == pytest.approx(3.8)


def test_two_billion_a_day_need_four() -> None:
    assert clusters_needed(60e9, RATE) == 4


def test_three_years_of_100k_long_calls_a_month_cost_288_and_the_cluster_saves_29_percent() -> None:
    result = compare_term(
        Term(months=36, volume_tokens_per_month=100_000 * CALL),
        fixed_per_month=FIXED, price=0.8 / CALL * 1e6, tokens_per_s=RATE,
    )  # fmt: skip
    assert result.api == pytest.approx(2.88e6)
    assert result.own == pytest.approx(2.052e6)
    assert 1 - result.own / result.api == pytest.approx(0.29, abs=0.005)


def test_three_years_of_them_at_todays_price_cost_far_less_than_the_cluster() -> None:
    result = compare_term(
        Term(months=36, volume_tokens_per_month=100_000 * CALL), fixed_per_month=FIXED, price=0.66, tokens_per_s=RATE
    )
    assert result.api < result.own / 6
    assert result.payback_month is None


def test_240_million_a_year_cost_600_at_the_api() -> None:
    assert call_cost(2.4e8, PRICE) == pytest.approx(600)
    assert break_even_tokens_per_month(FIXED * 12, PRICE) == pytest.approx(273.6e9)


def test_base_low_and_high_of_32_owned_h100_from_the_catalog() -> None:
    fixed = fixed_cost(CostSpec(), CLUSTER, gpu_by_name("H100-80GB"))
    assert fixed is not None
    low, high = fixed.range
    assert fixed.per_month == pytest.approx(61_105, abs=1)
    page = (Path(__file__).resolve().parents[3] / "docs" / "concepts" / "cost.md").read_text(encoding="utf-8")
    assert f"{fixed.per_month:,.0f} USD a month, {low:,.0f} to {high:,.0f}" in page.replace("\n", " ")
    assert low == pytest.approx(37_000, abs=500)
    assert high == pytest.approx(99_000, abs=500)
    assert sum(money for _, money in fixed.parts) == pytest.approx(fixed.per_month)


def test_base_case_from_inputs_that_the_document_states() -> None:
    stated = CostSpec(
        capex=1.45e6, months=48, interest_ratio=0.10, resale_ratio=0.15, node_power_w=10_200, pue=1.3, kwh_price=0.10,
        space_per_kw=150, maintenance_ratio=0.05, staff_per_month=12_000,
    )  # fmt: skip
    fixed = fixed_cost(stated, CLUSTER, gpu_by_name("A100-80GB"))
    assert fixed is not None
    assert fixed.per_month == pytest.approx(61_105, abs=1)
    assert fixed.range == (fixed.per_month, fixed.per_month), "what is stated is taken as exact"
    assert dict(fixed.parts) == pytest.approx(
        {"capital": 33_072, "power": 3_872, "space": 6_120, "maintenance": 6_042, "staff": 12_000}, abs=1
    )


def test_57k_lies_within_the_range() -> None:
    fixed = fixed_cost(CostSpec(), CLUSTER, gpu_by_name("H100-80GB"))
    assert fixed is not None
    assert fixed.range[0] < FIXED < fixed.range[1]


def test_the_briefs_volume_at_a_flat_weeks_price() -> None:
    price = blended(Mix(input_ratio=SLA_TABLE, peak_ratio=peak_ratio((), V4)), V4)
    assert break_even_tokens_per_month(FIXED, price) == pytest.approx(37.5e9, rel=2e-3)
