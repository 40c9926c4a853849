"""What is changed on the admin port is in force at the data port at once, and nothing in progress is touched by it."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import httpx
import pytest

from fakes.engine import Asked, FakeEngine, chat_events, chunk, plain
from roadworthy.adapters.state.state import open_state
from roadworthy.gateway.stores import Stores
from roadworthy.spec.governance_values import GovernanceSpec
from roadworthy.spec.values import Tenant
from support.admin import BOOTSTRAP, code
from support.gateway import KEY, TENANT, chat, client_of, gateway_before, get, post, run, until

if TYPE_CHECKING:
    from pathlib import Path

    from roadworthy.gateway.service import Gateway

KEYED = Stores(admin_key=BOOTSTRAP)
ANSWER = post(chat(stream=False))


def admin_of(gateway: Gateway) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=gateway.admin_url, headers={"Authorization": f"Bearer {BOOTSTRAP}"})


def asks(key: str) -> bytes:
    return post(chat(stream=False), key=key)


class Held:
    """An engine's answer that goes on when the test says so: one event at once, the rest after ``release``."""

    def __init__(self) -> None:
        self.release = asyncio.Event()

    async def __call__(self, asked: Asked) -> None:
        events = chat_events("a", "b", usage=(4, 2))
        await asked.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        await asked.send(chunk(events[0]))
        await self.release.wait()
        for event in events[1:]:
            await asked.send(chunk(event))
        await asked.send(chunk(b""))


def test_an_issued_key_opens_the_data_port_until_it_is_revoked_and_its_stream_ends_as_it_would_have() -> None:
    async def test() -> None:
        held = Held()
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as streaming,
            client_of(gateway) as client,
        ):
            made = (await admin.post("/api/tenants/acme/keys", json={})).json()
            assert (await client.ask(asks(made["secret"]))).status == 200
            engine.answer = held
            streaming.send(post(chat(), key=made["secret"]))
            status, _ = await streaming.head()
            assert status == 200
            assert b"data:" in await streaming.chunk()
            assert (await admin.post(f"/api/keys/{made['key']['id']}/revoke")).status_code == 200
            refused = await client.ask(asks(made["secret"]))
            assert refused.status == 401
            held.release.set()
            rest = b""
            while part := await streaming.chunk():
                rest += part
            assert rest.rstrip().endswith(b"data: [DONE]")
            assert KEY not in (await admin.get("/api/keys")).text

    run(test)


def test_a_rotated_key_opens_together_with_its_successor() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as client,
        ):
            old = (await admin.post("/api/tenants/acme/keys", json={})).json()
            new = (await admin.post(f"/api/keys/{old['key']['id']}/rotate", json={"overlap_s": 3600})).json()
            for key in (KEY, old["secret"], new["secret"]):
                assert (await client.ask(asks(key))).status == 200
            at_once = (await admin.post(f"/api/keys/{new['key']['id']}/rotate", json={"overlap_s": 0})).json()
            assert (await client.ask(asks(new["secret"]))).status == 401
            assert (await client.ask(asks(at_once["secret"]))).status == 200

    run(test)


def test_the_first_tenant_closes_open_access_and_the_last_one_leaves_it_closed() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, tenants=(), stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False), key=None))).status == 200
            assert (await admin.post("/api/tenants", json={"id": "first"})).status_code == 201
            secret = (await admin.post("/api/tenants/first/keys", json={})).json()["secret"]
            assert (await client.ask(post(chat(stream=False), key=None))).status == 401
            assert (await client.ask(asks(secret))).status == 200
            assert (await admin.delete("/api/tenants/first")).status_code == 200
            assert (await client.ask(asks(secret))).status == 401
            assert (await client.ask(post(chat(stream=False), key=None))).status == 401

    run(test)


def test_a_quota_edited_while_it_is_held_counts_what_is_held() -> None:
    async def test() -> None:
        held = Held()
        async with (
            FakeEngine(held) as engine,
            gateway_before(engine, stores=KEYED, tenants=(replace(TENANT, concurrency=5),)) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as first,
            client_of(gateway) as second,
        ):
            first.send(post(chat()))
            await first.head()
            quota = (await admin.patch("/api/tenants/acme/quota", json={"concurrency": 1})).json()
            assert (quota["limits"]["concurrency"], quota["now"]["in_flight"]) == (1, 1)
            refused = await second.ask(ANSWER)
            assert (refused.status, refused.code) == (429, "concurrency_limited")
            await admin.patch("/api/tenants/acme/quota", json={"concurrency": None})
            engine.answer = plain()
            assert (await second.ask(ANSWER)).status == 200
            held.release.set()
            while await first.chunk():
                pass
            (live,) = (await admin.get("/api/live")).json()["tenants"]
            assert (live["in_flight"], live["requests"], live["refused"]) == (0, 3, 1)
            async with asyncio.timeout(10):
                while live["ttft_p50_s"] is None:  # summed up several times a second
                    await asyncio.sleep(0.05)
                    (live,) = (await admin.get("/api/live")).json()["tenants"]
            assert live["ttft_p50_s"] <= live["ttft_p99_s"]

    run(test)


def test_a_limit_given_to_a_tenant_that_had_none_counts_what_runs() -> None:
    async def test() -> None:
        held = Held()
        async with (
            FakeEngine(held) as engine,
            gateway_before(engine, stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as first,
            client_of(gateway) as second,
        ):
            first.send(post(chat()))
            await first.head()
            await admin.patch("/api/tenants/acme/quota", json={"concurrency": 1})
            engine.answer = plain()
            answer = await second.ask(ANSWER)
            held.release.set()
            assert answer.status == 429

    run(test)


def test_models_are_edited_at_once() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as client,
        ):
            await admin.patch("/api/tenants/acme", json={"models": ["other"]})
            refused = await client.ask(ANSWER)
            assert (refused.status, refused.code) == (403, "model_not_allowed")
            await admin.post("/api/tenants/acme/reset")
            assert (await client.ask(ANSWER)).status == 200

    run(test)


def test_a_tenant_removed_with_work_queued_has_it_refused_and_what_runs_ends() -> None:
    async def test() -> None:
        held = Held()
        async with (
            FakeEngine(held) as engine,
            gateway_before(
                engine, stores=KEYED, tenants=(TENANT, Tenant(id="stays", key="sk-stays")),
                governance=GovernanceSpec(slots_per_engine=1, borrow_headroom_ratio=0.0),
            ) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as running,
            client_of(gateway) as waiting,
        ):  # fmt: skip
            running.send(post(chat()))
            await running.head()
            waiting.send(ANSWER)

            async def queued() -> int:
                found = {one["id"]: one for one in (await admin.get("/api/live")).json()["tenants"]}
                return int(found["acme"]["waiting"])

            async with asyncio.timeout(10):
                while await queued() != 1:
                    await asyncio.sleep(0.01)
            assert (await admin.delete("/api/tenants/acme")).status_code == 200
            refused = await waiting.response()
            assert (refused.status, refused.code) == (403, "tenant_removed")
            held.release.set()
            parts = [part async for part in _chunks(running)]
            assert b"[DONE]" in parts[-1]
            await until(lambda: gateway.status().in_flight == 0)

    async def _chunks(client):  # type: ignore[no-untyped-def]
        while part := await client.chunk():
            yield part

    run(test)


def test_what_administrators_said_survives_restart_and_reload(tmp_path: Path) -> None:
    async def test() -> None:
        state = open_state(f"sqlite:///{tmp_path / 'state.db'}")
        stores = Stores(registry=state, pepper=state.secret("pepper"), admin_key=BOOTSTRAP)
        async with FakeEngine(plain()) as engine:
            async with gateway_before(engine, stores=stores) as gateway, admin_of(gateway) as admin:
                await admin.post("/api/tenants", json={"id": "kept"})
                secret = (await admin.post("/api/tenants/kept/keys", json={})).json()["secret"]
                await admin.patch("/api/tenants/acme", json={"models": ["other"]})
            async with (
                gateway_before(engine, stores=stores) as gateway,
                admin_of(gateway) as admin,
                client_of(gateway) as client,
            ):
                assert (await client.ask(asks(secret))).status == 200
                assert (await client.ask(ANSWER)).code == "model_not_allowed"
        state.close()

    run(test)


def test_the_gateways_own_view_is_what_the_description_says() -> None:
    from jsonschema import Draft202012Validator

    from roadworthy.gateway.admin.schemas import LIVE

    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, stores=KEYED) as gateway,
            admin_of(gateway) as admin,
            client_of(gateway) as client,
        ):
            await client.ask(ANSWER)
            await client.ask(get("/v1/models"))
            for one in (await admin.get("/api/live", params={"idle": "true"})).json()["tenants"]:
                Draft202012Validator(LIVE).validate(one)

    run(test)


@pytest.mark.parametrize("key", ["x", "short-key"])
def test_a_bootstrap_key_that_keeps_nobody_out_stops_the_start(key: str) -> None:
    from roadworthy.core.errors import SpecError

    async def test() -> None:
        async with FakeEngine() as engine:
            with pytest.raises(SpecError, match="ROADWORTHY_ADMIN_KEY"):
                async with gateway_before(engine, stores=Stores(admin_key=key)):
                    pass

    run(test)


def test_without_a_key_the_tenants_are_read_and_not_changed() -> None:
    async def test() -> None:
        async with (
            FakeEngine() as engine,
            gateway_before(engine) as gateway,
            httpx.AsyncClient(base_url=gateway.admin_url) as admin,
        ):
            assert [one["id"] for one in (await admin.get("/api/tenants")).json()["tenants"]] == ["acme"]
            assert code(await admin.post("/api/tenants", json={"id": "x"})) == (403, "admin_key_not_set")

    run(test)
