"""Tenants near a limit are told of, whoever else there is to look at."""

from __future__ import annotations

from roadworthy.gateway.governance import Governance
from roadworthy.gateway.quota_watch import AT_ONCE, ROUND_S, QuotaWatch
from roadworthy.route.govern.alerts import AlertWatch
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.values import Alert, Charge, Limits
from roadworthy.route.tenants import TenantBook
from roadworthy.spec.governance_values import AlertSpec
from roadworthy.spec.values import Tenant


def test_a_tenant_near_its_limit_for_long_is_told_of_once_among_many() -> None:
    tenants = [Tenant(id=f"t{at}", key=f"k{at}", concurrency=10) for at in range(3 * AT_ONCE)]
    meter = LocalMeter()
    governance = Governance(Governor(tenants), meter, now_s=lambda: 0.0)
    told: list[Alert] = []
    book = TenantBook(tenants, pepper=b"p")
    watch = QuotaWatch(
        AlertWatch(AlertSpec(at_ratio=0.9, for_s=60.0)), governance, meter, book=lambda: book, tell=told.append
    )
    busy = f"t{2 * AT_ONCE + 5}"
    for at in range(9):
        charge = Charge(tenant_id=busy, model="m", prompt_tokens=1, output_tokens=1, blocks=1)
        meter.acquire(Limits(concurrency=10), charge, str(at), 0.0)
    now_s = 0.0
    while now_s < 300:
        watch.tick(now_s)
        if now_s < 50:
            assert told == []
        now_s += ROUND_S / 4
    assert [(one.tenant_id, one.quota, one.used) for one in told] == [(busy, "concurrency", 9)]
