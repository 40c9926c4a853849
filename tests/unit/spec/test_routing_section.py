"""Routing and lanes in the document: what they may say, and what must agree with what."""

from __future__ import annotations

import pytest

from roadworthy.spec.load import check_text, load_text
from roadworthy.spec.routing_values import LongLane, RoutingSpec, Weights

TWO = (
    "model: {config: tiny, max_model_len: 64K}\n"
    "engine: {endpoints: [{url: http://a:1, kv_events: ['tcp://a:5557', 'tcp://a:5558']}, {url: http://b:1}]}\n"
)


def test_left_out_it_is_affinity_without_lanes() -> None:
    gateway = load_text("model: {config: tiny}", source="x").gateway
    assert gateway.routing == RoutingSpec()
    assert gateway.routing.policy == "affinity"
    assert gateway.lanes.long is None


def test_everything_can_be_said() -> None:
    deployment = load_text(
        TWO + "gateway:\n"
        "  routing: {policy: session, session_header: x-conversation-id, load_factor: 1.5, load_floor: 8,\n"
        "            prefix_load_factor: 3,\n"
        "            weights: {load: 100, session: 100, session_share: 20%, kv: 0}}\n"
        "  lanes: {long: {above_tokens: 32K, engines: ['http://b:1']}}\n",
        source="x",
    )
    assert deployment.gateway.routing == RoutingSpec(
        policy="session",
        session_header="x-conversation-id",
        load_factor=1.5,
        prefix_load_factor=3,
        load_floor=8,
        weights=Weights(load_tokens=100, session_tokens=100, session_ratio=0.2, kv_tokens=0),
    )
    assert deployment.gateway.lanes.long == LongLane(above_tokens=32768, engines=("http://b:1",))
    assert [one.kv_events for one in deployment.engine.endpoints] == [("tcp://a:5557", "tcp://a:5558"), ()]


@pytest.mark.parametrize(
    ("lane", "path", "wanted"),
    [
        ("{above_tokens: 8K}", "", "one of the two"),
        ("{above_tokens: 8K, slots: 1, engines: ['http://b:1']}", "", "one of the two"),
        ("{above_tokens: 64K, slots: 1}", ".above_tokens", "less than model.max_model_len, 65,536"),
        ("{above_tokens: 8K, engines: ['http://c:1']}", ".engines", "one of engine.endpoints: http://a:1, http://b:1"),
        ("{above_tokens: 8K, engines: ['http://a:1', 'http://b:1']}", ".engines", "fewer than engine.endpoints has"),
        ("{slots: 1}", ".above_tokens", "a count of tokens"),
        ("{above_tokens: 8K, slots: 0}", ".slots", "a whole number"),
    ],
)
def test_a_lane_that_cannot_be_is_told_with_its_place(lane: str, path: str, wanted: str) -> None:
    deployment, problems = check_text(TWO + f"gateway: {{lanes: {{long: {lane}}}}}\n", source="x")
    assert deployment is None
    assert [problem.path for problem in problems] == [f"gateway.lanes.long{path}"]
    assert wanted in problems[0].wanted


def test_engines_of_a_lane_need_engines_in_the_document() -> None:
    text = "model: {config: tiny}\ngateway: {lanes: {long: {above_tokens: 8K, engines: ['http://b:1']}}}\n"
    _, problems = check_text(text, source="x")
    assert [problem.wanted for problem in problems] == ["slots, as engine.endpoints names no engine"]
    assert load_text(text.replace("engines: ['http://b:1']", "slots: 2"), source="x").gateway.lanes.long is not None


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("gateway: {routing: {policy: random}}", "gateway.routing.policy"),
        ("gateway: {routing: {load_factor: 0.9}}", "gateway.routing.load_factor"),
        ("gateway: {routing: {session_header: 'X Session'}}", "gateway.routing.session_header"),
        ("gateway: {routing: {weights: {load: -1}}}", "gateway.routing.weights.load"),
        ("engine: {endpoints: [{url: http://a:1, kv_events: ['tcp://*:5557']}]}", "engine.endpoints[0].kv_events[0]"),
        ("engine: {endpoints: [{url: http://a:1, kv_events: ['http://a:5557']}]}", "engine.endpoints[0].kv_events[0]"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(line: str, path: str) -> None:
    deployment, problems = check_text(f"model: {{config: tiny}}\n{line}\n", source="x")
    assert deployment is None
    assert [problem.path for problem in problems] == [path]
