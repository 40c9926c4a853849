"""Reading a streamed answer: what counts as a token, and what counts as a failure."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fakes.engine import chat_events, error_event
from roadworthy.adapters.load_stream import MAX_ERROR_CHARS, AnswerReader

if TYPE_CHECKING:
    from roadworthy.bench.client import Outcome


def read(*pieces: bytes, content_type: str = "text/event-stream; charset=utf-8", status: int = 200,
         server: str = "uvicorn", cut: str = "") -> Outcome:  # fmt: skip
    """The outcome of a body whose pieces arrive at 1 s, 2 s, ..."""
    reader = AnswerReader()
    reader.head(status, content_type=content_type, server=server)
    for second, piece in enumerate(pieces, start=1):
        reader.feed(piece, float(second))
    return reader.outcome(float(len(pieces) + 1), cut=cut)


def event(delta: dict[str, object], **more: object) -> bytes:
    return b"data: " + json.dumps({"choices": [{"index": 0, "delta": delta}], **more}).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


def test_tokens_are_stamped_one_by_one_and_counted_by_the_server() -> None:
    outcome = read(*chat_events("hel", "lo", usage=(12, 2)))
    assert outcome.error == ""
    assert outcome.token_times_s == (2.0, 3.0), "the opening role is no token"
    assert (outcome.text, outcome.n_in, outcome.n_out) == ("hello", 12, 2)


def test_an_empty_piece_of_text_after_the_role_is_a_token_whose_characters_are_not_complete() -> None:
    outcome = read(event({"role": "assistant", "content": ""}), event({"content": ""}), event({"content": "é"}), DONE)
    assert outcome.token_times_s == (2.0, 3.0)


@pytest.mark.parametrize("key", ["reasoning", "reasoning_content"])
def test_a_reasoning_token_counts_as_a_token_and_is_no_text(key: str) -> None:
    outcome = read(event({"role": "assistant", "content": ""}), event({key: "hm"}), event({"content": "yes"}), DONE)
    assert outcome.token_times_s == (2.0, 3.0)
    assert outcome.text == "yes"


def test_a_role_with_text_in_one_event_is_a_token() -> None:
    assert read(event({"role": "assistant", "content": "hi"}), DONE).token_times_s == (1.0,)


def test_a_finish_event_without_content_is_no_token() -> None:
    finish = b'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\n'
    assert read(event({"content": "a"}), finish, DONE).token_times_s == (1.0,)


@given(st.data())
def test_where_the_bytes_are_cut_changes_times_and_nothing_else(data: st.DataObject) -> None:
    body = b": keep-alive\n\n" + b"".join(chat_events("hé", "l", "lo", usage=(12, 3)))
    if data.draw(st.booleans()):
        body = body.replace(b"\n", b"\r\n")
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=12)))
    pieces = [body[start:end] for start, end in zip([0, *cuts], [*cuts, len(body)], strict=True)]
    outcome = read(*pieces)
    assert (outcome.error, outcome.text, outcome.n_in, outcome.n_out) == ("", "héllo", 12, 3)
    assert len(outcome.token_times_s) == 3
    assert list(outcome.token_times_s) == sorted(outcome.token_times_s)


def test_cached_tokens_are_read_where_the_server_tells_them() -> None:
    usage = {"prompt_tokens": 9, "completion_tokens": 1, "prompt_tokens_details": {"cached_tokens": 8}}
    assert read(event({"content": "a"}), event({}, usage=usage), DONE).cached_tokens == 8
    assert read(*chat_events("a", usage=(9, 1))).cached_tokens is None


def test_an_error_event_in_a_200_stream_is_a_failure() -> None:
    """vLLM refuses a stream at its queue limit this way, and ends it with [DONE]."""
    outcome = read(error_event(503), DONE)
    assert outcome.error.startswith("error event 503: engine text")


def test_an_error_event_after_tokens_is_a_failure_too() -> None:
    assert read(event({"content": "a"}), error_event(500), DONE).error.startswith("error event 500")


def test_a_refusal_gives_its_status_and_message() -> None:
    body = json.dumps({"error": {"message": "no such key", "type": "auth", "code": "invalid_key"}}).encode()
    assert read(body, content_type="application/json", status=401).error == "HTTP 401: no such key"
    assert read(b"<h1>Bad Gateway</h1>", content_type="text/html", status=502).error == "HTTP 502: <h1>Bad Gateway</h1>"
    assert read(content_type="", status=500).error == "HTTP 500: empty answer"


def test_an_answer_that_is_no_event_stream_is_a_failure() -> None:
    outcome = read(b'{"choices": []}', content_type="application/json")
    assert outcome.error == "answered application/json, not an event stream"


@pytest.mark.parametrize("data", [b"data: {oops\n\n", b"data: [1]\n\n", b'data: {"choices": [{}]}\n\n', b"data: 7\n\n"])
def test_an_event_that_is_no_chunk_is_a_failure_and_quoted(data: bytes) -> None:
    assert read(data, DONE).error.startswith("an event that is no completion chunk: ")


def test_a_stream_that_stops_before_done_is_a_failure() -> None:
    assert read(event({"content": "a"})).error == "the stream ended without [DONE]"
    assert read(event({"content": "a"}), cut="connection lost").error == "connection lost"


def test_a_cut_after_done_is_no_failure() -> None:
    assert read(event({"content": "a"}), DONE, cut="the server closed the connection").error == ""


def test_an_error_is_short_and_printable() -> None:
    """It ends up on a terminal: no escape sequence of a hostile server gets there."""
    hostile = json.dumps({"error": {"message": "\x1b[2J\x07 owned\n" * 100}}).encode()
    error = read(hostile, content_type="application/json", status=400).error
    assert len(error) <= MAX_ERROR_CHARS
    assert error.isprintable()


def test_an_engine_that_calls_itself_simulated_is_heard() -> None:
    assert read(*chat_events("a"), server="roadworthy-twin (simulated)").simulated
    assert not read(*chat_events("a")).simulated


pieces_of_text = st.text(max_size=8)
odd_events = st.one_of(
    st.builds(lambda text: event({"content": text}), pieces_of_text),
    st.builds(lambda text: event({"role": "assistant", "content": text}), pieces_of_text),
    st.builds(
        lambda text: event({"content": text}, usage={"prompt_tokens": 3, "completion_tokens": 2}), pieces_of_text
    ),
    st.builds(lambda text: event({"content": text}, error={"message": text}), pieces_of_text),
    st.builds(lambda text: event({"reasoning": text, "content": None}), pieces_of_text),
    st.sampled_from([error_event(503), b": keep-alive\n\n", b"data: {broken\n\n", b'data: {"choices": []}\n\n']),
    st.just(event({"content": 'say "content":"x" and "error": and "usage":{'})),
)


@given(st.lists(odd_events, max_size=12), st.data())
def test_reading_without_the_text_finds_the_same_tokens_counts_and_errors(
    events: list[bytes], data: st.DataObject
) -> None:
    """The short way past JSON is an optimisation, and nothing may depend on where the stream is cut."""
    whole = b"".join([*events, DONE])
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    outcomes = []
    for keep_text in (True, False):
        reader = AnswerReader(keep_text=keep_text)
        reader.head(200, content_type="text/event-stream", server="uvicorn")
        for second, (start, end) in enumerate(pairwise([0, *cuts, len(whole)])):
            reader.feed(whole[start:end], float(second))
        outcome = reader.outcome(99.0)
        outcomes.append((outcome.token_times_s, outcome.n_in, outcome.n_out, outcome.error))
    assert outcomes[0] == outcomes[1]
