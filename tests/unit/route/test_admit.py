"""Who may run now, and what is given back."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.core.errors import Refused
from roadworthy.route.admit import Admission
from roadworthy.route.values import RouteRequest
from roadworthy.spec.values import Tenant

ACME = Tenant(id="acme", key="k")
REQUEST = RouteRequest(tenant_id="acme", model="m", stream=False)


def refusal(admission: Admission, tenant: Tenant, now_s: float = 0.0) -> Refused:
    with pytest.raises(Refused) as refused:
        admission.admit(tenant, REQUEST, now_s)
    return refused.value


def test_a_tenant_without_limits_is_admitted_and_counted() -> None:
    admission = Admission([ACME])
    leases = [admission.admit(ACME, REQUEST, 0.0) for _ in range(100)]
    assert admission.in_flight("acme") == 100
    for lease in leases:
        lease.release()
        lease.release()
    assert admission.in_flight("acme") == 0


def test_the_concurrency_cap_holds_and_frees() -> None:
    tenant = replace(ACME, concurrency=2)
    admission = Admission([tenant])
    first, _ = admission.admit(tenant, REQUEST, 0.0), admission.admit(tenant, REQUEST, 0.0)
    error = refusal(admission, tenant)
    assert (error.code, error.status, error.retry_after_s) == ("concurrency_limited", 429, 1.0)
    first.release()
    admission.admit(tenant, REQUEST, 0.0)


def test_the_rate_is_refused_with_the_time_after_which_one_more_passes() -> None:
    tenant = replace(ACME, requests_per_minute=2)
    admission = Admission([tenant])
    for _ in range(2):
        admission.admit(tenant, REQUEST, 5.0)
    error = refusal(admission, tenant, 5.0)
    assert (error.code, error.status) == ("rate_limited", 429)
    assert error.retry_after_s == pytest.approx(30.0)
    admission.admit(tenant, REQUEST, 35.0)


def test_a_request_refused_by_the_cap_takes_nothing_from_the_minute() -> None:
    tenant = replace(ACME, concurrency=1, requests_per_minute=2)
    admission = Admission([tenant])
    lease = admission.admit(tenant, REQUEST, 0.0)
    for _ in range(5):
        refusal(admission, tenant)
    lease.release()
    admission.admit(tenant, REQUEST, 0.0)


def test_a_model_that_is_not_on_the_list_is_refused_for_good_and_the_list_is_told() -> None:
    tenant = replace(ACME, models=("a", "b"))
    error = refusal(Admission([tenant]), tenant)
    assert (error.code, error.status, error.retry_after_s) == ("model_not_allowed", 403, None)
    assert "a, b" in error.hint


def test_tenants_do_not_share_limits() -> None:
    one, other = replace(ACME, concurrency=1), Tenant(id="beta", key="q", concurrency=1)
    admission = Admission([one, other])
    admission.admit(one, REQUEST, 0.0)
    admission.admit(other, REQUEST, 0.0)
