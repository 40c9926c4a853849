"""Laws of routing and admission that hold for every input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.core.errors import Refused
from roadworthy.route.admit import Admission, Lease
from roadworthy.route.breaker import Breaker, BreakerPolicy
from roadworthy.route.pick import least_load
from roadworthy.route.rate import MinuteRate
from roadworthy.route.values import EndpointSnapshot, RouteRequest
from roadworthy.spec.values import Tenant

REQUEST = RouteRequest(tenant_id="t", model="m", stream=False)

SNAPSHOTS = st.lists(
    st.builds(
        EndpointSnapshot,
        url=st.integers(0, 10**6).map(lambda number: f"http://{number}"),
        healthy=st.booleans(),
        draining=st.booleans(),
        in_flight=st.integers(0, 50),
        waiting=st.integers(0, 50),
        kv_usage_ratio=st.floats(0, 1),
        models=st.sampled_from([frozenset(), frozenset({"m"}), frozenset({"n"})]),
        last_dispatch=st.integers(0, 100),
    ),
    max_size=6,
    unique_by=lambda one: one.url,
)


@given(SNAPSHOTS, st.sets(st.integers(0, 5)))
def test_a_pick_never_takes_what_is_closed_and_only_fails_when_all_are(
    endpoints: list[EndpointSnapshot], tried_at: set[int]
) -> None:
    tried = [one.url for at, one in enumerate(endpoints) if at in tried_at]
    may = {
        one.url
        for one in endpoints
        if (not one.models or "m" in one.models) and not one.draining and one.url not in tried
    }
    decision = least_load(endpoints, REQUEST, tried=tried)
    assert (decision.endpoint in may) if may else (decision.endpoint is None)


@given(SNAPSHOTS)
def test_the_order_of_engines_matters_only_between_equals(endpoints: list[EndpointSnapshot]) -> None:
    def score(url: str | None) -> object:
        one = next((one for one in endpoints if one.url == url), None)
        return one and (one.healthy, one.kv_usage_ratio > 0.98, one.in_flight + one.waiting, one.last_dispatch)

    forward, backward = least_load(endpoints, REQUEST), least_load(endpoints[::-1], REQUEST)
    assert score(forward.endpoint) == score(backward.endpoint)


@given(st.integers(1, 600), st.lists(st.floats(0, 5), max_size=200))
def test_a_rate_lets_through_at_most_a_burst_and_the_steady_rate(per_minute: int, gaps_s: list[float]) -> None:
    rate, now_s, passed = MinuteRate(per_minute), 1000.0, 0
    for gap_s in gaps_s:
        now_s += gap_s
        passed += rate.take(now_s) == 0.0
    assert passed <= per_minute + (now_s - 1000.0) * per_minute / 60 + 1e-3


@given(st.integers(1, 600))
def test_after_a_quiet_minute_the_whole_minute_may_go_at_once_and_not_one_more(per_minute: int) -> None:
    rate = MinuteRate(per_minute)
    assert all(rate.take(0.0) == 0.0 for _ in range(per_minute))
    wait_s = rate.take(0.0)
    assert wait_s > 0
    assert rate.take(wait_s * 0.99 - 1e-5) > 0
    assert rate.take(wait_s) == 0.0


def test_a_rate_of_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="lets nothing through"):
        MinuteRate(0)


@given(st.integers(1, 4), st.lists(st.tuples(st.booleans(), st.integers(0, 10)), max_size=60))
def test_admission_counts_exactly_what_is_held(concurrency: int, steps: list[tuple[bool, int]]) -> None:
    tenant = Tenant(id="t", key="k", concurrency=concurrency)
    admission, held = Admission([tenant]), list[Lease]()
    for arrives, which in steps:
        if arrives:
            try:
                held.append(admission.admit(tenant, REQUEST, 0.0))
            except Refused:
                assert len(held) == concurrency
        elif held:
            held.pop(which % len(held)).release()
        assert admission.in_flight("t") == len(held) <= concurrency


@given(
    st.lists(
        st.tuples(st.sampled_from(["failed", "succeeded", "dispatched", "abandoned"]), st.floats(0, 2)), max_size=60
    )
)
def test_whatever_happens_a_breaker_lets_a_request_through_within_the_longest_backoff(
    steps: list[tuple[str, float]],
) -> None:
    policy = BreakerPolicy()
    breaker, now_s = Breaker(policy), 0.0
    for step, gap_s in steps:
        now_s += gap_s
        if step == "dispatched":
            breaker.dispatched(now_s)
        elif step == "failed":
            breaker.failed(now_s)
        else:
            getattr(breaker, step)()
    assert breaker.allows(now_s + policy.longest_backoff_s)
