"""Who may do what on the admin port."""

from __future__ import annotations

import asyncio

import pytest

from fakes.governed import FlakyRegistry
from roadworthy.core.errors import SpecError
from roadworthy.gateway.admin.access import bootstrap_key
from roadworthy.gateway.admin.app import OPERATIONS
from support.admin import BOOTSTRAP, code, office

READS = [one.path for one in OPERATIONS if one.method == "GET" and one.role is not None and "{" not in one.path]
OPEN = ("/healthz", "/readyz", "/metrics", "/api/openapi.json")


def test_without_an_admin_key_this_host_may_look_drain_and_reload() -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here, here.client(None) as admin:
            for path in READS:
                assert (await admin.get(path)).status_code in (200, 409), path  # 409: there is no ledger
            assert (await admin.post("/api/reload")).status_code == 200
            assert (await admin.post("/api/engines/drain", json={"url": "http://10.0.0.11:8000"})).status_code == 200
            (newest, _) = (await admin.get("/api/audit")).json()["rows"]
            assert (newest["who"], newest["action"]) == ("loopback", "engine.drain")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/api/tenants", {"id": "new"}),
        ("PATCH", "/api/tenants/acme", {"weight": 3}),
        ("DELETE", "/api/tenants/acme", None),
        ("PATCH", "/api/tenants/acme/quota", {"rpm": 3}),
        ("POST", "/api/tenants/acme/keys", {}),
        ("POST", "/api/admin-keys", {"role": "admin"}),
    ],
)
def test_without_an_admin_key_nobody_changes_tenants_or_keys(method: str, path: str, body: object) -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here, here.client(None) as admin:
            answer = await admin.request(method, path, json=body)
            assert code(answer) == (403, "admin_key_not_set")
            assert "ROADWORTHY_ADMIN_KEY" in answer.json()["error"]["hint"]
            assert here.view.told == []
            assert await here.audit() == []

    asyncio.run(test())


@pytest.mark.parametrize("address", ["10.0.0.7", "192.168.1.4", "2001:db8::1", "not an address"])
def test_without_an_admin_key_other_hosts_get_health_and_metrics_only(address: str) -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here, here.client(None, address=address) as admin:
            for path in READS:
                assert code(await admin.get(path)) == (403, "admin_key_not_set")
            for path in OPEN:
                assert (await admin.get(path)).status_code == 200

    asyncio.run(test())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.8.8.8", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_this_host(address: str) -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here, here.client(None, address=address) as admin:
            assert (await admin.get("/api/status")).status_code == 200

    asyncio.run(test())


@pytest.mark.parametrize("name", ["x-forwarded-for", "forwarded", "x-real-ip"])
def test_what_comes_through_a_proxy_is_not_of_this_host(name: str) -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here, here.client(None) as admin:
            assert code(await admin.get("/api/status", headers={name: "10.0.0.1"})) == (403, "admin_key_not_set")

    asyncio.run(test())


def test_a_page_cannot_act_by_a_name_of_its_own_for_this_host() -> None:
    async def test() -> None:
        async with office(bootstrap=None) as here:
            async with here.client(None, host="rebound.example:8081") as admin:
                assert code(await admin.get("/api/status")) == (403, "admin_key_not_set")
            for host in ("localhost:9000", "[::1]:8081"):
                async with here.client(None, host=host) as admin:
                    assert (await admin.get("/api/status")).status_code == 200

    asyncio.run(test())


@pytest.mark.parametrize("bootstrap", [None, BOOTSTRAP])
def test_a_page_of_another_origin_may_not_ask_even_with_a_key(bootstrap: str | None) -> None:
    async def test() -> None:
        async with office(bootstrap=bootstrap) as here, here.client() as admin:
            answer = await admin.post("/api/reload", headers={"Origin": "http://evil.example"})
            assert code(answer) == (403, "cross_origin")
            own = await admin.post("/api/reload", headers={"Origin": "http://127.0.0.1:8081"})
            assert own.status_code == 200

    asyncio.run(test())


def test_with_an_admin_key_this_host_needs_it_too() -> None:
    async def test() -> None:
        async with office() as here:
            async with here.client(None) as admin:
                answer = await admin.get("/api/status")
                assert code(answer) == (401, "admin_key_required")
                assert answer.headers["www-authenticate"] == "Bearer"
                for path in OPEN:
                    assert (await admin.get(path)).status_code == 200
            for wrong in ("sk-acme", BOOTSTRAP + "x", "rw-abcdefghijkl-" + "x" * 43, "ümlaut"):
                async with here.client(None) as admin:
                    headers = {"Authorization": f"Bearer {wrong}".encode()}
                    assert code(await admin.get("/api/status", headers=headers)) == (401, "invalid_admin_key")

    asyncio.run(test())


@pytest.mark.parametrize(
    ("role", "may"),
    [
        ("viewer", {"GET /api/tenants"}),
        ("operator", {"GET /api/tenants", "POST /api/reload", "PATCH /api/tenants/acme/quota"}),
        ("admin", {"GET /api/tenants", "POST /api/reload", "PATCH /api/tenants/acme/quota", "PATCH /api/tenants/acme",
                   "POST /api/admin-keys"}),
    ],
)  # fmt: skip
def test_each_role_may_what_it_says(role: str, may: set[str]) -> None:
    asked = {
        "GET /api/tenants": None,
        "POST /api/reload": None,
        "PATCH /api/tenants/acme/quota": {"rpm": 7},
        "PATCH /api/tenants/acme": {"weight": 7},
        "POST /api/admin-keys": {"role": "viewer"},
    }

    async def test() -> None:
        async with office() as here:
            async with here.client() as admin:
                made = await admin.post("/api/admin-keys", json={"role": role, "label": "ci"})
            async with here.client(made.json()["secret"]) as admin:
                for what, body in asked.items():
                    method, path = what.split(" ")
                    answer = await admin.request(method, path, json=body)
                    if what in may:
                        assert answer.status_code in (200, 201), what
                    else:
                        assert code(answer) == (403, "role_too_low"), what
                me = (await admin.get("/api/whoami")).json()
            assert (me["role"], me["who"]) == (role, f"key:{made.json()['key']['id']} (ci)")

    asyncio.run(test())


def test_a_tenants_key_opens_nothing_here() -> None:
    async def test() -> None:
        async with office() as here:
            async with here.client() as admin:
                made = await admin.post("/api/tenants/acme/keys", json={})
            async with here.client(made.json()["secret"]) as admin:
                assert code(await admin.get("/api/status")) == (401, "invalid_admin_key")

    asyncio.run(test())


def test_an_expired_admin_key_opens_nothing_and_no_side_door() -> None:
    async def test() -> None:
        registry = FlakyRegistry()
        async with office(registry=registry) as here, here.client() as admin:
            made = (await admin.post("/api/admin-keys", json={"role": "admin", "expires_in_s": 60})).json()
        async with office(registry=registry, bootstrap=None) as here:
            async with here.client(made["secret"]) as admin:
                assert (await admin.get("/api/status")).status_code == 200
                here.clock.now_s += 60
                assert code(await admin.get("/api/status")) == (401, "invalid_admin_key")
            async with here.client(None) as admin:
                assert code(await admin.post("/api/reload")) == (401, "admin_key_required")

    asyncio.run(test())


@pytest.mark.parametrize("value", ["short", "with a space in the middle", "ümlaut-ümlaut-ümlaut-ümlaut"])
def test_a_weak_bootstrap_key_stops_the_start_and_is_not_told(value: str) -> None:
    with pytest.raises(SpecError, match="ROADWORTHY_ADMIN_KEY") as raised:
        bootstrap_key(value)
    assert value not in str(raised.value)
    assert "openssl rand" in raised.value.hint


@pytest.mark.parametrize("value", [None, ""])
def test_no_bootstrap_key_is_none(value: str | None) -> None:
    assert bootstrap_key(value) is None
