"""The body of a completion request: what the gateway reads of it, and what it never passes on."""

from __future__ import annotations

import json
from dataclasses import dataclass

from roadworthy.gateway.data.errors import BadRequest

NEVER_PASSED = frozenset(
    {
        "priority", "cache_salt", "request_id", "session_id", "kv_transfer_params", "ec_transfer_params", "vllm_xargs",
        "chat_template", "media_io_kwargs", "mm_processor_kwargs", "mm_payload", "return_mm_kwargs", "prompt_embeds",
        "routed_experts_prompt_start", "watermarking",
    }
)  # fmt: skip
"""Fields of vLLM 0.32's requests that steer scheduling, caches, transfer or template code (facts: ops, section 8)."""

TEMPLATE_KEYS = frozenset({"enable_thinking", "thinking", "reasoning_effort"})
"""What of ``chat_template_kwargs`` passes: switches that model cards document. Others reach template code."""

MAX_N = 128
"""OpenAI's own upper bound of ``n``: each choice is a sequence that holds blocks of its own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionBody:
    """A checked body. ``forward`` is what the engine gets: the client's bytes untouched unless fields in ``dropped``
    had to go."""

    model: str
    stream: bool
    max_tokens: int | None
    forward: bytes
    dropped: tuple[str, ...]


def read_completion(body: bytes) -> CompletionBody:
    """The body of a chat or plain completion. Raises BadRequest naming the field."""
    fields = _json_object(body)
    model = fields.get("model")
    if not isinstance(model, str) or not model:
        raise BadRequest(
            "model is missing" if model is None else f"model must be a name, not {_kind(model)}",
            code="invalid_model", param="model", hint="GET /v1/models lists the names",
        )  # fmt: skip
    stream = fields.get("stream")
    if stream is not None and not isinstance(stream, bool):
        raise BadRequest(f"stream must be true or false, not {_kind(stream)}", code="invalid_value", param="stream")
    _check_count(fields, "n", MAX_N)
    limits = [_check_count(fields, name, None) for name in ("max_completion_tokens", "max_tokens")]
    forward, dropped = _without_never_passed(fields, body)
    return CompletionBody(
        model=model,
        stream=bool(stream),
        max_tokens=next((limit for limit in limits if limit is not None), None),
        forward=forward,
        dropped=dropped,
    )


def _json_object(body: bytes) -> dict[str, object]:
    try:
        # decoded here: json.loads on bytes would accept UTF-16 and UTF-32, which other readers of this body may not
        value = json.loads(body.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8 at byte {error.start}", code="invalid_json") from error
    except RecursionError as error:
        raise BadRequest("the body is nested too deeply", code="invalid_json") from error
    except ValueError as error:
        raise BadRequest(
            f"the body is not JSON: {error}", code="invalid_json", hint="send a JSON object, as UTF-8"
        ) from error
    if not isinstance(value, dict):
        raise BadRequest(f"the body must be a JSON object, not {_kind(value)}", code="invalid_json")
    return value


def _check_count(fields: dict[str, object], name: str, most: int | None) -> int | None:
    value = fields.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0 or (most is not None and value > most):
        wanted = "a whole number of at least 0" + (f" and at most {most}" if most is not None else "")
        seen = value if isinstance(value, int) and not isinstance(value, bool) else _kind(value)
        raise BadRequest(f"{name} must be {wanted}, not {seen}", code="invalid_value", param=name)
    return value


def _without_never_passed(fields: dict[str, object], body: bytes) -> tuple[bytes, tuple[str, ...]]:
    dropped = sorted(fields.keys() & NEVER_PASSED)
    for name in dropped:
        del fields[name]
    template = fields.get("chat_template_kwargs")
    if isinstance(template, dict) and (unknown := sorted(template.keys() - TEMPLATE_KEYS)):
        fields["chat_template_kwargs"] = {key: value for key, value in template.items() if key in TEMPLATE_KEYS}
        dropped += [f"chat_template_kwargs.{name}" for name in unknown]
    if not dropped:
        return body, ()
    try:
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode(), tuple(dropped)
    except UnicodeEncodeError as error:  # a lone surrogate escape: legal JSON, no legal UTF-8
        raise BadRequest("the body holds an unpaired surrogate", code="invalid_json") from error


def _kind(value: object) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a string", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
