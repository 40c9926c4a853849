"""Bytes of answers, held against what vLLM 0.32.0 sent for the same requests."""

from __future__ import annotations

import json
from dataclasses import replace

from roadworthy.adapters.twin_server.asked import Asked
from roadworthy.adapters.twin_server.wire import ChunkWriter, whole
from roadworthy.twin.requests import Finished

CHAT = Asked(
    kind="chat", model="tiny", prompt=["p"] * 8, output_tokens=3, ends_with="length", stream=True, include_usage=True,
    continuous_usage=False, priority=0, cache_salt="",
)  # fmt: skip
DONE = Finished(
    reason="length", prompt_tokens=8, cached_tokens=0, output_tokens=3, queued_s=0.0, scheduled_s=0.0,
    first_token_s=1.0, last_token_s=3.0, preemptions=0,
)  # fmt: skip
HEAD = 'data: {"id":"chatcmpl-abc","object":"chat.completion.chunk","created":1796022090,"model":"tiny","choices":['


def stream(asked: Asked, response_id: str) -> list[str]:
    chunks = ChunkWriter(asked, response_id, 1796022090)
    parts = [chunks.first(), chunks.token("nh", None), chunks.token("a", None), chunks.token("lf", DONE), chunks.last()]
    return [event for event in b"".join(parts).decode().split("\n\n") if event]


def test_a_chat_stream_is_vllms_byte_for_byte_but_for_the_fingerprint() -> None:
    assert stream(CHAT, "chatcmpl-abc") == [
        HEAD + '{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}],'
        '"prompt_token_ids":null,"prompt_text":null}',
        HEAD + '{"index":0,"delta":{"content":"nh"},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
        HEAD + '{"index":0,"delta":{"content":"a"},"logprobs":null,"finish_reason":null,"token_ids":null}]}',
        HEAD + '{"index":0,"delta":{"content":"lf"},"logprobs":null,"finish_reason":"length","stop_reason":null,'
        '"token_ids":null}]}',
        HEAD
        + '],"usage":{"prompt_tokens":8,"total_tokens":11,"completion_tokens":3},"system_fingerprint":"simulated"}',
        "data: [DONE]",
    ]


def test_a_completion_stream_is_vllms_byte_for_byte_but_for_the_fingerprint() -> None:
    head = 'data: {"id":"cmpl-abc","object":"text_completion","created":1796022090,"model":"tiny","choices":['
    tail = '"stop_reason":null,"prompt_token_ids":null,"token_ids":null}]}'
    assert stream(replace(CHAT, kind="completion"), "cmpl-abc") == [
        head + '{"index":0,"text":"nh","logprobs":null,"finish_reason":null,' + tail,
        head + '{"index":0,"text":"a","logprobs":null,"finish_reason":null,' + tail,
        head + '{"index":0,"text":"lf","logprobs":null,"finish_reason":"length",' + tail,
        head
        + '],"usage":{"prompt_tokens":8,"total_tokens":11,"completion_tokens":3},"system_fingerprint":"simulated"}',
        "data: [DONE]",
    ]


def test_continuous_usage_counts_in_every_chunk() -> None:
    events = stream(replace(CHAT, continuous_usage=True), "chatcmpl-abc")
    assert events[0].endswith(
        '"usage":{"prompt_tokens":8,"total_tokens":8,"completion_tokens":0,"completion_tokens_details":null},'
        '"prompt_token_ids":null,"prompt_text":null}'
    )
    counts = [json.loads(event[6:])["usage"]["completion_tokens"] for event in events[:-1]]
    assert counts == [0, 1, 2, 3, 3]


def test_without_usage_the_last_token_is_followed_by_done() -> None:
    events = stream(replace(CHAT, include_usage=False), "chatcmpl-abc")
    assert events[-1] == "data: [DONE]"
    assert '"finish_reason":"length"' in events[-2]


def test_a_whole_answer_tells_cached_tokens_when_there_are_any() -> None:
    answer = json.loads(whole(CHAT, "chatcmpl-abc", 1, "text", DONE._replace(cached_tokens=4)))
    assert answer["usage"]["prompt_tokens_details"] == {"cached_tokens": 4}
    assert answer["choices"][0]["message"]["content"] == "text"
    assert json.loads(whole(CHAT, "chatcmpl-abc", 1, "text", DONE))["usage"]["prompt_tokens_details"] is None


def test_an_id_from_the_caller_cannot_break_the_json() -> None:
    events = stream(CHAT, 'chatcmpl-"},{\\')
    assert json.loads(events[1][6:])["id"] == 'chatcmpl-"},{\\'
