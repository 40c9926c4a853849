"""Malformed requests never bring the gateway out of step: the short `make fuzz`, and proof that its judge sees."""

from __future__ import annotations

from random import Random

import pytest
from gatewaylab.fuzz import judge, run
from gatewaylab.fuzz_cases import Case, make, tampered
from gatewaylab.fuzz_engine import StrictEngine
from gatewaylab.fuzz_grammar import GRAMMAR
from gatewaylab.fuzz_parts import marker_of, parts
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

REQUESTS = 20_000
FIRST, SECOND = marker_of(1, 1), marker_of(1, 2)


@pytest.mark.timeout(600)
def test_twenty_thousand_malformed_requests_leave_every_connection_in_step() -> None:
    outcome = run(range(REQUESTS))
    assert outcome.problems == []
    assert outcome.cases == REQUESTS
    assert len(outcome.kinds) == len(GRAMMAR) + len(("valid", "bytes")) + 7
    assert outcome.endings["follower answered"] > REQUESTS / 10
    assert outcome.endings["closed"] > REQUESTS / 10


@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.integers(min_value=0, max_value=2**60), min_size=1, max_size=50, unique=True))
def test_any_seeds_leave_every_connection_in_step(seeds: list[int]) -> None:
    assert run(seeds).problems == []


def test_a_case_is_the_same_whenever_it_is_made() -> None:
    assert [make(seed) for seed in range(300)] == [make(seed) for seed in range(300)]


@given(st.integers(min_value=0, max_value=2**60))
def test_every_case_ends_with_its_follower(seed: int) -> None:
    case = make(seed)
    tail = case.data[-800:].replace(b"\r\n", b"")
    assert case.follower.encode() in case.data or b"chunked" in tail or b"Chunked" in case.data


@given(st.binary(min_size=1, max_size=300), st.integers())
def test_tampering_leaves_something_to_send(data: bytes, seed: int) -> None:
    assert tampered(data, Random(seed))


def answer(marker: str | None, *, status: int = 200, close: bool = False) -> bytes:
    body = (
        b'{"content":"%b"}' % (marker or "").encode()
        if status == 200
        else b'{"error":{"message":"m","type":"t","code":"c","param":null,"hint":null}}'
    )
    closing = b"connection: close\r\n" if close else b""
    return b"HTTP/1.1 %d X\r\n%bcontent-length: %d\r\n\r\n%b" % (status, closing, len(body), body)


def case(**fields: bool) -> Case:
    return Case(name="test", data=b"", markers=(FIRST, SECOND), **fields)


@pytest.mark.parametrize(
    ("data", "closed", "fields"),
    [
        (answer(SECOND) + answer(FIRST), False, {}),
        (answer(FIRST) + answer(FIRST), False, {}),
        (answer(marker_of(2, 1)), False, {}),
        (answer(FIRST)[:-3], False, {}),
        (answer(FIRST) + b"rest", False, {}),
        (answer(FIRST, close=True) + answer(SECOND), True, {}),
        (answer(None, status=400, close=True), False, {}),
        (answer(None, status=502), False, {}),
        (answer(FIRST), False, {"must_answer": True}),
        (answer(FIRST) + answer(SECOND), False, {"must_refuse": True}),
        (answer(None, status=400), False, {"must_refuse": True}),
        (b"", True, {"must_refuse": True}),
        (answer(None, status=400).replace(b'"hint"', b'"hunt"'), False, {}),
    ],
    ids=[
        "out of order", "answered twice", "another's answer", "cut", "surplus", "behind a closing answer",
        "does not close",
        "gateway error", "not answered", "smuggled", "refused and kept", "closed without a word",
        "error of another shape",
    ],
)  # fmt: skip
def test_the_judge_sees_what_is_wrong(data: bytes, closed: bool, fields: dict[str, bool]) -> None:
    assert judge(case(**fields), data, closed=closed) is not None


@pytest.mark.parametrize(
    ("data", "closed", "fields"),
    [
        (answer(FIRST) + answer(SECOND), False, {"must_answer": True}),
        (answer(None, status=400, close=True), True, {"must_refuse": True}),
        (answer(SECOND), False, {}),
        (b"", True, {}),
    ],
)
def test_the_judge_lets_pass_what_is_right(data: bytes, closed: bool, fields: dict[str, bool]) -> None:
    assert judge(case(**fields), data, closed=closed) is None


@pytest.mark.parametrize(
    "body",
    [
        b'{"model":"m","priority":1}', b'{"model":"m","prior\\u0069ty":1}',
        b'{"priority":1,"model":"m","priority":2}', b'{"model":"other"}',
        b'{"model":"m","cache_salt":"a"}',
        b'{"cache_salt":"00112233445566778899aabbccddeeff","model":"m","cache_salt":"a"}',
        b'{"model":"m"', b"[]", b'{"model":"m","x":"\xff"}',
    ],
)  # fmt: skip
def test_the_engine_notes_a_body_that_should_not_have_reached_it(body: bytes) -> None:
    engine = StrictEngine()
    engine.check_body(body)
    assert engine.problems


def test_the_engine_takes_what_is_allowed() -> None:
    engine = StrictEngine()
    engine.check_body(parts(FIRST, Random(0)).body)
    engine.check_body(b'{"model":"m","nested":{"priority":1}}')
    assert engine.problems == []
