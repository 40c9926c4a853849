"""What every meter promises, on every store and in process; times are virtual, so nothing here depends on speed."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.govern.values import Held, Limits
from support.meters import Bench, charge


def acquire(bench: Bench, limits: Limits, tenant: str, lease: str, **more: int):
    return bench.do(bench.meter.acquire(limits, charge(tenant, **more), lease))


def refusal(bench: Bench, limits: Limits, tenant: str, **more: int) -> Refused:
    with pytest.raises(Refused) as caught:
        acquire(bench, limits, tenant, "refused", **more)
    return caught.value


def settle(bench: Bench, grant, prompt_tokens: int = 10, output_tokens: int = 20) -> None:
    bench.do(bench.meter.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens))


def held(bench: Bench, tenant: str) -> Held:
    return bench.do(bench.meter.held(tenant))


def test_a_tenant_never_seen_holds_nothing(bench: Bench, tenant: str) -> None:
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.tokens_today, now.minute_tokens) == (0, 0, 0, 0.0)
    assert now.day == bench.clock.now_us // 86_400_000_000


def test_without_limits_everything_goes_and_is_counted(bench: Bench, tenant: str) -> None:
    for at in range(5):
        assert not acquire(bench, Limits(), tenant, f"{tenant}{at}").borrowed
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.borrowed_blocks, now.tokens_today) == (5, 15, 0, 150)


def test_the_limit_of_requests_at_once_is_exact_and_a_settled_one_makes_room(bench: Bench, tenant: str) -> None:
    limits = Limits(concurrency=2)
    first = acquire(bench, limits, tenant, f"{tenant}1")
    acquire(bench, limits, tenant, f"{tenant}2")
    refused = refusal(bench, limits, tenant)
    assert (refused.code, refused.status, refused.retry_after_s) == ("concurrency_limited", 429, 1.0)
    assert "has 2 requests running, its limit is 2" in str(refused)
    settle(bench, first)
    acquire(bench, limits, tenant, f"{tenant}3")


def test_settling_twice_gives_back_once(bench: Bench, tenant: str) -> None:
    limits = Limits(concurrency=2)
    first = acquire(bench, limits, tenant, f"{tenant}1")
    acquire(bench, limits, tenant, f"{tenant}2")
    settle(bench, first)
    settle(bench, first, output_tokens=1000)
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.tokens_today) == (1, 3, 60)


def test_requests_a_minute_let_a_minutes_worth_through_and_then_one_an_interval(bench: Bench, tenant: str) -> None:
    limits = Limits(requests_per_minute=6)
    for at in range(6):
        acquire(bench, limits, tenant, f"{tenant}{at}")
    refused = refusal(bench, limits, tenant)
    assert (refused.code, refused.retry_after_s) == ("rate_limited", 10.0)
    bench.clock.advance(9.984375)
    assert refusal(bench, limits, tenant).retry_after_s == pytest.approx(0.015625)
    bench.clock.advance(0.015625)
    acquire(bench, limits, tenant, f"{tenant}again")
    assert refusal(bench, limits, tenant).retry_after_s == 10.0


def test_the_retry_after_of_a_refusal_is_honest(bench: Bench, tenant: str) -> None:
    """Whoever waits exactly as long as told is let in."""
    limits = Limits(tokens_per_minute=960)
    acquire(bench, limits, tenant, f"{tenant}0", prompt_tokens=900, output_tokens=0)
    refused = refusal(bench, limits, tenant, prompt_tokens=300, output_tokens=300)
    assert refused.code == "tokens_rate_limited"
    bench.clock.advance(refused.retry_after_s)
    acquire(bench, limits, tenant, f"{tenant}1", prompt_tokens=300, output_tokens=300)


def test_tokens_a_minute_are_reserved_and_corrected(bench: Bench, tenant: str) -> None:
    limits = Limits(tokens_per_minute=600)
    grant = acquire(bench, limits, tenant, f"{tenant}0", prompt_tokens=100, output_tokens=500)
    assert refusal(bench, limits, tenant).retry_after_s == pytest.approx(3.0)
    settle(bench, grant, prompt_tokens=100, output_tokens=200)
    assert held(bench, tenant).minute_tokens == pytest.approx(300)
    grant = acquire(bench, limits, tenant, f"{tenant}1", prompt_tokens=100, output_tokens=200)
    settle(bench, grant, prompt_tokens=100, output_tokens=500)  # more than was foreseen: the next ones wait for it
    assert refusal(bench, limits, tenant, prompt_tokens=0, output_tokens=1).retry_after_s == pytest.approx(30.1)


def test_a_request_larger_than_a_whole_minute_is_told_that_waiting_is_no_use(bench: Bench, tenant: str) -> None:
    refused = refusal(bench, Limits(tokens_per_minute=20), tenant)
    assert (refused.code, refused.retry_after_s) == ("tokens_rate_limited", None)


def test_the_days_budget_is_reserved_corrected_and_new_at_midnight_utc(bench: Bench, tenant: str) -> None:
    limits = Limits(daily_tokens=100)
    first = acquire(bench, limits, tenant, f"{tenant}1", prompt_tokens=30, output_tokens=50)
    refused = refusal(bench, limits, tenant)
    assert refused.code == "daily_budget_exhausted"
    to_midnight_s = (86_400_000_000 - bench.clock.now_us % 86_400_000_000) / 1e6
    assert refused.retry_after_s == pytest.approx(to_midnight_s)
    settle(bench, first, prompt_tokens=30, output_tokens=10)
    assert held(bench, tenant).tokens_today == 40
    acquire(bench, limits, tenant, f"{tenant}2", prompt_tokens=30, output_tokens=30)
    assert refusal(bench, limits, tenant, prompt_tokens=1, output_tokens=0).code == "daily_budget_exhausted"
    bench.clock.advance(to_midnight_s)
    assert held(bench, tenant).tokens_today == 0
    acquire(bench, limits, tenant, f"{tenant}3", prompt_tokens=50, output_tokens=50)


def test_what_began_before_midnight_is_settled_on_its_own_day(bench: Bench, tenant: str) -> None:
    limits = Limits(daily_tokens=1000)
    late = acquire(bench, limits, tenant, f"{tenant}1", prompt_tokens=100, output_tokens=100)
    bench.clock.advance((86_400_000_000 - bench.clock.now_us % 86_400_000_000) / 1e6)
    early = acquire(bench, limits, tenant, f"{tenant}2", prompt_tokens=10, output_tokens=10)
    settle(bench, late, prompt_tokens=100, output_tokens=900)
    settle(bench, early, prompt_tokens=10, output_tokens=5)
    assert held(bench, tenant).tokens_today == 15


def test_beyond_the_kv_quota_work_borrows_and_is_not_refused(bench: Bench, tenant: str) -> None:
    limits = Limits(kv_blocks=10)
    first = acquire(bench, limits, tenant, f"{tenant}1", blocks=10)
    second = acquire(bench, limits, tenant, f"{tenant}2", blocks=1)
    assert (first.borrowed, second.borrowed) == (False, True)
    now = held(bench, tenant)
    assert (now.blocks, now.borrowed_blocks) == (11, 1)
    settle(bench, first)
    assert not acquire(bench, limits, tenant, f"{tenant}3", blocks=9).borrowed
    settle(bench, second)
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.borrowed_blocks) == (1, 9, 0)


@pytest.mark.parametrize(
    "limits",
    [
        Limits(concurrency=0, requests_per_minute=10, tokens_per_minute=1000, daily_tokens=1000, kv_blocks=100),
        Limits(concurrency=9, requests_per_minute=10, tokens_per_minute=1000, daily_tokens=20, kv_blocks=100),
        Limits(concurrency=9, requests_per_minute=10, tokens_per_minute=29, daily_tokens=1000, kv_blocks=100),
    ],
    ids=["concurrency", "daily", "tokens"],
)
def test_a_refused_request_takes_nothing_of_any_limit(bench: Bench, tenant: str, limits: Limits) -> None:
    for _ in range(20):
        refusal(bench, limits, tenant)
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.tokens_today) == (0, 0, 0)
    assert (now.minute_requests, now.minute_tokens) == (0.0, 0.0)


def test_concurrency_is_looked_at_first_so_that_waiting_uses_up_no_rate(bench: Bench, tenant: str) -> None:
    limits = Limits(concurrency=1, requests_per_minute=2, daily_tokens=1)
    unlimited = acquire(bench, Limits(), tenant, f"{tenant}1")
    assert refusal(bench, limits, tenant).code == "concurrency_limited"
    settle(bench, unlimited)
    assert refusal(bench, limits, tenant).code == "daily_budget_exhausted"


def test_a_quota_edited_while_held_counts_what_is_held(bench: Bench, tenant: str) -> None:
    grants = [acquire(bench, Limits(concurrency=4, kv_blocks=12), tenant, f"{tenant}{at}") for at in range(4)]
    assert refusal(bench, Limits(concurrency=2), tenant).code == "concurrency_limited"
    settle(bench, grants[0])
    assert refusal(bench, Limits(concurrency=3), tenant).code == "concurrency_limited"
    raised = acquire(bench, Limits(concurrency=5, kv_blocks=11), tenant, f"{tenant}new")
    assert raised.borrowed
    for grant in (*grants, raised):
        settle(bench, grant)
    now = held(bench, tenant)
    assert (now.requests, now.blocks, now.borrowed_blocks) == (0, 0, 0)


def test_an_edited_rate_keeps_the_wait_at_most_a_minute(bench: Bench, tenant: str) -> None:
    for at in range(60):
        acquire(bench, Limits(requests_per_minute=60), tenant, f"{tenant}{at}")
    assert refusal(bench, Limits(requests_per_minute=1), tenant).retry_after_s == pytest.approx(60.0)
    assert refusal(bench, Limits(requests_per_minute=6000), tenant).retry_after_s == pytest.approx(0.01)


def test_tenants_do_not_count_for_each_other(bench: Bench, tenant: str) -> None:
    limits = Limits(concurrency=1, requests_per_minute=1, daily_tokens=30, kv_blocks=3)
    for name in ("a", "b", "{c}", "d:e", "ü"):
        grant = acquire(bench, limits, f"{tenant}{name}", f"{tenant}{name}")
        assert not grant.borrowed


def test_an_absurd_count_of_an_engine_breaks_nothing(bench: Bench, tenant: str) -> None:
    limits = Limits(concurrency=2, tokens_per_minute=10**6, daily_tokens=10**9, requests_per_minute=10**6)
    grant = acquire(bench, limits, tenant, f"{tenant}1")
    settle(bench, grant, prompt_tokens=10**30, output_tokens=10**30)
    assert refusal(bench, limits, tenant).code == "daily_budget_exhausted"
    assert held(bench, tenant).requests == 0
    bench.clock.advance(86_400)
    acquire(bench, Limits(daily_tokens=10**9), tenant, f"{tenant}3")
