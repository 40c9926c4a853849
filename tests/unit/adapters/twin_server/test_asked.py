"""What a body asks for, and vLLM's words when it cannot be (each checked against vLLM 0.32.0 on the wire)."""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import pytest

from roadworthy.adapters.twin_server.asked import Asked, BadRequest, Kind, parse
from support.twin import config

HELLO: dict[str, Any] = {"model": "fake-model", "messages": [{"role": "user", "content": "hello there"}]}
TWIN = config(answer_tokens=40)


def ask(kind: Kind = "chat", *, headers: dict[bytes, bytes] | None = None, **changes: Any) -> Asked:
    base = HELLO if kind == "chat" else {"model": "fake-model", "prompt": "hello there"}
    return parse(kind, json.dumps(base | changes).encode(), headers or {}, TWIN)


def error_of(kind: Kind = "chat", body: bytes | None = None, **changes: Any) -> dict[str, Any]:
    call = partial(ask, kind, **changes) if body is None else partial(parse, kind, body, {}, TWIN)
    with pytest.raises(BadRequest) as caught:
        call()
    error: dict[str, Any] = caught.value.document["error"]
    assert error["code"] == caught.value.status
    return error


def test_max_tokens_is_the_length_of_the_answer() -> None:
    asked = ask(max_tokens=7)
    assert (asked.output_tokens, asked.ends_with) == (7, "length")
    assert ask(max_completion_tokens=9, max_tokens=7).output_tokens == 9


def test_without_a_limit_the_answer_ends_of_itself() -> None:
    asked = ask()
    assert (asked.output_tokens, asked.ends_with) == (40, "stop")
    assert ask(min_tokens=60).output_tokens == 60


def test_without_a_limit_a_completion_has_sixteen_tokens() -> None:
    assert ask("completion").output_tokens == 16


def test_ignore_eos_without_a_limit_runs_to_the_end_of_the_context() -> None:
    asked = ask(ignore_eos=True)
    assert (len(asked.prompt) + asked.output_tokens, asked.ends_with) == (TWIN.max_model_len, "length")


def test_an_answer_is_cut_to_the_room_that_is_left() -> None:
    asked = ask(max_tokens=1024)
    assert len(asked.prompt) + asked.output_tokens == 1024


def test_a_missing_model_means_the_first_one() -> None:
    assert ask(model=None).model == "fake-model"


def test_usage_is_told_only_when_asked() -> None:
    assert not ask(stream=True).include_usage
    assert ask(stream=True, stream_options={"include_usage": True}).include_usage
    assert not ask(stream=True, stream_options={"continuous_usage_stats": True}).continuous_usage
    assert ask(stream=True, stream_options={"include_usage": True, "continuous_usage_stats": True}).continuous_usage


def test_priority_comes_from_the_body_or_the_header() -> None:
    assert ask(priority=4).priority == 4
    assert ask(priority=4, headers={b"x-vllm-priority": b"-2"}).priority == -2
    assert ask(headers={b"x-vllm-priority": b"high"}).priority == 0


def test_token_ids_count_one_each() -> None:
    assert len(ask("completion", prompt=[5, 6, 7]).prompt) == 3
    assert len(ask("completion", prompt=[[5, 6, 7]]).prompt) == 3


@pytest.mark.parametrize(
    ("change", "kind", "param", "message"),
    [
        ({"model": "gone"}, "NotFoundError", "model", "The model `gone` does not exist. Valid aliases: fake-model."),
        ({"messages": None}, "Bad Request", "body.messages", "Field required"),
        ({"messages": "hi"}, "Bad Request", "body.messages", "valid list"),
        ({"messages": []}, "BadRequestError", None, "Cannot apply chat template to an empty conversation"),
        ({"messages": [{"content": "hi"}]}, "BadRequestError", "messages", "needs a role"),
        ({"messages": ["hi"]}, "BadRequestError", "messages", "needs a role"),
        ({"messages": [{"role": "user", "content": 5}]}, "BadRequestError", "messages", "text or a list of parts"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens", "max_tokens must be at least 1, got 0."),
        ({"max_tokens": -1}, "BadRequestError", "max_tokens", "(parameter=max_tokens, value=-1)"),
        ({"max_tokens": "abc"}, "Bad Request", "body.max_tokens", "valid integer"),
        ({"max_tokens": True}, "Bad Request", "body.max_tokens", "valid integer"),
        ({"max_tokens": 5000}, "BadRequestError", "max_tokens", "cannot be greater than max_model_len=1024"),
        ({"max_tokens": 2, "min_tokens": 5}, "BadRequestError", None, "min_tokens must be less than or equal"),
        ({"n": 2}, "BadRequestError", "n", "one answer"),
        ({"stream_options": {"include_usage": True}}, "BadRequestError", "stream_options", "when `stream=True`"),
        ({"stream": True, "stream_options": [1]}, "Bad Request", "body.stream_options", "valid dictionary"),
        ({"cache_salt": ""}, "BadRequestError", None, "non-empty string"),
    ],
)
def test_a_chat_that_cannot_be_answered_says_why(
    change: dict[str, Any], kind: str, param: str | None, message: str
) -> None:
    error = error_of(**change)
    assert (error["type"], error["param"]) == (kind, param)
    assert message in error["message"]


def test_an_unknown_model_is_404() -> None:
    assert error_of(model="gone")["code"] == 404


@pytest.mark.parametrize("prompt", [None, "", [], {}])
def test_a_completion_needs_a_prompt(prompt: object) -> None:
    error = error_of("completion", prompt=prompt)
    assert error["message"].startswith("Either prompt or prompt_embeds must be provided")


def test_several_prompts_are_refused() -> None:
    assert "2 prompts" in error_of("completion", prompt=["a", "b"])["message"]


def test_a_prompt_beyond_the_context_is_refused_as_vllm_words_it() -> None:
    error = error_of("completion", prompt="word " * 1200)
    assert error["message"].startswith("This model's maximum context length is 1024 tokens. However, your prompt")
    assert error["param"] == "input_tokens"


@pytest.mark.parametrize(("body", "place"), [(b'{"model":', "body.9"), (b"\xff", "body"), (b"[1]", "body")])
def test_a_body_that_is_no_object_is_refused_with_its_place(body: bytes, place: str) -> None:
    assert error_of(body=body)["param"] == place


def test_other_media_than_json_are_refused() -> None:
    with pytest.raises(BadRequest, match="Only 'application/json' is allowed"):
        parse("chat", json.dumps(HELLO).encode(), {b"content-type": b"text/plain"}, TWIN)
    parse("chat", json.dumps(HELLO).encode(), {b"content-type": b"application/json; charset=utf-8"}, TWIN)
