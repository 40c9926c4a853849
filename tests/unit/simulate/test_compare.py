"""Routing in virtual time: what each policy makes of one load, and prompts without text."""

from __future__ import annotations

from dataclasses import replace

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.route.prefix import BOUNDS_BYTES
from roadworthy.route.settings import LongLane, RoutingSettings
from roadworthy.simulate.compare import COMPARED, PolicyResult, compare_policies
from roadworthy.simulate.prompts import BYTES_PER_TOKEN, prompt_keys
from roadworthy.simulate.run import routing_of, simulate
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions
from roadworthy.twin.prompt import Segment
from support.twin import config

CHATS = RequestProfile(
    prompt_tokens=Quantiles(p50=600, p90=1500, p99=3000),
    output_tokens=Quantiles(p50=20, p90=40, p99=60),
    rate_per_s=6.0,
    shared_prefix_ratio=0.2,
    sessions=Sessions(turns=5.0, think_time_s=2.0),
)
ENGINE = config(kv_blocks=4001, max_model_len=8192, max_num_batched_tokens=512, max_num_seqs=32)


def arrivals() -> Arrivals:
    return Arrivals(CHATS, seed=3, requests=300, max_context_tokens=8192)


@pytest.fixture(scope="module")
def results() -> dict[str, PolicyResult]:
    found = compare_policies([ENGINE] * 4, arrivals, routing=RoutingSettings())
    return {one.policy: one for one in found}


def test_every_policy_serves_the_whole_load(results: dict[str, PolicyResult]) -> None:
    assert set(results) == set(COMPARED)
    assert all(one.failed == 0 for one in results.values())


def test_what_keeps_conversations_together_finds_far_more_in_the_cache(results: dict[str, PolicyResult]) -> None:
    blind = max(results[name].cached_ratio for name in ("round-robin", "least-load"))
    for name in ("session", "prefix", "affinity"):
        assert results[name].cached_ratio > blind + 0.15, name


def test_and_answers_sooner(results: dict[str, PolicyResult]) -> None:
    blind_s = min(results[name].ttft_p50_s or 0.0 for name in ("round-robin", "least-load"))
    assert (results["affinity"].ttft_p50_s or 9.9) < blind_s


def test_round_robin_is_even_and_affinity_within_its_bounds(results: dict[str, PolicyResult]) -> None:
    assert results["round-robin"].busiest_ratio == pytest.approx(1.0, abs=0.02)
    assert results["affinity"].busiest_ratio < 1.5


def test_a_run_says_what_tipped_the_scales() -> None:
    run = simulate([ENGINE] * 4, arrivals(), routing=RoutingSettings(policy="prefix"))
    assert run.chosen_by["prefix"] > 150
    assert run.chosen_by.get("session", 0) == 0
    assert sum(run.chosen_by.values()) == len(run.records)
    by_load = simulate([ENGINE] * 4, arrivals(), routing=RoutingSettings(policy="least-load"))
    assert by_load.chosen_by == {"load": len(by_load.records)}
    assert run.cached_ratio > by_load.cached_ratio


def test_single_requests_name_no_conversation() -> None:
    alone = replace(CHATS, sessions=Sessions())
    run = simulate([ENGINE] * 2, Arrivals(alone, seed=1, requests=50), routing=RoutingSettings(policy="session"))
    assert run.chosen_by == {"load": 50}


def test_long_prompts_keep_to_their_engine_in_a_simulation_too() -> None:
    lane = LongLane(above_tokens=2000, engines=("engine-1",))
    run = simulate([ENGINE] * 2, arrivals(), routing=RoutingSettings(long_lane=lane))
    assert {record.engine for record in run.records if record.n_in > 2000} == {"engine-1"}
    assert {record.engine for record in run.records if record.n_in <= 2000} == {"engine-0"}


def test_a_long_prompt_without_a_slot_fails_by_name() -> None:
    lane = LongLane(above_tokens=100, slots=1)
    run = simulate([ENGINE], arrivals(), routing=RoutingSettings(long_lane=lane))
    assert {record.error for record in run.records if not record.ok} == {"lane_full"}


def test_keys_agree_exactly_as_far_as_the_text_does() -> None:
    one = (Segment("system", 1000), Segment("a", 3000))
    other = (Segment("system", 1000), Segment("b", 3000))
    shorter = (Segment("system", 700), Segment("c", 900))
    step = BOUNDS_BYTES[0] // BYTES_PER_TOKEN
    keys = [prompt_keys(segments, 0) for segments in (one, other, shorter)]

    def common(first: int, second: int) -> int:
        return sum(a == b for a, b in zip(keys[first], keys[second], strict=False))

    assert len(keys[0]) == 4000 // step
    assert common(0, 1) == 1000 // step
    assert common(0, 2) == 700 // step


def test_a_later_turn_begins_with_the_one_before() -> None:
    first = (Segment("system", 300), Segment("u0", 900))
    later = (*first, Segment("a0", 120), Segment("u1", 77))
    assert prompt_keys(later, 5 << 32)[: len(prompt_keys(first, 5 << 32))] == prompt_keys(first, 5 << 32)
    assert set(prompt_keys(first, 0)).isdisjoint(prompt_keys(first, 5 << 32))


def test_engines_of_the_documents_lane_are_taken_by_their_place() -> None:
    text = (
        "model: {config: tiny}\nengine: {endpoints: [{url: http://a:1}, {url: http://b:1}, {url: http://c:1}]}\n"
        "gateway: {lanes: {long: {above_tokens: 100, engines: ['http://b:1']}}}\n"
    )
    deployment = load_text(text, source="x")
    lane = routing_of(deployment, 3).long_lane
    assert lane is not None
    assert lane.engines == ("engine-1",)
    assert routing_of(deployment, 1).long_lane is None
    slots = load_text(text.replace("engines: ['http://b:1']", "slots: 2"), source="x")
    assert routing_of(slots, 1).long_lane == slots.gateway.lanes.long
