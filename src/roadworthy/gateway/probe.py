"""One small GET to an engine, for health, metrics and model lists; apart from the relay's own connections."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import httptools

from roadworthy.core.units import MIB

MOST_BYTES = 16 * MIB
"""vLLM's ``/metrics`` is some 100 KiB; far beyond that something else answers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """``status`` and ``body`` of an answer."""

    status: int
    body: bytes


class _Reader:
    """What httptools calls while it reads an answer."""

    def __init__(self) -> None:
        self.status = 0
        self.body: list[bytes] = []
        self.complete = False
        self.parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()

    def on_body(self, part: bytes) -> None:
        self.body.append(part)

    def on_message_complete(self) -> None:
        self.complete = True


async def get(host: str, port: int, authority: str, path: str, *, timeout_s: float) -> Answer:
    """The answer to ``GET path``.

    Raises:
        OSError: not reachable, or what answers does not speak HTTP.
        TimeoutError: no whole answer within ``timeout_s`` (a subclass of OSError too).
    """
    reader = _Reader()
    writer: asyncio.StreamWriter | None = None
    received_bytes = 0
    try:
        async with asyncio.timeout(timeout_s):
            stream, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {authority}\r\nConnection: close\r\n\r\n".encode("ascii"))
            while not reader.complete:
                data = await stream.read(64 * 1024)
                received_bytes += len(data)
                if not data or received_bytes > MOST_BYTES:
                    break
                reader.parser.feed_data(data)
    except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
        raise OSError(f"what answers does not speak HTTP: {error}") from error
    finally:
        if writer is not None:
            writer.transport.abort()
    if not reader.status:
        raise OSError("the connection was closed without an answer")
    return Answer(status=reader.status, body=b"".join(reader.body))
