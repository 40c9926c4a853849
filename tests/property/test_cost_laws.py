"""Laws of the economics, for any sensible figures."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.cost import fixed_cost
from roadworthy.cost.compare import Term, break_even, clusters_needed, compare_term
from roadworthy.cost.estimate import SECONDS_PER_MONTH
from roadworthy.cost.fixed import capital_per_month
from roadworthy.cost.price import Mix, blended_price
from roadworthy.spec.values import ApiSpec, ClusterSpec, CostSpec
from support.cost import h100, report, throughput

money = st.floats(1.0, 1e7)
prices = st.floats(0.01, 100.0)
rates = st.floats(1.0, 1e6)
shares = st.floats(0.0, 1.0)


@given(fixed=money, price=prices, rate=rates, variable=st.floats(0, 50))
def test_at_the_break_even_volume_both_cost_the_same_and_one_cluster_serves_it(
    fixed: float, price: float, rate: float, variable: float
) -> None:
    even = break_even(fixed, price, rate, variable=variable)
    volume = even.tokens_per_month
    if volume is None:
        assert even.wanted_tokens_per_month is None or even.wanted_tokens_per_month > even.limit_tokens_per_month
        return
    assert fixed + variable * volume / 1e6 == pytest.approx(price * volume / 1e6)
    assert clusters_needed(volume, rate) == 1


@given(fixed=money, price=prices, rate=rates, shared=shares)
def test_the_clusters_that_are_said_to_make_a_break_even_do_and_one_fewer_does_not(
    fixed: float, price: float, rate: float, shared: float
) -> None:
    staff = fixed * shared
    count = break_even(fixed, price, rate, shared_per_month=staff).needed_clusters
    worth = price * rate * SECONDS_PER_MONTH / 1e6

    def gain(clusters: int) -> float:
        return clusters * (worth - (fixed - staff)) - staff

    if count is None:
        assert worth <= fixed - staff
    else:
        assert gain(count) >= -1e-6 * max(fixed, worth) * count
        assert count == 1 or gain(count - 1) < 1e-6 * max(fixed, worth) * count


@given(volume=st.floats(0, 1e15), rate=rates, most=st.floats(0.05, 1.0))
def test_the_clusters_serve_the_volume_and_one_fewer_would_not(volume: float, rate: float, most: float) -> None:
    clusters = clusters_needed(volume, rate, most)
    each = rate * SECONDS_PER_MONTH * most
    assert clusters * each >= volume * (1 - 1e-6)
    assert clusters == 1 or (clusters - 1) * each < volume * (1 + 1e-6)


@given(hit=shares, share=shares, p_hit=prices, p_miss=prices, p_out=prices, peak=shares, times=st.floats(1, 5))
def test_a_blend_lies_between_its_cheapest_and_its_dearest_price(
    hit: float, share: float, p_hit: float, p_miss: float, p_out: float, peak: float, times: float
) -> None:
    found = blended_price(
        Mix(input_ratio=share, hit_ratio=hit, peak_ratio=peak),
        input_hit=p_hit, input_miss=p_miss, output=p_out, peak_multiplier=times,
    )  # fmt: skip
    ends = (p_hit, p_miss, p_out)
    assert min(ends) * (1 - 1e-9) <= found <= max(ends) * times * (1 + 1e-9)


@given(capex=money, months=st.integers(1, 120), interest=st.floats(0, 0.5), resale=shares)
def test_capital_costs_at_least_the_loss_in_value_and_rises_with_interest(
    capex: float, months: int, interest: float, resale: float
) -> None:
    paid = capital_per_month(capex, months=months, interest_ratio=interest, resale=capex * resale)
    assert paid * months >= capex * (1 - resale) - 1e-6 * capex
    dearer = capital_per_month(capex, months=months, interest_ratio=interest + 0.05, resale=capex * resale)
    assert dearer >= paid - 1e-9 * capex


@given(nodes=st.integers(1, 64), pue=st.floats(1, 3), months=st.integers(1, 120), spare=st.integers(0, 4))
def test_parts_add_up_and_the_base_lies_in_its_range(nodes: int, pue: float, months: int, spare: int) -> None:
    cost = CostSpec(pue=pue, months=months, spare_nodes=spare)
    fixed = fixed_cost(cost, ClusterSpec(nodes=nodes, gpus_per_node=8, gpu="H100-80GB"), h100())
    assert fixed is not None
    assert sum(part for _, part in fixed.parts) == pytest.approx(fixed.per_month)
    assert fixed.range[0] <= fixed.per_month <= fixed.range[1]


@given(
    volume=st.floats(1e6, 1e12), ramp=st.integers(0, 48), growth=shares, interest=shares, months=st.integers(1, 60),
    fixed=money, price=prices,
)  # fmt: skip
def test_a_term_adds_up_over_its_years_and_discounting_never_adds(
    volume: float, ramp: int, growth: float, interest: float, months: int, fixed: float, price: float
) -> None:
    found = compare_term(
        Term(
            months=months, volume_tokens_per_month=volume, ramp_months=ramp, growth_ratio=growth,
            interest_ratio=interest,
        ),
        fixed_per_month=fixed, price=price, tokens_per_s=1e4,
    )  # fmt: skip
    assert sum(year.own for year in found.years) == pytest.approx(found.own)
    assert sum(year.api for year in found.years) == pytest.approx(found.api)
    assert found.own_present <= found.own * (1 + 1e-9)
    assert found.api_present <= found.api * (1 + 1e-9)
    clusters = [year.clusters for year in found.years]
    assert clusters == sorted(clusters)
    if found.payback_month is not None:
        assert found.saving_present >= 0


@given(fixed=money, price=prices, total=st.floats(10, 1e6), use=st.floats(0.01, 1.0))
def test_self_hosting_is_never_advised_where_the_api_is_cheaper(
    fixed: float, price: float, total: float, use: float
) -> None:
    cost = CostSpec(fixed_per_month=fixed, api=ApiSpec(input_miss=price, output=price), utilisation_ratio=use)
    found = report(cost, throughput(total=total, output=total / 2))
    cheaper = found.own_at_volume <= (found.api_at_volume or 0.0)
    if found.decision.choice == "self-host":
        assert cheaper
        assert found.break_even is not None
        assert found.break_even.tokens_per_month is not None
    if not cheaper:
        assert found.decision.choice == "API"


@given(use=st.floats(0.01, 0.99), total=st.floats(10, 1e6))
def test_more_use_and_more_throughput_never_make_a_token_dearer(use: float, total: float) -> None:
    def unit(ratio: float, rate: float) -> float:
        cost = CostSpec(fixed_per_month=57_000, utilisation_ratio=ratio)
        return report(cost, throughput(total=rate, output=rate / 2)).unit_cost_per_mtok

    assert unit(min(1.0, use * 1.1), total) < unit(use, total)
    assert unit(use, total * 1.1) < unit(use, total)


@given(
    volume=st.floats(1e6, 1e12), growth=shares, months=st.integers(1, 60), fixed=money, price=prices,
    most=st.floats(0.1, 1),
)  # fmt: skip
def test_sending_the_overflow_to_the_api_never_costs_more(
    volume: float, growth: float, months: int, fixed: float, price: float, most: float
) -> None:
    def paid(overflow: bool) -> float:
        return compare_term(
            Term(months=months, volume_tokens_per_month=volume, growth_ratio=growth),
            fixed_per_month=fixed, price=price, tokens_per_s=1e4, max_utilisation_ratio=most, overflow=overflow,
        ).own  # fmt: skip

    assert paid(True) <= paid(False) * (1 + 1e-9)
