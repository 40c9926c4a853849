"""A tenant near its quota at a real gateway: one message at the webhook, with advice."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from fakes.engine import FakeEngine, plain
from fakes.receivers import HookServer, hook_server
from roadworthy.cli.gateway_stores import open_stores
from roadworthy.gateway import quota_watch
from roadworthy.gateway.config import GatewayConfig
from roadworthy.spec.governance_values import AlertSpec, GovernanceSpec
from roadworthy.spec.values import Tenant
from support.gateway import KEY, chat, client_of, gateway_before, post, run, until

if TYPE_CHECKING:
    import pytest


def test_a_quota_nearly_used_up_is_told_to_the_webhook_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quota_watch, "ROUND_S", 0.0)  # look at each tick
    tenants = (Tenant(id="acme", key=KEY, daily_tokens=1000), Tenant(id="calm", key="sk-calm", daily_tokens=1000))

    async def test(hook: HookServer) -> None:
        governance = GovernanceSpec(alert=AlertSpec(at_ratio=0.01, for_s=0.001, webhook=f"{hook.url}/in"))
        said: list[str] = []
        stores = open_stores(
            GatewayConfig(endpoints=("http://127.0.0.1:1",), governance=governance), say=said.append,
            environ={"ROADWORTHY_WEBHOOK_SECRET": "shared"},
        )  # fmt: skip
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, tenants=tenants, stores=stores, governance=governance) as gateway,
            client_of(gateway) as client,
        ):
            for _ in range(5):
                assert (await client.ask(post(chat(stream=False)))).status == 200
            await until(lambda: bool(hook.posted))
            assert (await client.ask(post(chat(stream=False)))).status == 200
            await until(lambda: gateway.status().in_flight == 0)
        (posted,) = hook.posted
        told = json.loads(posted.body)
        assert (told["tenant"], told["quota"], told["limit"], told["event"]) == (
            "acme", "daily_tokens", 1000, "quota.near",
        )  # fmt: skip
        assert told["advice"]
        assert "x-roadworthy-signature" in posted.headers
        assert any("alert: tenant acme" in one for one in said)

    with hook_server(HookServer()) as hook:
        run(lambda: test(hook))
