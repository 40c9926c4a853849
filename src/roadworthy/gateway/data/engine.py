"""HTTP/1.1 towards one engine: one request at a time on a connection that is used again.

Two ways through. The parser reads everything, and the exchange hears of it. Only inside a stream that is being relayed,
a read that consists of whole chunks, each of whole events, goes to the client as it is: one look at both ends of the
bytes, one write. The parser is skipped for such a read and notices nothing, since it stands between two chunks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import TYPE_CHECKING, cast

import httptools

from roadworthy.gateway.data.stream import NO_STREAM

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.gateway.data.exchange import Exchange
    from roadworthy.gateway.data.stream import EventGate
    from roadworthy.gateway.endpoints import Endpoint

NOBODYS_PARSER = httptools.HttpResponseParser(object())
"""Takes the place of an ended connection's own, which refers back to it: a cycle that only a collection would free."""

LARGE_BYTES = 16 * 1024
"""Bodies above it are sent beside their head instead of copied behind it."""

_EVENT_END = b"\n\n\r\n"
_LAST_CHUNK = b"0\r\n\r\n"
_SIZE_LINE = re.compile(rb"([0-9a-f]{1,7})\r\n")
_ERRORS = (b'data: {"error"', b"event: error")
"""How an engine reports an error in a stream (chat and completions; responses and messages)."""


def _chunk_start(read_bytes: int) -> tuple[bytes, int]:
    """What a read of that length starts with if it is exactly one chunk, in the framing that vLLM's server writes; and
    where its content begins. A read that can be no chunk gets a start that no chunk has."""
    for digits in range(1, 5):
        content_bytes = read_bytes - digits - 4
        if content_bytes > 0 and len(f"{content_bytes:x}") == digits:
            return b"%x\r\n" % content_bytes, digits + 2
    return b"?", 0


_STARTS = tuple(_chunk_start(length) for length in range(4096))
_LONGEST = len(_STARTS)


def whole_chunks(data: bytes) -> int:
    """The content's length if ``data`` is a run of whole chunks, each of whole events, the last chunk (of length 0)
    included or not; negative if it is anything else, or if the parser should look at it."""
    at, size, content_bytes = 0, len(data), 0
    while at < size:
        line = _SIZE_LINE.match(data, at)
        if line is None:
            return -1
        length, start = int(line[1], 16), line.end()
        if not length:
            return content_bytes if data[start:] == b"\r\n" else -1
        at = start + length + 2
        if data[at - 4 : at] != _EVENT_END:
            return -1
        content_bytes += length
    return content_bytes


class EngineConnection(asyncio.Protocol):
    """Parses answers and hands them to the exchange that holds the connection.

    Parser callbacks only take notes; the exchange hears of them when the parser has returned. So an exchange may end,
    retry, or send its client's next request over this very connection from inside its callbacks.
    """

    __slots__ = (
        "_between_chunks", "_chunked", "_complete", "_content_type", "_framed", "_gate", "_head_seen", "_keep_alive",
        "_now_s", "_parser", "_parts", "_status", "_transport", "_write", "_write_run", "answers", "bytes_seen",
        "endpoint", "exchange", "last_byte_s", "sent_s",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, now_s: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self.exchange: Exchange | None = None
        self.answers = 0  # complete answers so far: above zero the connection may be stale
        self.last_byte_s = self.sent_s = now_s()
        self._now_s = now_s
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._gate = NO_STREAM
        self._reset()

    def _reset(self) -> None:
        self._parts: list[bytes] = []
        self._status = 0
        self._content_type = b""
        self._framed = self._head_seen = self._complete = self._keep_alive = self.bytes_seen = False
        self._chunked = self._between_chunks = False
        self._write: Callable[[bytes], None] | None = None
        self._write_run: Callable[[bytes], None] = _nowhere

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # what the exchange calls

    def send(self, exchange: Exchange, head: bytes, body: bytes | memoryview) -> None:
        """Send one request; ``exchange`` gets the answer."""
        assert self._transport is not None
        self._reset()
        self.exchange = exchange
        self.last_byte_s = self.sent_s = self._now_s()
        if len(body) > LARGE_BYTES:
            self._transport.writelines((head, body))
        else:
            self._transport.write(head + body)

    def relay_to(self, write: Callable[[bytes], None], gate: EventGate) -> None:
        """From here on, reads of whole chunks may go to ``write`` by way of ``gate``, framing included, without the
        parser. Does nothing unless the answer is chunked and the parser stands between two chunks."""
        if self._between_chunks and not self._complete:
            self._write, self._write_run = gate.writers(write)
            self._gate = gate

    def abort(self) -> None:
        """Close at once, whatever is in progress: the engine then aborts the request."""
        self.exchange = None
        self._write = None
        if self._transport is not None:
            self._transport.abort()

    def pause(self) -> None:
        if not self.closing:
            cast("asyncio.Transport", self._transport).pause_reading()

    def resume(self) -> None:
        if not self.closing:
            self.last_byte_s = self._now_s()
            cast("asyncio.Transport", self._transport).resume_reading()

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        write = self._write
        if write is not None:
            size = len(data)
            if size < _LONGEST:
                start, at = _STARTS[size]
                if data.startswith(start) and data.endswith(_EVENT_END) and not data.startswith(_ERRORS, at):
                    self.last_byte_s = now_s = self._now_s()
                    gate = self._gate
                    gate.marks_s.append(now_s)
                    latest = gate.latest
                    gate.latest = (latest[1], latest[2], data)
                    gate.events += 1
                    gate.passed_bytes += size
                    try:
                        write(data)
                    except RuntimeError:  # uvloop: closed, and the word of it is on its way to us
                        return
                    return
            if self._pass_run(data):
                return
            self._write = None
        self._parse(data)

    def _pass_run(self, data: bytes) -> bool:
        """Pass several whole chunks, or the stream's end, if that is what ``data`` is."""
        content_bytes = whole_chunks(data)
        if content_bytes < 0 or b'"error"' in data:
            return False
        self.last_byte_s = self._now_s()
        if content_bytes:
            self._gate.passed(data, self.last_byte_s)
        with contextlib.suppress(RuntimeError):
            self._write_run(data)
        if data.endswith(_LAST_CHUNK) and (len(data) == len(_LAST_CHUNK) or data[-9:-5] == _EVENT_END):
            exchange = self.exchange
            assert exchange is not None
            self._write = None
            self._parser.feed_data(_LAST_CHUNK)
            exchange.end_passed = True
            self._deliver(exchange)
        return True

    def _parse(self, data: bytes) -> None:
        exchange = self.exchange
        if exchange is None:  # nobody asked
            self.abort()
            return
        self.last_byte_s = self._now_s()
        self.bytes_seen = True
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            if not self._complete:
                self.abort()
                exchange.engine_lost(self)
                return
        if self._between_chunks and not data.endswith(b"\r\n"):
            self._between_chunks = False  # the next size line has begun
        self._deliver(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        self._write = None
        self._parser = NOBODYS_PARSER
        if exchange is None:
            if self in self.endpoint.idle:
                self.endpoint.idle.remove(self)
        elif exc is None and self._status and not self._framed:
            exchange.engine_complete(self)  # an answer without a length ends with its connection
        else:
            exchange.engine_lost(self)

    def _deliver(self, exchange: Exchange) -> None:
        parts, complete = self._parts, self._complete
        if complete:
            self._finish_answer()
            if self._head_seen and len(parts) == 1:  # a whole answer in one read, as most that are no streams come
                exchange.engine_whole(self, self._status, self._content_type, parts[0])
                return
        if parts:
            self._parts = []
        if self._head_seen:
            self._head_seen = False
            exchange.engine_head(self, self._status, self._content_type)
        if parts:
            exchange.engine_data(self, parts[0] if len(parts) == 1 else b"".join(parts))
        if complete:
            exchange.engine_complete(self)

    def _finish_answer(self) -> None:
        self.exchange = None
        self.answers += 1
        if self._keep_alive and not self.endpoint.retired and not self.closing:
            self.endpoint.idle.append(self)
        else:
            self.abort()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._complete:  # more than was asked for: no second answer may come out of this connection
            self._keep_alive = False
            raise _SurplusError

    def on_header(self, name: bytes, value: bytes) -> None:
        length = len(name)  # of each header that matters another one
        if length == 12:
            if name.lower() == b"content-type":
                self._content_type = value
        elif length == 14:
            if name.lower() == b"content-length":
                self._framed = True
        elif length == 17 and name.lower() == b"transfer-encoding":
            self._framed = True
            self._chunked = value.lower() == b"chunked"

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            self._head_seen = True
            self._between_chunks = self._chunked

    def on_chunk_header(self) -> None:
        self._between_chunks = False

    def on_chunk_complete(self) -> None:
        self._between_chunks = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()


def _nowhere(data: bytes) -> None:
    raise AssertionError(f"nobody takes {len(data)} bytes")


class _SurplusError(Exception):
    """Stops the parser behind a complete answer."""
