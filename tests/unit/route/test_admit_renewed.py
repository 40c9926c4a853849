"""Tenants that change while they hold something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.admit import Admission
from roadworthy.route.values import RouteRequest
from roadworthy.spec.values import Tenant

REQUEST = RouteRequest(tenant_id="a", model="m", stream=False)
A = Tenant(id="a", concurrency=2, requests_per_minute=3)


def test_what_is_held_is_held_on_and_counts_against_the_new_limit() -> None:
    before = Admission([A])
    leases = [before.admit(A, REQUEST, 0.0) for _ in range(2)]
    tighter = replace(A, concurrency=1)
    after = before.renewed([tighter])
    assert after.in_flight("a") == 2
    with pytest.raises(Refused, match="limit is 1"):
        after.admit(tighter, REQUEST, 0.0)
    for lease in leases:
        lease.release()
    assert after.in_flight("a") == 0
    after.admit(tighter, REQUEST, 0.0)


def test_a_rate_that_stays_keeps_its_state_and_a_new_one_starts_anew() -> None:
    before = Admission([A])
    for _ in range(3):
        before.admit(A, REQUEST, 0.0).release()
    same = before.renewed([A])
    with pytest.raises(Refused) as refused:
        same.admit(A, REQUEST, 0.0)
    assert refused.value.code == "rate_limited"
    wider = replace(A, requests_per_minute=4)
    same.renewed([wider]).admit(wider, REQUEST, 0.0)


def test_a_tenant_that_left_may_still_give_back_what_it_held() -> None:
    before = Admission([A])
    lease = before.admit(A, REQUEST, 0.0)
    after = before.renewed([Tenant(id="b")])
    lease.release()
    assert after.in_flight("b") == 0
