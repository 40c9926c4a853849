"""What several workers tell and share, as one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.core.errors import SpecError
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.workers.merge import merged_metrics, merged_status
from roadworthy.gateway.workers.share import are_divided, divided
from roadworthy.spec.values import Tenant


def config(workers: int, **limits: int) -> GatewayConfig:
    return GatewayConfig(endpoints=("http://a:1",), workers=workers, tenants=(Tenant(id="t", key="k", **limits),))  # type: ignore[arg-type]


@given(st.integers(1, 64), st.integers(0, 10_000))
def test_shares_of_a_limit_add_up_to_it_and_differ_by_one(workers: int, above: int) -> None:
    limit = workers + above
    shares = [
        divided(config(workers, concurrency=limit), index).tenants[0].concurrency or 0 for index in range(workers)
    ]
    assert sum(shares) == limit
    assert max(shares) - min(shares) <= 1
    assert min(shares) >= 1


def test_a_limit_that_leaves_a_worker_with_nothing_is_refused_by_its_key() -> None:
    with pytest.raises(SpecError) as refused:
        divided(config(4, requests_per_minute=3), 0)
    assert refused.value.problems[0].path == "tenants[0].rpm"
    assert divided(config(1, concurrency=1), 0).tenants[0].concurrency == 1
    assert not are_divided(config(4))
    assert are_divided(config(4, concurrency=8))


def status(**fields: Any) -> dict[str, Any]:
    endpoint = {"url": "http://a", "healthy": True, "draining": False, "in_flight": 1, "dispatched_total": 5}
    tenant = {"id": "t", "in_flight": 1, "requests": 5}
    return {
        "ready": True, "draining": False, "uptime_s": 1.0, "client_connections": 2, "in_flight": 1, "requests": 5,
        "stream_events_per_s": 1.5, "output_tokens_per_s": 1.0, "document": {},
        "endpoints": [{**endpoint, "checked_s_ago": 0.5, "running": 3}], "tenants": [tenant], **fields,
    }  # fmt: skip


def test_counts_are_added_and_an_engine_is_believed_where_it_was_asked_last() -> None:
    later = status(ready=False, uptime_s=9.0)
    later["endpoints"] = [{**later["endpoints"][0], "healthy": False, "checked_s_ago": 0.1, "running": 7}]
    both = merged_status([status(), later])
    assert (both["requests"], both["in_flight"], both["stream_events_per_s"], both["uptime_s"]) == (10, 2, 3.0, 9.0)
    assert both["ready"]
    (endpoint,) = both["endpoints"]
    assert (endpoint["in_flight"], endpoint["dispatched_total"], endpoint["running"]) == (2, 10, 7)
    assert endpoint["healthy"], "healthy for one of them is healthy"
    assert both["tenants"] == [{"id": "t", "in_flight": 2, "requests": 10}]


def test_an_exposition_of_several_has_each_family_once() -> None:
    one = '# HELP x_total Help.\n# TYPE x_total counter\nx_total{worker="0"} 1.0\n# HELP y Y.\n# TYPE y gauge\ny 1.0\n'
    two = '# HELP x_total Help.\n# TYPE x_total counter\nx_total{worker="1"} 2.0\n'
    assert merged_metrics([one, two]).decode() == (
        '# HELP x_total Help.\n# TYPE x_total counter\nx_total{worker="0"} 1.0\nx_total{worker="1"} 2.0\n'
        "# HELP y Y.\n# TYPE y gauge\ny 1.0\n"
    )
