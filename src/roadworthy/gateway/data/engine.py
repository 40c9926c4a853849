"""HTTP/1.1 towards one engine: one request at a time on a connection that is used again."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

import httptools

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.gateway.data.exchange import Exchange
    from roadworthy.gateway.endpoints import Endpoint


class EngineConnection(asyncio.Protocol):
    """Parses answers and hands them to the exchange that holds the connection.

    Parser callbacks only take notes; the exchange hears of them when the parser has returned. So an exchange may end,
    retry, or send its client's next request over this very connection from inside its callbacks.
    """

    __slots__ = (
        "_complete", "_content_type", "_framed", "_head_seen", "_keep_alive", "_now_s", "_parser", "_parts", "_status",
        "_transport", "answers", "bytes_seen", "endpoint", "exchange", "last_byte_s",
    )  # fmt: skip

    def __init__(self, endpoint: Endpoint, now_s: Callable[[], float]) -> None:
        self.endpoint = endpoint
        self.exchange: Exchange | None = None
        self.answers = 0  # complete answers so far: above zero the connection may be stale
        self.bytes_seen = False  # of the answer in progress
        self.last_byte_s = now_s()
        self._now_s = now_s
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._reset()

    def _reset(self) -> None:
        self._parts: list[bytes] = []
        self._status = 0
        self._content_type = b""
        self._framed = self._head_seen = self._complete = self._keep_alive = self.bytes_seen = False

    @property
    def closing(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    # what the exchange calls

    def send(self, exchange: Exchange, head: bytes, body: bytes) -> None:
        """Send one request; ``exchange`` gets the answer."""
        assert self._transport is not None
        self._reset()
        self.exchange = exchange
        self.last_byte_s = self._now_s()
        self._transport.writelines((head, body))

    def abort(self) -> None:
        """Close at once, whatever is in progress: the engine then aborts the request."""
        self.exchange = None
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
        self._deliver(exchange)

    def connection_lost(self, exc: Exception | None) -> None:
        exchange, self.exchange = self.exchange, None
        if exchange is None:
            if self in self.endpoint.idle:
                self.endpoint.idle.remove(self)
        elif exc is None and self._status and not self._framed:
            exchange.engine_complete(self)  # an answer without a length ends with its connection
        else:
            exchange.engine_lost(self)

    def _deliver(self, exchange: Exchange) -> None:
        parts, self._parts, complete = self._parts, [], self._complete
        status, content_type = (self._status, self._content_type) if self._head_seen else (0, b"")
        self._head_seen = False
        if complete:
            self._finish_answer()
        if status:
            exchange.engine_head(self, status, content_type)
        if parts:
            exchange.engine_data(self, parts[0] if len(parts) == 1 else b"".join(parts))
        if complete:
            exchange.engine_complete(self)

    def _finish_answer(self) -> None:
        self.exchange = None
        self.answers += 1
        if self._keep_alive and not self.closing:
            self.endpoint.idle.append(self)
        else:
            self.abort()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._complete:  # more than was asked for: no second answer may come out of this connection
            self._keep_alive = False
            raise _SurplusError

    def on_header(self, name: bytes, value: bytes) -> None:
        field = name.lower()
        if field == b"content-type":
            self._content_type = value
        elif field in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._status = status
            self._head_seen = True

    def on_body(self, body: bytes) -> None:
        self._parts.append(body)

    def on_message_complete(self) -> None:
        if self._status:
            self._complete = True
            self._keep_alive = self._parser.should_keep_alive()


class _SurplusError(Exception):
    """Stops the parser behind a complete answer."""
