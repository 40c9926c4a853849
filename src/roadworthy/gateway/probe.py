"""Small GETs to an engine, for health, metrics and model lists; apart from the relay's own connections."""

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
        self.complete = self.keep_alive = False
        self.parser = httptools.HttpResponseParser(self)

    def on_headers_complete(self) -> None:
        self.status = self.parser.get_status_code()
        self.keep_alive = self.parser.should_keep_alive()

    def on_body(self, part: bytes) -> None:
        self.body.append(part)

    def on_message_complete(self) -> None:
        self.complete = True


class Connection:
    """One connection for question after question, opened when it is needed; ``close`` it afterwards.

    It is kept because a busy engine accepts new ones late: vLLM's API process, while it streams, answers on open
    connections within tens of milliseconds and may leave a new one waiting for many seconds.

    Every question raises:
        OSError: not reachable, or what answers does not speak HTTP.
        TimeoutError: no whole answer in time (a subclass of OSError too).
    """

    def __init__(self, host: str, port: int, authority: str) -> None:
        self._host, self._port, self._authority = host, port, authority
        self._stream: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def get(self, path: str, *, timeout_s: float) -> Answer:
        """The answer to ``GET path``, over the connection that is open, else over a new one."""
        kept = self._writer is not None
        async with asyncio.timeout(timeout_s):
            try:
                return await self._ask(path)
            except OSError:
                if not kept:
                    raise
            return await self._ask(path)  # closed since the last question, or the engine is another process

    async def _ask(self, path: str) -> Answer:
        reader, received_bytes = _Reader(), 0
        try:
            stream, writer = await self._open()
            writer.write(f"GET {path} HTTP/1.1\r\nHost: {self._authority}\r\n\r\n".encode("ascii"))
            while not reader.complete:
                data = await stream.read(64 * 1024)
                received_bytes += len(data)
                if not data or received_bytes > MOST_BYTES:
                    break
                reader.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close()
            raise OSError(f"what answers does not speak HTTP: {error}") from error
        except BaseException:
            self.close()
            raise
        if not reader.complete or not reader.keep_alive:
            self.close()
        if not reader.status:
            raise OSError("the connection was closed without an answer")
        return Answer(status=reader.status, body=b"".join(reader.body))

    async def _open(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._stream is None or self._writer is None or self._writer.transport.is_closing():
            self.close()
            self._stream, self._writer = await asyncio.open_connection(self._host, self._port)
        return self._stream, self._writer

    def close(self) -> None:
        writer, self._writer, self._stream = self._writer, None, None
        if writer is not None:
            writer.transport.abort()


async def get(host: str, port: int, authority: str, path: str, *, timeout_s: float) -> Answer:
    """The answer to one ``GET path``; raises what ``Connection.get`` does."""
    connection = Connection(host, port, authority)
    try:
        return await connection.get(path, timeout_s=timeout_s)
    finally:
        connection.close()
