"""Laws of the event gate: nothing lost, nothing changed, nothing passed but whole events."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.gateway.data.stream import EventGate

BLANKS = st.sampled_from([b"\n\n", b"\r\n\r\n"])
LINES = st.sampled_from([b"data: 1", b"data: \xc3\xa9", b": ping", b"event: x\ndata: 2", b"data: [DONE]", b"data:"])
STREAMS = st.lists(st.tuples(LINES, BLANKS).map(b"".join), min_size=1, max_size=12).map(b"".join)


@st.composite
def split_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    stream = draw(STREAMS) + draw(st.sampled_from([b"", b"data: half", b"data: half\r"]))
    cuts = sorted(draw(st.sets(st.integers(0, len(stream)), max_size=20)))
    edges = [0, *cuts, len(stream)]
    return stream, [stream[start:end] for start, end in pairwise(edges)]


@given(split_streams())
def test_what_goes_in_comes_out_and_only_at_the_ends_of_events(given_stream: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = given_stream
    gate = EventGate(hold_bytes=10_000)
    passed = b""
    for piece in pieces:
        out = gate.take(piece)
        assert out == b"" or out.endswith((b"\n\n", b"\r\n\r\n"))
        assert not gate.mid_event
        passed += out
    assert stream.startswith(passed)
    assert passed + gate.rest() == stream


@given(split_streams(), st.integers(1, 12))
def test_with_little_room_bytes_pass_early_but_none_is_lost(given_stream: tuple[bytes, list[bytes]], hold: int) -> None:
    stream, pieces = given_stream
    gate = EventGate(hold_bytes=hold)
    assert b"".join(gate.take(piece) for piece in pieces) + gate.rest() == stream


@given(split_streams())
def test_the_first_event_is_judged_the_same_wherever_reads_end(given_stream: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = given_stream
    whole = EventGate(hold_bytes=10_000).look(stream)
    gate = EventGate(hold_bytes=10_000)
    verdicts = [gate.look(piece) for piece in pieces]
    assert verdicts[-1] == whole
    assert set(verdicts) <= {"wait", whole}


@given(st.sampled_from([429, 503, 500, 502]))
def test_a_refusal_in_the_first_event_is_seen_wherever_reads_end(code: int) -> None:
    refusal = b': ping\r\n\r\ndata: {"error": {"message": "x", "code": %d}}\n\n' % code
    gate = EventGate(hold_bytes=10_000)
    verdicts = [gate.look(bytes([byte])) for byte in refusal]
    assert verdicts[-1] == ("full" if code in (429, 503) else "hard")
    assert set(verdicts[:-1]) == {"wait"}
