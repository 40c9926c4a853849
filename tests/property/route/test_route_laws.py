"""Laws of routing that hold for every input."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.route.breaker import Breaker, BreakerPolicy
from roadworthy.route.pick import least_load
from roadworthy.route.values import EndpointSnapshot, RouteRequest

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
