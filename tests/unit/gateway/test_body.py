"""What is read of a request body, and what is not passed on."""

from __future__ import annotations

import json

import pytest

from roadworthy.gateway.data.body import NEVER_PASSED, read_completion
from roadworthy.gateway.data.errors import BadRequest


def body(**fields: object) -> bytes:
    return json.dumps({"model": "m", **fields}).encode()


def test_a_clean_body_is_forwarded_as_the_same_object() -> None:
    data = b' {"model":"m" , "stream":true,"max_tokens":5}\n'
    read = read_completion(data)
    assert read.forward is data
    assert (read.model, read.stream, read.max_tokens, read.dropped) == ("m", True, 5, ())


def test_max_completion_tokens_goes_before_the_old_name() -> None:
    assert read_completion(body(max_tokens=5, max_completion_tokens=7)).max_tokens == 7
    assert read_completion(body(max_tokens=None)).max_tokens is None


@pytest.mark.parametrize("name", sorted(NEVER_PASSED))
def test_each_forbidden_field_is_dropped_and_named(name: str) -> None:
    read = read_completion(body(**{name: 1, "top_p": 0.5}))
    assert json.loads(read.forward) == {"model": "m", "top_p": 0.5}
    assert read.dropped == (name,)


def test_only_known_template_switches_pass() -> None:
    read = read_completion(body(chat_template_kwargs={"enable_thinking": True, "x": 1}))
    assert json.loads(read.forward)["chat_template_kwargs"] == {"enable_thinking": True}
    assert read.dropped == ("chat_template_kwargs.x",)
    assert read_completion(body(chat_template_kwargs={"enable_thinking": True})).dropped == ()


def test_a_field_hidden_behind_an_escape_or_given_twice_is_dropped_too() -> None:
    read = read_completion(b'{"model": "m", "prior\\u0069ty": 1, "priority": 2}')
    assert json.loads(read.forward) == {"model": "m"}


def test_text_survives_when_the_body_is_written_again() -> None:
    text = 'Grüße 🚗 \u2028 \\ "'
    assert json.loads(read_completion(body(priority=1, prompt=text)).forward)["prompt"] == text


@pytest.mark.parametrize(
    ("data", "param"),
    [
        (b"{}", "model"),
        (body(model=""), "model"),
        (body(stream=1), "stream"),
        (body(n=True), "n"),
        (body(max_tokens=1.5), "max_tokens"),
    ],
)
def test_the_field_at_fault_is_named(data: bytes, param: str) -> None:
    with pytest.raises(BadRequest) as refused:
        read_completion(data)
    assert (refused.value.param, refused.value.status) == (param, 400)
