"""What tips the scales between engines: sessions, prefixes, lanes, and what they yield to."""

from __future__ import annotations

import json

import pytest

from roadworthy.route.pick import NONE_HEALTHY, choose, least_load
from roadworthy.route.settings import LongLane, RoutingSettings, Weights
from roadworthy.route.state import RoutingState
from roadworthy.route.values import Decision, EndpointSnapshot, RouteRequest

URLS = ("http://a", "http://b", "http://c", "http://d")


def fleet(**changes: dict[str, object]) -> list[EndpointSnapshot]:
    """Four engines; a keyword names one and what is special about it."""
    return [EndpointSnapshot(url=url, **changes.get(url[-1], {})) for url in URLS]  # type: ignore[arg-type]


def state(**settings: object) -> RoutingState:
    return RoutingState(RoutingSettings(**settings), URLS)  # type: ignore[arg-type]


def body(size: int, seed: int = 0) -> bytes:
    text = (f"{seed} words and more words, " * (size // 10))[:size]
    return json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()


def ask(routing: RoutingState, size: int = 8000, seed: int = 0, session: str | None = None) -> RouteRequest:
    return routing.describe(tenant_id="acme", model="m", stream=True, body=body(size, seed), session_id=session)


def home_of(routing: RoutingState, session: str) -> str:
    decision = choose(fleet(), ask(routing, size=10, session=session), state=routing)
    assert decision.by == "session"
    return decision.endpoint or ""


class TestPrefix:
    def test_a_prompt_goes_where_its_beginning_was_computed(self) -> None:
        routing = state()
        first = ask(routing)
        routing.dispatched(first, "http://c")
        decision = choose(fleet(), ask(routing), state=routing)
        assert (decision.endpoint, decision.by) == ("http://c", "prefix")
        assert decision.matched_bytes >= 7000
        assert "bytes should be held there" in decision.reasons[0]

    def test_one_never_seen_goes_by_load(self) -> None:
        routing = state()
        routing.dispatched(ask(routing, seed=1), "http://c")
        decision = choose(fleet(a={"in_flight": 1}, c={"in_flight": 1}), ask(routing, seed=2), state=routing)
        assert (decision.endpoint, decision.by, decision.reasons) == ("http://b", "load", ())

    def test_of_two_engines_the_one_that_holds_more_is_taken(self) -> None:
        routing = state()
        longer = ask(routing, size=16_000)
        routing.dispatched(ask(routing, size=4000), "http://a")
        routing.dispatched(longer, "http://b")
        assert choose(fleet(), longer, state=routing).endpoint == "http://b"

    def test_another_tenants_prompt_is_a_stranger(self) -> None:
        routing = state()
        routing.dispatched(ask(routing), "http://d")
        other = routing.describe(tenant_id="other", model="m", stream=True, body=body(8000))
        assert choose(fleet(), other, state=routing).by == "load"

    def test_a_short_match_yields_to_a_difference_in_load_and_says_so(self) -> None:
        routing = state()
        routing.dispatched(ask(routing, size=1500), "http://a")
        decision = choose(fleet(a={"in_flight": 3}), ask(routing, size=1500), state=routing)
        assert (decision.endpoint, decision.by) == ("http://b", "load")
        assert decision.reasons == (
            "prefix: http://a holds 1024 bytes, but with 3 requests it costs more than it saves",
        )

    def test_the_longest_match_yields_at_twice_the_mean_load(self) -> None:
        routing = state()
        long = ask(routing, size=200_000)
        routing.dispatched(long, "http://a")
        near = choose(fleet(a={"in_flight": 7}, b={"in_flight": 8}), long, state=routing)
        assert near.endpoint == "http://a"
        over = choose(fleet(a={"in_flight": 20}, b={"in_flight": 8}), long, state=routing)
        assert over.endpoint == "http://c"
        assert "at its bound of 15 requests" in over.reasons[-1]

    def test_it_yields_to_health_and_to_a_full_pool(self) -> None:
        routing = state()
        routing.dispatched(ask(routing), "http://a")
        assert choose(fleet(a={"healthy": False}), ask(routing), state=routing).endpoint != "http://a"
        assert choose(fleet(a={"draining": True}), ask(routing), state=routing).endpoint != "http://a"
        assert choose(fleet(), ask(routing), tried=["http://a"], state=routing).endpoint != "http://a"
        full = choose(fleet(a={"kv_usage_ratio": 0.99}), ask(routing), state=routing)
        assert full.endpoint != "http://a"
        assert "KV pool is 99% full" in full.reasons[-1]

    def test_a_weight_of_nothing_for_load_follows_any_match(self) -> None:
        routing = state(weights=Weights(load_tokens=0))
        routing.dispatched(ask(routing, size=1500), "http://a")
        assert choose(fleet(a={"in_flight": 3}), ask(routing, size=1500), state=routing).endpoint == "http://a"


class TestSession:
    def test_a_session_stays_at_home_whatever_the_order_of_load_below_the_bound(self) -> None:
        routing = state(policy="session")
        home = home_of(routing, "s1")
        for load in range(3):
            views = fleet(**{home[-1]: {"in_flight": load}})
            decision = choose(views, ask(routing, session="s1"), state=routing)
            assert (decision.endpoint, decision.by, decision.reasons) == (home, "session", ("session: at home there",))

    def test_a_short_conversation_stays_at_home_up_to_the_bound_beside_prefixes_too(self) -> None:
        routing = state()
        home = home_of(routing, "s1")
        asked = ask(routing, size=10, session="s1")
        others = {name: {"in_flight": 12} for name in "abcd" if name != home[-1]}
        for load in (3, 12, 15):
            views = fleet(**others, **{home[-1]: {"in_flight": load}})
            assert choose(views, asked, state=routing).endpoint == home, load
        over = choose(fleet(**others, **{home[-1]: {"in_flight": 18}}), asked, state=routing)
        assert over.endpoint != home

    def test_a_home_is_no_reason_to_leave_an_engine_that_holds_the_conversation(self) -> None:
        routing = state()
        home = home_of(routing, "s1")
        other = next(url for url in URLS if url != home)
        short = ask(routing, size=2500, session="s1")
        routing.dispatched(short, other)
        assert choose(fleet(), short, state=routing).endpoint == other

    def test_sessions_spread_over_all_engines(self) -> None:
        routing = state()
        assert {home_of(routing, f"s{number}") for number in range(60)} == set(URLS)

    def test_two_tenants_sessions_of_one_name_are_strangers(self) -> None:
        routing = state(policy="session")
        chosen = set()
        for tenant in range(40):
            asked = routing.describe(tenant_id=f"t{tenant}", model="m", stream=True, body=body(10), session_id="same")
            chosen.add(choose(fleet(), asked, state=routing).endpoint)
        assert len(chosen) == 4

    def test_a_home_at_its_bound_sends_the_session_to_the_same_next_engine_every_time(self) -> None:
        routing = state(policy="session")
        home = home_of(routing, "s1")
        views = fleet(**{home[-1]: {"in_flight": 9}})
        decisions = [choose(views, ask(routing, session="s1"), state=routing) for _ in range(5)]
        assert len({one.endpoint for one in decisions}) == 1
        assert decisions[0].endpoint != home
        assert decisions[0].reasons[-1] == f"session: {home} is its home, but it is at its bound of 4 requests"

    def test_when_its_engine_is_gone_it_finds_another_and_comes_back_with_it(self) -> None:
        routing = state(policy="session")
        home = home_of(routing, "s1")
        away = choose(fleet(**{home[-1]: {"healthy": False}}), ask(routing, session="s1"), state=routing)
        assert away.endpoint != home
        assert away.by == "session"
        assert choose(fleet(), ask(routing, session="s1"), state=routing).endpoint == home

    def test_what_an_engine_holds_goes_before_a_home_that_holds_nothing(self) -> None:
        routing = state()
        home = home_of(routing, "s1")
        other = next(url for url in URLS if url != home)
        routing.dispatched(ask(routing, session="s1"), other)
        assert choose(fleet(), ask(routing, session="s1"), state=routing).endpoint == other

    def test_an_empty_session_is_none(self) -> None:
        routing = state()
        assert choose(fleet(), ask(routing, size=10, session=""), state=routing).by == "load"


class TestPolicies:
    def test_each_policy_looks_at_what_it_says(self) -> None:
        for policy, by in (
            ("affinity", "prefix"),
            ("prefix", "prefix"),
            ("session", "session"),
            ("least-load", "load"),
        ):
            routing = state(policy=policy)
            routing.dispatched(ask(routing, session="s1"), home_of(state(), "s1"))
            assert choose(fleet(), ask(routing, session="s1"), state=routing).by == by, policy

    @pytest.mark.parametrize("load", [{}, {"a": {"in_flight": 2}, "b": {"waiting": 1}}, {"a": {"healthy": False}}])
    def test_least_load_is_the_same_with_and_without_a_state(self, load: dict[str, dict[str, object]]) -> None:
        routing = state(policy="least-load")
        asked = ask(routing, session="s1")
        assert choose(fleet(**load), asked, state=routing) == least_load(fleet(**load), asked)

    def test_with_one_engine_nothing_is_hashed(self) -> None:
        routing = RoutingState(RoutingSettings(), ["http://a"])
        assert ask(routing).prefix_keys == ()


class TestLanes:
    OWN = LongLane(above_tokens=1000, engines=("http://d",))
    SLOTS = LongLane(above_tokens=1000, slots=1)

    def test_long_prompts_take_their_engines_and_others_leave_those_alone(self) -> None:
        routing = state(long_lane=self.OWN)
        long, short = ask(routing, size=8000), ask(routing, size=800)
        assert (long.lane, short.lane) == ("long", "main")
        busy = fleet(a={"in_flight": 5}, b={"in_flight": 5}, c={"in_flight": 5})
        assert choose(busy, short, state=routing).endpoint in {"http://a", "http://b", "http://c"}
        assert choose(fleet(d={"in_flight": 5}), long, state=routing).endpoint == "http://d"

    def test_a_lane_without_an_open_engine_borrows_and_says_so(self) -> None:
        routing = state(long_lane=self.OWN)
        decision = choose(fleet(d={"healthy": False}), ask(routing), state=routing)
        assert decision.endpoint != "http://d"
        assert decision.reasons[0] == "no engine of the long lane is open: borrowing one of the other's"
        down = {name: {"healthy": False} for name in "abc"}
        assert choose(fleet(**down), ask(routing, size=10), state=routing).endpoint == "http://d"

    def test_when_none_is_healthy_the_lane_still_holds(self) -> None:
        routing = state(long_lane=self.OWN)
        down = {name: {"healthy": False} for name in "abcd"}
        decision = choose(fleet(**down), ask(routing), state=routing)
        assert (decision.endpoint, decision.reasons) == ("http://d", (NONE_HEALTHY,))

    def test_slots_bound_long_prompts_on_each_engine_and_no_others(self) -> None:
        routing = state(long_lane=self.SLOTS)
        placements = []
        for seed in range(4):
            asked = ask(routing, seed=seed)
            decision = choose(fleet(), asked, state=routing)
            assert decision.endpoint is not None
            placements.append(routing.dispatched(asked, decision.endpoint))
        assert {one.url for one in placements} == set(URLS)
        full = choose(fleet(), ask(routing, seed=9), state=routing)
        assert full == Decision(
            outcome="lane_full", endpoint=None, reasons=("all 1 slots for long prompts are taken on 4 engines",)
        )
        assert choose(fleet(), ask(routing, size=10), state=routing).outcome == "routed"
        routing.ended(placements[2], answered=True)
        assert choose(fleet(), ask(routing, seed=9), state=routing).endpoint == placements[2].url
