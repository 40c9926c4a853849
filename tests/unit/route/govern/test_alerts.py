"""One alert for each incident, with advice that adds up."""

from __future__ import annotations

import pytest

from roadworthy.route.govern.advice import ReplicaSize, advise
from roadworthy.route.govern.alerts import AlertWatch
from roadworthy.route.govern.values import Held, Limits
from roadworthy.spec.governance_values import AlertSpec

LIMITS = Limits(kv_blocks=100)
REPLICA = ReplicaSize(kv_blocks=1_000, kv_tokens=64_000, requests=50, tokens_per_s=4_000.0, label="TP8")


def watch() -> AlertWatch:
    return AlertWatch(AlertSpec(at_ratio=0.9, for_s=300.0), replica=REPLICA, block_bytes=2**20)


def raised(watching: AlertWatch, blocks: int, now_s: float) -> bool:
    return bool(watching.look("a", LIMITS, Held(blocks=blocks), now_s))


def test_an_alert_comes_once_after_the_whole_time_above_the_threshold() -> None:
    watching = watch()
    assert not raised(watching, 90, 0.0)
    assert not raised(watching, 95, 299.9)
    (alert,) = watching.look("a", LIMITS, Held(blocks=96), 300.0)
    assert (alert.tenant_id, alert.quota, alert.used, alert.limit, alert.ratio) == ("a", "kv_quota", 96, 100, 0.96)
    assert alert.since_s == 0.0
    assert not any(raised(watching, 99, 300.0 + later) for later in range(1, 1_000))


def test_a_moment_below_starts_the_time_anew() -> None:
    watching = watch()
    assert not raised(watching, 95, 0.0)
    assert not raised(watching, 89, 200.0)
    assert not raised(watching, 95, 201.0)
    assert not raised(watching, 95, 500.0)
    assert raised(watching, 95, 501.0)


def test_hovering_about_the_threshold_is_one_incident_and_relief_ends_it() -> None:
    watching = watch()
    raised(watching, 95, 0.0)
    assert raised(watching, 95, 300.0)
    assert not raised(watching, 85, 301.0)
    raised(watching, 95, 302.0)
    assert not raised(watching, 95, 700.0)
    assert not raised(watching, 80, 701.0)
    raised(watching, 95, 702.0)
    assert raised(watching, 95, 1_002.0)


def test_tenants_and_quotas_are_watched_each_by_itself() -> None:
    watching = watch()
    limits = Limits(kv_blocks=100, concurrency=10, requests_per_minute=60, tokens_per_minute=600, daily_tokens=1_000)
    held = Held(requests=9, blocks=10, tokens_today=950, minute_requests=59.0, minute_tokens=100.0)
    for tenant in ("a", "b"):
        assert watching.look(tenant, limits, held, 0.0) == ()
        assert {one.quota for one in watching.look(tenant, limits, held, 300.0)} == {
            "concurrency",
            "rpm",
            "daily_tokens",
        }
    assert len(watching.near()) == 6
    watching.forget("a")
    assert {tenant for tenant, _ in watching.near()} == {"b"}


def test_a_limit_that_was_lifted_is_no_longer_watched() -> None:
    watching = watch()
    raised(watching, 95, 0.0)
    assert watching.look("a", Limits(), Held(blocks=95), 400.0) == ()
    assert watching.near() == ()


def test_a_quota_of_nothing_is_exceeded_by_anything() -> None:
    watching = watch()
    assert watching.look("a", Limits(kv_blocks=0), Held(), 0.0) == ()
    watching.look("a", Limits(kv_blocks=0), Held(blocks=1), 1.0)
    assert watching.look("a", Limits(kv_blocks=0), Held(blocks=1), 301.0)


def test_the_advice_for_cache_counts_blocks_tokens_and_replicas() -> None:
    """150 blocks held of 100: at three quarters of the quota that is 200 blocks, so 100 more; a replica of 1,000 blocks
    and 64,000 tokens has a tenth for them."""
    advice = advise("kv_quota", 150, 100, replica=REPLICA, block_bytes=2**20)
    assert advice.more_replicas == pytest.approx(0.1)
    text = " ".join(advice.sentences)
    assert "200 blocks (200.00 MiB)" in text
    assert "6,400 tokens" in text
    assert "10.0% of one more replica" in text
    assert any("64,000 tokens" in one for one in advice.assumptions)


def test_the_advice_for_a_token_rate_counts_replicas_by_what_one_serves() -> None:
    """480,000 a minute used of 480,000: 160,000 more make it three quarters; 4,000 a second are 240,000 a minute."""
    advice = advise("tpm", 480_000, 480_000, replica=REPLICA)
    assert advice.more_replicas == pytest.approx(2 / 3)
    assert "tpm: 640000" in advice.sentences[0]


@pytest.mark.parametrize("quota", ["kv_quota", "tpm", "rpm", "concurrency", "daily_tokens"])
def test_without_a_plan_the_advice_names_the_key_and_no_replicas(quota: str) -> None:
    advice = advise(quota, 95, 100, replica=None)  # type: ignore[arg-type]
    assert advice.more_replicas is None
    assert advice.sentences
    assert advice.assumptions
    assert "replica" not in " ".join(advice.sentences)
