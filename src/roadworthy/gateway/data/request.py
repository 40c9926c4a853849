"""One request as it comes in: the few headers we read, and what is wrong with its framing.

A client's library sends the same head again and again on one connection. ``Head`` is what was made of it; the
connection keeps the last one with its bytes, and a request that starts with the same bytes is not parsed again.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from roadworthy.gateway.data.errors import BadRequest
from roadworthy.gateway.data.routes import DOCUMENTS

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.limits import Limits
    from roadworthy.gateway.data.routes import Dialect, Route
    from roadworthy.gateway.principal import Principal

_READ = frozenset(
    {
        b"host", b"authorization", b"x-api-key", b"content-length", b"transfer-encoding", b"content-encoding",
        b"content-type", b"expect", b"traceparent", b"x-roadworthy-io-wait-ms",
    }
)  # fmt: skip
_TRACEPARENT = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST_SESSION_ID_BYTES = 256


class Head:
    """A request's head. Headers that are not read are only counted; ``session_header`` names the conversation."""

    __slots__ = (
        "_headers", "_repeated", "_session_header", "_url", "content_length", "epoch", "head_bytes", "header_count",
        "keep_alive", "method", "most_bytes", "path", "principal", "query", "refused", "route", "session_id",
        "traceparent", "version",
    )  # fmt: skip

    def __init__(self, session_header: bytes = b"x-session-id") -> None:
        self._session_header = session_header
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: set[bytes] = set()
        self.header_count = 0
        self.head_bytes = 0
        self.method = ""
        self.path = ""
        self.query = ""
        self.version = ""
        self.keep_alive = False
        self.content_length = -1  # as announced; -1 when it is not
        self.session_id: str | None = None
        self.traceparent: bytes | None = None
        # what the plane makes of it
        self.epoch = -1
        self.most_bytes = 0
        self.route: Route | None = None
        self.principal: Principal | None = None
        self.refused: Refused | None = None

    def add_url(self, part: bytes) -> None:
        self._url += part
        self.head_bytes += len(part)

    def add_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        self.head_bytes += len(name) + len(value) + 4
        field = name.lower()
        if field in _READ or field == self._session_header:
            if field in self._headers:
                self._repeated.add(field)
            self._headers[field] = value

    def complete(self, *, method: bytes, version: str, keep_alive: bool) -> None:
        """All headers are there."""
        headers = self._headers
        self.method = method.decode("ascii")
        self.version = version
        self.keep_alive = keep_alive
        path, _, query = self._url.partition(b"?")
        self.path, self.query = path.decode("ascii", "replace"), query.decode("ascii", "replace")
        if b"content-length" in headers:
            self.content_length = int(headers[b"content-length"])
        session = headers.get(self._session_header, b"")
        self.session_id = session.decode("latin-1") if 0 < len(session) <= _LONGEST_SESSION_ID_BYTES else None
        trace = headers.get(b"traceparent", b"")
        self.traceparent = trace if _TRACEPARENT.fullmatch(trace) else None

    @property
    def key(self) -> bytes | None:
        """The bearer token, or what Anthropic's clients send instead; None when there is neither."""
        authorization = self._headers.get(b"authorization")
        if authorization is None:
            return self._headers.get(b"x-api-key")
        scheme, _, token = authorization.partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else None

    @property
    def io_wait_ms(self) -> bytes | None:
        return self._headers.get(b"x-roadworthy-io-wait-ms")

    @property
    def content_type(self) -> bytes:
        return self._headers.get(b"content-type", b"")

    @property
    def chunked(self) -> bool:
        """Whether the body comes in chunks; without a length too, there is none."""
        return b"transfer-encoding" in self._headers

    @property
    def expects_continue(self) -> bool:
        return self.version == "1.1" and self._headers.get(b"expect", b"").lower() == b"100-continue"

    @property
    def dialect(self) -> Dialect:
        """How the client reads errors; by the path alone, so that it holds for refused requests too."""
        return "anthropic" if self.path.startswith("/v1/messages") else "openai"

    @property
    def reusable(self) -> bool:
        """Whether the next request with the same bytes needs no parser: a plain POST with a length."""
        return (
            self.refused is None
            and self.method == "POST"
            and self.version == "1.1"
            and self.keep_alive
            and self.content_length >= 0
            and b"expect" not in self._headers
            and b"transfer-encoding" not in self._headers
        )

    def framing_problem(self, limits: Limits) -> Refused | None:
        """What makes it unsafe to read on, beyond what the parser itself rejects (both lengths, a repeated length,
        bare line feeds, folded headers): the connection is closed after such an answer."""
        if self.version not in ("1.0", "1.1"):
            return BadRequest(f"HTTP/{self.version} is not spoken here", code="http_version", status=505)
        if self.head_bytes > limits.head_bytes or self.header_count > limits.headers:
            return head_too_large(limits)
        if b"host" in self._repeated or (self.version == "1.1" and b"host" not in self._headers):
            return BadRequest(
                "a request needs exactly one Host header (RFC 9112, section 3.2)", code="malformed_request"
            )
        if b"authorization" in self._repeated or b"x-api-key" in self._repeated:
            return BadRequest("a request may carry one key", code="malformed_request")
        encoding = self._headers.get(b"transfer-encoding")
        twice = b"transfer-encoding" in self._repeated  # the parser lets it pass, and reads the last
        if encoding is not None and (encoding.lower() != b"chunked" or self.version == "1.0" or twice):
            return BadRequest(
                "the only transfer encoding taken is chunked, once, in HTTP/1.1", code="malformed_request", status=501
            )
        if self._headers.get(b"content-encoding", b"identity").lower() != b"identity":
            return BadRequest("compressed bodies are not taken", code="content_encoding", status=415)
        if self._headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            return BadRequest("the only expectation met is 100-continue", code="expectation", status=417)
        if self.content_length > limits.body_bytes and not self.path.startswith(DOCUMENTS.path):
            return body_too_large(limits.body_bytes)
        return None


class Request:
    """A head with its body, complete or still growing."""

    __slots__ = ("body", "body_bytes", "head", "id", "trace")

    def __init__(self, head: Head) -> None:
        self.head = head
        self.id = b""  # given when it may run
        self.trace: bytes | None = None  # what the engine gets as traceparent
        self.body: list[bytes] = []
        self.body_bytes = 0


_ID_TICKS_PER_S = 16
"""Eight digits of it come again after eight years."""


class RequestIds:
    """Ids of 32 hexadecimal digits: 8 of the time, 24 that are random. A counter would tell each tenant how busy the
    others are; ids without any order would have the ledger's index write a page for nearly every row, which at a
    hundred thousand rows takes three times as long. Random bytes are fetched for many at a time, since each fetch is a
    system call.

    Args:
        offset_s: from the clock of ``next`` to the seconds of the epoch.
    """

    __slots__ = ("_at", "_offset_s", "_text", "_tick", "_time")

    def __init__(self, offset_s: float) -> None:
        self._offset_s = offset_s
        self._text = self._time = b""
        self._at = 0
        self._tick = -1

    def next(self, now_s: float) -> bytes:
        tick = int((now_s + self._offset_s) * _ID_TICKS_PER_S)
        if tick != self._tick:
            self._tick, self._time = tick, b"%08x" % (tick & 0xFFFFFFFF)
        at = self._at
        if at >= len(self._text):
            self._text = os.urandom(12 * 256).hex().encode("ascii")
            at = 0
        self._at = at + 24
        return self._time + self._text[at : at + 24]


def head_too_large(limits: Limits) -> Refused:
    return BadRequest(
        f"request line and headers may take {limits.head_bytes} bytes and {limits.headers} headers",
        code="head_too_large",
        status=431,
    )


def body_too_large(most_bytes: int) -> Refused:
    return BadRequest(
        f"a body may take {most_bytes} bytes", code="body_too_large", status=413, hint="send a shorter prompt"
    )
