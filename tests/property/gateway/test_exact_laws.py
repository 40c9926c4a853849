"""Laws of exact billing: what passes is the engine's stream less the counts, and what is counted is what has passed."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.gateway.data.engine import whole_chunks
from roadworthy.gateway.data.exact import OUTPUT, PROMPT, DeltaGate, ExactGate
from roadworthy.gateway.data.stream_options import Asked, Counting

ASKED: st.SearchStrategy[Asked] = st.sampled_from(["nothing", "final", "running"])
TEXTS = st.sampled_from(["a", " b", 'quote " and \\', ',"usage":{"prompt_tokens":1}', "é€", "}]", "\n\n", "[DONE]"])


def dumped(value: Any, spaced: bool) -> bytes:
    separators = (", ", ": ") if spaced else (",", ":")
    return json.dumps(value, separators=separators, ensure_ascii=False).encode()


def count(prompt: int, output: int, details: bool) -> dict[str, Any]:
    counts: dict[str, Any] = {
        "prompt_tokens": prompt, "total_tokens": prompt + output, "completion_tokens": output,
    }  # fmt: skip
    return counts | ({"completion_tokens_details": None} if details else {})


@st.composite
def streams(
    draw: st.DrawFn, choices: int = 1, blanks: tuple[bytes, ...] = (b"\n\n", b"\r\n\r\n")
) -> list[tuple[bytes, bytes, int]]:
    """Events as ``(with counts, without, output tokens so far)``; the last two are the final count and ``[DONE]``."""
    prompt, spaced, details = draw(st.integers(0, 5000)), draw(st.booleans()), draw(st.booleans())
    blank = draw(st.sampled_from(blanks))
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    done = [0] * choices
    events: list[tuple[bytes, bytes, int]] = []
    for text in draw(st.lists(TEXTS, max_size=8)):
        index = draw(st.integers(0, choices - 1))
        done[index] += draw(st.integers(0, 3))
        chunk: dict[str, Any] = {**base, "choices": [{"index": index, "delta": {"content": text}, "usage": {"a": 1}}]}
        tail = draw(st.sampled_from([{}, {"prompt_text": None}]))
        usage = {"usage": count(prompt, done[index], details)}
        shape = draw(st.integers(0, 2))
        counted = {**chunk, **usage, **tail} if shape else {**usage, **chunk, **tail}
        events.append((dumped(counted, spaced), dumped({**chunk, **tail}, spaced), sum(done)))
        if draw(st.integers(0, 5)) == 0:
            events.append((b"", b"", sum(done)))  # a comment
    last = {**base, "choices": [], "usage": count(prompt * 1, sum(done), details)}
    events.append((dumped(last, spaced), b"", sum(done)))
    framed = [
        (b"data: " + counted + blank, b"data: " + plain + blank, so_far)
        if counted
        else (b": ping" + blank, b": ping" + blank, so_far)
        for counted, plain, so_far in events
    ]
    framed[-1] = (framed[-1][0], b"", framed[-1][2])
    return [*framed, (b"data: [DONE]" + blank, b"data: [DONE]" + blank, sum(done))]


def expected(stream: list[tuple[bytes, bytes, int]], asked: Asked) -> bytes:
    if asked == "running":
        return b"".join(counted for counted, _, _ in stream)
    last = len(stream) - 2
    return b"".join(
        counted if at == last and asked == "final" else plain for at, (counted, plain, _) in enumerate(stream)
    )


def pieces(data: st.DataObject, whole: bytes) -> list[bytes]:
    cuts = sorted(data.draw(st.sets(st.integers(0, len(whole)), max_size=12)))
    return [whole[start:end] for start, end in pairwise([0, *cuts, len(whole)])]


@given(streams(), ASKED, st.data())
def test_events_split_anywhere_come_out_whole_less_the_counts(
    stream: list[tuple[bytes, bytes, int]], asked: Asked, data: st.DataObject
) -> None:
    gate = ExactGate(100_000, Counting(asked=asked))
    passed = b""
    for piece in pieces(data, b"".join(counted for counted, _, _ in stream)):
        passed += gate.take(piece)
        # what has passed is billed, at every moment and not a token more
        seen = [so_far for _, _, so_far in stream]
        complete = len(expected_events(stream, asked, passed))
        assert complete == 0 or gate.cells[OUTPUT] in {seen[complete - 1], seen[min(complete, len(seen) - 1)]}
    passed += gate.rest()
    assert passed == expected(stream, asked)
    assert gate.cells[OUTPUT] == stream[-1][2]
    assert gate.usage().output_tokens == stream[-1][2]
    assert not gate.estimated


def expected_events(stream: list[tuple[bytes, bytes, int]], asked: Asked, passed: bytes) -> list[int]:
    """Places of the events that ``passed`` holds."""
    found, whole = [], b""
    last = len(stream) - 2
    for at, (counted, plain, _) in enumerate(stream):
        whole += counted if asked == "running" or (asked == "final" and at == last) else plain
        if not passed.startswith(whole):
            break
        found.append(at)
    return found


def chunked(events: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(event), event) for event in events)


def unchunked(data: bytes) -> bytes:
    out, at = b"", 0
    while at < len(data):
        end = data.index(b"\r\n", at)
        size = int(data[at:end], 16)
        out += data[end + 2 : end + 2 + size]
        assert data[end + 2 + size : end + 4 + size] == b"\r\n"
        at = end + 4 + size
    return out


@given(streams(blanks=(b"\n\n",)), ASKED, st.data())
def test_chunks_come_out_as_chunks_and_the_count_is_set_before_they_are_written(
    stream: list[tuple[bytes, bytes, int]], asked: Asked, data: st.DataObject
) -> None:
    gate = ExactGate(100_000, Counting(asked=asked))
    written: list[tuple[bytes, int]] = []
    single, run = gate.writers(lambda piece: written.append((piece, gate.cells[OUTPUT])))
    events = [counted for counted, _, _ in stream]
    at = 0
    while at < len(events):
        several = data.draw(st.integers(1, 3))
        together = data.draw(st.booleans())
        part = events[at : at + several]
        piece = chunked([b"".join(part)]) if together else chunked(part)
        assert whole_chunks(piece) >= 0
        (single if together or len(part) == 1 else run)(piece)
        at += several
        assert gate.cells[OUTPUT] == stream[min(at, len(stream)) - 1][2]
    run(b"0\r\n\r\n")
    whole = b"".join(piece for piece, _ in written)
    assert whole.endswith(b"0\r\n\r\n")
    assert b"\r\n0\r\n\r\n" not in whole[:-5]
    assert unchunked(whole) == expected(stream, asked)


@given(streams(choices=3), ASKED, st.data())
def test_several_choices_are_added_up(
    stream: list[tuple[bytes, bytes, int]], asked: Asked, data: st.DataObject
) -> None:
    gate = ExactGate(100_000, Counting(asked=asked, choices_each=3, one_choice=False))
    for counted, plain, so_far in stream[:-2]:
        assert gate.take(counted) == (counted if asked == "running" else plain)
        if counted.startswith(b"data:"):
            assert gate.cells[OUTPUT] == so_far
    assert gate.take(stream[-2][0]) == (b"" if asked == "nothing" else stream[-2][0])
    assert gate.cells[OUTPUT] == stream[-2][2]


@given(st.lists(st.sampled_from([b'data: {"choices":[{"index":0}]}\n\n', b": ping\n\n"]), max_size=9), st.data())
def test_an_engine_that_does_not_count_is_passed_untouched_and_estimated(
    events: list[bytes], data: st.DataObject
) -> None:
    gate = ExactGate(100_000, Counting())
    passed = b"".join(gate.take(piece) for piece in pieces(data, b"".join(events))) + gate.rest()
    assert passed == b"".join(events)
    assert gate.estimated
    assert gate.cells[OUTPUT] == sum(event.startswith(b"data") for event in events)


@given(st.integers(0, 9), st.booleans())
def test_pieces_of_a_message_count_until_its_end_tells(deltas: int, ended: bool) -> None:
    gate = DeltaGate(100_000)
    usage_then = b'{"type":"message_start","message":{"usage":{"input_tokens":7,"output_tokens":0}}}'
    start = b"event: message_start\ndata: " + usage_then + b"\n\n"
    delta = b'event: content_block_delta\ndata: {"type":"content_block_delta","delta":{"text":"x"}}\n\n'
    end = b'event: message_delta\ndata: {"type":"message_delta","usage":{"output_tokens":20}}\n\n'
    assert gate.look(start) == "relay"
    gate.passed(gate.take(b""), 0.0)
    for event in (*[delta] * deltas, *([end] if ended else [])):
        gate.passed(gate.take(event), 0.0)
    usage = gate.usage()
    assert usage.prompt_tokens == gate.cells[PROMPT] == 7
    assert usage.output_tokens == gate.cells[OUTPUT] == (20 if ended else deltas)
    assert gate.estimated is not ended
