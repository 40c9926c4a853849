"""What the gateway reads of a body is what the engine will read of it, whatever the body."""

from __future__ import annotations

import json
from random import Random

import pytest
from gatewaylab.fuzz_bodies import BODIES, FORBIDDEN
from gatewaylab.fuzz_cases import tampered
from gatewaylab.fuzz_parts import completion, marker_of
from gatewaylab.guided import check
from hypothesis import given
from hypothesis import strategies as st

values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
names = st.sampled_from(
    ["model", "messages", "stream", "max_tokens", "n", "stop", "user", "tools", "chat_template_kwargs", "x", *FORBIDDEN]
) | st.text(max_size=8)


@st.composite
def bodies(draw: st.DrawFn) -> bytes:
    """Objects with repeated, escaped, forbidden and unknown names around a valid core, in any order and spacing."""
    pairs = [("model", "m"), ("messages", [{"role": "user", "content": "hi"}])]
    pairs += draw(st.lists(st.tuples(names, values), max_size=6))
    pairs = draw(st.permutations(pairs))
    space = draw(st.sampled_from(["", " ", "\n", "\t ", "\r\n"]))
    rng = Random(draw(st.integers()))

    def written(name: str) -> str:
        if not name.isidentifier():
            return json.dumps(name)
        letters = (f"\\u{ord(one):04x}" if one.isascii() and rng.random() < 0.2 else one for one in name)
        return f'"{"".join(letters)}"'

    inside = f"{space},{space}".join(f"{written(name)}{space}:{space}{json.dumps(value)}" for name, value in pairs)
    return f"{space}{{{space}{inside}{space}}}{space}".encode()


@given(bodies())
def test_what_goes_on_means_the_same(body: bytes) -> None:
    assert check(body) is None


@given(st.integers(min_value=0), st.sampled_from(BODIES))
def test_wrong_bodies_are_refused_or_mean_the_same(seed: int, kind: object) -> None:
    assert check(kind(marker_of(seed, 0), Random(seed))) is None  # type: ignore[operator]


@given(st.integers(min_value=0))
def test_tampered_bodies_are_refused_or_mean_the_same(seed: int) -> None:
    rng = Random(seed)
    assert check(tampered(completion(marker_of(seed, 0), rng), rng)) is None


@given(st.binary(max_size=200))
def test_any_bytes_are_refused_or_mean_the_same(data: bytes) -> None:
    assert check(data) is None


@pytest.mark.parametrize("name", FORBIDDEN)
def test_no_forbidden_field_goes_on(name: str) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "hi"}], name: 1}
    assert check(json.dumps(body).encode()) is None
