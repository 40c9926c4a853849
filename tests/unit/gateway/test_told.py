"""What processes of one gateway tell each other of tenants: changes added up, views added up, alerts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.last_minute import LastMinute, quantile_s
from roadworthy.gateway.quota_watch import alert_as_json, alert_from_json
from roadworthy.gateway.tenants import merged
from roadworthy.gateway.told import Told, as_json, from_json
from roadworthy.gateway.workers.share import divided_change
from roadworthy.route.govern.values import Alert
from roadworthy.route.keys import Change, issued
from roadworthy.spec.values import Tenant

A = Tenant(id="a", concurrency=5, requests_per_minute=100, models=("m", "n"), scopes=("trusted-caller",))
B = Tenant(id="b", kv_quota_bytes=1 << 40, fallback="n")
KEY = issued(b"i" * 8, b"s" * 32, pepper=b"p", created_s=1.0, tenant_id="a", scopes=("trusted-caller",)).key
OTHER = issued(b"j" * 8, b"s" * 32, pepper=b"p", created_s=1.0, tenant_id="b").key


def test_a_change_travels_whole() -> None:
    change = Change(tenants=(A, B), tenants_gone=("c",), keys=(KEY,), keys_gone=("x",))
    assert from_json(json.loads(json.dumps(as_json(change)))) == change


def test_what_was_told_last_counts() -> None:
    told = Told()
    assert not told.anything
    told.add(Change(tenants=(A, B), keys=(KEY, OTHER)))
    told.add(Change(tenants=(replace(A, concurrency=9),), keys=(replace(KEY, revoked_s=5.0),)))
    told.add(Change(tenants_gone=("b",)))
    whole = told.whole()
    assert whole.tenants == (replace(A, concurrency=9),)
    assert whole.keys == (replace(KEY, revoked_s=5.0),), "keys of a tenant that is gone are gone with it"
    assert whole.tenants_gone == ("b",)
    told.add(Change(tenants=(B,), keys_gone=(KEY.id,)))
    whole = told.whole()
    assert {one.id for one in whole.tenants} == {"a", "b"}
    assert (whole.tenants_gone, whole.keys, whole.keys_gone) == ((), (), (KEY.id,))


CONFIG = GatewayConfig(endpoints=("http://a:1",), workers=2)


def test_a_changed_limit_is_divided_among_workers_that_count_by_themselves() -> None:
    shares = [divided_change(Change(tenants=(A,), keys=(KEY,)), CONFIG, index) for index in (0, 1)]
    assert [one.tenants[0].concurrency for one in shares] == [3, 2]
    assert [one.tenants[0].requests_per_minute for one in shares] == [50, 50]
    assert all(one.keys == (KEY,) for one in shares)


@pytest.mark.parametrize("fields", [{"shared_url": "redis://x"}, {"state_url": "sqlite:///x"}, {"workers": 1}])
def test_a_limit_that_is_counted_in_one_place_is_not_divided(fields: dict[str, object]) -> None:
    change = Change(tenants=(A,))
    assert divided_change(change, replace(CONFIG, **fields), 1) == change  # type: ignore[arg-type]


def test_a_changed_limit_too_small_to_divide_is_refused_with_what_helps() -> None:
    with pytest.raises(SpecError, match=r"tenant a\.concurrency: 1 cannot be divided") as refused:
        divided_change(Change(tenants=(replace(A, concurrency=1),)), CONFIG, 0)
    assert "gateway.shared_url" in refused.value.hint


def view(**fields: object) -> dict[str, object]:
    zeros = dict.fromkeys(
        ("in_flight", "waiting", "borrowed", "requests", "refused", "failed", "prompt_tokens", "output_tokens",
         "tokens_per_min", "blocks_held", "tokens_today"), 0,
    )  # fmt: skip
    return {"id": "a", **zeros, "blocks_quota": 10, "ttft": {}, **fields}


def test_what_several_processes_tell_of_a_tenant_is_added_up() -> None:
    told = [[view(in_flight=1, ttft={"80": 99})], [view(in_flight=2, ttft={"160": 1}), view(id="b")]]
    (a, b) = merged(told, quota_divided=True)  # type: ignore[arg-type]
    assert (a["in_flight"], a["blocks_quota"]) == (3, 20)
    assert a["ttft_p50_s"] < a["ttft_p99_s"] * 1.01
    assert (b["id"], b["ttft_p99_s"]) == ("b", None)
    (a, _) = merged(told, quota_divided=False)  # type: ignore[arg-type]
    assert a["blocks_quota"] == 10


def test_the_last_minute_forgets_what_is_older() -> None:
    minute = LastMinute()
    for now_s in (0.0, 30.0, 70.0):
        minute.turn(now_s)
        minute.add({"a": 10})
        minute.first_token("a", 0.2)
    tokens, ttft = minute.of(80.0)["a"]
    assert tokens == 20
    assert quantile_s(ttft, 0.5) == pytest.approx(0.2, rel=0.06)
    assert minute.of(500.0) == {}


def test_an_alert_travels_whole() -> None:
    alert = Alert(
        tenant_id="a", quota="kv_quota", used=95.0, limit=100.0, ratio=0.95, since_s=3.0, advice=("add one",),
        assumptions=("as now",), more_replicas=0.5,
    )  # fmt: skip
    assert alert_from_json(json.loads(json.dumps(alert_as_json(alert)))) == alert
