"""HTTP/1.1 from one client: limits, framing, one request at a time, and word of its leaving.

Reading goes on while a request is in progress, since the end of the connection is how we learn that the client left.
What a pipelining client sends meanwhile is kept, and read when its turn comes.

::

    head --> body --> busy (queued or in progress) --> head ...
      \\________\\_______________\\--> linger: answered with an error, read and thrown away until the client closes
"""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import TYPE_CHECKING, Literal, cast

import httptools

from roadworthy.gateway.data.errors import BadRequest, error_body
from roadworthy.gateway.data.request import Request, body_too_large, head_too_large

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.exchange import Exchange
    from roadworthy.gateway.data.plane import DataPlane

State = Literal["idle", "head", "body", "linger"]

_REASONS = {status.value: status.phrase for status in HTTPStatus}
_CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
_JSON = b"application/json"


class ClientConnection(asyncio.Protocol):
    """One connection of the data port."""

    __slots__ = (
        "_chunked", "_close_after", "_exchange", "_parse_error", "_parser", "_paused", "_plane", "_pumping", "_queue",
        "_raw_head_bytes", "_request", "_since_s", "_state", "_tail", "_transport",
    )  # fmt: skip

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._transport: asyncio.Transport | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._state: State = "idle"
        self._since_s = plane.now_s()  # of the state, or the last byte of a body
        self._request = Request()
        self._queue: deque[Request] = deque()
        self._parse_error: Refused | None = None  # answered after what was queued before it
        self._tail = b""  # read ahead while busy
        self._raw_head_bytes = 0
        self._exchange: Exchange | None = None
        self._pumping = False
        self._paused = False
        self._chunked = True
        self._close_after = False

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        high = self._plane.limits.write_buffer_bytes
        self._transport.set_write_buffer_limits(high=high, low=high // 4)
        self._plane.clients.add(self)

    def data_received(self, data: bytes) -> None:
        if self._state == "linger":
            return
        if self._exchange is not None or self._queue:
            self._tail += data
            if len(self._tail) > self._plane.limits.pipelined_bytes:
                self._out.pause_reading()
            return
        self._feed(data)
        self._pump()

    def eof_received(self) -> None:
        # a client that has only finished sending looks the same as one that died; like nginx, take it as gone
        self._gone()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._plane.client_closed(self)
        self._gone()

    def pause_writing(self) -> None:
        self._paused = True
        if self._exchange is not None:
            self._exchange.client_paused()

    def resume_writing(self) -> None:
        self._paused = False
        if self._exchange is not None:
            self._exchange.client_resumed()
        else:
            self._pump()

    def _gone(self) -> None:
        exchange, self._exchange = self._exchange, None
        self._queue.clear()
        self._tail = b""
        self._state = "linger"
        if exchange is not None:
            exchange.client_left()

    # what the parser calls

    def on_message_begin(self) -> None:
        self._request = Request()
        self._state = "head"
        self._since_s = self._plane.now_s()

    def on_url(self, part: bytes) -> None:
        self._request.add_url(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.add_header(name, value)

    def on_headers_complete(self) -> None:
        request, parser = self._request, self._parser
        request.head_complete(
            method=parser.get_method(), version=parser.get_http_version(), keep_alive=parser.should_keep_alive()
        )
        self._state = "body"
        self._raw_head_bytes = 0
        problem = request.framing_problem(self._plane.limits)
        if problem is None and parser.should_upgrade():
            problem = BadRequest("upgrades are not offered", code="upgrade_not_offered", hint="speak plain HTTP/1.1")
        if problem is not None:
            self._stop_reading(problem)
            return
        request.refused = self._plane.screen(request)
        if request.expects_continue:
            if request.refused is not None:
                self._stop_reading(request.refused)
            elif not self._queue:
                self._write(_CONTINUE)

    def on_body(self, part: bytes) -> None:
        request = self._request
        request.body_bytes += len(part)
        self._since_s = self._plane.now_s()
        if request.body_bytes > self._plane.limits.body_bytes:
            request.body.clear()
            self._stop_reading(body_too_large(self._plane.limits))
        elif request.refused is None:
            request.body.append(part)

    def on_message_complete(self) -> None:
        if self._parse_error is not None:
            return
        self._state = "idle"
        self._since_s = self._plane.now_s()
        self._queue.append(self._request)
        if len(self._queue) > self._plane.limits.pipelined_requests:
            self._stop_reading(BadRequest("too many requests sent ahead", code="malformed_request"))

    def _feed(self, data: bytes) -> None:
        if self._state in ("idle", "head"):
            self._raw_head_bytes = len(data) + (self._raw_head_bytes if self._state == "head" else 0)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._parse_error is None and not self._queue_closes():
                self._parse_error = _malformed(error)
        else:
            if self._state == "head" and self._raw_head_bytes > self._plane.limits.head_bytes:
                self._parse_error = head_too_large(self._plane.limits)

    def _queue_closes(self) -> bool:
        """Whether the last whole request asked to close: what follows it is nobody's."""
        return bool(self._queue) and not self._queue[-1].keep_alive

    def _stop_reading(self, refused: Refused) -> None:
        """Called inside the parser, which then takes no more: answer with ``refused`` and close."""
        if self._parse_error is None:
            self._parse_error = refused
        raise _StopReading

    # one request after another

    def _pump(self) -> None:
        """Start requests in order until one is in progress or nothing is left."""
        if self._pumping:
            return  # called from inside the loop below: it goes on by itself
        self._pumping = True
        try:
            while self._exchange is None and self._state != "linger" and not self._paused:
                if self._queue:
                    request = self._queue.popleft()
                    if request.refused is not None:
                        self._plane.turned_away(request.refused, request)
                        self.refuse(request.refused, request)
                    else:
                        self._exchange = self._plane.begin(self, request)
                        if self._exchange is not None:
                            self._exchange.dispatch()
                elif self._parse_error is not None:
                    refused = self._parse_error
                    self._plane.turned_away(refused, self._request)
                    self._close_after = True
                    self._answer(refused.status, error_body(refused), self._request, headers=_extra(refused))
                elif self._tail:
                    data, self._tail = self._tail, b""
                    if not self._out.is_closing():
                        self._out.resume_reading()
                    self._feed(data)
                else:
                    break
        finally:
            self._pumping = False

    def exchange_over(self, exchange: Exchange) -> None:
        """The exchange has answered, in whatever way."""
        if self._exchange is exchange:
            self._exchange = None
            self._since_s = self._plane.now_s()
            self._pump()

    # answers

    def refuse(self, refused: Refused, request: Request) -> None:
        """Our own error as a response."""
        self.respond(refused.status, error_body(refused), request, headers=_extra(refused))

    def respond(
        self, status: int, body: bytes, request: Request, *, content_type: bytes = _JSON, headers: bytes = b""
    ) -> None:
        """A whole response; afterwards the connection is kept if the client and we both want that."""
        self._close_after = not request.keep_alive or self._plane.draining
        self._answer(status, body, request, content_type=content_type, headers=headers)

    def _answer(
        self, status: int, body: bytes, request: Request, *, content_type: bytes = _JSON, headers: bytes = b""
    ) -> None:
        headers += b"content-length: %d\r\n" % len(body)
        head = _head(status, content_type, headers, self._close_after, request)
        self._write(head, b"" if request.method == "HEAD" else body)
        if self._close_after:
            self._linger()

    def begin_stream(self, request: Request, *, content_type: bytes, headers: bytes, exchange: Exchange) -> None:
        """The head of a stream; ``write_events`` and ``end_stream`` follow."""
        self._chunked = request.version == "1.1"
        self._close_after = not request.keep_alive or not self._chunked or self._plane.draining
        framing = b"transfer-encoding: chunked\r\n" if self._chunked else b""
        framing += b"cache-control: no-store\r\n"
        self._write(_head(200, content_type, headers + framing, self._close_after, request))
        if self._paused:
            exchange.client_paused()

    def write_events(self, data: bytes) -> None:
        self._write(b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data)

    def end_stream(self, *, close: bool) -> None:
        if self._chunked:
            self._write(b"0\r\n\r\n")
        if close or self._close_after:
            self._linger()

    # the end

    def _linger(self) -> None:
        """Half-close, and read on for a moment: closing with unread bytes would reset the connection, and the reset
        could overtake our last answer."""
        self._state = "linger"
        self._since_s = self._plane.now_s()
        self._queue.clear()
        self._tail = b""
        if not self._out.is_closing():
            self._out.resume_reading()
            if self._out.can_write_eof():
                self._out.write_eof()

    def abort(self) -> None:
        self._exchange = None
        self._state = "linger"
        self._out.abort()

    def close(self) -> None:
        """Close once what is written has been taken."""
        self._state = "linger"
        self._out.close()

    def close_if_idle(self) -> None:
        """For a gateway that stops: connections between two requests go at once, the others after their answer."""
        if self._state == "idle" and self._exchange is None and not self._queue:
            self._out.close()

    def check(self, now_s: float) -> None:
        """Called by the sweep: what has lasted too long. A request in progress has its own limits."""
        if self._exchange is not None:
            return
        limits, lasted_s = self._plane.limits, now_s - self._since_s
        if self._paused:
            if lasted_s > limits.client_stall_s:
                self._out.abort()
        elif self._state == "linger":
            if lasted_s > limits.linger_s:
                self._out.abort()
        elif self._state == "head" or (self._state == "idle" and self._raw_head_bytes):
            if lasted_s > limits.head_timeout_s:
                self._time_out("the head of the request took too long")
        elif self._state == "body":
            if lasted_s > limits.body_timeout_s:
                self._time_out("the body of the request stopped coming")
        elif lasted_s > limits.keep_alive_s:
            self._out.close()

    def _time_out(self, message: str) -> None:
        self._parse_error = BadRequest(message, code="request_timeout", status=408, hint="send it again")
        self._pump()

    def _write(self, *data: bytes) -> None:
        # between a broken connection and the word of it, uvloop's transports raise when written to
        if not self._out.is_closing():
            self._out.writelines(data)

    @property
    def _out(self) -> asyncio.Transport:
        assert self._transport is not None
        return self._transport


class _StopReading(Exception):
    """Raised in a parser callback; httptools wraps it, see ``_feed``."""


def _malformed(error: Exception) -> Refused:
    return BadRequest(f"not a well-formed HTTP/1.1 request: {error}", code="malformed_request")


def _extra(refused: Refused) -> bytes:
    """Headers that go with an error."""
    headers = b"x-roadworthy-decision: " + refused.code.encode("ascii") + b"\r\n"
    if refused.status == 401:
        headers += b"www-authenticate: Bearer\r\n"
    if refused.retry_after_s is not None:
        headers += b"retry-after: %d\r\n" % max(1, -int(-refused.retry_after_s // 1))
    if isinstance(refused, MethodNotAllowed):
        headers += b"allow: " + refused.allowed.encode("ascii") + b"\r\n"
    return headers


class MethodNotAllowed(BadRequest):
    """405; ``allowed`` is the method that the path takes."""

    def __init__(self, message: str, *, allowed: str) -> None:
        super().__init__(message, code="method_not_allowed", status=405, hint=f"use {allowed}")
        self.allowed = allowed


def _head(status: int, content_type: bytes, headers: bytes, close: bool, request: Request) -> bytes:
    line = f"HTTP/1.1 {status} {_REASONS.get(status, 'Status')}\r\n".encode("ascii")
    connection = b""
    if close:
        connection = b"connection: close\r\n"
    elif request.version == "1.0":
        connection = b"connection: keep-alive\r\n"
    kind = b"content-type: " + content_type + b"\r\n" if content_type else b""
    ours = b"x-request-id: " + request.id.encode("ascii") + b"\r\n" if request.id else b""
    return line + kind + ours + headers + connection + b"\r\n"
