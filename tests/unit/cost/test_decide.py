"""Each branch of the decision tree, with the numbers that its reasons quote."""

from __future__ import annotations

import pytest

from roadworthy.spec.values import ApiSpec, CostSpec
from support.cost import API, report, throughput

MONTH = CostSpec(fixed_per_month=57_000, api=API)


def cost(**more: object) -> CostSpec:
    return CostSpec(fixed_per_month=57_000, api=API, **more)  # type: ignore[arg-type]


def reasons(spec: CostSpec, **served: object) -> tuple[str, str]:
    found = report(spec, throughput(**served)).decision  # type: ignore[arg-type]
    return found.choice, " ".join(found.reasons)


def test_a_break_even_beyond_capacity_is_the_api_and_says_what_would_make_one() -> None:
    choice, why = reasons(MONTH)
    assert choice == "API"
    assert "No break-even on this cluster: it would be 22.8 B tokens a month and the cluster serves 18.3 B" in why
    assert "8,676 tokens/s" in why
    assert "3.11 per million" in why


def test_much_more_than_break_even_is_self_hosting() -> None:
    choice, why = reasons(cost(volume_tokens_per_month=40_000_000_000), total=20_000, output=9000)
    assert choice == "self-host"
    assert "40 B tokens a month cost 57,000 USD on one cluster and 100,000 USD" in why
    assert "Break-even is 22.8 B tokens a month" in why


def test_a_little_more_is_the_api_now() -> None:
    choice, why = reasons(cost(volume_tokens_per_month=25_000_000_000), total=20_000, output=9000)
    assert choice == "API now, re-check quarterly"
    assert "it is 1.10 times" in why


def test_less_is_the_api() -> None:
    choice, _ = reasons(cost(volume_tokens_per_month=20_000_000_000), total=20_000, output=9000)
    assert choice == "API"


def test_a_ramp_that_eats_the_saving_is_the_api_now() -> None:
    spec = cost(volume_tokens_per_month=31_000_000_000, ramp_months=36)
    choice, why = reasons(spec, total=20_000, output=9000)
    assert choice == "API now, re-check quarterly"
    assert "not over the term" in why


def test_clusters_scale_the_cost_with_the_volume() -> None:
    """A billion tokens a day: two clusters of this throughput at 114,000 against 75,000."""
    found = report(cost(volume_tokens_per_month=30_000_000_000))
    assert found.clusters == 2
    assert found.own_at_volume == 114_000
    assert found.api_at_volume == pytest.approx(75_000)
    assert found.break_even_price_per_mtok == pytest.approx(3.8)
    assert found.decision.choice == "API"


def test_a_step_that_is_hardly_used_is_avoided_by_the_api() -> None:
    """27 B fit one cluster at 40,000; two billion more would buy a second, and cost 5,000 at the API."""
    spec = CostSpec(fixed_per_month=40_000, api=API, volume_tokens_per_month=29_000_000_000)
    served = throughput(total=27e9 / 730 / 3600, output=1000)
    found = report(spec, served)
    assert found.clusters == 2
    assert found.overflow is not None
    assert found.overflow.per_month == pytest.approx(40_000 + 5_000)
    assert found.decision.choice == "self-host"
    assert found.decision.reasons[0].startswith(
        "29 B tokens a month cost 45,000 USD with one cluster kept full and the other 2 B tokens at the API, "
        "80,000 USD on 2 clusters, and 72,500 USD at their-api"
    )


def test_growth_that_pays_later_is_the_api_now() -> None:
    spec = cost(volume_tokens_per_month=20_000_000_000, growth_ratio=1.0)
    choice, why = reasons(spec, total=60_000, output=9000)
    assert choice == "API now, re-check quarterly"
    assert "as it grows" in why


def test_data_that_may_not_leave_decides_before_money_and_is_sized() -> None:
    choice, why = reasons(cost(data_may_leave=False, volume_tokens_per_month=30_000_000_000))
    assert choice == "self-host"
    assert why.startswith("The data may not leave")
    assert "need 2 clusters: 114,000 USD a month" in why


def test_own_weights_decide_before_money() -> None:
    choice, why = reasons(cost(needs=("customisation",)))
    assert choice == "self-host"
    assert "customisation" in why


def test_more_requests_at_once_than_the_api_allows_decide_before_money() -> None:
    spec = CostSpec(fixed_per_month=57_000, api=ApiSpec(input_miss=2.5, output=2.5, concurrency=500))
    assert reasons(spec, in_flight=501.0)[0] == "self-host"
    assert reasons(spec, in_flight=499.0)[0] == "API"


def test_an_sla_that_no_load_meets_comes_first_and_changes_hardware() -> None:
    choice, why = reasons(MONTH, meets_sla=False, meets_at_asked_rate=False, why="TP8: TTFT P99 9 s, 6 s promised")
    assert choice == "change hardware"
    assert why.startswith("No plan on these GPUs meets the SLA at any load (TP8: TTFT P99 9 s, 6 s promised)")


def test_one_run_that_misses_the_sla_decides_nothing() -> None:
    choice, why = reasons(MONTH, meets_sla=False, meets_at_asked_rate=False, searched=False, why="P99 over")
    assert choice == "undecided"
    assert why.startswith("The run misses the SLA (P99 over)")


def test_data_that_may_not_leave_does_not_make_an_unmet_sla_met() -> None:
    choice, why = reasons(cost(data_may_leave=False), meets_sla=False, meets_at_asked_rate=False)
    assert choice == "change hardware"
    assert "an API is no way out" in why


def test_an_sla_met_below_the_asked_rate_is_said_first_and_priced() -> None:
    choice, why = reasons(MONTH, meets_at_asked_rate=False)
    assert choice == "API"
    assert why.startswith("No plan meets the SLA at the asked rate")


def test_without_a_price_nothing_is_decided() -> None:
    found = report(CostSpec(fixed_per_month=57_000), model="Nobody/Model")
    assert found.decision.choice == "undecided"
    assert found.break_even is None
    assert found.term is None
    assert "cost.api" in found.decision.reasons[0]


@pytest.mark.parametrize(("need", "word"), [("sla", "roadworthy bench"), ("audit", "audit"), ("capacity", "room")])
def test_other_needs_become_tests_of_the_api(need: str, word: str) -> None:
    assert word in reasons(cost(needs=(need,)))[1]
