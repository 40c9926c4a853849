"""The stepped machine: events, clocks, pipeline stages and the two ways of telling tokens."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

import pytest

from roadworthy.plan.timing import POLL_S
from roadworthy.twin.engine import Engine
from roadworthy.twin.requests import TwinRequest
from support.twin import STEP_S, assert_alike, config, drain, ends, request, step_time

if TYPE_CHECKING:
    from roadworthy.twin.requests import Output


def test_an_idle_engine_has_nothing_to_come() -> None:
    engine = Engine(config())
    assert engine.next_event_s() is None
    assert engine.advance(5.0) == ()


def test_a_request_is_due_when_it_is_added_and_then_when_its_step_ends() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 2), 3.0)
    assert engine.next_event_s() == 3.0
    assert engine.advance(3.0) == ()
    assert engine.next_event_s() == pytest.approx(3.0 + STEP_S)


def test_tokens_are_told_as_they_come_and_the_last_one_says_how_it_went() -> None:
    engine = Engine(config(), detail="tokens")
    engine.add(request("a", 10, 3), 0.0)
    outputs = drain(engine)
    assert [(output.at_s, output.finished is not None) for output in outputs] == [
        (pytest.approx(STEP_S), False),
        (pytest.approx(2 * STEP_S), False),
        (pytest.approx(3 * STEP_S), True),
    ]
    assert ends(outputs)["a"].token_times_s == ()


def test_one_jump_tells_the_same_as_many_small_ones() -> None:
    def run(moments: list[float]) -> list[Output]:
        engine = Engine(config(), detail="tokens")
        engine.add(request("a", 30, 40), 0.0)
        engine.add(request("b", 300, 40), 0.0)
        return [output for moment in moments for output in engine.advance(moment)]

    assert run([2.0]) == run([index * 0.003 for index in range(700)])


def test_time_does_not_run_backwards() -> None:
    engine = Engine(config())
    engine.advance(5.0)
    with pytest.raises(ValueError, match=r"at 4\.0: time stands at 5\.0"):
        engine.add(request("a", 10, 1), 4.0)


def test_what_is_due_must_happen_before_something_is_added() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 5), 0.0)
    with pytest.raises(ValueError, match=r"something is due at 0\.0"):
        engine.add(request("b", 10, 5), 1.0)


def test_an_id_is_used_once_at_a_time() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 1), 0.0)
    with pytest.raises(ValueError, match="in use"):
        engine.add(request("a", 10, 1), 0.0)
    drain(engine)
    engine.add(request("a", 10, 1), 1.0)


def test_it_stands_still_at_the_first_output_when_asked() -> None:
    engine = Engine(config())
    engine.add(request("short", 10, 2), 0.0)
    engine.add(request("long", 10, 9), 0.0)
    (first,) = engine.advance(100.0, stop_at_output=True)
    assert first.request_id == "short"
    assert engine.stats().steps == 3, "the step after that output has begun, nothing later is decided"
    assert engine.next_event_s() == pytest.approx(9 * STEP_S), "and nothing comes out before the other one ends"


def test_stages_overlap_batches_but_not_the_steps_of_one_request() -> None:
    """Four stages of 10 ms and prompts that fill a batch each: a token every 40 ms for each request, and four requests
    side by side lose nothing."""
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4), max_num_batched_tokens=10))
    for index in range(4):
        engine.add(request(str(index), 10, 5), 0.0)
    done = ends(drain(engine))
    for index in range(4):
        expected = [index * 0.01 + 0.04 * token for token in range(1, 6)]
        assert done[str(index)].token_times_s == pytest.approx(expected)


def test_a_fifth_request_waits_for_a_place_and_joins_that_batch() -> None:
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4), max_num_batched_tokens=11))
    for index in range(4):
        engine.add(request(str(index), 11, 3), 0.0)
    outputs = engine.advance(0.005)
    engine.add(request("4", 10, 3), 0.005)
    done = ends((*outputs, *drain(engine)))
    assert done["4"].scheduled_s == pytest.approx(0.04)
    assert done["4"].first_token_s == pytest.approx(done["0"].token_times_s[1])


def test_a_request_that_comes_while_a_batch_is_under_way_joins_it_after_its_result() -> None:
    """vLLM's core waits for the result, free places or not; and it slept after its last turn in vain."""
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4)))
    engine.add(request("first", 10, 5), 0.0)
    outputs = engine.advance(0.01)
    engine.add(request("second", 10, 5), 0.01)
    done = ends((*outputs, *drain(engine)))
    assert done["second"].scheduled_s == pytest.approx(0.041)
    assert done["second"].first_token_s == done["first"].token_times_s[1] == pytest.approx(0.081)


def test_a_request_within_a_millisecond_gets_a_batch_of_its_own() -> None:
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4)))
    engine.add(request("first", 10, 5), 0.0)
    outputs = engine.advance(0.0004)
    engine.add(request("second", 10, 5), 0.0004)
    done = ends((*outputs, *drain(engine)))
    assert done["second"].scheduled_s == pytest.approx(0.001)
    assert done["second"].first_token_s == pytest.approx(0.05), "the first stage is free again after 10 ms"


def test_a_batch_waits_for_the_stage_before_it() -> None:
    """Two requests at the same moment in a budget that takes one: the second batch follows a stage time later."""
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4), max_num_batched_tokens=10))
    engine.add(request("a", 10, 1), 0.0)
    engine.add(request("b", 10, 1), 0.0)
    done = ends(drain(engine))
    assert done["a"].first_token_s == pytest.approx(0.04)
    assert done["b"].first_token_s == pytest.approx(0.05)


def test_busy_time_is_what_one_stage_computed() -> None:
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4)))
    engine.add(request("a", 10, 10), 0.0)
    drain(engine)
    assert engine.stats().busy_s == pytest.approx(10 * 0.04 / 4)


def test_counters_count_the_steps_that_a_batch_repeats() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 100), 0.0)
    engine.add(request("b", 10, 100), 0.0)
    engine.advance(50.5 * STEP_S)
    stats = engine.stats()
    assert (stats.generation_tokens, stats.prompt_tokens, stats.steps) == (100, 20, 51)


def test_a_longer_context_makes_each_step_longer() -> None:
    engine = Engine(config(step_time=step_time(context_token_s=1e-5)))
    engine.add(request("a", 100, 50), 0.0)
    times_s = ends(drain(engine))["a"].token_times_s
    gaps = [after - before for before, after in itertools.pairwise(times_s)]
    # the first decode step attends to the prompt and the token it computes
    assert gaps == pytest.approx([STEP_S + 1e-5 * (101 + index) for index in range(49)])


def test_repeating_steps_changes_nothing() -> None:
    """The comparison that the property tests widen; here on the reference case, block by block."""
    runs = []
    for repeat in (True, False):
        engine = Engine(config(step_time=step_time(context_token_s=1e-5), kv_blocks=65), repeat_steps=repeat)
        for index in range(6):
            engine.add(request(str(index), 40 + 13 * index, 190 + 7 * index), 0.0)
        runs.append((drain(engine), engine.stats()))
    assert_alike(runs[0], runs[1])
    assert runs[0][1].preemptions > 0


def test_progress_counts_the_tokens_that_came_by_now() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 30), 0.0)
    assert engine.progress("a") == (None, 0)
    engine.advance(10.5 * STEP_S)
    assert engine.progress("a") == (pytest.approx(STEP_S), 10)


def test_requests_of_different_salts_share_no_cached_block() -> None:
    def cached(second_salt: str) -> int:
        engine = Engine(config())
        segments = request("same text", 64, 1).segments
        engine.add(TwinRequest(id="a", segments=segments, output_tokens=1, cache_salt="one"), 0.0)
        drain(engine)
        engine.add(TwinRequest(id="b", segments=segments, output_tokens=1, cache_salt=second_salt), 1.0)
        return ends(drain(engine))["b"].cached_tokens

    assert cached("one") == 48
    assert cached("another") == 0


def test_gaps_are_counted_over_all_requests() -> None:
    """Every token but the first of each request has one, however steps were bundled."""
    engines = [
        Engine(config(step_time=step_time(context_token_s=1e-6)), repeat_steps=repeat) for repeat in (True, False)
    ]
    for engine in engines:
        for index in range(4):
            engine.add(request(str(index), 20, 30 + index), 0.0)
        done = ends(drain(engine))
        gaps = [gap for end in done.values() for gap in end.tokens.gaps()]
        assert engine.gaps.count == sum(end.output_tokens - 1 for end in done.values()) == sum(n for _, n in gaps)
        assert engine.gaps.sum_s == pytest.approx(sum(gap_s * n for gap_s, n in gaps))


def test_progress_counts_the_steps_of_a_bundle_that_have_ended() -> None:
    engine = Engine(config())
    engine.add(request("a", 10, 100), 0.0)
    assert engine.progress("a") == (None, 0)
    engine.advance(20.5 * STEP_S)
    assert engine.progress("a") == (pytest.approx(STEP_S), 20)
    with pytest.raises(KeyError):
        engine.progress("nobody")


def test_usage_within_a_bundle_is_that_of_the_step_under_way() -> None:
    engine = Engine(config(kv_blocks=101))
    engine.add(request("a", 16, 400), 0.0)
    for steps in (1, 16, 17, 33, 100):
        engine.advance((steps + 0.5) * STEP_S)
        assert engine.kv_usage_ratio * 100 == pytest.approx(-(-(16 + steps) // 16))


def test_asynchronous_scheduling_lets_a_new_request_wait_for_the_step_behind_too() -> None:
    """Scheduled while the first decode step runs, the next one is full already; the request joins the third."""
    first_s = {}
    for behind in (False, True):
        engine = Engine(config(async_scheduling=behind))
        engine.add(request("runs", 10, 50), 0.0)
        engine.advance(1.5 * STEP_S)
        engine.add(request("new", 10, 1), 1.5 * STEP_S)
        first_s[behind] = ends(drain(engine))["new"].first_token_s
    assert first_s == {False: pytest.approx(3 * STEP_S), True: pytest.approx(4 * STEP_S)}


def test_late_admission_lets_a_new_request_wait_as_asynchronous_scheduling_does() -> None:
    engine = Engine(config(late_admission=True))
    engine.add(request("runs", 10, 50), 0.0)
    engine.advance(1.5 * STEP_S)
    engine.add(request("new", 10, 1), 1.5 * STEP_S)
    assert engine.stats().waiting == 1
    assert ends(drain(engine))["new"].first_token_s == pytest.approx(4 * STEP_S)


def test_what_came_during_the_last_step_of_a_busy_spell_begins_after_it_and_the_sleep_of_the_core() -> None:
    engine = Engine(config(late_admission=True))
    engine.add(request("last", 10, 1), 0.0)
    engine.advance(0.5 * STEP_S)
    engine.add(request("new", 10, 1), 0.5 * STEP_S)
    assert ends(drain(engine))["new"].first_token_s == pytest.approx(2 * STEP_S + POLL_S)


def test_a_request_given_up_before_it_was_admitted_leaves_nothing_behind() -> None:
    engine = Engine(config(late_admission=True))
    engine.add(request("runs", 10, 3), 0.0)
    engine.advance(0.5 * STEP_S)
    engine.add(request("new", 10, 5), 0.5 * STEP_S)
    assert engine.abort("new", 0.6 * STEP_S)
    assert set(ends(drain(engine))) == {"runs"}
    assert (engine.stats().waiting, engine.kv_usage_ratio) == (0, 0.0)


def test_late_admission_is_instead_of_asynchronous_scheduling() -> None:
    with pytest.raises(ValueError, match="late_admission"):
        config(late_admission=True, async_scheduling=True)


def test_drafts_that_are_right_come_in_the_same_step() -> None:
    def run(ratio: float) -> tuple[int, float]:
        engine = Engine(config(draft_tokens=3, draft_acceptance_ratio=ratio))
        engine.add(request("a", 10, 41), 0.0)
        done = ends(drain(engine))["a"]
        assert done.output_tokens == len(done.token_times_s) == 41
        return engine.stats().steps, done.last_token_s

    assert run(0.0) == (41, pytest.approx(41 * STEP_S))
    assert run(1.0) == (11, pytest.approx(11 * STEP_S))
    assert 11 < run(0.7)[0] < 41


def test_the_next_chunk_of_a_prompt_follows_the_one_before_through_the_pipeline() -> None:
    """Four chunks in four stages of 10 ms: the last one ends 3 stages after the first, not 3 whole steps."""
    engine = Engine(config(step_time=step_time(step_s=0.04, stages=4), max_num_batched_tokens=100))
    engine.add(request("a", 400, 1), 0.0)
    assert ends(drain(engine))["a"].first_token_s == pytest.approx(0.04 + 3 * 0.01)
