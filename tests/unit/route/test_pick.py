"""Which engine a request goes to."""

from __future__ import annotations

import pytest

from roadworthy.route.pick import least_load
from roadworthy.route.values import Decision, EndpointSnapshot, RouteRequest

REQUEST = RouteRequest(tenant_id="acme", model="m", stream=True)


def snapshot(name: str, **fields: object) -> EndpointSnapshot:
    return EndpointSnapshot(url=f"http://{name}", **fields)  # type: ignore[arg-type]


def test_the_engine_with_the_fewest_requests_in_flight_is_taken() -> None:
    decision = least_load([snapshot("a", in_flight=3), snapshot("b", in_flight=1), snapshot("c", in_flight=2)], REQUEST)
    assert decision == Decision(outcome="routed", endpoint="http://b")


def test_requests_that_wait_inside_an_engine_count_as_load() -> None:
    engines = [snapshot("a", in_flight=2, waiting=5), snapshot("b", in_flight=4)]
    assert least_load(engines, REQUEST).endpoint == "http://b"


def test_equal_engines_take_turns() -> None:
    engines = [snapshot("a", last_dispatch=7), snapshot("b", last_dispatch=5), snapshot("c", last_dispatch=6)]
    assert least_load(engines, REQUEST).endpoint == "http://b"


def test_engines_never_used_are_taken_in_the_documents_order() -> None:
    assert least_load([snapshot("b"), snapshot("a")], REQUEST).endpoint == "http://b"


def test_an_engine_with_a_full_kv_pool_comes_last() -> None:
    engines = [snapshot("a", kv_usage_ratio=0.99), snapshot("b", in_flight=50)]
    assert least_load(engines, REQUEST).endpoint == "http://b"


def test_unhealthy_engines_are_left_out_while_a_healthy_one_remains() -> None:
    engines = [snapshot("a", healthy=False), snapshot("b", in_flight=9)]
    assert least_load(engines, REQUEST).endpoint == "http://b"


def test_when_none_is_healthy_one_is_tried_all_the_same_and_the_decision_says_why() -> None:
    decision = least_load([snapshot("a", healthy=False)], REQUEST)
    assert decision.endpoint == "http://a"
    assert decision.reasons == ("no engine is healthy: trying one anyway",)


def test_draining_and_tried_engines_are_never_taken() -> None:
    engines = [snapshot("a", draining=True), snapshot("b"), snapshot("c", in_flight=9)]
    assert least_load(engines, REQUEST, tried=["http://b"]) == Decision(outcome="rerouted", endpoint="http://c")
    assert least_load(engines, REQUEST, tried=["http://b", "http://c"]).outcome == "no_engine"


def test_only_engines_that_serve_the_model_or_do_not_say_yet_are_taken() -> None:
    serving, other, unknown = (
        snapshot("a", models=frozenset({"m"}), in_flight=5),
        snapshot("b", models=frozenset({"other"})),
        snapshot("c"),
    )
    assert least_load([serving, other], REQUEST).endpoint == "http://a"
    assert least_load([serving, unknown], REQUEST).endpoint == "http://c"
    assert least_load([other], REQUEST).outcome == "model_not_found"


def test_a_decision_has_an_endpoint_exactly_when_it_routes() -> None:
    with pytest.raises(ValueError, match="routed"):
        Decision(outcome="routed", endpoint=None)
    with pytest.raises(ValueError, match="no_engine"):
        Decision(outcome="no_engine", endpoint="http://a")


@pytest.mark.parametrize("fields", [{"in_flight": -1}, {"waiting": -1}, {"kv_usage_ratio": 1.1}])
def test_a_snapshot_refuses_what_cannot_be(fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="http://a"):
        snapshot("a", **fields)
