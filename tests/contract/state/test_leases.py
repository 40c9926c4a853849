"""Leases on shared stores, in virtual time: a holder that dies gives back within the TTL and never before."""

from __future__ import annotations

import asyncio

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.govern.values import Grant, Limits
from support.meters import TICK_US, TTL_S, Bench, charge

ONE = Limits(concurrency=1)


def acquire(bench: Bench, tenant: str, lease: str, limits: Limits = ONE, **more: int) -> Grant:
    return bench.do(bench.meter.acquire(limits, charge(tenant, **more), lease))


def test_a_slot_that_nobody_renews_comes_back_when_the_ttl_is_over_and_not_a_tick_before(
    shared: Bench, tenant: str
) -> None:
    acquire(shared, tenant, f"{tenant}1")
    shared.clock.advance(TTL_S - TICK_US / 1e6)
    with pytest.raises(Refused):
        acquire(shared, tenant, f"{tenant}2")
    shared.clock.advance(TICK_US / 1e6)
    acquire(shared, tenant, f"{tenant}2")


def test_a_renewed_lease_lives_on_for_a_whole_ttl(shared: Bench, tenant: str) -> None:
    grant = acquire(shared, tenant, f"{tenant}1")
    for _ in range(5):
        shared.clock.advance(20)
        assert shared.do(shared.meter.renew([grant])) == ()
    shared.clock.advance(TTL_S - TICK_US / 1e6)
    with pytest.raises(Refused):
        acquire(shared, tenant, f"{tenant}2")
    shared.clock.advance(TICK_US / 1e6)
    acquire(shared, tenant, f"{tenant}2")


def test_renewing_tells_which_leases_had_run_out_and_holds_nothing_for_them(shared: Bench, tenant: str) -> None:
    two = Limits(concurrency=2)
    late = acquire(shared, tenant, f"{tenant}1", two)
    shared.clock.advance(10)
    alive = acquire(shared, tenant, f"{tenant}2", two)
    shared.clock.advance(25)
    assert shared.do(shared.meter.renew([late, alive])) == (late,)
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.blocks) == (1, 3)
    assert shared.do(shared.meter.renew([late])) == (late,)


def test_what_a_dead_holder_reserved_of_output_comes_back_with_its_slot(shared: Bench, tenant: str) -> None:
    limits = Limits(daily_tokens=1000, tokens_per_minute=1000)
    acquire(shared, tenant, f"{tenant}1", limits, prompt_tokens=100, output_tokens=800)
    shared.clock.advance(TTL_S)
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.blocks, held.tokens_today) == (0, 0, 100)
    assert held.minute_tokens == 0.0  # 500 have drained, 800 came back


def test_usage_told_after_the_ttl_still_counts_and_frees_no_slot_twice(shared: Bench, tenant: str) -> None:
    limits = Limits(concurrency=1, daily_tokens=1000)
    dead = acquire(shared, tenant, f"{tenant}1", limits, prompt_tokens=100, output_tokens=800)
    shared.clock.advance(TTL_S)
    acquire(shared, tenant, f"{tenant}2", limits)
    shared.do(shared.meter.settle(dead, prompt_tokens=100, output_tokens=250))
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.blocks, held.tokens_today) == (1, 3, 380)


def test_usage_that_is_told_hours_later_is_forgotten(shared: Bench, tenant: str) -> None:
    dead = acquire(shared, tenant, f"{tenant}1", prompt_tokens=100, output_tokens=800)
    shared.clock.advance(TTL_S)
    shared.do(shared.meter.held(tenant))
    shared.clock.advance(3600)
    shared.do(shared.meter.settle(dead, prompt_tokens=100, output_tokens=250))
    assert shared.do(shared.meter.held(tenant)).tokens_today == 100


def test_a_supervisor_settles_what_a_dead_worker_held_by_its_lease_id(shared: Bench, tenant: str) -> None:
    acquire(shared, tenant, f"{tenant}1", Limits(), prompt_tokens=100, output_tokens=800)
    other = shared.another()
    known = Grant(lease_id=f"{tenant}1", tenant_id=tenant, charge=charge(tenant))
    shared.do(other.settle(known, prompt_tokens=100, output_tokens=7))
    shared.do(other.close())
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.blocks, held.tokens_today) == (0, 0, 107)


def test_what_another_process_settled_is_not_taken_back_by_a_late_renewal(shared: Bench, tenant: str) -> None:
    grant = acquire(shared, tenant, f"{tenant}1")
    other = shared.another()
    shared.do(other.settle(Grant(lease_id=f"{tenant}1", tenant_id=tenant, charge=charge(tenant)),
                           prompt_tokens=10, output_tokens=7))  # fmt: skip
    shared.do(other.close())
    assert shared.do(shared.meter.renew([grant])) == (grant,)
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.tokens_today) == (0, 17)


def test_a_question_whose_answer_was_lost_may_be_asked_again(shared: Bench, tenant: str) -> None:
    limits = Limits(concurrency=1, requests_per_minute=1, daily_tokens=30, kv_blocks=1)
    first = acquire(shared, tenant, f"{tenant}1", limits)
    assert acquire(shared, tenant, f"{tenant}1", limits) == first
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.blocks, held.borrowed_blocks, held.tokens_today) == (1, 3, 3, 30)


@pytest.mark.parametrize("back_s", [5, 3600, 40 * 86_400])
def test_a_clock_that_is_set_back_moves_leases_and_rates_with_it_once(shared: Bench, tenant: str, back_s: int) -> None:
    limits = Limits(concurrency=1, requests_per_minute=1)
    acquire(shared, tenant, f"{tenant}1", limits)
    shared.clock.advance(-back_s)
    for _ in range(3):
        with pytest.raises(Refused, match="has 1 requests running"):
            acquire(shared, tenant, f"{tenant}2", limits)
        assert shared.do(shared.meter.held(tenant)).requests == 1
    shared.clock.advance(TTL_S - TICK_US / 1e6)
    assert shared.do(shared.meter.held(tenant)).requests == 1
    shared.clock.advance(TICK_US / 1e6)
    with pytest.raises(Refused) as caught:
        acquire(shared, tenant, f"{tenant}2", limits)
    assert caught.value.retry_after_s == 60 - TTL_S
    shared.clock.advance(60 - TTL_S)
    acquire(shared, tenant, f"{tenant}2", limits)


def test_a_clock_that_is_set_back_over_midnight_finds_the_days_use_as_it_was(shared: Bench, tenant: str) -> None:
    limits = Limits(daily_tokens=100)
    grant = acquire(shared, tenant, f"{tenant}1", limits, prompt_tokens=50, output_tokens=0)
    late = acquire(shared, tenant, f"{tenant}0", limits, prompt_tokens=50, output_tokens=0)
    shared.do(shared.meter.settle(grant, prompt_tokens=60, output_tokens=0))
    shared.clock.advance(86_400)
    assert shared.do(shared.meter.held(tenant)).tokens_today == 0
    shared.do(shared.meter.settle(late, prompt_tokens=20, output_tokens=0))
    acquire(shared, tenant, f"{tenant}2", limits, prompt_tokens=10, output_tokens=0)
    shared.clock.advance(-86_400)
    with pytest.raises(Refused, match="has used 80 of 100"):
        acquire(shared, tenant, f"{tenant}3", limits, prompt_tokens=30, output_tokens=0)


def test_a_clock_that_jumps_ahead_frees_slots_and_breaks_nothing(shared: Bench, tenant: str) -> None:
    limits = Limits(concurrency=1, requests_per_minute=6)
    stale = acquire(shared, tenant, f"{tenant}1", limits)
    shared.clock.advance(400 * 86_400)
    fresh = acquire(shared, tenant, f"{tenant}2", limits)
    assert shared.do(shared.meter.renew([stale, fresh])) == (stale,)
    shared.do(shared.meter.settle(stale, prompt_tokens=1, output_tokens=1))
    held = shared.do(shared.meter.held(tenant))
    assert (held.requests, held.tokens_today) == (1, 30)


def test_many_workers_never_admit_more_than_one_limits_worth(shared: Bench, tenant: str) -> None:
    limits = Limits(concurrency=7, daily_tokens=30 * 20)
    workers = [shared.another() for _ in range(4)]

    async def one(worker: object, at: int) -> Grant | None:
        try:
            return await worker.acquire(limits, charge(tenant), f"{tenant}{at}")  # type: ignore[attr-defined]
        except Refused:
            return None

    async def race() -> list[Grant | None]:
        return await asyncio.gather(*(one(workers[at % 4], at) for at in range(60)))

    given = [grant for grant in shared.do(race()) if grant is not None]
    assert len(given) == 7
    for round_ in range(2):  # 20 requests of 30 tokens are the day's, whoever asks: 7 + 7 + 6
        for grant in given:
            shared.do(workers[round_].settle(grant, prompt_tokens=10, output_tokens=20))
        tenant_round = [one(workers[at % 4], 1000 * (round_ + 1) + at) for at in range(60)]

        async def again(asked: list[object] = tenant_round) -> list[Grant | None]:  # type: ignore[assignment]
            return await asyncio.gather(*asked)  # type: ignore[call-overload]

        given = [grant for grant in shared.do(again()) if grant is not None]
    assert len(given) == 6
    for worker in workers:
        shared.do(worker.close())


def forget(bench: Bench, request: pytest.FixtureRequest) -> None:
    """The store loses its memory, as by a restart."""
    if bench.kind == "sqlite":
        import sqlite3

        from roadworthy.adapters.state.sql_steps import LEASES, TENANTS

        with sqlite3.connect(bench.url.removeprefix("sqlite:///") + ".limits") as file:
            file.execute(f"DELETE FROM {LEASES}")
            file.execute(f"DELETE FROM {TENANTS}")
        file.close()
    elif bench.kind == "postgres":
        import psycopg

        from roadworthy.adapters.state.sql_steps import LEASES, TENANTS

        with psycopg.connect(bench.url, autocommit=True) as connection:
            connection.execute(f"TRUNCATE {LEASES}, {TENANTS}")
    else:
        server = request.getfixturevalue(f"{bench.kind}_server")
        server.stop()
        server.start()


def test_a_store_that_lost_its_memory_is_filled_again_by_renewals_and_the_ledger(
    shared: Bench, tenant: str, request: pytest.FixtureRequest
) -> None:
    asked: list[str] = []

    def tokens_of_day(day: str) -> dict[str, int]:
        asked.append(day)
        return {tenant: 500}

    limits = Limits(concurrency=2, daily_tokens=1000)
    worker = shared.another(tokens_of_day=tokens_of_day)
    running = shared.do(worker.acquire(limits, charge(tenant), f"{tenant}1"))
    assert shared.do(worker.held(tenant)).tokens_today == 530, "a tenant that is new to a store is looked up too"
    forget(shared, request)
    shared.clock.advance(10)
    assert shared.do(worker.renew([running])) == ()
    held = shared.do(worker.held(tenant))
    assert (held.requests, held.blocks, held.tokens_today) == (1, 3, 530)
    shared.do(worker.acquire(limits, charge(tenant), f"{tenant}2"))
    with pytest.raises(Refused):
        shared.do(worker.acquire(limits, charge(tenant), f"{tenant}3"))
    shared.do(worker.settle(running, prompt_tokens=10, output_tokens=1))
    held = shared.do(worker.held(tenant))
    assert (held.requests, held.tokens_today) == (1, 541)
    shared.do(worker.close())
    assert set(asked) == {"2026-09-04"}


def test_a_request_that_ended_while_its_lease_was_renewed_is_not_taken_back(
    shared: Bench, tenant: str, request: pytest.FixtureRequest
) -> None:
    grant = acquire(shared, tenant, f"{tenant}1")
    forget(shared, request)

    async def both() -> None:
        await asyncio.gather(shared.meter.renew([grant]), shared.meter.settle(grant, prompt_tokens=1, output_tokens=1))

    shared.do(both())
    assert shared.do(shared.meter.held(tenant)).requests == 0


def test_a_request_cancelled_while_it_asks_gives_back_by_itself(shared: Bench, tenant: str) -> None:
    async def cancelled() -> None:
        asking = asyncio.create_task(shared.meter.acquire(ONE, charge(tenant), f"{tenant}1"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
        async with asyncio.timeout(20):
            while shared.meter.owed:
                await asyncio.sleep(0.01)

    shared.do(cancelled())
    assert shared.do(shared.meter.held(tenant)).requests == 0
    acquire(shared, tenant, f"{tenant}2")
