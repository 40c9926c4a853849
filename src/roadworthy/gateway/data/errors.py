"""Our own errors on the wire, in the shape that the client's library reads.

OpenAI's routes: ``{"error": {message, type, code, param, hint}}``. Anthropic's: ``{"type": "error", "error": {type,
message, code, hint}}``.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Literal

from roadworthy.core.errors import Refused

if TYPE_CHECKING:
    from roadworthy.gateway.data.routes import Dialect

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}
_ANTHROPIC_TYPES = _TYPES | {413: "request_too_large", 503: "overloaded_error", 504: "timeout_error"}


class BadRequest(Refused):
    """Something in the request is wrong; ``param`` names the field of the body, when it is one."""

    def __init__(self, message: str, *, code: str, status: int = 400, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, code=code, status=status, hint=hint)
        self.param = param


def error_body(refused: Refused, dialect: Dialect = "openai") -> bytes:
    """The error as JSON text."""
    fallback = "server_error" if refused.status >= 500 else "invalid_request_error"
    value: dict[str, object]
    if dialect == "anthropic":
        kind = _ANTHROPIC_TYPES.get(refused.status, "api_error" if refused.status >= 500 else fallback)
        error = {"type": kind, "message": str(refused), "code": refused.code, "hint": refused.hint or None}
        value = {"type": "error", "error": error}
    else:
        value = {
            "error": {
                "message": str(refused),
                "type": _TYPES.get(refused.status, fallback),
                "code": refused.code,
                "param": refused.param if isinstance(refused, BadRequest) else None,
                "hint": refused.hint or None,
            }
        }
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode(errors="backslashreplace")


def closing_events(refused: Refused, dialect: Dialect = "openai") -> bytes:
    """How a stream ends when it cannot go on: the error as one event. ``[DONE]`` is the engine's to say, never ours:
    a client must be able to tell an answer that was cut from one that was finished."""
    name = b"event: error\n" if dialect == "anthropic" else b""
    return name + b"data: " + error_body(refused, dialect) + b"\n\n"


# what an engine's own errors must not tell

_PRIVATE = re.compile(
    rb"(?:[a-z][a-z0-9+.-]*://[^\s\"'\\<>]+)"  # any URL
    rb"|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?::\d{1,5})?(?![\w.])"  # an IPv4 address
    rb"|(?<![\w:])(?:[0-9a-fA-F]{1,4}:){3,7}[0-9a-fA-F]{0,4}(?![\w:])"  # an IPv6 address
    rb"|\[[0-9a-fA-F:]{2,39}\](?::\d{1,5})?"
    rb"|(?<![\w/.-])[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*:\d{4,5}(?!\w)"  # host:port
    rb"|(?<![\w<])/(?:[\w.@+~-]+/)+[\w.@+~-]*"  # a path of two names or more
    rb"|File \\\"[^\"]*\\\", line \d+"
)
_HIDDEN = b"[hidden]"


def scrubbed(text: bytes) -> bytes:
    """An engine's error without addresses, URLs and paths. JSON stays JSON: what is put in needs no escape."""
    return _PRIVATE.sub(_HIDDEN, text)


def engines_unavailable(detail: str) -> Refused:
    return Refused(
        f"no engine can take this request now: {detail}",
        code="engines_unavailable",
        status=503,
        hint="try again; if it lasts, the operator sees each engine under /api/status of the admin port",
        retry_after_s=1.0,
    )


def engines_busy() -> Refused:
    return Refused(
        "every engine that serves this model is full",
        code="engines_busy",
        status=503,
        hint="try again after the time in Retry-After",
        retry_after_s=1.0,
    )


def lane_full() -> Refused:
    return Refused(
        "every place for long prompts is taken",
        code="long_lane_full",
        status=503,
        hint="try again after the time in Retry-After, or send a shorter prompt",
        retry_after_s=1.0,
    )


def engine_failed() -> Refused:
    return Refused(
        "the engine failed while working on this request",
        code="engine_error",
        status=502,
        hint="the request may be sent again",
    )


def engine_silent() -> Refused:
    return Refused(
        "the engine gave no byte within the time limit",
        code="engine_timeout",
        status=504,
        hint="the request may be sent again; ask for fewer tokens if it happens often",
    )


def gave_up(
    outcome: str, model: str, tried: Literal["connect", "full", "hard"] | None
) -> tuple[Refused, Literal["refused", "no_engine", "engine_error"]]:
    """What a client is told whose request no engine took, and how that is counted.

    Args:
        outcome: of the last choice.
        tried: how the last engine that was tried failed; None when none was.
    """
    if outcome == "model_not_found":
        return BadRequest(
            f"no engine serves model {model!r}", code="model_not_found", status=404, param="model",
            hint="GET /v1/models lists the names",
        ), "refused"  # fmt: skip
    if outcome == "lane_full":
        return lane_full(), "no_engine"
    if tried is None:
        return engines_unavailable("every one is draining"), "no_engine"
    if tried == "hard":
        return engine_failed(), "engine_error"
    if tried == "full":
        return engines_busy(), "no_engine"
    return engines_unavailable("none accepts a connection"), "no_engine"


def shutting_down() -> Refused:
    return Refused("the gateway is stopping", code="shutting_down", status=503, hint="try again", retry_after_s=1.0)
