"""What a request body asks for, checked; errors carry vLLM's words and shape."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.adapters.twin_server.text import chat_tokens, tokens_of

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import EndsWith

Kind = Literal["chat", "completion"]


class BadRequest(Exception):
    """An answer in vLLM's error shape. ``kind`` is its ``type``: ``Bad Request`` from the web framework's checks of
    the body, ``BadRequestError`` and others from the engine's front."""

    def __init__(
        self, message: str, *, kind: str = "BadRequestError", param: str | None = None, status: int = 400
    ) -> None:
        super().__init__(message)
        self.status = status
        self.document = {"error": {"message": message, "type": kind, "param": param, "code": status}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One generation: the prompt in pseudo-tokens and how long the answer will be."""

    kind: Kind
    model: str
    prompt: list[str]
    output_tokens: int
    ends_with: EndsWith
    stream: bool
    include_usage: bool
    continuous_usage: bool
    priority: int
    cache_salt: str


def parse(kind: Kind, body: bytes, headers: Mapping[bytes, bytes], config: TwinConfig) -> Asked:
    """The request in ``body``. Raises BadRequest."""
    fields = _document(body, headers)
    model = fields.get("model") or config.models[0]
    if model not in config.models:
        aliases = ", ".join(config.models)
        raise BadRequest(
            f"The model `{model}` does not exist. Valid aliases: {aliases}.",
            kind="NotFoundError",
            param="model",
            status=404,
        )
    stream = bool(fields.get("stream"))
    options = fields.get("stream_options") or {}
    if options and not stream:
        raise BadRequest(
            "Stream options can only be defined when `stream=True`. (parameter=stream_options)", param="stream_options"
        )
    if not isinstance(options, dict):
        raise _invalid("stream_options", "model_type", "Input should be a valid dictionary", options)
    if (answers := _whole(fields, "n", 1)) != 1:
        raise BadRequest(f"n={answers}: the simulated engine gives one answer to a request.", param="n")
    prompt = _chat_prompt(fields) if kind == "chat" else _completion_prompt(fields)
    if len(prompt) >= config.max_model_len:
        raise _too_long(len(prompt), config.max_model_len)
    output_tokens, ends_with = _answer_length(kind, fields, len(prompt), config)
    include_usage = bool(options.get("include_usage"))
    return Asked(
        kind=kind,
        model=str(model),
        prompt=prompt,
        output_tokens=output_tokens,
        ends_with=ends_with,
        stream=stream,
        include_usage=include_usage,
        continuous_usage=include_usage and bool(options.get("continuous_usage_stats")),
        priority=_priority(fields, headers),
        cache_salt=_cache_salt(fields),
    )


def _document(body: bytes, headers: Mapping[bytes, bytes]) -> dict[str, Any]:
    media = headers.get(b"content-type", b"application/json").split(b";")[0].strip().lower()
    if media != b"application/json":
        raise BadRequest(
            "1 validation error:\n  Unsupported Media Type: Only 'application/json' is allowed", kind="Bad Request"
        )
    try:
        document = json.loads(body)
    except ValueError as error:
        place = f"body.{error.pos}" if isinstance(error, json.JSONDecodeError) else "body"
        raise BadRequest(
            f"1 validation error:\n  {{'type': 'json_invalid', 'loc': '{place}', 'msg': 'JSON decode error'}}",
            kind="Bad Request",
            param=place,
        ) from error
    if not isinstance(document, dict):
        raise _invalid("", "model_attributes_type", "Input should be a valid dictionary", document)
    return document


def _invalid(field: str, kind: str, message: str, seen: object) -> BadRequest:
    """The web framework's word on one field."""
    place = f"body.{field}" if field else "body"
    detail = {"type": kind, "loc": place, "msg": message, "input": str(seen)[:200]}
    return BadRequest(f"1 validation error:\n  {detail}", kind="Bad Request", param=place)


def _whole(fields: Mapping[str, Any], name: str, default: int | None = None) -> int | None:
    value = fields.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int):
        raise _invalid(name, "int_type", "Input should be a valid integer", value)
    return value


def _chat_prompt(fields: Mapping[str, Any]) -> list[str]:
    messages = fields.get("messages")
    if messages is None:
        raise _invalid("messages", "missing", "Field required", f"<dict of {len(fields)} items>")
    if not isinstance(messages, list):
        raise _invalid("messages", "list_type", "Input should be a valid list", messages)
    if not messages:
        raise BadRequest("Cannot apply chat template to an empty conversation. Provide at least one message.")
    try:
        return chat_tokens(messages)
    except ValueError as error:
        raise BadRequest(str(error), param="messages") from error


def _completion_prompt(fields: Mapping[str, Any]) -> list[str]:
    prompt = fields.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], (str, list)):
        prompt = prompt[0]
    if isinstance(prompt, list) and prompt and all(isinstance(token, int) for token in prompt):
        return [f"#{token}" for token in prompt]
    if isinstance(prompt, list) and len(prompt) > 1:
        raise BadRequest(f"{len(prompt)} prompts: the simulated engine takes one in a request.", param="prompt")
    if not isinstance(prompt, str) or not prompt:
        raise BadRequest(
            "Either prompt or prompt_embeds must be provided and non-empty. (parameter=prompt)", param="prompt"
        )
    return tokens_of(prompt)


def _too_long(tokens: int, max_model_len: int) -> BadRequest:
    return BadRequest(
        f"This model's maximum context length is {max_model_len} tokens. However, your prompt contains {tokens} input "
        "tokens, which exceeds this limit even without any output tokens. Please reduce the length of the input "
        f"prompt. (parameter=input_tokens, value={tokens})",
        param="input_tokens",
    )


def _answer_length(
    kind: Kind, fields: Mapping[str, Any], prompt_tokens: int, config: TwinConfig
) -> tuple[int, EndsWith]:
    """Tokens of the answer and how it ends: at its limit, or of itself where there is none."""
    name = "max_completion_tokens" if fields.get("max_completion_tokens") is not None else "max_tokens"
    # vLLM's completions default to 16 tokens, as OpenAI's do; chat runs on
    limit = _whole(fields, name, 16 if kind == "completion" else None)
    least = _whole(fields, "min_tokens", 0) or 0
    room = config.max_model_len - prompt_tokens
    if limit is not None:
        if limit < 1:
            raise BadRequest(f"{name} must be at least 1, got {limit}. (parameter={name}, value={limit})", param=name)
        if limit > config.max_model_len:
            raise BadRequest(
                f"{name}={limit} cannot be greater than max_model_len={config.max_model_len}. Please request fewer "
                f"output tokens. (parameter={name}, value={limit})",
                param=name,
            )
        if least > limit:
            raise BadRequest(f"min_tokens must be less than or equal to max_tokens={limit}, got {least}.")
        return min(limit, room), "length"
    if fields.get("ignore_eos"):
        return room, "length"
    wanted = max(config.answer_tokens, least)
    return (wanted, "stop") if wanted <= room else (room, "length")


def _cache_salt(fields: Mapping[str, Any]) -> str:
    """Requests share cached prefixes only under the same salt."""
    salt = fields.get("cache_salt")
    if salt is None:
        return ""
    if not isinstance(salt, str) or not salt:
        raise BadRequest(f"Parameter 'cache_salt' must be a non-empty string if provided, got {str(salt)[:80]!r}.")
    return salt


def _priority(fields: Mapping[str, Any], headers: Mapping[bytes, bytes]) -> int:
    """Body ``priority`` or the header, as vLLM takes them; it counts only with the priority policy."""
    told = headers.get(b"x-vllm-priority")
    if told is not None:
        try:
            return int(told)
        except ValueError:
            return 0
    return _whole(fields, "priority", 0) or 0
