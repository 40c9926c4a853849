"""Traces: every format says the same thing, wrong lines are named, and a replay keeps the trace's times and texts."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.trace_reader import MOST_PROBLEMS, read_trace
from roadworthy.advise.traces import TraceSchedule
from roadworthy.core.errors import SpecError
from roadworthy.spec.values import RequestProfile, Sessions, Tenant

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import PlannedRequest

MOONCAKE = [
    {"timestamp": 1000, "input_length": 1100, "output_length": 20, "hash_ids": [1, 2, 3]},
    {"timestamp": 3000, "input_length": 1030, "output_length": 5, "hash_ids": [1, 2, 9]},
    {"timestamp": 4500, "input_length": 30, "output_length": 7, "hash_ids": [4]},
]
AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,374,44\n2023-11-16 18:17:05.4799600,396,109\n"
)
ACCESS = [
    {"time": "2026-11-30T10:00:00.500Z", "tenant_id": "legal", "prompt_tokens": 12, "output_tokens": 3, "status": 200},
    {"time": "2026-11-30T10:00:01.000Z", "tenant_id": "-", "prompt_tokens": 0, "output_tokens": 0, "status": 401},
    {"time": "2026-11-30T10:00:02.000Z", "tenant_id": "shop", "prompt_tokens": 40, "output_tokens": 9, "status": 200},
]
CHAT = {
    "conversations": [
        {"from": "human", "value": "What is a mill?"},
        {"from": "gpt", "value": "A mill grinds grain between stones."},
        {"from": "human", "value": "And a granary?"},
        {"from": "gpt", "value": "It keeps it."},
    ]
}


def lines(*entries: object) -> str:
    return "\n".join(json.dumps(entry) for entry in entries)


def schedule(text: str, profile: RequestProfile | None = None, **options: object) -> TraceSchedule:
    return TraceSchedule(read_trace(text, source="t"), profile or RequestProfile(), seed=1, **options)  # type: ignore[arg-type]


def planned(text: str, **options: object) -> list[PlannedRequest]:
    return list(schedule(text, **options).first_turns())


def test_mooncake_times_are_milliseconds_from_the_first_request() -> None:
    found = planned(lines(*MOONCAKE))
    assert [one.t_sched_s for one in found] == [0.0, 2.0, 3.5]
    assert [(one.prompt_tokens, one.output_tokens) for one in found] == [(1100, 20), (1030, 5), (30, 7)]


def test_equal_hashes_are_equal_text_of_512_tokens() -> None:
    first, second, _ = planned(lines(*MOONCAKE))
    assert first.segments[:2] == second.segments[:2]
    assert [segment.tokens for segment in first.segments] == [512, 512, 76]
    assert first.segments[2].id != second.segments[2].id


def test_azures_csv_and_its_columns_as_json_are_one_trace() -> None:
    as_json = lines(
        {"TIMESTAMP": "2023-11-16 18:17:03.9799600", "ContextTokens": 374, "GeneratedTokens": 44},
        {"TIMESTAMP": "2023-11-16 18:17:05.4799600", "ContextTokens": 396, "GeneratedTokens": 109},
    )
    for text in (AZURE, as_json):
        found = planned(text)
        assert [one.t_sched_s for one in found] == pytest.approx([0.0, 1.5])
        assert [(one.prompt_tokens, one.output_tokens) for one in found] == [(374, 44), (396, 109)]


def test_burstgpts_csv_is_read() -> None:
    text = (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
        "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,1087,0,1087,Conversation log\n60,GPT-4,9,4,13,API log\n"
    )
    trace = read_trace(text, source="t")
    assert (trace.format, len(trace.lines), trace.left_out) == ("burstgpt", 2, 1)
    assert trace.length_s == 55


def test_the_gateways_access_log_is_a_trace_without_what_was_refused() -> None:
    trace = read_trace(lines(*ACCESS), source="t")
    assert trace.left_out == 1
    tenants = (Tenant(id="legal"), Tenant(id="shop"))
    found = list(TraceSchedule(trace, RequestProfile(), seed=1, tenants=tenants).first_turns())
    assert [(one.tenant, one.prompt_tokens, one.t_sched_s) for one in found] == [("legal", 12, 0.0), ("shop", 40, 1.5)]


def test_a_tenant_that_the_document_lacks_is_drawn_from_those_it_has() -> None:
    (first, second) = planned(lines(*ACCESS), tenants=(Tenant(id="shop"),))
    assert (first.tenant, second.tenant) == ("shop", "shop")


def test_conversations_are_sent_word_by_word_with_the_recorded_answers_between() -> None:
    source = schedule(json.dumps([CHAT]), RequestProfile(sessions=Sessions(turns=2, think_time_s=3)))
    assert source.has_sessions
    (first,) = source.first_turns()
    assert first.said == (("user", "What is a mill?"),)
    second = source.follow_up(first, finished_s=10.0, output_tokens=99)
    assert second is not None
    assert second.said == (
        ("user", "What is a mill?"), ("assistant", "A mill grinds grain between stones."), ("user", "And a granary?"),
    )  # fmt: skip
    assert second.t_sched_s > 10.0
    assert (second.turn, second.turns) == (1, 2)
    assert source.follow_up(second, finished_s=20.0, output_tokens=1) is None


def test_an_answer_is_as_long_as_the_recorded_one() -> None:
    (first,) = planned(json.dumps([CHAT]), tokens_of=lambda text: len(text.split()))
    assert first.output_tokens == 6
    assert first.prompt_tokens == 4


def test_a_failed_turn_ends_its_conversation() -> None:
    source = schedule(json.dumps([CHAT]))
    (first,) = source.first_turns()
    assert source.after_failure(first, finished_s=1.0) is None
    assert source.follow_up(first, finished_s=1.0, output_tokens=1) is None


def test_prompts_with_or_without_times_are_read() -> None:
    text = lines({"prompt": "Say hi.", "output_tokens": 7, "timestamp": 2.0}, {"prompt": "Again.", "timestamp": 3.5})
    found = planned(text)
    assert [(one.said, one.output_tokens, one.t_sched_s) for one in found] == [
        ((("user", "Say hi."),), 7, 0.0), ((("user", "Again."),), 256, 1.5),
    ]  # fmt: skip


def test_messages_that_end_with_the_user_are_one_request() -> None:
    messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hm?"}]
    (one,) = planned(json.dumps([{"messages": messages, "max_tokens": 9}]))
    assert (one.said, one.output_tokens) == ((("system", "Be brief."), ("user", "Hm?")), 9)


def test_a_trace_without_times_starts_at_the_rate() -> None:
    found = planned(json.dumps([CHAT] * 400), profile=RequestProfile(rate_per_s=8.0))
    assert len(found) / found[-1].t_sched_s == pytest.approx(4.0, rel=0.15), "two turns each, so half as many starts"


def test_speed_and_cut_silences_change_the_times_alone() -> None:
    text = lines(*MOONCAKE, {"timestamp": 100_000, "input_length": 3, "output_length": 1, "hash_ids": [7]})
    assert [one.t_sched_s for one in planned(text, speed=2.0)] == [0.0, 1.0, 1.75, 49.5]
    assert [one.t_sched_s for one in planned(text, max_gap_s=1.8)] == pytest.approx([0.0, 1.8, 3.3, 5.1])


def test_silence_and_disorder_are_told() -> None:
    text = lines(MOONCAKE[1], MOONCAKE[0], {**MOONCAKE[2], "timestamp": 500_000})
    trace = read_trace(text, source="t")
    assert (trace.reordered, trace.longest_gap_line) == (1, 3)
    notes = " ".join(trace.notes())
    assert "1 lines of the trace were out of order" in notes
    assert "silent for 497 s before line 3" in notes
    times_s = [one.t_sched_s for one in planned(text)]
    assert all(later >= earlier for earlier, later in pairwise(times_s))


def test_no_more_is_sent_than_asked_and_nothing_longer_than_the_context() -> None:
    assert len(planned(lines(*MOONCAKE), requests=2)) == 2
    assert len(planned(lines(*MOONCAKE), duration_s=2.5)) == 2
    source = schedule(lines(*MOONCAKE), max_context_tokens=100)
    assert [one.prompt_tokens for one in source.first_turns()] == [30]
    assert source.too_long == 2


@pytest.mark.parametrize(
    ("entry", "path", "wanted"),
    [
        ({"timestamp": -5, "input_length": 3, "output_length": 1}, "line 1: timestamp", "a time from 0"),
        ({"timestamp": "soon", "input_length": 3, "output_length": 1}, "line 1: timestamp", "a time from 0"),
        ({"timestamp": 0, "input_length": 0, "output_length": 1}, "line 1: input_length", "a count of tokens from 1"),
        ({"timestamp": 0, "input_length": 2.5, "output_length": 1}, "line 1: input_length", "a count of tokens"),
        ({"timestamp": 0, "input_length": 600, "output_length": 1, "hash_ids": [1]}, "line 1: hash_ids", "2 for 600"),
        (
            {"TIMESTAMP": "yesterday", "ContextTokens": 1, "GeneratedTokens": 1},
            "line 1: timestamp",
            "a date and a time",
        ),
        ({"conversations": [{"from": "ghost", "value": "boo"}]}, "line 1: conversations[0].from", "one of human"),
        ({"prompt": ""}, "line 1: prompt", "text"),
        ({"prompt": "x", "output_tokens": 0}, "line 1: output_tokens", "a count of tokens"),
        ({"question": "x"}, "line 1: keys", "input_length and output_length"),
    ],
)
def test_a_line_that_cannot_be_right_is_named_with_what_was_wanted(entry: object, path: str, wanted: str) -> None:
    with pytest.raises(SpecError) as caught:
        read_trace(lines(entry), source="trace.jsonl")
    (problem,) = caught.value.problems
    assert problem.path == path
    assert wanted in problem.wanted


def test_every_wrong_line_is_named_up_to_a_limit() -> None:
    bad = {"timestamp": -1, "input_length": 1, "output_length": 1}
    with pytest.raises(SpecError) as caught:
        read_trace(lines(*[bad] * 50), source="t")
    assert len(caught.value.problems) == MOST_PROBLEMS


@pytest.mark.parametrize("text", ["", "  \n", "[]", "{", "[1]", "{}\n", "a,b\n1,2\n"])
def test_what_is_no_trace_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        read_trace(text, source="t")


def test_times_in_some_lines_only_are_refused() -> None:
    with pytest.raises(SpecError) as caught:
        read_trace(lines({"prompt": "a", "timestamp": 1}, {"prompt": "b"}, {"prompt": "c", "timestamp": 3}), source="t")
    assert caught.value.problems[0].path == "line 2"


def test_the_rate_of_a_replay_is_that_of_its_times() -> None:
    assert schedule(lines(*MOONCAKE)).asked_rate_per_s == pytest.approx(2 / 3.5)
    assert schedule(lines(*MOONCAKE), speed=2.0).asked_rate_per_s == pytest.approx(4 / 3.5)
    assert schedule(lines(*MOONCAKE), requests=2).asked_rate_per_s == pytest.approx(1 / 2.0)
    assert schedule(lines(MOONCAKE[0])).asked_rate_per_s is None
