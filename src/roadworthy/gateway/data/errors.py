"""Our own errors on the wire: one shape, ``{"error": {message, type, code, param, hint}}``."""

from __future__ import annotations

import json

from roadworthy.core.errors import Refused

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    422: "invalid_request_error",
    429: "rate_limit_error",
}


class BadRequest(Refused):
    """Something in the request is wrong; ``param`` names the field of the body, when it is one."""

    def __init__(self, message: str, *, code: str, status: int = 400, hint: str = "", param: str | None = None) -> None:
        super().__init__(message, code=code, status=status, hint=hint)
        self.param = param


def error_body(refused: Refused) -> bytes:
    """The error as JSON text."""
    kind = _TYPES.get(refused.status, "server_error" if refused.status >= 500 else "invalid_request_error")
    error = {
        "message": str(refused),
        "type": kind,
        "code": refused.code,
        "param": refused.param if isinstance(refused, BadRequest) else None,
        "hint": refused.hint or None,
    }
    return json.dumps({"error": error}, ensure_ascii=False, separators=(",", ":")).encode()


def closing_events(refused: Refused) -> bytes:
    """How a stream ends when it cannot go on: the error as one event. ``[DONE]`` is the engine's to say, never ours:
    a client must be able to tell an answer that was cut from one that was finished."""
    return b"data: " + error_body(refused) + b"\n\n"


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


def shutting_down() -> Refused:
    return Refused("the gateway is stopping", code="shutting_down", status=503, hint="try again", retry_after_s=1.0)
