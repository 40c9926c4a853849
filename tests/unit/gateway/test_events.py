"""What the relay reads out of a stream it does not change."""

from __future__ import annotations

import json

import pytest

from fakes.engine import chat_events, error_event
from roadworthy.gateway.data.events import (
    TAIL_BYTES,
    Usage,
    end_of_last_event,
    ends_in_error,
    error_status,
    first_event,
    last_usage,
)


@pytest.mark.parametrize(
    ("data", "end"),
    [
        (b"", 0),
        (b"data: 1", 0),
        (b"data: 1\n", 0),
        (b"data: 1\n\n", 9),
        (b"data: 1\n\ndata: 2", 9),
        (b"data: 1\r\n\r\n", 11),
        (b"data: 1\r\n\r\nda", 11),
        (b"data: 1\r\n\r", 0),
        (b"data: 1\r\rdata", 9),
        (b"data: 1\n\ndata: 2\n\n", 18),
    ],
)
def test_events_end_at_blank_lines_of_any_kind(data: bytes, end: int) -> None:
    assert end_of_last_event(data) == end


@pytest.mark.parametrize(
    ("data", "payload"),
    [
        (b"", None),
        (b"data: 1", None),
        (b"data: 1\n\ndata: 2\n\n", b"1"),
        (b": ping\n\n", None),
        (b": ping\n\n: ping\n\ndata: 1\n\n", b"1"),
        (b"event: x\r\ndata: a\r\ndata: b\r\n\r\n", b"a\nb"),
        (b"data:no space\n\n", b"no space"),
        (b"data:  two spaces\n\n", b" two spaces"),
    ],
)
def test_the_first_event_with_data_is_found(data: bytes, payload: bytes | None) -> None:
    assert first_event(data) == payload


@pytest.mark.parametrize(
    ("payload", "status"),
    [
        (error_event(503)[6:-2], 503),
        (error_event(400)[6:-2], 400),
        (b'{"error": {"message": "x", "code": "queue_full"}}', 500),
        (b'{"error": {"message": "x"}}', 500),
        (b'{"error": null, "choices": []}', None),
        (b'{"choices": [{"delta": {"content": "\\"error\\": 503"}}]}', None),
        (b'{"choices": [{"delta": {"error": {"code": 503}}}]}', None),
        (b"[DONE]", None),
        (b'{"error"', None),
    ],
)
def test_only_the_engines_own_error_is_an_error(payload: bytes, status: int | None) -> None:
    assert error_status(payload) == status


def test_usage_is_read_from_the_end_of_a_stream() -> None:
    stream = b"".join(chat_events("x" * 10_000, usage=(11, 7)))
    assert last_usage(stream[-TAIL_BYTES:]) == Usage(prompt_tokens=11, output_tokens=7)


def test_the_last_of_several_usages_counts_and_null_is_none() -> None:
    one, two = (b'data: {"usage": {"prompt_tokens": 1, "completion_tokens":%d}}\n\n' % count for count in (1, 2))
    continuous = one + two
    assert last_usage(continuous) == Usage(prompt_tokens=1, output_tokens=2)
    assert last_usage(continuous + b'\n\ndata: {"usage": null}\n\n') == Usage(prompt_tokens=1, output_tokens=2)
    assert last_usage(b'{"usage": null}') is None


def test_generated_text_cannot_pose_as_usage_or_error() -> None:
    text = '{"error": {}} "usage": {"prompt_tokens": 9, "completion_tokens": 9}'
    event = json.dumps({"choices": [{"delta": {"content": text}}]}).encode()
    assert last_usage(event) is None
    assert not ends_in_error(event)


def test_a_usage_cut_by_the_tail_is_no_usage() -> None:
    assert last_usage(b'"usage": {"prompt_tokens": 1, "completion') is None


def test_a_stream_that_the_engine_ended_with_an_error_is_told() -> None:
    assert ends_in_error(chat_events("x")[0] + error_event(500).replace(b": {", b": {", 1) + b"data: [DONE]\n\n")
