"""What is read of a request body, and what is not passed on."""

from __future__ import annotations

import json

import pytest

from roadworthy.gateway.data.body import NEVER_PASSED, Body, read_body
from roadworthy.gateway.data.errors import BadRequest
from roadworthy.gateway.data.routes import ROUTES

CHAT = ROUTES["/v1/chat/completions"]


def read_completion(data: bytes, path: str = "/v1/chat/completions") -> Body:
    return read_body(ROUTES[path], data)


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
    assert json.loads(read_completion(body(priority=1, user=text)).forward)["user"] == text


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


def media(url: object, **part: object) -> list[object]:
    return [
        {"role": "user", "content": [{"type": "text", "text": "see"}, {"type": "image_url", "image_url": url, **part}]}
    ]


@pytest.mark.parametrize(
    ("path", "fields"),
    [
        ("/v1/chat/completions", {"messages": media({"url": "http://10.0.0.1/x"})}),
        ("/v1/chat/completions", {"messages": media("https://example.com/x.png")}),
        ("/v1/chat/completions", {"messages": media({"url": "file:///etc/passwd"})}),
        ("/v1/messages", {"messages": [{"role": "user", "content": [{"type": "image", "source": {"url": "http://x"}}]}]}),
        ("/v1/responses", {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "http://x"}]}]}),
        ("/v1/embeddings", {"messages": media({"url": "http://x"})}),
        ("/v1/rerank", {"query": "q", "documents": [{"content": [{"type": "image_url", "image_url": {"url": "ftp://x"}}]}]}),
    ],
)  # fmt: skip
def test_media_that_an_engine_would_fetch_is_refused_unless_allowed(path: str, fields: dict[str, object]) -> None:
    with pytest.raises(BadRequest) as refused:
        read_completion(body(**fields), path)
    assert refused.value.code == "remote_media_refused"
    assert read_body(ROUTES[path], body(**fields), remote_media=True).model == "m"


def test_an_escape_does_not_hide_media() -> None:
    data = (
        body(messages=media({"url": "http://x"}))
        .replace(b"image_url", b"image\\u005furl")
        .replace(b"http", b"\\u0068ttp")
    )
    with pytest.raises(BadRequest, match="not fetched"):
        read_completion(data)


def test_inline_media_and_urls_in_text_pass() -> None:
    inline = body(messages=media({"url": "data:image/png;base64,AAAA"}))
    assert read_completion(inline).forward == inline
    assert read_completion(body(messages=[{"role": "user", "content": '{"image_url": "http://x"}'}])).dropped == ()


def test_embeddings_in_place_of_text_are_refused() -> None:
    parts = [{"role": "user", "content": [{"type": "image_embeds", "image_embeds": "AAAA"}]}]
    with pytest.raises(BadRequest, match="embeddings"):
        read_completion(body(messages=parts))


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/v1/chat/completions", "n", 129),
        ("/v1/chat/completions", "top_logprobs", 21),
        ("/v1/chat/completions", "prompt_logprobs", -1),
        ("/v1/completions", "logprobs", 21),
        ("/v1/completions", "logprobs", -1),
        ("/v1/completions", "prompt", ["p"] * 129),
        ("/v1/completions", "prompt", [[1, 2]] * 129),
        ("/v1/embeddings", "input", ["t"] * 2049),
        ("/v1/rerank", "documents", ["t"] * 2049),
        ("/v1/chat/completions", "stop", ["s"] * 17),
        ("/v1/chat/completions", "stop", ["s" * 1025]),
        ("/v1/chat/completions", "stop_token_ids", list(range(1025))),
        ("/v1/messages", "stop_sequences", ["s"] * 17),
        ("/v1/chat/completions", "bad_words", ["w"] * 257),
        ("/v1/chat/completions", "logit_bias", {str(at): 1 for at in range(1025)}),
        ("/v1/chat/completions", "structured_outputs", {"regex": "a" * 1025}),
        ("/v1/chat/completions", "structured_outputs", {"choice": ["a"] * 1025}),
        ("/v1/chat/completions", "response_format", {"json_schema": {"schema": {"pattern": "a" * 1025}}}),
        ("/v1/chat/completions", "response_format", {"x": "a" * 262_144}),
        ("/v1/chat/completions", "tools", json.loads("[" * 66 + "]" * 66)),
    ],
)  # fmt: skip
def test_what_would_cost_everyone_is_capped_and_named(path: str, field: str, value: object) -> None:
    with pytest.raises(BadRequest) as refused:
        read_completion(body(**{field: value}), path)
    assert (refused.value.param, refused.value.code) == (field, "invalid_value")


@pytest.mark.parametrize(
    ("path", "field", "value"),
    [
        ("/v1/completions", "prompt", list(range(5000))),  # one prompt, as token ids
        ("/v1/completions", "prompt", ["p"] * 128),
        ("/v1/completions", "logprobs", 20),
        ("/v1/chat/completions", "logprobs", True),
        ("/v1/chat/completions", "stop", ["s"] * 16),
        ("/v1/chat/completions", "stop", "s"),
        ("/v1/chat/completions", "max_tokens", None),
        ("/v1/chat/completions", "response_format", {"type": "json_object"}),
        ("/v1/embeddings", "input", ["t"] * 2048),
    ],
)
def test_what_is_within_the_caps_passes_untouched(path: str, field: str, value: object) -> None:
    data = body(**{field: value})
    assert read_completion(data, path).forward is data


@pytest.mark.parametrize("path", [path for path, route in ROUTES.items() if route.method == "POST"])
def test_no_route_lets_a_steering_field_through(path: str) -> None:
    read = read_completion(body(**dict.fromkeys(NEVER_PASSED, "x")), path)
    assert json.loads(read.forward) == {"model": "m"}
    assert read.dropped == tuple(sorted(NEVER_PASSED))


def test_a_value_that_stays_is_never_written_anew() -> None:
    data = b'{"priority":1, "model" : "m", "temperature" : 1.50e0 , "user":"\\u00e9\\/"}'
    assert read_completion(data).forward == b'{"model":"m","temperature":1.50e0,"user":"\\u00e9\\/"}'


def test_the_body_is_checked_against_its_own_routes_list() -> None:
    assert read_completion(body(input="x"), "/v1/chat/completions").dropped == ("input",)
    assert read_completion(body(input="x"), "/v1/embeddings").dropped == ()
