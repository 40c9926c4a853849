"""What the relay reads out of a stream it does not change."""

from __future__ import annotations

import json

import pytest

from fakes.engine import chat_events, error_event
from roadworthy.gateway.data.events import end_of_last_event, error_status, first_event, without_private_text
from roadworthy.gateway.data.usage import Usage, last_usage, usage_of


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
    assert last_usage(stream) == Usage(prompt_tokens=11, output_tokens=7)
    assert last_usage(b"".join(b"%x\r\n%b\r\n" % (len(one), one) for one in stream.splitlines(True))) is not None


def test_the_last_of_several_usages_counts_and_null_is_none() -> None:
    one, two = (b'data: {"usage": {"prompt_tokens": 1, "completion_tokens":%d}}\n\n' % count for count in (1, 2))
    continuous = one + two
    assert last_usage(continuous) == Usage(prompt_tokens=1, output_tokens=2)
    assert last_usage(continuous + b'\n\ndata: {"usage": null}\n\n') == Usage(prompt_tokens=1, output_tokens=2)
    assert last_usage(b'data: {"usage": null}') is None


@pytest.mark.parametrize(
    ("answer", "usage"),
    [
        pytest.param(
            b'{"usage":{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":4}},'
            b'"metrics":{"queue_time_ms":1.5,"time_to_first_token_ms":20,"generation_time_ms":100}}',
            Usage(prompt_tokens=9, output_tokens=2, cached_tokens=4, queue_s=0.0015, prefill_s=0.02, decode_s=0.1),
            id="chat, with phases",
        ),
        pytest.param(
            b'{"type":"response.completed","response":{"metadata":{"usage":{"input_tokens":0,"output_tokens":0}},'
            b'"usage":{"input_tokens":9,"output_tokens":2,"input_tokens_details":{"cached_tokens":1}}}}',
            Usage(prompt_tokens=9, output_tokens=2, cached_tokens=1),
            id="a response, its metadata posing as usage",
        ),
        pytest.param(
            b'{"type":"message_delta","usage":{"input_tokens":5,"output_tokens":2,"cache_read_input_tokens":4}}',
            Usage(prompt_tokens=9, output_tokens=2, cached_tokens=4),
            id="a message, whose input leaves the cached tokens out",
        ),
        pytest.param(
            b'{"usage":{"prompt_tokens":3,"total_tokens":3}}', Usage(prompt_tokens=3, output_tokens=0), id="embeddings"
        ),
        pytest.param(b'{"usage":{"prompt_tokens":"3"}}', None, id="of another type"),
        pytest.param(b'{"usage":{}}', None, id="empty"),
        pytest.param(b'{"object":"list"}', None, id="none"),
    ],
)
def test_usage_is_read_in_every_dialect(answer: bytes, usage: Usage | None) -> None:
    assert usage_of(answer) == usage


def test_generated_text_cannot_pose_as_usage_or_error() -> None:
    text = '{"error": {}} "usage": {"prompt_tokens": 9, "completion_tokens": 9}'
    event = b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"
    assert last_usage(event) is None
    assert without_private_text(event) == (event, False)


def test_a_usage_cut_by_the_end_is_no_usage() -> None:
    assert last_usage(b'data: {"usage": {"prompt_tokens": 1, "completion') is None


def test_an_error_in_a_stream_is_told_and_loses_its_addresses_and_nothing_else() -> None:
    before, after = chat_events("see 10.0.0.7")[1], b"data: [DONE]\n\n"
    scrubbed, failed = without_private_text(before + error_event(500) + after)
    assert failed
    assert scrubbed == before + error_event(500).replace(b"10.0.0.7", b"[hidden]") + after
