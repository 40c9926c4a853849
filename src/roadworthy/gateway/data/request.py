"""One request as it comes in: the few headers we read, and what is wrong with its framing."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING

from roadworthy.gateway.data.errors import BadRequest

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.limits import Limits
    from roadworthy.spec.values import Tenant

_READ = frozenset(
    {
        b"host", b"authorization", b"content-length", b"transfer-encoding", b"content-encoding", b"expect",
        b"traceparent", b"x-session-id",
    }
)  # fmt: skip
_TRACEPARENT = re.compile(rb"[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}")
_LONGEST_SESSION_ID_BYTES = 256


class Request:
    """Grows while the parser reads; complete once its body is. Headers that are not read are only counted."""

    __slots__ = (
        "_headers", "_repeated", "_url", "body", "body_bytes", "head_bytes", "header_count", "id", "keep_alive",
        "method", "path", "refused", "tenant", "version",
    )  # fmt: skip

    def __init__(self) -> None:
        self._url = b""
        self._headers: dict[bytes, bytes] = {}
        self._repeated: set[bytes] = set()
        self.header_count = 0
        self.head_bytes = 0
        self.id = ""  # given when the head is complete
        self.method = ""
        self.path = ""
        self.version = ""
        self.keep_alive = False
        self.body: list[bytes] = []
        self.body_bytes = 0
        self.refused: Refused | None = None
        self.tenant: Tenant | None = None

    def add_url(self, part: bytes) -> None:
        self._url += part
        self.head_bytes += len(part)

    def add_header(self, name: bytes, value: bytes) -> None:
        self.header_count += 1
        self.head_bytes += len(name) + len(value) + 4
        field = name.lower()
        if field in _READ:
            if field in self._headers:
                self._repeated.add(field)
            self._headers[field] = value

    def head_complete(self, *, method: bytes, version: str, keep_alive: bool) -> None:
        self.id = os.urandom(16).hex()  # random: a counter would tell each tenant how busy the others are
        self.method = method.decode("ascii")
        self.version = version
        self.keep_alive = keep_alive
        self.path = self._url.partition(b"?")[0].decode("ascii", "replace")

    @property
    def key(self) -> bytes | None:
        """The bearer token; None when there is none."""
        scheme, _, token = self._headers.get(b"authorization", b"").partition(b" ")
        return token.strip() if scheme.lower() == b"bearer" else None

    @property
    def content_length(self) -> int:
        """As announced; 0 when it is not."""
        return int(self._headers.get(b"content-length", b"0"))

    @property
    def expects_continue(self) -> bool:
        return self.version == "1.1" and self._headers.get(b"expect", b"").lower() == b"100-continue"

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context, if it is well-formed."""
        value = self._headers.get(b"traceparent", b"")
        return value.decode("ascii") if _TRACEPARENT.fullmatch(value) else None

    @property
    def session_id(self) -> str | None:
        value = self._headers.get(b"x-session-id", b"")
        return value.decode("latin-1") if 0 < len(value) <= _LONGEST_SESSION_ID_BYTES else None

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
        if b"authorization" in self._repeated:
            return BadRequest("a request may carry one Authorization header", code="malformed_request")
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
        if self.content_length > limits.body_bytes:
            return body_too_large(limits)
        return None


def head_too_large(limits: Limits) -> Refused:
    return BadRequest(
        f"request line and headers may take {limits.head_bytes} bytes and {limits.headers} headers",
        code="head_too_large",
        status=431,
    )


def body_too_large(limits: Limits) -> Refused:
    return BadRequest(
        f"a body may take {limits.body_bytes} bytes", code="body_too_large", status=413, hint="send a shorter prompt"
    )
