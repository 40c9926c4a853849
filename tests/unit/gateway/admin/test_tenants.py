"""Tenants changed while the gateway runs: what is in force, what is kept of it, who did it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from fakes.governed import FlakyRegistry, live
from roadworthy.gateway.admin.schemas import TENANT_FIELDS
from roadworthy.spec.schema import TENANT
from roadworthy.spec.values import Tenant
from support.admin import DOCUMENT, code, office


def test_every_field_of_a_tenant_can_be_set_but_those_of_its_document_key() -> None:
    attributes = {field.attribute for field in TENANT.fields} - {"id", "key", "key_env", "scopes"}
    assert {attribute for attribute, _ in TENANT_FIELDS.values()} == attributes


def test_the_list_has_the_documents_tenants_as_they_are() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = (await admin.get("/api/tenants")).json()
            acme, beta = answer["tenants"]
            assert (acme["id"], acme["source"], acme["rpm"], acme["kv_quota_bytes"]) == ("acme", "document", 100, 2**30)
            assert (beta["rpm"], beta["models"], beta["keys"], beta["version"]) == (None, [], 1, 0)
            assert answer["stored"] is False
            assert "sk-acme" not in str(answer)

    asyncio.run(test())


def test_the_list_goes_on_where_it_stopped() -> None:
    async def test() -> None:
        tenants = tuple(Tenant(id=f"t{index}", key=f"k{index}") for index in range(5))
        async with office(document=tenants) as here, here.client() as admin:
            seen, after = [], None
            while True:
                answer = (
                    await admin.get("/api/tenants", params={"limit": 2, **({"after": after} if after else {})})
                ).json()
                seen += [one["id"] for one in answer["tenants"]]
                after = answer["next"]
                if after is None:
                    break
            assert seen == [f"t{index}" for index in range(5)]

    asyncio.run(test())


def test_an_added_tenant_is_in_force_and_audited() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            body = {"id": "new", "weight": 3, "rpm": 60, "kv_quota_bytes": 2**31, "models": ["m"], "fallback": "s"}
            answer = await admin.post("/api/tenants", json=body)
            assert (answer.status_code, answer.json()["source"], answer.json()["keys"]) == (201, "admin", 0)
            assert here.view.tenants["new"] == Tenant(
                id="new", weight=3, requests_per_minute=60, kv_quota_bytes=2**31, models=("m",), fallback="s"
            )
            (row,) = await here.audit()
            assert (row["who"], row["role"], row["action"], row["subject"]) == (
                "bootstrap", "admin", "tenant.add", "tenant:new",
            )  # fmt: skip
            assert row["at"] == "2026-11-30T12:00:00.000Z"
            assert row["before"] is None
            assert row["after"] == {name: value for name, value in body.items() if name != "id"}

    asyncio.run(test())


def test_an_edit_changes_what_it_names_and_the_rest_goes_on_to_follow_the_document() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = (await admin.patch("/api/tenants/acme", json={"rpm": 7, "kv_quota_bytes": None})).json()
            assert (answer["source"], answer["edited"], answer["version"]) == ("edited", ["kv_quota_bytes", "rpm"], 1)
            acme = here.view.tenants["acme"]
            assert (acme.requests_per_minute, acme.kv_quota_bytes, acme.weight, acme.key) == (7, None, 2.0, "sk-acme")
            here.view.document = (replace(DOCUMENT[0], weight=9.0, requests_per_minute=5), DOCUMENT[1])
            here.view.tenants = {one.id: one for one in here.view.document}  # what a reload does
            await here.desk.reloaded()
            acme = here.view.tenants["acme"]
            assert (acme.requests_per_minute, acme.weight) == (7, 9.0)
            *_, row = await here.audit()
            assert row["before"] == {"rpm": 100, "kv_quota_bytes": 2**30}
            assert row["after"] == {"rpm": 7, "kv_quota_bytes": None}

    asyncio.run(test())


def test_null_puts_back_what_has_no_absence() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            await admin.patch("/api/tenants/acme", json={"weight": None, "models": None, "priority": None})
            acme = here.view.tenants["acme"]
            assert (acme.weight, acme.models, acme.priority) == (1.0, (), 0)

    asyncio.run(test())


def test_a_removed_tenant_is_gone_with_its_keys_and_stays_hidden_until_reset() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            made = (await admin.post("/api/tenants/acme/keys", json={})).json()["key"]["id"]
            answer = await admin.delete("/api/tenants/acme")
            assert answer.json() == {"removed": "acme", "revoked_keys": [made], "stored": False}
            assert "acme" not in here.view.tenants
            assert not here.view.keys[made].usable(here.clock())
            missing = await admin.get("/api/tenants/acme")
            assert code(missing) == (404, "tenant_not_found")
            assert "/api/tenants/acme/reset" in missing.json()["error"]["hint"]
            here.view.tenants = {one.id: one for one in here.view.document}  # what a reload does
            await here.desk.reloaded()
            assert "acme" not in here.view.tenants
            back = (await admin.post("/api/tenants/acme/reset")).json()
            assert (back["source"], back["rpm"], back["keys"]) == ("document", 100, 1)
            assert here.view.tenants["acme"] == DOCUMENT[0]

    asyncio.run(test())


def test_a_removed_tenant_can_be_added_again_with_other_limits() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            await admin.delete("/api/tenants/acme")
            await admin.post("/api/tenants", json={"id": "acme", "rpm": 1})
            acme = here.view.tenants["acme"]
            assert (acme.requests_per_minute, acme.weight, acme.key) == (1, 2.0, "sk-acme")

    asyncio.run(test())


def test_resetting_an_added_tenant_is_refused_with_what_removes_it() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            await admin.post("/api/tenants", json={"id": "new"})
            assert code(await admin.post("/api/tenants/new/reset")) == (409, "not_in_document")
            assert code(await admin.post("/api/tenants/nobody/reset")) == (404, "tenant_not_found")

    asyncio.run(test())


def test_a_tenant_that_leaves_the_document_takes_its_edits_with_it_and_gets_them_back() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            await admin.patch("/api/tenants/acme", json={"rpm": 7})
            here.view.document = DOCUMENT[1:]
            await here.desk.reloaded()
            assert "acme" not in here.view.tenants
            here.view.document = DOCUMENT
            await here.desk.reloaded()
            assert here.view.tenants["acme"].requests_per_minute == 7

    asyncio.run(test())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"rpm": 0}, "rpm"),
        ({"rpm": "600"}, "rpm"),
        ({"rpm": 1.5}, "rpm"),
        ({"rpm": True}, "rpm"),
        ({"weight": 0}, "weight"),
        ({"weight": 1e7}, "weight"),
        ({"kv_quota_bytes": "64GiB"}, "kv_quota_bytes"),
        ({"models": ["a", "a"]}, "models"),
        ({"models": ["has space"]}, "models[0]"),
        ({"models": ["x"], "fallback": "x"}, "fallback"),
        ({"priority": -1001}, "priority"),
        ({"key": "sk-secret-value"}, "key"),
        ({"id": "other"}, "id"),
        ({}, None),
    ],
)
def test_a_field_that_cannot_be_used_is_named_and_changes_nothing(body: dict[str, object], param: str | None) -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = await admin.patch("/api/tenants/acme", json=body)
            assert code(answer) == (400, "invalid_fields")
            assert answer.json()["error"]["param"] == param
            assert "sk-secret-value" not in answer.text
            assert here.view.told == []
            assert await here.audit() == []

    asyncio.run(test())


def test_every_wrong_field_is_named_at_once() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            error = (await admin.post("/api/tenants", json={"id": "a b", "rpm": 0, "wieght": 1})).json()["error"]
            assert [one["path"] for one in error["problems"]] == ["id", "rpm", "wieght"]
            assert "such as" in error["hint"]

    asyncio.run(test())


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"null", b"\xff", b"[" * 50_000, b'{"rpm": NaN'])
def test_a_body_that_is_no_object_is_refused(body: bytes) -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            assert code(await admin.patch("/api/tenants/acme", content=body)) == (400, "invalid_json")

    asyncio.run(test())


def test_a_body_without_end_is_not_read_to_its_end() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = await admin.patch("/api/tenants/acme", content=b" " * 70_000)
            assert code(answer) == (413, "body_too_large")

    asyncio.run(test())


def test_if_match_refuses_a_change_of_what_somebody_changed_meanwhile() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            seen = str((await admin.get("/api/tenants/acme")).json()["version"])
            await admin.patch("/api/tenants/acme", json={"rpm": 7})
            late = await admin.patch("/api/tenants/acme", json={"rpm": 9}, headers={"If-Match": seen})
            assert code(late) == (412, "version_changed")
            assert here.view.tenants["acme"].requests_per_minute == 7
            right = await admin.patch("/api/tenants/acme", json={"rpm": 9}, headers={"If-Match": '"1"'})
            assert right.status_code == 200

    asyncio.run(test())


def test_a_change_that_the_gateway_cannot_use_changes_nothing() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            here.view.refuses = "concurrency: 1 among 4 workers"
            answer = await admin.patch("/api/tenants/acme/quota", json={"concurrency": 1})
            assert code(answer) == (422, "change_refused")
            assert answer.json()["error"]["hint"] == "another value"
            assert (await admin.get("/api/tenants/acme")).json()["concurrency"] is None
            here.view.refuses = ""
            assert await here.audit() == []

    asyncio.run(test())


def test_a_quota_is_edited_while_it_is_held_and_shown_with_what_is_held() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            here.view.shown = [live("acme", in_flight=3, blocks_held=40, blocks_quota=64)]
            answer = (await admin.patch("/api/tenants/acme/quota", json={"concurrency": 2})).json()
            assert answer["limits"]["concurrency"] == 2
            assert (answer["now"]["in_flight"], answer["now"]["blocks_held"]) == (3, 40)
            assert here.view.tenants["acme"].concurrency == 2
            assert code(await admin.patch("/api/tenants/acme/quota", json={"weight": 2})) == (400, "invalid_fields")

    asyncio.run(test())


def test_a_change_that_cannot_be_written_is_taken_back() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            here.registry.down = "database is locked"
            answer = await admin.patch("/api/tenants/acme", json={"rpm": 7})
            assert code(answer) == (503, "state_unavailable")
            assert answer.json()["error"]["hint"] == "look at the database"
            assert here.view.tenants["acme"] == DOCUMENT[0]
            assert code(await admin.post("/api/tenants", json={"id": "new"})) == (503, "state_unavailable")
            assert "new" not in here.view.tenants
            here.registry.down = ""
            assert (await admin.get("/api/tenants/acme")).json()["rpm"] == 100
            assert await here.audit() == []

    asyncio.run(test())


def test_what_is_stored_is_in_force_after_a_restart() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, here.client() as admin:
            assert (await admin.post("/api/tenants", json={"id": "new", "rpm": 5})).status_code == 201
            await admin.delete("/api/tenants/beta")
            made = (await admin.post("/api/tenants/new/keys", json={})).json()
            assert made["stored"] is True
        async with office(registry=registry) as here, here.client() as admin:
            assert set(here.view.tenants) == {"acme", "new"}
            assert here.view.tenants["new"].requests_per_minute == 5
            assert set(here.view.keys) == {made["key"]["id"]}

    asyncio.run(test())


def test_another_gateways_change_is_noticed_and_kept_when_changing_at_the_same_time() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, office(registry=registry) as there:
            async with there.client() as admin:
                await admin.patch("/api/tenants/acme", json={"rpm": 7})
                made = (await admin.post("/api/tenants/beta/keys", json={})).json()["key"]["id"]
            await here.desk.notice()
            assert here.view.tenants["acme"].requests_per_minute == 7
            assert made in here.view.keys
            async with there.client() as admin:
                await admin.patch("/api/tenants/acme", json={"weight": 8})
            async with here.client() as admin:  # has not noticed that yet
                answer = (await admin.patch("/api/tenants/acme", json={"concurrency": 4})).json()
            assert (answer["weight"], answer["rpm"], answer["concurrency"]) == (8, 7, 4)
            assert here.view.tenants["acme"].weight == 8

    asyncio.run(test())


def test_what_another_gateway_changed_and_this_one_cannot_use_is_said_and_tried_again() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, office(registry=registry) as there:
            async with there.client() as admin:
                await admin.patch("/api/tenants/acme", json={"concurrency": 1})
            here.view.refuses = "concurrency: 1 among 4 workers"
            async with here.client() as admin:
                answer = await admin.patch("/api/tenants/beta", json={"rpm": 1})
                assert code(answer) == (422, "change_refused")
                await here.desk.notice()
                await here.desk.reloaded()
                assert "among 4 workers" in str(here.said)
                assert (await admin.get("/api/tenants/acme")).json()["concurrency"] is None
                here.view.refuses = ""
                await here.desk.notice()
                assert (await admin.get("/api/tenants/acme")).json()["concurrency"] == 1
                assert here.view.tenants["acme"].concurrency == 1

    asyncio.run(test())


def test_what_a_document_that_was_read_again_changes_is_audited_without_keys() -> None:
    async def test() -> None:
        async with office() as here:
            await here.desk.reloaded()
            assert await here.audit() == []  # the same document
            acme = replace(DOCUMENT[0], weight=9.0, key="sk-other", requests_per_minute=None)
            here.view.document = (acme, Tenant(id="new", key="sk-new", tokens_per_minute=5))
            await here.desk.reloaded()
            (row,) = await here.audit()
            assert (row["who"], row["action"]) == ("document", "document.tenants")
            assert row["before"] == {"acme": {"weight": 2.0, "rpm": 100}, "beta": {}, "new": None}
            assert row["after"] == {
                "acme": {"weight": 9.0, "rpm": None, "key": "another, or with other scopes"}, "beta": None,
                "new": {"tpm": 5},
            }  # fmt: skip
            assert "sk-" not in str(row)

    asyncio.run(test())


def test_of_many_changed_tenants_the_audit_names_some_and_counts_the_rest() -> None:
    async def test() -> None:
        async with office(document=()) as here:
            here.view.document = tuple(Tenant(id=f"t{index:03}", key=f"k{index}") for index in range(120))
            await here.desk.reloaded()
            (row,) = await here.audit()
            assert (len(row["before"]), row["after"]["more_tenants"]) == (50, 70)

    asyncio.run(test())


def test_a_reload_needs_no_database() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            await admin.patch("/api/tenants/acme", json={"rpm": 7})
            here.registry.down = "gone"
            here.view.document = (replace(DOCUMENT[0], weight=9.0),)
            here.view.tenants = {one.id: one for one in here.view.document}
            await here.desk.reloaded()
            acme = here.view.tenants["acme"]
            assert (acme.requests_per_minute, acme.weight) == (7, 9.0)

    asyncio.run(test())


def test_an_added_tenant_stays_when_the_document_takes_it_up_and_drops_it() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            await admin.post("/api/tenants", json={"id": "new", "rpm": 5})
            here.view.document = (*DOCUMENT, Tenant(id="new", key="sk-new", weight=2.0))
            await here.desk.reloaded()
            await admin.patch("/api/tenants/new", json={"tpm": 9})
            new = here.view.tenants["new"]
            assert (new.weight, new.requests_per_minute, new.tokens_per_minute) == (2.0, 5, 9)
            here.view.document = DOCUMENT
            await here.desk.reloaded()
            new = here.view.tenants["new"]
            assert (new.weight, new.requests_per_minute, new.tokens_per_minute, new.key) == (1.0, 5, 9, None)

    asyncio.run(test())


def test_trouble_in_noticing_is_said_once_and_so_is_its_end() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here:
            assert here.registry is not None
            here.registry.down = "connection refused"
            await here.desk.notice()
            await here.desk.notice()
            here.registry.down = ""
            await here.desk.notice()
            first, second = here.said
            assert "connection refused" in first
            assert "again" in second

    asyncio.run(test())


def test_draining_goes_through_although_the_audit_cannot_be_written() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            here.registry.down = "gone"
            answer = await admin.post("/api/engines/drain", json={"url": "http://10.0.0.11:8000"})
            assert answer.json() == {"url": "http://10.0.0.11:8000", "draining": True, "audited": False}
            assert here.view.draining == {"http://10.0.0.11:8000": True}
            assert "engine.drain" in here.said[0]

    asyncio.run(test())


def test_a_refused_document_is_audited_and_answered_as_before() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            here.view.problem = "tenants[0].weight: -1"
            assert code(await admin.post("/api/reload")) == (422, "document_refused")
            (row,) = await here.audit()
            assert (row["action"], row["after"]) == ("document.reload", {"problem": "tenants[0].weight: -1"})

    asyncio.run(test())


def test_unknown_and_doubled_parameters_are_refused() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = await admin.get("/api/keys", params={"tenat": "acme"})
            assert code(answer) == (400, "invalid_parameter")
            assert "tenant" in answer.json()["error"]["message"]
            assert code(await admin.get("/api/keys?limit=1&limit=2")) == (400, "invalid_parameter")
            for limit in ("0", "x", "1.5", "99999999999999999999999", "-1", ""):
                assert code(await admin.get("/api/keys", params={"limit": limit})) == (400, "invalid_parameter")

    asyncio.run(test())
