"""The admin API over real databases: what is changed is there after a restart, and no secret is in the file."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from fakes.governed import FakeGoverned
from roadworthy.adapters.state.state import open_state
from roadworthy.gateway.admin.desk import Desk
from roadworthy.route.keys import opens
from roadworthy.route.ledger import LedgerRow
from support.admin import BOOTSTRAP, DOCUMENT, Clock, Office, code

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from roadworthy.adapters.state.state import State
    from support.stores import Server


async def opened(state: State) -> Office:
    view = FakeGoverned(document=DOCUMENT)
    clock = Clock()
    said: list[str] = []
    desk = Desk(pepper=state.secret("pepper"), registry=state, bootstrap=BOOTSTRAP, now_s=clock, say=said.append)
    await desk.open(view)
    return Office(view, desk, clock, None, said)


def row(request_id: str, **more: Any) -> LedgerRow:
    usual = {"tenant_id": "acme", "model": "m", "started_s": 1_796_040_000.0, "prompt_tokens": 7, "output_tokens": 3}
    return LedgerRow(request_id=request_id, **{**usual, **more})


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A database without tables."""
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path / 'state.db'}"
        return
    server: Server = request.getfixturevalue("postgres_server")
    with server.database() as made:
        yield made


def test_tenants_keys_and_audit_outlive_the_process(url: str, tmp_path: Path) -> None:
    async def change() -> tuple[str, str]:
        state = open_state(url)
        here = await opened(state)
        async with here.client() as admin:
            await admin.post("/api/tenants", json={"id": "new", "rpm": 5, "models": ["a", "b"]})
            await admin.patch("/api/tenants/acme/quota", json={"kv_quota_bytes": None, "tpm": 1000})
            await admin.delete("/api/tenants/beta")
            made = (await admin.post("/api/tenants/new/keys", json={"expires_in_s": 60})).json()
            over = (await admin.post("/api/tenants/acme/keys", json={})).json()["key"]["id"]
            assert (await admin.post(f"/api/keys/{over}/revoke")).status_code == 200
            role = (await admin.post("/api/admin-keys", json={"role": "viewer"})).json()["secret"]
        await here.desk.close()
        state.close()
        return made["secret"], role

    async def look(secret: str, role: str) -> None:
        state = open_state(url)
        here = await opened(state)
        assert set(here.view.tenants) == {"acme", "new"}
        assert (here.view.tenants["acme"].kv_quota_bytes, here.view.tenants["acme"].tokens_per_minute) == (None, 1000)
        assert here.view.tenants["new"].models == ("a", "b")
        usable = [one for one in here.view.keys.values() if one.usable(here.clock())]
        assert [opens(one, secret, pepper=here.desk.pepper, now_s=here.clock()) for one in usable] == [True]
        async with here.client(role) as admin:
            assert (await admin.get("/api/whoami")).json()["stored"] is True
            trail = (await admin.get("/api/audit")).json()["rows"]
            assert [one["action"] for one in trail] == [
                "key.create", "key.revoke", "key.create", "key.create", "tenant.remove", "quota.set", "tenant.add",
            ]  # fmt: skip
            assert trail[5]["before"] == {"kv_quota_bytes": 2**30, "tpm": None}
            assert code(await admin.patch("/api/tenants/acme", json={"rpm": 1})) == (403, "role_too_low")
        await here.desk.close()
        state.close()

    secret, role = asyncio.run(change())
    asyncio.run(look(secret, role))
    if not url.startswith("sqlite"):
        return
    with contextlib.closing(sqlite3.connect(tmp_path / "state.db")) as database:
        dump = "\n".join(database.iterdump())
    for text in (secret, role, "sk-acme", BOOTSTRAP):
        assert text not in dump
    for text in (secret, role):
        assert text[-20:] not in dump


def test_two_gateways_on_one_database_do_not_lose_each_others_changes(url: str) -> None:
    async def test() -> None:
        first, second = (open_state(url) for _ in range(2))
        here, there = await opened(first), await opened(second)
        async with here.client() as one, there.client() as other:
            answers = await asyncio.gather(
                *(admin.post("/api/tenants", json={"id": f"{name}{index}"})
                  for index in range(5) for name, admin in (("a", one), ("b", other)))
            )  # fmt: skip
            assert {answer.status_code for answer in answers} == {201}
            await here.desk.notice()
            await there.desk.notice()
            assert set(here.view.tenants) == set(there.view.tenants)
            assert len(here.view.tenants) == 12
        for office, state in ((here, first), (there, second)):
            await office.desk.close()
            state.close()

    asyncio.run(test())


def test_usage_and_ledger_come_from_what_was_billed(url: str) -> None:
    async def test() -> None:
        state = open_state(url)
        state.write_ledger(
            [row("r1"), row("r2", cached_tokens=4), row("r3", tenant_id="beta", started_s=1_795_000_000.0)]
        )
        here = await opened(state)
        async with here.client() as admin:
            usage = (await admin.get("/api/usage", params={"by": "tenant"})).json()
            assert [(one["tenant"], one["requests"], one["total_tokens"]) for one in usage["rows"]] == [
                ("acme", 2, 20), ("beta", 1, 10),
            ]  # fmt: skip
            ledger = (await admin.get("/api/ledger", params={"limit": 2})).json()
            assert len(ledger["rows"]) == 2
            rest = (await admin.get("/api/ledger", params={"before": ledger["next"]})).json()["rows"]
            assert [one["request_id"] for one in rest] == ["r3"]
            assert (rest[0]["tenant"], rest[0]["prompt_tokens"], rest[0]["started"]) == (
                "beta", 7, "2026-11-18T11:06:40.000Z",
            )  # fmt: skip
            csv = await admin.get("/api/ledger", params={"format": "csv", "tenant": "acme"})
            assert len(csv.text.splitlines()) == 3
        await here.desk.close()
        state.close()

    asyncio.run(test())
