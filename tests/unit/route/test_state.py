"""What routing remembers between requests."""

from __future__ import annotations

import json

import pytest

from roadworthy.route.settings import RoutingSettings
from roadworthy.route.state import RoutingState
from roadworthy.route.values import EndpointSnapshot, RouteRequest
from roadworthy.spec.load import load_text

A, B = "http://a", "http://b"


def state(**settings: object) -> RoutingState:
    return RoutingState(RoutingSettings(**settings), [A, B])  # type: ignore[arg-type]


def ask(routing: RoutingState, size: int = 8000, request_id: str = "") -> RouteRequest:
    body = json.dumps({"model": "m", "prompt": "ab " * (size // 3)}).encode()
    return routing.describe(tenant_id="t", model="m", stream=False, body=body, request_id=request_id)


def matched(routing: RoutingState, url: str = A) -> int:
    return routing.matched(url, ask(routing).prefix_keys)


class TestTokens:
    def test_a_prompts_tokens_are_estimated_from_bytes_and_corrected_by_usage(self) -> None:
        routing = state(bytes_per_token=4)
        before = ask(routing)
        assert before.prompt_tokens == pytest.approx(2000, rel=0.02)
        routing.ended(routing.dispatched(before, A), answered=True, prompt_tokens=before.text_bytes // 2)
        assert ask(routing).prompt_tokens == pytest.approx(4000, rel=0.02)

    def test_one_odd_prompt_moves_the_estimate_little(self) -> None:
        routing = state()
        for tokens in (2000,) * 20 + (8000,):
            routing.ended(routing.dispatched(ask(routing), A), answered=True, prompt_tokens=tokens)
        assert 3.5 < routing.bytes_per_token("m") < 4.1

    @pytest.mark.parametrize("tokens", [1, 10**9])
    def test_usage_that_cannot_be_is_held_to_what_a_tokenizer_does(self, tokens: int) -> None:
        routing = state()
        routing.ended(routing.dispatched(ask(routing), A), answered=True, prompt_tokens=tokens)
        assert 1 <= routing.bytes_per_token("m") <= 16

    def test_short_prompts_and_failed_requests_teach_nothing(self) -> None:
        routing = state()
        routing.ended(routing.dispatched(ask(routing, 100), A), answered=True, prompt_tokens=90)
        routing.ended(routing.dispatched(ask(routing), A), answered=False, prompt_tokens=90)
        assert routing.bytes_per_token("m") == RoutingSettings().bytes_per_token

    def test_models_learn_apart(self) -> None:
        routing = state()
        routing.learn("other", prompt_bytes=8000, prompt_tokens=8000)
        assert (routing.bytes_per_token("other"), routing.bytes_per_token("m")) == (1.0, 4.0)


class TestWhatEnginesHold:
    def test_a_prompt_is_remembered_from_dispatch_on(self) -> None:
        routing = state()
        routing.dispatched(ask(routing), A)
        assert matched(routing) == len(ask(routing).prefix_keys) > 0
        assert matched(routing, B) == 0

    def test_a_request_that_was_not_computed_leaves_only_what_was_there_before(self) -> None:
        routing = state()
        routing.ended(routing.dispatched(ask(routing, 3000), A), answered=True)
        before = matched(routing)
        routing.ended(routing.dispatched(ask(routing), A), answered=False)
        # the shorter prompt's last key covers its closing quote, which the longer one does not have there
        assert matched(routing) == before

    def test_an_engine_that_is_gone_holds_nothing(self) -> None:
        routing = state()
        routing.dispatched(ask(routing), A)
        routing.engine_gone(A)
        routing.engine_gone("http://never-heard-of")
        assert matched(routing) == 0

    def test_no_more_is_expected_than_the_pool_holds(self) -> None:
        routing = state()
        routing.capacity(A, 500)  # 2000 bytes at 4 a token
        routing.dispatched(ask(routing), A)
        assert routing.held_bytes(A) <= 2000

    def test_an_engine_that_publishes_its_evictions_needs_no_such_bound(self) -> None:
        routing = state()
        routing.capacity(A, 500)
        routing.kv_live(A, True)
        routing.dispatched(ask(routing), A)
        assert routing.held_bytes(A) > 7000

    def test_events_are_matched_by_the_request_id(self) -> None:
        routing = state()
        routing.kv_live(A, True)
        asked = ask(routing, request_id="r1")
        placement = routing.dispatched(asked, A)
        routing.kv_stored(A, "r1", None, range(1, 126), 16)
        routing.ended(placement, answered=True, prompt_tokens=2000)
        assert routing.kv_confirmed(A)[0] == len(asked.prefix_keys)
        routing.kv_removed(A, [63])  # tokens 992 to 1008, the last whole block within the 4096 bytes of the fourth key
        assert matched(routing) == 3

    def test_another_process_may_publish_nothing_and_is_bounded_by_its_pool_again(self) -> None:
        routing = state()
        routing.capacity(A, 500)
        routing.kv_live(A, True)
        routing.engine_gone(A)
        routing.dispatched(ask(routing), A)
        assert routing.held_bytes(A) <= 2000
        routing.kv_stored(A, "r1", None, [1], 16)
        routing.dispatched(ask(routing), A)
        assert routing.held_bytes(A) > 7000

    def test_without_prefix_caching_nothing_is_expected(self) -> None:
        routing = state()
        routing.capacity(A, 0)
        routing.dispatched(ask(routing), A)
        assert matched(routing) == 0

    def test_what_stands_before_the_prompt_is_no_part_of_it(self) -> None:
        routing = state()
        body = json.dumps({"model": "m", "seed": "x" * 2000, "prompt": "ab " * 1000}).encode()
        asked = routing.describe(tenant_id="t", model="m", stream=False, body=body)
        assert asked.prompt_bytes == len(body)
        assert asked.text_bytes < 3100
        assert asked.prompt_tokens == pytest.approx(750, rel=0.05)

    def test_missed_events_leave_suppositions(self) -> None:
        routing = state()
        routing.kv_live(A, True)
        placement = routing.dispatched(ask(routing, request_id="r1"), A)
        routing.kv_stored(A, "r1", None, range(1, 126), 16)
        routing.ended(placement, answered=True, prompt_tokens=2000)
        routing.kv_missed(A)
        routing.kv_removed(A, range(1, 126))
        assert matched(routing) == len(ask(routing).prefix_keys)

    def test_a_dropped_cache_is_forgotten_and_requests_under_way_store_anew(self) -> None:
        routing = state()
        routing.kv_live(A, True)
        placement = routing.dispatched(ask(routing, request_id="r1"), A)
        routing.kv_dropped(A)
        assert matched(routing) == 0
        routing.kv_stored(A, "r1", None, range(1, 126), 16)
        routing.ended(placement, answered=True, prompt_tokens=2000)
        assert matched(routing) == len(ask(routing).prefix_keys)


class TestFleet:
    def test_engines_that_stay_keep_what_is_known_of_them(self) -> None:
        routing = state()
        routing.dispatched(ask(routing), A)
        routing.set_engines(["http://new", A])
        assert matched(routing) > 0
        assert routing.matched("http://new", ask(routing).prefix_keys) == 0

    def test_a_changed_list_is_followed_and_a_request_of_an_engine_that_left_still_ends(self) -> None:
        routing = state()
        placement = routing.dispatched(ask(routing), B)
        routing.see([EndpointSnapshot(url=A), EndpointSnapshot(url="http://c")])
        assert routing.ring.names == (A, "http://c")
        routing.ended(placement, answered=True, prompt_tokens=2000)

    def test_the_index_is_shared_out_between_engines(self) -> None:
        routing = RoutingState(RoutingSettings(index_entries=8), [A, B])
        routing.dispatched(ask(routing), A)
        assert routing.held_bytes(A) == 4 * 1024


def test_the_documents_words_become_settings() -> None:
    gateway = load_text(
        "model: {config: tiny}\ngateway: {routing: {policy: prefix, load_floor: 9}, lanes: {long: {above_tokens: 9, "
        "slots: 1}}}\n",
        source="x",
    ).gateway
    settings = RoutingSettings.of(gateway)
    assert (settings.policy, settings.load_floor, settings.long_lane) == ("prefix", 9, gateway.lanes.long)
    assert RoutingSettings.of(load_text("model: {config: tiny}", source="x").gateway) == RoutingSettings()


@pytest.mark.parametrize("wrong", [{"load_factor": 0.9}, {"prefix_load_factor": 0.5}, {"load_floor": 0}])
def test_settings_refuse_what_cannot_be(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"below the mean|not positive"):
        RoutingSettings(**wrong)  # type: ignore[arg-type]
