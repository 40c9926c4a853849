"""The heads of our answers."""

from __future__ import annotations

from http import HTTPStatus
from typing import TYPE_CHECKING

from roadworthy.gateway.data.errors import BadRequest

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.request import Request

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
JSON = b"application/json"

_LINES = {status.value: f"HTTP/1.1 {status.value} {status.phrase}\r\n".encode("ascii") for status in HTTPStatus}


class MethodNotAllowed(BadRequest):
    """405; ``allowed`` is the method that the path takes."""

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed", status=405, hint=f"use {allowed}")
        self.allowed = allowed


def response_head(
    status: int, content_type: bytes, headers: bytes, framing: bytes, close: bool, request: Request
) -> bytes:
    """Status line and headers. ``headers`` and ``framing`` are whole lines."""
    if status == 200 and request.id and content_type and not close and request.head.version == "1.1":
        return b"HTTP/1.1 200 OK\r\nx-request-id: %b\r\ncontent-type: %b\r\n%b%b\r\n" % (
            request.id, content_type, headers, framing,
        )  # fmt: skip
    line = _LINES.get(status) or b"HTTP/1.1 %d Status\r\n" % status
    if request.id:
        line += b"x-request-id: %b\r\n" % request.id
    if content_type:
        line += b"content-type: %b\r\n" % content_type
    if close:
        headers += b"connection: close\r\n"
    elif request.head.version == "1.0":
        headers += b"connection: keep-alive\r\n"
    return b"%b%b%b\r\n" % (line, headers, framing)


def refusal_headers(refused: Refused) -> bytes:
    """Headers that go with an error of ours."""
    headers = b"x-roadworthy-decision: " + refused.code.encode("ascii") + b"\r\n"
    if refused.status == 401:
        headers += b"www-authenticate: Bearer\r\n"
    if refused.retry_after_s is not None:
        headers += b"retry-after: %d\r\n" % max(1, -int(-refused.retry_after_s // 1))
    if isinstance(refused, MethodNotAllowed):
        headers += b"allow: " + refused.allowed.encode("ascii") + b"\r\n"
    return headers
