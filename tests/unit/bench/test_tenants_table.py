"""What a client sees of a gateway's governance."""

from __future__ import annotations

from roadworthy.advise.breakdown import by_tenant
from roadworthy.bench.tenants_table import tenants_table
from roadworthy.core.records import RequestRecord
from roadworthy.spec.values import Sla


def request(tenant: str, error: str = "", *, n_in: int = 10, n_out: int = 5) -> RequestRecord:
    return RequestRecord(
        t_sched_s=0.0, t_send_s=0.0, t_first_s=None if error else 0.1, t_last_s=0.2, n_in=n_in,
        n_out=0 if error else n_out, ok=not error, tenant=tenant, error=error,
    )  # fmt: skip


def test_refusals_are_told_by_kind_and_apart_from_failures() -> None:
    records = [
        request("a"), request("a", "HTTP 429: slow down"), request("a", "HTTP 422: not that"),
        request("a", "error event 503: queue full"), request("a", "HTTP 500: oh"), request("b", n_in=30, n_out=5),
    ]  # fmt: skip
    (table,) = tenants_table(records, by_tenant(records, Sla()), {"a": 1.0, "b": 3.0})
    rows = {row[0]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert rows["a"]["refused"] == "1 over a limit, 1 by a rule, 1 no room"
    assert (rows["a"]["answered"], rows["a"]["failed"], rows["a"]["tokens served"]) == ("1", "1", "15")
    assert (rows["a"]["weight"], rows["a"]["work"]) == ("25.0%", "33.3%")
    assert (rows["b"]["weight"], rows["b"]["work"], rows["b"]["refused"]) == ("75.0%", "66.7%", "0")


def test_a_run_without_tenants_has_no_table() -> None:
    records = [request(""), request("")]
    assert tenants_table(records, by_tenant(records, Sla()), {}) == ()
