"""Valid requests of the fuzzer and the parts they are made of; markers that tell whose an answer is."""

from __future__ import annotations

import json
import re
import zlib
from dataclasses import dataclass, field
from random import Random

KEY = "sk-fuzz-4f9a1c"
MODEL = "m"
PATHS = ("/v1/chat/completions", "/v1/completions")


_MARKER = re.compile(rb"(mark-[0-9a-f]+-[0-9])-([0-9a-f]{8})")


def marker_of(seed: int, place: int) -> str:
    """The name of one request, with a checksum: tampering cannot make it another request's."""
    name = f"mark-{seed:x}-{place}"
    return f"{name}-{zlib.crc32(name.encode()):08x}"


def find_marker(data: bytes) -> str | None:
    """The first whole marker in ``data``."""
    for found in _MARKER.finditer(data):
        if int(found[2], 16) == zlib.crc32(found[1]):
            return found[0].decode()
    return None


@dataclass(slots=True, kw_only=True)
class Parts:
    """A request before it is joined; anomalies change it in place."""

    line: bytes
    headers: list[bytes]
    body: bytes
    eol: bytes = b"\r\n"
    before: bytes = b""
    blank: bytes = b"\r\n"
    framed: bytes | None = None  # the body as sent, if not as it is
    refuse: bool = False
    length: bool = True
    extra: list[bytes] = field(default_factory=list)

    def joined(self) -> bytes:
        headers = [*self.headers, *self.extra]
        if self.length:
            headers.append(b"Content-Length: %d" % len(self.body))
        sent = self.body if self.framed is None else self.framed
        return self.before + self.line + self.eol + b"".join(one + self.eol for one in headers) + self.blank + sent


def completion(marker: str, rng: Random, **fields: object) -> bytes:
    body: dict[str, object] = {"model": MODEL, "messages": [{"role": "user", "content": marker}], **fields}
    if rng.random() < 0.3:
        body["stream"] = True
    if rng.random() < 0.3:
        body["max_tokens"] = rng.randrange(1, 100)
    return json.dumps(body).encode()


def parts(marker: str, rng: Random) -> Parts:
    return Parts(
        line=b"POST /v1/chat/completions HTTP/1.1",
        headers=[b"Host: g", b"Authorization: Bearer " + KEY.encode(), b"Content-Type: application/json"],
        body=completion(marker, rng),
    )


def valid(marker: str, rng: Random) -> bytes:
    """A request that every server must take, framed by length or in chunks."""
    one = parts(marker, rng)
    if rng.random() < 0.25:
        one.length = False
        one.extra.append(b"Transfer-Encoding: chunked")
        one.framed = in_chunks(one.body, rng)
    return one.joined()


def in_chunks(body: bytes, rng: Random) -> bytes:
    out, at = b"", 0
    while at < len(body):
        size = rng.randrange(1, 80)
        piece = body[at : at + size]
        out += b"%x\r\n%b\r\n" % (len(piece), piece)
        at += size
    return out + b"0\r\n\r\n"
