"""Shared meters when their store is gone, silent, full or read-only, and when a holder is killed; in real time."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.adapters.state.meters import open_meter, store_at
from roadworthy.core.errors import Refused, SpecError, Temporary, Unsupported
from roadworthy.route.govern.values import Grant, Limits
from support.meters import SHARED, charge
from support.stores import Server, redis_program, running_redis, valkey_program

from .conftest import url_of  # type: ignore[import-not-found]

if TYPE_CHECKING:
    from roadworthy.adapters.state.meter import SharedMeter

LIMIT_S = 30.0
ONE = Limits(concurrency=1)


def run(test: Callable[[], Awaitable[None]]) -> None:
    async def limited() -> None:
        async with asyncio.timeout(100):
            await test()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not condition():
            await asyncio.sleep(0.01)


@asynccontextmanager
async def meter_at(url: str, **more: Any):
    meter = await open_meter(url, **more)
    try:
        yield meter
    finally:
        await meter.close()


@pytest.fixture(params=["redis", "valkey"])
def own_server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Server]:
    """A server that the test may stop, freeze and fill."""
    program = redis_program() if request.param == "redis" else valkey_program()
    with running_redis(program, tmp_path, scheme=request.param) as server:
        yield server


async def told(asked: Awaitable[object]) -> Temporary:
    with pytest.raises(Temporary) as caught:
        await asked
    return caught.value


def test_a_server_that_stops_is_told_at_once_and_found_again_with_what_was_owed(
    own_server: Server, tenant: str
) -> None:
    async def test() -> None:
        said: list[str] = []
        async with meter_at(own_server.url, say=said.append) as meter:
            ended = await meter.acquire(ONE, charge(tenant), "1")
            own_server.stop()
            error = await told(meter.acquire(ONE, charge(tenant), "2"))
            assert str(error).startswith(own_server.url)
            assert meter.failing == str(error)
            await meter.settle(ended, prompt_tokens=1, output_tokens=1)
            await told(meter.held(tenant))
            await told(meter.renew([Grant(lease_id="x", tenant_id=tenant, charge=charge(tenant))]))
            assert meter.owed == 2  # the settlement, and the request that may have been let in all the same
            own_server.start()
            await until(lambda: not meter.failing and meter.owed == 0)
            assert (await meter.acquire(ONE, charge(tenant), "3")).tenant_id == tenant
        assert [line.partition(":")[2][:13] for line in said] == [f" {own_server.url}"[:13], " the store is"]

    run(test)


def test_a_silent_server_is_waited_for_once_and_not_by_every_request(own_server: Server, tenant: str) -> None:
    """Frozen in the middle: what it was asked is done later, and given back by then."""

    async def test() -> None:
        async with meter_at(own_server.url, answer_timeout_s=0.3) as meter:
            own_server.freeze()
            try:
                error = await told(meter.acquire(ONE, charge(tenant), "1"))
                assert "did not answer within 0.3 s" in str(error)
                loop = asyncio.get_running_loop()
                before_s = loop.time()
                for at in range(1000):
                    await told(meter.acquire(ONE, charge(tenant), f"n{at}"))
                # a thousand times 0.3 s would be five minutes
                assert loop.time() - before_s < LIMIT_S
            finally:
                own_server.thaw()
            await until(lambda: not meter.failing and meter.owed == 0)
            assert (await meter.held(tenant)).requests == 0
            await meter.acquire(ONE, charge(tenant), "2")

    run(test)


def test_a_server_that_restarts_between_two_requests_is_not_noticed(own_server: Server, tenant: str) -> None:
    async def test() -> None:
        async with meter_at(own_server.url) as meter:
            running = await meter.acquire(Limits(concurrency=2), charge(tenant), "1")
            own_server.stop()
            own_server.start()
            await meter.acquire(Limits(concurrency=2), charge(tenant), "2")
            assert await meter.renew([running]) == ()
            assert (await meter.held(tenant)).requests == 2
            assert meter.failing == ""

    run(test)


def test_a_full_or_read_only_server_is_told_in_its_own_words(own_server: Server, tenant: str) -> None:
    import redis.asyncio

    async def test() -> None:
        admin = redis.asyncio.Redis(port=own_server.port)
        async with meter_at(own_server.url) as meter:
            await admin.config_set("maxmemory", 1)
            assert "maxmemory" in str(await told(meter.acquire(ONE, charge(tenant), "1")))
            await admin.config_set("maxmemory", 0)
            await until(lambda: not meter.failing)
            await admin.execute_command("REPLICAOF", "127.0.0.1", "1")
            assert "read" in str(await told(meter.acquire(ONE, charge(tenant), "2"))).lower()
            await admin.execute_command("REPLICAOF", "NO", "ONE")
            await until(lambda: not meter.failing and meter.owed == 0)
            await meter.acquire(ONE, charge(tenant), "3")
        await admin.aclose()

    run(test)


def test_a_password_is_used_and_never_shown(tmp_path: Path, tenant: str) -> None:
    async def test(server: Server) -> None:
        async with meter_at(server.url) as meter:
            assert "hunter2" not in meter.failing
            assert "authenticate" in meter.failing.lower()
        async with meter_at(server.url.replace("//", "//:hunter2@")) as meter:
            assert meter.failing == ""
            await meter.acquire(ONE, charge(tenant), "1")
            server.stop()
            assert "hunter2" not in str(await told(meter.held(tenant)))

    with running_redis(redis_program(), tmp_path, more=("--requirepass", "hunter2")) as server:
        run(lambda: test(server))


def test_the_rights_that_the_guide_gives_a_redis_user_are_enough(own_server: Server, tenant: str) -> None:
    import redis.asyncio

    guide = Path(__file__).parents[3] / "docs" / "guides" / "state.md"
    (line,) = [one for one in guide.read_text(encoding="utf-8").splitlines() if one.startswith("ACL SETUSER")]

    async def test() -> None:
        admin = redis.asyncio.Redis(port=own_server.port)
        await admin.execute_command(*line.split())
        url = own_server.url.replace("//", "//gateway:PASSWORD@")
        limits = Limits(concurrency=2, requests_per_minute=60, tokens_per_minute=10_000, daily_tokens=10**6)
        async with meter_at(url, ttl_s=0.1) as meter:
            grant = await meter.acquire(limits, charge(tenant), "1")
            while not await meter.renew([grant]):
                await asyncio.sleep(0.15)
            await meter.settle(grant, prompt_tokens=1, output_tokens=1)
            assert (await meter.held(tenant)).tokens_today == 2
            assert meter.owed == 0
            assert meter.failing == ""
        await admin.aclose()

    run(test)


def test_a_unix_socket_is_reached_by_its_path(tmp_path: Path, tenant: str) -> None:
    async def test() -> None:
        async with meter_at(f"unix://{tmp_path}/redis.sock") as meter:
            await until(lambda: not meter.failing)  # the server listens there a little later than on its port
            await meter.acquire(ONE, charge(tenant), "1")

    with running_redis(redis_program(), tmp_path, more=("--unixsocket", f"{tmp_path}/redis.sock")):
        run(test)


def test_a_meter_whose_store_is_not_there_yet_starts_and_says_so(tmp_path: Path) -> None:
    async def test() -> None:
        async with meter_at("redis://127.0.0.1:1/0") as meter:
            assert meter.failing.startswith("redis://127.0.0.1:1/0: ")
        async with meter_at(f"sqlite:///{tmp_path}/missing/state.db") as meter:
            assert "unable to open database file" in meter.failing

    run(test)


def test_a_locked_file_of_limits_is_told_as_such_and_gone_on_with(tmp_path: Path, tenant: str) -> None:
    import sqlite3

    async def test() -> None:
        async with meter_at(f"sqlite:///{tmp_path}/state.db", answer_timeout_s=5.0) as meter:
            holder = sqlite3.connect(tmp_path / "state.db.limits", isolation_level=None)
            holder.execute("BEGIN IMMEDIATE")
            assert "database is locked" in str(await told(meter.acquire(ONE, charge(tenant), "1")))
            holder.execute("ROLLBACK")
            holder.close()
            await until(lambda: not meter.failing and meter.owed == 0)
            await meter.acquire(ONE, charge(tenant), "2")

    run(test)


def test_limits_go_on_in_a_new_file_that_all_workers_share_when_the_old_one_was_deleted(
    tmp_path: Path, tenant: str
) -> None:
    url = f"sqlite:///{tmp_path}/state.db"

    def delete() -> None:
        for path in tmp_path.glob("*.limits*"):
            path.unlink()

    async def test() -> None:
        async with meter_at(url) as first, meter_at(url) as second:
            running = await first.acquire(ONE, charge(tenant), "1")
            delete()
            assert await first.renew([running]) == ()
            with pytest.raises(Refused):
                await second.acquire(ONE, charge(tenant), "2")

    run(test)


def test_a_boot_leaves_nothing_of_the_one_before(tmp_path: Path, tenant: str) -> None:
    """Holders are gone with the boot, and the clock that their leases went by began anew."""
    import sqlite3

    url = f"sqlite:///{tmp_path}/state.db"

    async def first() -> None:
        async with meter_at(url) as meter:
            await meter.acquire(ONE, charge(tenant), "1")

    async def second() -> None:
        async with meter_at(url) as meter:
            assert (await meter.held(tenant)).requests == 0
            await meter.acquire(ONE, charge(tenant), "2")

    run(first)
    with sqlite3.connect(tmp_path / "state.db.limits") as file:
        file.execute("UPDATE roadworthy_meter_boot SET id = 'another'")
    file.close()
    run(second)


def test_postgresql_that_ends_our_connection_or_freezes_is_found_again(postgres_server: Server, tenant: str) -> None:
    import psycopg

    async def test() -> None:
        with postgres_server.database() as url:
            async with meter_at(url, answer_timeout_s=2.0) as meter:
                two = Limits(concurrency=2)
                running = await meter.acquire(two, charge(tenant), "1")
                with psycopg.connect(url, autocommit=True) as admin:
                    ours = "FROM pg_stat_activity WHERE application_name = 'roadworthy limits'"
                    admin.execute(f"SELECT pg_terminate_backend(pid) {ours}")
                await meter.acquire(two, charge(tenant), "2")
                assert meter.failing == "", "a connection that broke while idle is opened anew, and nobody is told"
                postgres_server.freeze()
                try:
                    await told(meter.acquire(two, charge(tenant), "3"))
                finally:
                    postgres_server.thaw()
                await until(lambda: not meter.failing and meter.owed == 0)
                assert await meter.renew([running]) == ()
                assert (await meter.held(tenant)).requests == 2

    run(test)


def test_a_worker_stopped_in_the_middle_holds_up_the_others_for_a_second_at_most(
    postgres_server: Server, tenant: str
) -> None:
    import psycopg

    async def test() -> None:
        with postgres_server.database() as url:
            async with meter_at(url, answer_timeout_s=5.0) as meter:
                await meter.settle(await meter.acquire(ONE, charge(tenant), "1"), prompt_tokens=1, output_tokens=1)
                with psycopg.connect(url) as stopped:
                    stopped.execute("SET idle_in_transaction_session_timeout = 1000")
                    stopped.execute("SELECT * FROM roadworthy_meter_tenant FOR UPDATE")
                    assert "lock timeout" in str(await told(meter.acquire(ONE, charge(tenant), "2")))
                    await until(lambda: not meter.failing)
                    stopped.close()
                await until(lambda: meter.owed == 0)
                await meter.acquire(ONE, charge(tenant), "3")

    run(test)


@pytest.mark.parametrize("url", ["http://h", "mongodb://h", "redis", "sqlite://", "redis://h:port"])
def test_a_url_that_cannot_be_meant_is_refused_with_the_ones_that_can(url: str) -> None:
    with pytest.raises(SpecError) as caught:
        run(lambda: open_meter(url))
    assert caught.value.hint


def test_a_missing_driver_is_named_with_the_extra_that_brings_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: None)
    with pytest.raises(Unsupported, match="redis-py") as caught:
        store_at("valkey://h")
    assert "roadworthy[redis]" in caught.value.hint


HOLDER = """
import asyncio, sys, time
from roadworthy.adapters.state.meters import open_meter
from roadworthy.route.govern.values import Charge, Limits

async def main(url, tenant, ttl_s):
    meter = await open_meter(url, ttl_s=ttl_s, answer_timeout_s=10)
    charge = Charge(tenant_id=tenant, model="m", prompt_tokens=10, output_tokens=20, blocks=3)
    asked_s = time.monotonic()
    grant = await meter.acquire(Limits(concurrency=1), charge, "held by a process that is killed")
    while True:
        print(asked_s, flush=True)
        await asyncio.sleep(ttl_s / 3)
        asked_s = time.monotonic()
        if await meter.renew([grant]):
            print("out", flush=True)
            return

asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
"""


def test_the_slot_of_a_killed_holder_comes_back_within_the_ttl_and_never_before(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """On every kind of store, side by side: most of it is waiting."""
    urls = [url_of(kind, request, tmp_path) for kind in SHARED]
    with ThreadPoolExecutor(len(urls)) as pool:
        for done in [pool.submit(hold_and_kill, url) for url in urls]:
            done.result()


def hold_and_kill(url: str) -> None:
    """A machine too busy to renew in time is no finding: then again, with a longer TTL."""
    for ttl_s in (0.9, 3.0, 9.0):
        tenant = f"killed-{uuid.uuid4().hex[:8]}"
        command = [sys.executable, "-c", HOLDER, url, tenant, str(ttl_s)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as holder:
            try:
                run(lambda holder=holder, tenant=tenant, ttl_s=ttl_s: watch(holder, url, tenant, ttl_s))  # type: ignore[misc]
            except RanOut:
                continue
            finally:
                holder.kill()
        return
    raise AssertionError("no holder could renew within 3 s")


class RanOut(Exception):
    """The holder was too slow to renew."""


async def watch(holder: subprocess.Popen[str], url: str, tenant: str, ttl_s: float) -> None:
    def told(line: str) -> float:
        if not line.strip() or "out" in line:
            raise RanOut
        return float(line)

    assert holder.stdout is not None
    async with meter_at(url, ttl_s=ttl_s, answer_timeout_s=10) as meter:
        for _ in range(5):  # longer than the TTL: it is renewals that keep it
            renewed_s = told(holder.stdout.readline())
            try:
                await meter.acquire(ONE, charge(tenant), "other")
            except Refused:
                continue
            told(holder.stdout.readline())
            raise AssertionError("the slot was given twice")
        holder.kill()
        for line in holder.stdout.read().splitlines():
            renewed_s = told(line)
        back_s = await slot_is_back(meter, tenant)
        # the last renewal reached the store no earlier than it was sent, so this holds on a machine however slow
        assert ttl_s - 0.001 <= back_s - renewed_s < LIMIT_S


async def slot_is_back(meter: SharedMeter, tenant: str) -> float:
    """The time (monotonic, seconds) at which the answer came that the slot is free."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            try:
                await meter.acquire(ONE, charge(tenant), "other")
            except Refused:
                await asyncio.sleep(0.005)
            else:
                return time.monotonic()
