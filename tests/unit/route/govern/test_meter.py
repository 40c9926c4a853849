"""The meter in process, by example: what is refused, with which words and for how long."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.values import DAY_S, Charge, Grant, Limits


def charge(tokens: int = 10, *, blocks: int = 1, tenant: str = "a") -> Charge:
    return Charge(tenant_id=tenant, model="m", prompt_tokens=tokens - 5, output_tokens=5, blocks=blocks)


def refused(meter: LocalMeter, limits: Limits, tokens: int = 10, now_s: float = 0.0) -> Refused:
    with pytest.raises(Refused) as caught:
        meter.acquire(limits, charge(tokens), "x", now_s)
    assert caught.value.status == 429
    assert caught.value.hint
    return caught.value


def settle(meter: LocalMeter, grant: Grant, tokens: int, now_s: float = 0.0) -> None:
    meter.settle(grant, prompt_tokens=tokens, output_tokens=0, now_s=now_s)


def test_concurrency_counts_until_it_is_given_back() -> None:
    meter, limits = LocalMeter(), Limits(concurrency=2)
    grant = meter.acquire(limits, charge(), "1", 0.0)
    meter.acquire(limits, charge(), "2", 0.0)
    no = refused(meter, limits)
    assert (no.code, no.retry_after_s) == ("concurrency_limited", 1.0)
    settle(meter, grant, 10)
    settle(meter, grant, 10)
    meter.acquire(limits, charge(), "3", 0.0)
    assert refused(meter, limits).code == "concurrency_limited"
    meter.acquire(limits, charge(tenant="b"), "4", 0.0)


def test_a_rate_lets_a_minutes_worth_through_and_then_one_at_a_time() -> None:
    meter, limits = LocalMeter(), Limits(requests_per_minute=6)
    for number in range(6):
        meter.acquire(limits, charge(), str(number), 100.0)
    no = refused(meter, limits, now_s=101.0)
    assert (no.code, no.retry_after_s) == ("rate_limited", pytest.approx(9.0))
    meter.acquire(limits, charge(), "7", 110.0)
    assert refused(meter, limits, now_s=110.0).retry_after_s == pytest.approx(10.0)


@pytest.mark.parametrize("per_minute", [1, 7, 60, 999, 100_003])
def test_a_minutes_worth_fits_into_a_minute_whatever_it_is(per_minute: int) -> None:
    meter, limits = LocalMeter(), Limits(tokens_per_minute=per_minute)
    one = Charge(tenant_id="a", model="m", prompt_tokens=1, output_tokens=0, blocks=0)
    for number in range(min(per_minute, 2_000)):
        meter.acquire(limits, one, str(number), 0.0)
    if per_minute <= 2_000:
        assert refused(meter, limits, 1).code == "tokens_rate_limited"


def test_tokens_that_were_not_used_come_back_and_more_than_foreseen_is_owed() -> None:
    meter, limits = LocalMeter(), Limits(tokens_per_minute=600)
    grant = meter.acquire(limits, charge(600), "1", 0.0)
    assert refused(meter, limits).retry_after_s == pytest.approx(1.0)
    settle(meter, grant, 100)
    grant = meter.acquire(limits, charge(500), "2", 0.0)
    settle(meter, grant, 1_100)
    assert meter.held("a", 0.0).minute_tokens == pytest.approx(1_200)
    assert refused(meter, limits, 10).retry_after_s == pytest.approx(61.0)
    meter.acquire(limits, charge(10), "3", 61.0)


def test_a_request_larger_than_a_minute_or_a_day_is_told_that_it_never_passes() -> None:
    meter = LocalMeter()
    for limits, code in (
        (Limits(tokens_per_minute=99), "tokens_rate_limited"),
        (Limits(daily_tokens=99), "daily_budget_exhausted"),
    ):
        no = refused(meter, limits, 100)
        assert (no.code, no.retry_after_s) == (code, None)
        assert "max_tokens" in no.hint


def test_a_days_budget_is_that_of_the_wall_clock_and_new_at_midnight() -> None:
    meter, limits = LocalMeter(wall_offset_s=10 * DAY_S - 100.0), Limits(daily_tokens=100)
    grant = meter.acquire(limits, charge(80), "1", 0.0)
    no = refused(meter, limits, 30)
    assert (no.code, no.retry_after_s) == ("daily_budget_exhausted", 100.0)
    assert meter.held("a", 0.0).tokens_today == 80
    meter.acquire(limits, charge(30), "2", 100.0)
    settle(meter, grant, 50)  # yesterday's: today's budget does not change
    assert meter.held("a", 100.0).tokens_today == 30
    meter.wall_offset_s -= 100.0  # set back to before midnight
    assert meter.held("a", 100.0).tokens_today == 50
    meter.acquire(limits, charge(50), "3", 100.0)
    assert refused(meter, limits, 10, now_s=100.0).code == "daily_budget_exhausted"


def test_after_a_restart_the_ledger_says_what_was_used() -> None:
    meter, limits = LocalMeter(wall_offset_s=5 * DAY_S), Limits(daily_tokens=100)
    meter.restore_day("a", 5, 95)
    assert refused(meter, limits, 10).code == "daily_budget_exhausted"
    meter.restore_day("b", 4, 95)
    meter.acquire(limits, charge(10, tenant="b"), "1", 0.0)


def test_beyond_the_kv_quota_a_request_borrows() -> None:
    meter, limits = LocalMeter(), Limits(kv_blocks=10)
    own = meter.acquire(limits, charge(blocks=8), "1", 0.0)
    lent = meter.acquire(limits, charge(blocks=3), "2", 0.0)
    assert (own.borrowed, lent.borrowed) == (False, True)
    held = meter.held("a", 0.0)
    assert (held.blocks, held.borrowed_blocks, held.requests) == (11, 3, 2)
    settle(meter, own, 10)
    assert not meter.acquire(limits, charge(blocks=7), "3", 0.0).borrowed


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (Limits(requests_per_minute=1), Limits(requests_per_minute=600)),
        (Limits(tokens_per_minute=10), Limits(tokens_per_minute=6_000)),
    ],
)
def test_a_rate_that_is_raised_makes_nobody_wait_for_the_old_one(before: Limits, after: Limits) -> None:
    meter = LocalMeter()
    meter.acquire(before, charge(10), "1", 0.0)
    no = refused(meter, after)
    assert no.retry_after_s is not None
    assert no.retry_after_s <= 0.2


def test_an_absurd_count_of_an_engine_breaks_nothing() -> None:
    meter, limits = LocalMeter(), Limits(tokens_per_minute=1, daily_tokens=10**15)
    for number in range(100):
        grant = meter.acquire(Limits(), charge(1), str(number), 0.0)
        meter.settle(grant, prompt_tokens=10**18, output_tokens=10**18, now_s=0.0)
    grant = meter.acquire(Limits(tokens_per_minute=1), charge(1), "x", 0.0)
    for _ in range(100):
        meter.settle(grant, prompt_tokens=10**18, output_tokens=10**18, now_s=0.0)
        grant.settled = False
    assert refused(meter, limits, 1).retry_after_s is not None


def test_a_tenant_that_is_forgotten_begins_anew_but_for_what_runs() -> None:
    meter, limits = LocalMeter(), Limits(concurrency=1, daily_tokens=15)
    grant = meter.acquire(limits, charge(), "1", 0.0)
    meter.forget("a")
    assert meter.held("a", 0.0).tokens_today == 0
    assert refused(meter, limits).code == "concurrency_limited"
    settle(meter, grant, 10)
    again = meter.acquire(limits, charge(), "2", 0.0)
    settle(meter, again, 10)
    meter.forget("a")
    meter.forget("nobody")
    other = meter.acquire(limits, charge(tenant="b"), "3", 0.0)  # takes the row that came free
    assert (meter.held("a", 0.0).requests, meter.held("b", 0.0).requests) == (0, 1)
    settle(meter, other, 10)


def test_leases_in_process_do_not_expire() -> None:
    meter = LocalMeter()
    grant = meter.acquire(Limits(), charge(), "1", 0.0)
    assert meter.renew([grant], 10**9) == ()
    assert meter.held("a", 10**9).requests == 1
