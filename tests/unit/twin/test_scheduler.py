"""What runs in a step, in which order, and who gives way when blocks run out."""

from __future__ import annotations

import pytest

from roadworthy.core.errors import Refused
from roadworthy.twin.engine import Engine
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest
from support.twin import FULL_16, STEP_S, config, drain, ends, request, step_time


def test_a_request_prefills_then_decodes_one_token_a_step() -> None:
    engine = Engine(config())
    engine.add(request("a", 100, 4), 1.0)
    done = ends(drain(engine))["a"]
    assert done.token_times_s == pytest.approx([1.01, 1.02, 1.03, 1.04])
    assert (done.reason, done.prompt_tokens, done.output_tokens) == ("length", 100, 4)
    assert (done.queued_s, done.scheduled_s, done.first_token_s) == (1.0, 1.0, pytest.approx(1.01))


def test_a_long_prompt_is_cut_into_chunks_of_the_budget() -> None:
    engine = Engine(config(max_num_batched_tokens=100))
    engine.add(request("a", 250, 1), 0.0)
    assert ends(drain(engine))["a"].first_token_s == pytest.approx(3 * STEP_S)
    assert engine.stats().steps == 3


def test_decoding_requests_come_before_waiting_ones_in_the_budget() -> None:
    """Budget 101: the running request takes one token of each step, the prompt gets the other hundred."""
    engine = Engine(config(max_num_batched_tokens=101))
    engine.add(request("runs", 10, 50), 0.0)
    engine.advance(STEP_S)
    engine.add(request("long", 200, 1), STEP_S)
    done = ends(drain(engine))
    # the decode step that began at STEP_S ends first; then two chunks of 100
    assert done["long"].first_token_s == pytest.approx(4 * STEP_S)
    assert done["runs"].token_times_s == pytest.approx([STEP_S * n for n in range(1, 51)])


def test_first_come_first_served() -> None:
    engine = Engine(config(max_num_seqs=1))
    for name in ("a", "b", "c"):
        engine.add(request(name, 10, 3), 0.0)
    assert list(ends(drain(engine))) == ["a", "b", "c"]


def test_no_more_than_max_num_seqs_run() -> None:
    engine = Engine(config(max_num_seqs=2))
    for name in ("a", "b", "c"):
        engine.add(request(name, 10, 3), 0.0)
    engine.advance(0.0)
    assert (engine.stats().running, engine.stats().waiting) == (2, 1)


def test_priority_lets_the_lower_number_go_first() -> None:
    engine = Engine(config(max_num_seqs=1, policy="priority"))
    for name, priority in (("bulk", 5), ("urgent", 0), ("bulk too", 5)):
        engine.add(request(name, 10, 3, priority=priority), 0.0)
    assert list(ends(drain(engine))) == ["urgent", "bulk", "bulk too"]


def test_a_head_that_does_not_fit_holds_up_those_behind_it() -> None:
    engine = Engine(config(kv_blocks=66, max_num_batched_tokens=1024))
    engine.add(request("runs", 16 * 10, 40), 0.0)
    engine.advance(0.0)
    engine.add(request("big", 16 * 60, 1), 0.0)
    engine.add(request("small", 16, 1), 0.0)
    done = ends(drain(engine))
    assert done["small"].scheduled_s == done["big"].scheduled_s == pytest.approx(40 * STEP_S)


def test_the_last_admitted_is_preempted_and_recomputed() -> None:
    """Two requests of 30 blocks at their end in a pool of 40: the second gives way and still delivers every token."""
    tight = config(kv_blocks=65 + 1, max_model_len=1024)
    engine = Engine(tight)
    engine.add(request("first", 16 * 20, 16 * 15), 0.0)
    engine.add(request("second", 16 * 20, 16 * 15), 0.0)
    done = ends(drain(engine))
    assert (done["first"].preemptions, done["second"].preemptions) == (0, 1)
    assert done["second"].output_tokens == len(done["second"].token_times_s) == 16 * 15
    assert engine.stats().preemptions == 1
    assert done["second"].last_token_s > done["first"].last_token_s


def test_with_priorities_the_least_important_is_preempted_even_if_it_came_first() -> None:
    engine = Engine(config(kv_blocks=66, policy="priority"))
    engine.add(request("bulk", 16 * 20, 16 * 15, priority=9), 0.0)
    engine.advance(0.0)
    engine.add(request("urgent", 16 * 20, 16 * 15, priority=0), 0.0)
    done = ends(drain(engine))
    assert (done["bulk"].preemptions, done["urgent"].preemptions) == (1, 0)


def test_a_preempted_request_finds_its_own_prefix_in_the_cache() -> None:
    """Its freed blocks are the most recently used, so recomputing costs less than the whole context."""
    with_cache, without = (
        Engine(config(kv_blocks=66, enable_prefix_caching=on, step_time=step_time(token_s=0.001)))
        for on in (True, False)
    )
    for engine in (with_cache, without):
        engine.add(request("first", 16 * 20, 16 * 15), 0.0)
        engine.add(request("second", 16 * 20, 16 * 15), 0.0)
    kept, lost = ends(drain(with_cache))["second"], ends(drain(without))["second"]
    assert kept.preemptions == lost.preemptions == 1
    assert kept.last_token_s < lost.last_token_s


def test_only_full_blocks_of_a_prefix_hit() -> None:
    engine = Engine(config())
    outputs = []
    for name, at_s in (("a", 0.0), ("b", 1.0)):
        segments = (Segment("system", 100), Segment(f"question {name}", 20))
        engine.add(TwinRequest(id=name, segments=segments, output_tokens=2), at_s)
        outputs += drain(engine)
    done = ends(outputs)
    assert (done["a"].cached_tokens, done["b"].cached_tokens) == (0, 96)
    assert (engine.stats().prefix_cache_query_tokens, engine.stats().prefix_cache_hit_tokens) == (240, 96)


def test_the_next_turn_hits_the_answer_of_the_last() -> None:
    engine = Engine(config())
    first = (Segment("question 1", 30),)
    engine.add(TwinRequest(id="1", segments=first, output_tokens=20, answer_id="answer 1"), 0.0)
    drain(engine)
    segments = (*first, Segment("answer 1", 20), Segment("question 2", 10))
    engine.add(TwinRequest(id="2", segments=segments, output_tokens=1), 5.0)
    assert ends(drain(engine))["2"].cached_tokens == 48


def test_an_abort_frees_blocks_at_once_wherever_the_request_is() -> None:
    engine = Engine(config(max_num_seqs=1))
    engine.add(request("runs", 100, 50), 0.0)
    engine.add(request("waits", 100, 50), 0.0)
    engine.advance(5 * STEP_S)
    assert engine.stats().kv_usage_ratio > 0
    assert engine.abort("waits", 5 * STEP_S)
    assert engine.stats().waiting == 0
    assert engine.abort("runs", 5.5 * STEP_S)
    assert (engine.stats().running, engine.stats().kv_usage_ratio) == (0, 0)
    assert drain(engine) == []
    assert not engine.abort("runs", 9.0), "a second abort finds nothing"
    assert engine.stats().finished == {"stop": 0, "length": 0, "abort": 2}


def test_an_abort_in_mid_step_leaves_the_others_alone() -> None:
    engine = Engine(config())
    engine.add(request("stays", 10, 30), 0.0)
    engine.add(request("goes", 10, 30), 0.0)
    engine.advance(7.5 * STEP_S)
    engine.abort("goes", 7.5 * STEP_S)
    done = ends(drain(engine))
    assert list(done) == ["stays"]
    assert done["stays"].token_times_s == pytest.approx([STEP_S * n for n in range(1, 31)])


def test_an_abort_lets_the_next_one_in() -> None:
    engine = Engine(config(max_num_seqs=1))
    engine.add(request("a", 10, 500), 0.0)
    engine.add(request("b", 10, 1), 0.0)
    engine.advance(2 * STEP_S)
    engine.abort("a", 2 * STEP_S)
    # the step under way, whose only request is gone, still takes its time
    assert ends(drain(engine))["b"].first_token_s == pytest.approx(4 * STEP_S)


def test_above_max_num_queued_reqs_a_request_is_refused() -> None:
    engine = Engine(config(max_num_queued_reqs=2, max_num_seqs=1))
    engine.add(request("a", 10, 3), 0.0)
    engine.add(request("b", 10, 3), 0.0)
    with pytest.raises(Refused, match="2 requests are unfinished") as refusal:
        engine.add(request("c", 10, 3), 0.0)
    assert (refusal.value.code, refusal.value.status) == ("queue_full", 503)
    assert engine.stats().refused == 1
    drain(engine)
    engine.add(request("c", 10, 3), 1.0)


def test_an_answer_ends_where_the_context_does() -> None:
    engine = Engine(config(max_model_len=64))
    engine.add(request("a", 60, 100, ends_with="stop"), 0.0)
    done = ends(drain(engine))["a"]
    assert (done.output_tokens, done.reason) == (4, "length")


def test_an_answer_that_ends_of_itself_says_stop() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 3, ends_with="stop"), 0.0)
    assert ends(drain(engine))["a"].reason == "stop"
    assert engine.stats().finished["stop"] == 1


def test_a_prompt_without_room_for_an_answer_is_refused_by_value() -> None:
    with pytest.raises(ValueError, match="1024 prompt tokens leave no room in max_model_len 1024"):
        Engine(config()).add(request("a", 1024, 1), 0.0)


def test_usage_counts_what_running_requests_hold() -> None:
    engine = Engine(config())
    engine.add(request("a", 33, 100), 0.0)
    engine.advance(3 * STEP_S)
    assert engine.stats().kv_usage_ratio == pytest.approx(FULL_16.held_blocks(36) / 1000)
