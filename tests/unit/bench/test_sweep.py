"""The search for the highest rate: it brackets the edge, and a step says only what its sample shows."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.advise.intervals import Blocks
from roadworthy.advise.steady import SteadyState
from roadworthy.bench.sweep import (
    EARLY_REQUESTS,
    MOST_STEPS,
    Outcome,
    RateSearch,
    claims_of,
    decide,
    design_effect,
    settled,
    surely_missed,
)
from roadworthy.spec.values import Sla
from support.records import record, steady

SLA = Sla(ttft_p99_s=0.25, tpot_p99_s=0.04, success_ratio=1.0)


def searched(edge_per_s: float, first_per_s: float, precision: float = 0.1) -> RateSearch:
    """A service that meets its SLA up to ``edge_per_s``."""
    search = RateSearch(first_per_s=first_per_s, precision_ratio=precision)
    while (rate := search.next_rate()) is not None:
        search.tell(rate, "met" if rate <= edge_per_s else "missed")
    return search


@given(st.floats(1, 500), st.floats(0.5, 50), st.sampled_from([0.02, 0.1, 0.5]))
def test_the_edge_lies_between_the_two_rates_and_they_are_near(edge: float, first: float, precision: float) -> None:
    search = searched(edge, first, precision)
    assert search.met_per_s is not None
    assert search.not_met_per_s is not None
    assert search.met_per_s <= edge < search.not_met_per_s
    assert search.not_met_per_s / search.met_per_s <= 1 + precision
    assert len(search.tried) <= MOST_STEPS


def test_a_service_that_never_meets_it_ends_the_search() -> None:
    search = searched(0.0, 10.0)
    assert search.met_per_s is None
    assert search.next_rate() is None


def test_a_highest_rate_is_not_passed() -> None:
    search = RateSearch(first_per_s=4.0, most_per_s=20.0)
    rates = []
    while (rate := search.next_rate()) is not None:
        rates.append(rate)
        search.tell(rate, "met")
    assert rates == [4.0, 8.0, 16.0, 20.0]
    assert (search.met_per_s, search.not_met_per_s) == (20.0, None)


def test_what_could_not_be_decided_is_not_met() -> None:
    search = RateSearch(first_per_s=4.0, precision_ratio=0.5)
    for outcome in ("met", "unsure"):
        rate = search.next_rate()
        assert rate is not None
        search.tell(rate, outcome)  # type: ignore[arg-type]
    assert (search.met_per_s, search.not_met_per_s) == (4.0, 8.0)


@pytest.mark.parametrize(("count", "outcome"), [(20, "unsure"), (250, "unsure"), (320, "met"), (2000, "met")])
def test_good_requests_prove_a_p99_from_three_hundred_on(count: int, outcome: Outcome) -> None:
    assert decide(steady(count), SLA).outcome == outcome


def test_a_few_slow_requests_in_a_thousand_leave_it_open_and_many_decide_it() -> None:
    def with_slow(every: int) -> Outcome:
        return decide([record(at / 16, ttft_s=0.5 if at % every == 0 else 0.1) for at in range(1000)], SLA).outcome

    assert with_slow(1000) == "met"
    assert with_slow(100) == "unsure"
    assert with_slow(20) == "missed"


def test_one_failure_is_a_miss_where_none_may_fail() -> None:
    found = decide([*steady(500), record(40.0, ok=False)], SLA)
    assert found.outcome == "missed"
    assert "failed" in found.why


def test_slow_requests_all_in_one_stretch_count_for_less_than_scattered_ones() -> None:
    scattered = [record(at / 16, ttft_s=0.5 if at % 33 == 0 else 0.1) for at in range(1000)]
    together = [record(at / 16, ttft_s=0.5 if 300 <= at < 330 else 0.1) for at in range(1000)]
    widths = []
    for records in (scattered, together):
        claim = next(one for one in claims_of(records, SLA) if one.name == "TTFT P99")
        widths.append(claim.high - claim.low)
    assert widths[1] > 1.5 * widths[0]
    assert decide(scattered, SLA).outcome == "missed"
    assert decide(together, SLA).outcome == "unsure"


def test_independent_hits_have_no_design_effect() -> None:
    rng = random.Random(3)
    hits = [rng.random() < 0.1 for _ in range(3000)]
    blocks = Blocks(of=tuple(at // 30 for at in range(3000)), count=100)
    assert design_effect(hits, blocks) < 1.5


def test_a_lost_step_is_ended_early_but_not_on_its_first_requests() -> None:
    slow = [record(at / 16, ttft_s=0.9) for at in range(EARLY_REQUESTS)]
    assert surely_missed(slow, SLA)
    assert not surely_missed(slow[:-1], SLA)
    assert not surely_missed(steady(EARLY_REQUESTS), SLA)


def test_one_failure_ends_a_step_where_none_may_be() -> None:
    assert surely_missed([record(0.0, ok=False)], SLA)
    assert not surely_missed([record(0.0, ok=False)], Sla(ttft_p99_s=0.25, success_ratio=0.9))


def test_a_load_whose_latencies_climb_to_its_end_is_not_sustained() -> None:
    met = decide(steady(500), SLA)
    climbing = SteadyState(from_s=0.0, requests=0, drift_ratio=0.4, steady=False)
    falling = replace(climbing, drift_ratio=-0.4)
    level = replace(climbing, drift_ratio=0.4, steady=True)
    assert met.outcome == "met"
    assert settled(met, climbing).outcome == "unsure"
    assert "rose by 40%" in settled(met, climbing).why
    assert settled(met, falling) == settled(met, level) == met
    missed = decide(steady(500, ttft_s=0.9), SLA)
    assert settled(missed, climbing) == missed


def test_nothing_ended_decides_nothing() -> None:
    assert decide([], SLA).outcome == "unsure"


def test_goodput_is_a_claim_too() -> None:
    sla = Sla(ttft_p99_s=0.25, goodput_ratio=0.9)
    records = [record(at / 16, ttft_s=0.5 if at % 4 == 0 else 0.1) for at in range(400)]
    assert "goodput" in {claim.name for claim in claims_of(records, sla)}
    assert decide(records, sla).outcome == "missed"


@pytest.mark.parametrize("change", [{"first_per_s": 0.0}, {"first_per_s": 1.0, "precision_ratio": 0.0}])
def test_a_search_that_cannot_end_is_refused(change: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        RateSearch(**change)  # type: ignore[arg-type]
