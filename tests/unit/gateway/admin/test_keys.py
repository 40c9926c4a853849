"""Keys over the admin API: the secret leaves once, rotation overlaps, a revoked key never comes back."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from fakes.governed import FlakyRegistry
from roadworthy.route.keys import digest_of, opens
from support.admin import code, office

PEPPER = b"p" * 32


def test_a_keys_secret_is_in_one_answer_and_nowhere_else() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            body = {"label": "nightly", "scopes": ["trusted-caller"], "expires_in_s": 3600}
            made = await admin.post("/api/tenants/acme/keys", json=body)
            assert made.status_code == 201
            assert made.headers["cache-control"] == "no-store"
            secret, key = made.json()["secret"], made.json()["key"]
            assert secret.startswith(key["prefix"] + "-")
            assert (key["tenant"], key["role"], key["scopes"], key["state"]) == (
                "acme", None, ["trusted-caller"], "active",
            )  # fmt: skip
            assert key["expires"] == "2026-11-30T13:00:00.000Z"
            known = here.view.keys[key["id"]]
            assert known.digest == digest_of(PEPPER, secret)
            for path in ("/api/keys", f"/api/keys/{key['id']}", "/api/audit", "/api/tenants", "/api/tenants/acme"):
                text = (await admin.get(path)).text
                assert secret not in text
                assert secret[-20:] not in text
                assert known.digest.hex() not in text
            assert secret not in str(here.said)

    asyncio.run(test())


def test_two_keys_are_never_alike() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            made = [(await admin.post("/api/tenants/acme/keys", json={})).json() for _ in range(50)]
            assert len({one["secret"] for one in made}) == len({one["key"]["id"] for one in made}) == 50
            assert (await admin.get("/api/tenants/acme")).json()["keys"] == 51

    asyncio.run(test())


def test_rotation_gives_a_new_key_and_lets_the_old_one_open_for_the_overlap() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            old = (await admin.post("/api/tenants/acme/keys", json={"label": "a", "scopes": ["trusted-caller"]})).json()
            turned = await admin.post(f"/api/keys/{old['key']['id']}/rotate", json={"overlap_s": 600})
            assert turned.status_code == 201
            new = turned.json()
            assert (new["key"]["label"], new["key"]["scopes"]) == ("a", ["trusted-caller"])
            assert new["replaced"]["replaced_by"] == new["key"]["id"]
            before, after = here.view.keys[old["key"]["id"]], here.view.keys[new["key"]["id"]]
            now_s = here.clock()
            assert opens(before, old["secret"], pepper=PEPPER, now_s=now_s + 599)
            assert not opens(before, old["secret"], pepper=PEPPER, now_s=now_s + 600)
            assert opens(after, new["secret"], pepper=PEPPER, now_s=now_s + 10**9)
            here.clock.now_s += 600
            again = await admin.post(f"/api/keys/{old['key']['id']}/rotate")
            assert code(again) == (409, "key_is_over")
            (rotated, _) = await here.audit()
            assert (rotated["action"], rotated["after"]["replaced_by"]) == ("key.rotate", new["key"]["id"])

    asyncio.run(test())


def test_rotation_without_a_body_overlaps_for_a_day() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            old = (await admin.post("/api/tenants/acme/keys")).json()["key"]["id"]
            replaced = (await admin.post(f"/api/keys/{old}/rotate")).json()["replaced"]
            assert replaced["expires"] == "2026-12-01T12:00:00.000Z"

    asyncio.run(test())


def test_a_revoked_key_is_told_to_the_gateway_and_stays_revoked() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            key_id = (await admin.post("/api/tenants/acme/keys", json={})).json()["key"]["id"]
            here.clock.now_s += 5
            assert (await admin.post(f"/api/keys/{key_id}/revoke")).json()["state"] == "revoked"
            assert not here.view.keys[key_id].usable(here.clock())
            here.clock.now_s += 5
            assert (await admin.post(f"/api/keys/{key_id}/revoke")).json()["revoked"] == "2026-11-30T12:00:05.000Z"
            assert code(await admin.patch(f"/api/keys/{key_id}", json={"expires_in_s": None})) == (409, "key_is_over")

    asyncio.run(test())


def test_a_revocation_stays_in_force_although_it_could_not_be_written() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            key_id = (await admin.post("/api/tenants/acme/keys", json={})).json()["key"]["id"]
            here.registry.down = "disk full"
            answer = await admin.post(f"/api/keys/{key_id}/revoke")
            assert code(answer) == (503, "state_unavailable")
            assert "in force at this gateway" in answer.json()["error"]["message"]
            assert not here.view.keys[key_id].usable(here.clock())
            await here.desk.notice()
            here.registry.down = ""
            await here.desk.reloaded()  # reads what is stored, where the key is in force still
            assert not here.view.keys[key_id].usable(here.clock())
            assert here.registry.load().keys[0].usable(here.clock())
            await here.desk.notice()
            assert not here.registry.load().keys[0].usable(here.clock())
            assert [one["action"] for one in await here.audit()] == ["key.revoke", "key.create"]
            assert "is written now" in str(here.said)

    asyncio.run(test())


def test_a_key_that_could_not_be_written_opens_nothing() -> None:
    async def test() -> None:
        async with office(registry=FlakyRegistry()) as here, here.client() as admin:
            assert here.registry is not None
            here.registry.down = "disk full"
            assert code(await admin.post("/api/tenants/acme/keys", json={})) == (503, "state_unavailable")
            assert here.view.keys == {}
            here.registry.down = ""
            assert (await admin.get("/api/keys")).json()["keys"] == []

    asyncio.run(test())


def test_label_scopes_and_expiry_can_be_edited() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            key_id = (await admin.post("/api/tenants/acme/keys", json={"expires_in_s": 60})).json()["key"]["id"]
            body = {"label": "b", "scopes": ["trusted-caller"], "expires_in_s": None}
            edited = (await admin.patch(f"/api/keys/{key_id}", json=body)).json()
            assert (edited["label"], edited["scopes"], edited["expires"]) == ("b", ["trusted-caller"], None)
            assert here.view.keys[key_id].scopes == ("trusted-caller",)

    asyncio.run(test())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"scopes": ["root"]}, "scopes[0]"),
        ({"expires_in_s": 0}, "expires_in_s"),
        ({"expires_in_s": 10**12}, "expires_in_s"),
        ({"label": "x" * 201}, "label"),
        ({"label": "line\nbreak"}, "label"),
        ({"secret": "mine"}, "secret"),
    ],
)
def test_a_key_with_something_else_in_it_is_refused(body: dict[str, Any], param: str) -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            answer = await admin.post("/api/tenants/acme/keys", json=body)
            assert (code(answer), answer.json()["error"]["param"]) == ((400, "invalid_fields"), param)
            assert code(await admin.post("/api/tenants/nobody/keys", json={})) == (404, "tenant_not_found")

    asyncio.run(test())


def test_keys_are_listed_by_tenant_and_state() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            first = (await admin.post("/api/tenants/acme/keys", json={})).json()["key"]["id"]
            await admin.post("/api/tenants/beta/keys", json={"expires_in_s": 1})
            await admin.post("/api/admin-keys", json={"role": "viewer"})
            await admin.post(f"/api/keys/{first}/revoke")
            here.clock.now_s += 1

            async def states(**query: str) -> list[tuple[str | None, str]]:
                found = (await admin.get("/api/keys", params=query)).json()["keys"]
                return sorted(((one["tenant"], one["state"]) for one in found), key=str)

            assert await states() == [("acme", "revoked"), ("beta", "expired"), (None, "active")]
            assert await states(tenant="acme") == [("acme", "revoked")]
            assert await states(state="active") == [(None, "active")]

    asyncio.run(test())


def test_the_last_admin_key_cannot_be_taken_away_by_a_slip() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, here.client() as admin:
            first = (await admin.post("/api/admin-keys", json={"role": "admin"})).json()
            await admin.post("/api/admin-keys", json={"role": "operator"})
        async with office(registry=registry, bootstrap=None) as here, here.client(first["secret"]) as admin:
            revoke = f"/api/keys/{first['key']['id']}/revoke"
            assert code(await admin.post(revoke)) == (409, "last_admin_key")
            shortened = await admin.patch(f"/api/keys/{first['key']['id']}", json={"expires_in_s": 1})
            assert code(shortened) == (409, "last_admin_key")
            second = (await admin.post(f"/api/keys/{first['key']['id']}/rotate", json={"overlap_s": 60})).json()
            assert (await admin.post(revoke)).status_code == 200
            assert code(await admin.get("/api/whoami")) == (401, "invalid_admin_key")
            async with here.client(second["secret"]) as other:
                assert (await other.get("/api/whoami")).json()["role"] == "admin"

    asyncio.run(test())


def test_a_key_with_a_role_has_no_scopes() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            key_id = (await admin.post("/api/admin-keys", json={"role": "admin"})).json()["key"]["id"]
            answer = await admin.patch(f"/api/keys/{key_id}", json={"scopes": ["trusted-caller"]})
            assert code(answer) == (400, "invalid_fields")
            assert code(await admin.post("/api/admin-keys", json={})) == (400, "invalid_fields")
            assert code(await admin.post("/api/admin-keys", json={"role": "root"})) == (400, "invalid_fields")

    asyncio.run(test())


def test_an_unknown_key_is_not_found_and_one_of_another_form_is_no_key() -> None:
    async def test() -> None:
        async with office() as here, here.client() as admin:
            assert code(await admin.post("/api/keys/abcdefghijkl/revoke")) == (404, "key_not_found")
            assert code(await admin.get("/api/keys/ABC")) == (400, "invalid_parameter")

    asyncio.run(test())


def test_no_secret_is_in_what_is_stored() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, here.client() as admin:
            secret = (await admin.post("/api/tenants/acme/keys", json={})).json()["secret"]
            kept = repr(registry.load()) + json.dumps(await here.audit())
            assert secret[-20:] not in kept
            assert "sk-acme" not in kept

    asyncio.run(test())
