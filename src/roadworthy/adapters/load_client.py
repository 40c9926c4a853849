"""The load generator's HTTP/1.1 client: many streams at once, little work for each event.

Each connection is one asyncio protocol over an httptools parser. Events are stamped in the read callback, and the
waiting coroutine wakes once, when its answer is complete. Connections are kept and reused; a kept one that the server
closed meanwhile is replaced without counting as a failure, as long as nothing of the answer had arrived.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import ssl
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import httptools

from roadworthy.adapters.load_stream import AnswerReader
from roadworthy.core.errors import SpecError
from roadworthy.core.records import CLIENT_ERROR

if TYPE_CHECKING:
    from types import TracebackType

    from roadworthy.bench.client import GenerateRequest, Outcome

CONNECT_TIMEOUT_S = 10.0
CANNOT_CONNECT = "cannot connect"
"""How the error of a request begins that reached nobody."""

_OUR_OWN_LIMITS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS})
"""Errors of connecting that the load generator's host ran into, not the target's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a server answers: scheme, host and port; ``prefix`` is the path before ``/v1``, usually empty."""

    host: str
    port: int
    tls: bool = False
    prefix: str = ""

    @classmethod
    def of_url(cls, url: str) -> Origin:
        """From ``http://host:port``, with or without ``/v1``. Raises SpecError for anything else."""
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise SpecError(f"{url!r} is no URL: {error}", hint="write http://host:port") from None
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise SpecError(f"{url!r} is no http or https URL", hint="write http://host:port")
        tls = parts.scheme == "https"
        prefix = parts.path.rstrip("/").removesuffix("/v1")
        return cls(host=parts.hostname, port=port or (443 if tls else 80), tls=tls, prefix=prefix)

    @property
    def netloc(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.netloc}{self.prefix}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlainAnswer:
    """A whole answer to a plain request; ``error`` is set, and ``status`` 0, when there was none."""

    status: int
    body: bytes
    server: str = ""
    error: str = ""


class LoadClient:
    """An :class:`~roadworthy.bench.client.EngineClient` over HTTP.

    Args:
        timeout_s: seconds from send to the end of an answer, after which it counts as failed.
        temperature: of sampling; 0 takes the likeliest token.
        now_s: the clock that stamps events; the driver's.
    """

    def __init__(
        self,
        origin: Origin,
        *,
        model: str,
        timeout_s: float = 600.0,
        temperature: float = 0.0,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._origin = origin
        self._model = model
        self._timeout_s = timeout_s
        self._temperature = temperature
        self._now_s = now_s
        self._tls = ssl.create_default_context() if origin.tls else None
        self._idle: list[_Connection] = []
        self._open: set[_Connection] = set()
        self._closed = False

    async def __aenter__(self) -> LoadClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed = True
        for connection in tuple(self._open):
            connection.close()

    async def generate(self, request: GenerateRequest) -> Outcome:
        """Stream one chat completion to its end, or to its failure."""
        reader = AnswerReader(keep_text=request.keep_text)
        cut = await self._exchange(reader, self._head_and_body(request))
        return reader.outcome(self._now_s(), cut=cut)

    async def get(self, path: str, *, key: str | None = None) -> PlainAnswer:
        """One plain GET, for the questions before a run."""
        reader = _PlainReader()
        cut = await self._exchange(reader, self._head("GET", path, key=key))
        if cut:
            return PlainAnswer(status=0, body=b"", error=cut)
        return PlainAnswer(status=reader.status, body=bytes(reader.body), server=reader.server)

    async def _exchange(self, reader: AnswerReader | _PlainReader, message: bytes) -> str:
        """Send ``message`` and let ``reader`` have the answer. Returns why it was cut short, empty when it was not."""
        try:
            async with asyncio.timeout(self._timeout_s):
                while True:
                    connection, kept = await self._connection()
                    try:
                        cut = await connection.exchange(message, reader)
                    except BaseException:
                        connection.close()
                        raise
                    if not (cut and kept and connection.silent):
                        return cut
        except TimeoutError:
            return f"no end of the answer within {self._timeout_s:g} s"
        except OSError as error:
            ours = CLIENT_ERROR if error.errno in _OUR_OWN_LIMITS else ""
            return f"{ours}{CANNOT_CONNECT}: {_reason(error)}"

    async def _connection(self) -> tuple[_Connection, bool]:
        while self._idle:
            connection = self._idle.pop()
            if connection.usable:
                return connection, True
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(CONNECT_TIMEOUT_S):
                _, fresh = await loop.create_connection(
                    lambda: _Connection(
                        now_s=self._now_s, on_made=self._made, on_idle=self._idle.append, on_lost=self._open.discard
                    ),
                    self._origin.host,
                    self._origin.port,
                    ssl=self._tls,
                )
        except TimeoutError:
            raise OSError(f"no connection within {CONNECT_TIMEOUT_S:g} s") from None
        return fresh, False

    def _made(self, connection: _Connection) -> None:
        """Know of a connection from its first moment: whoever asked for it may have been cancelled meanwhile."""
        self._open.add(connection)
        if self._closed:
            connection.close()

    def _head_and_body(self, request: GenerateRequest) -> bytes:
        body: dict[str, object] = {
            "model": self._model,
            "messages": [{"role": role, "content": text} for role, text in request.messages],
            "max_tokens": request.output_tokens,
            "temperature": self._temperature,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        if request.to_its_end:
            body["ignore_eos"] = True
        if request.priority is not None:
            body["priority"] = request.priority
        payload = json.dumps(body).encode()
        path = "/v1/chat/completions"
        return self._head("POST", path, key=request.key, session=request.session, length=len(payload)) + payload

    def _head(self, method: str, path: str, *, key: str | None, session: str = "", length: int | None = None) -> bytes:
        lines = [
            f"{method} {self._origin.prefix}{path} HTTP/1.1",
            f"Host: {self._origin.netloc}",
            "User-Agent: roadworthy-bench",
        ]
        if length is not None:
            lines += ["Content-Type: application/json", f"Content-Length: {length}"]
        if key:
            lines.append(f"Authorization: Bearer {key}")
        if session:
            lines.append(f"x-session-id: {session}")
        return ("\r\n".join(lines) + "\r\n\r\n").encode()


def _reason(error: OSError) -> str:
    """The system's own words; asyncio replaces them, and says which of several addresses failed how."""
    if error.errno and error.errno > 0:
        return os.strerror(error.errno).lower()
    return error.strerror or str(error) or type(error).__name__


class _PlainReader:
    """Keeps a whole body, up to what a list of models can need."""

    def __init__(self) -> None:
        self.status = 0
        self.server = ""
        self.body = bytearray()

    def head(self, status: int, *, content_type: str, server: str) -> None:  # noqa: ARG002 - the readers' common shape
        self.status, self.server = status, server

    def feed(self, data: bytes, now_s: float) -> None:  # noqa: ARG002 - the readers' common shape
        if len(self.body) < 2**20:
            self.body += data


class _Connection(asyncio.Protocol):
    """One connection, one exchange at a time. httptools calls the ``on_`` methods while it is fed."""

    def __init__(
        self,
        *,
        now_s: Callable[[], float],
        on_made: Callable[[_Connection], None],
        on_idle: Callable[[_Connection], None],
        on_lost: Callable[[_Connection], None],
    ) -> None:
        self._now_s = now_s
        self._on_made = on_made
        self._on_idle = on_idle
        self._on_lost = on_lost
        self._transport: asyncio.Transport | None = None
        self._parser: httptools.HttpResponseParser | None = None
        self._reader: AnswerReader | _PlainReader | None = None
        self._ended: asyncio.Future[str] | None = None
        self._headers: dict[bytes, bytes] = {}
        self._read_s = 0.0
        self.silent = True

    @property
    def usable(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def exchange(self, message: bytes, reader: AnswerReader | _PlainReader) -> str:
        """Send ``message``; returns why the answer was cut short, empty when it came whole."""
        if self._transport is None or self._transport.is_closing():
            return "the server closed the connection"
        self._reader = reader
        self._parser = httptools.HttpResponseParser(self)
        self._headers = {}
        self.silent = True
        self._ended = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._ended

    # -- asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's transport reads and writes
        self._on_made(self)

    def data_received(self, data: bytes) -> None:
        self._read_s = self._now_s()
        self.silent = False
        if self._parser is None:
            self.close()  # bytes that nobody asked for
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._end(f"not HTTP: {error}")
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self._on_lost(self)
        self._end("the server closed the connection" if exc is None else f"connection lost: {exc}")

    # -- httptools

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers[name.lower()] = value

    def on_headers_complete(self) -> None:
        if self._parser is not None and self._reader is not None:
            self._reader.head(
                self._parser.get_status_code(),
                content_type=self._headers.get(b"content-type", b"").decode("latin-1").lower(),
                server=self._headers.get(b"server", b"").decode("latin-1").lower(),
            )

    def on_body(self, body: bytes) -> None:
        if self._reader is not None:
            self._reader.feed(body, self._read_s)

    def on_message_complete(self) -> None:
        parser = self._parser
        if parser is None or parser.get_status_code() < 200:
            return  # an interim 1xx answer: the real one follows
        keep = parser.should_keep_alive()
        self._parser = None
        self._end("")
        if keep:
            self._on_idle(self)
        else:
            self.close()

    def _end(self, cut: str) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(cut)
