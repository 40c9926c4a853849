"""HTTP/1.1 from one client: limits, framing, one request at a time, and word of its leaving.

Reading goes on while a request is in progress, since the end of the connection is how we learn that the client left.
What a pipelining client sends meanwhile is kept, and read when its turn comes.

::

    idle -> head --> body --> (queued or in progress) --> idle ...
      \\______\\_______\\__--> linger: answered with an error, read and thrown away until the client closes
       \\___ passed: for the documents' process, which gets the body as it comes, and ends the connection

A request whose head is the same bytes as the one before on its connection skips the parser (``counted``: the rest of
its body is counted, not parsed); so do nearly all requests of a client's library.
"""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import TYPE_CHECKING, Literal, cast

import httptools

from roadworthy.core.errors import Refused
from roadworthy.gateway.data.answers import CONTINUE, JSON, refusal_headers, response_head
from roadworthy.gateway.data.errors import BadRequest, error_body
from roadworthy.gateway.data.request import Head, Request, body_too_large, head_too_large
from roadworthy.gateway.data.routes import DOCUMENTS

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.gateway.data.exchange import Exchange
    from roadworthy.gateway.data.plane import DataPlane
    from roadworthy.gateway.documents.passage import Passage

State = Literal["idle", "head", "body", "counted", "passed", "linger"]

_NO_TRANSPORT = asyncio.Transport()
"""Stands where no connection has been made yet."""

NOBODYS_PARSER = httptools.HttpRequestParser(object())
"""Takes the place of an ended connection's own, which refers back to it: a cycle that only a collection would free."""

LARGE_BYTES = 32 * 1024
"""Answers above it are written after their head instead of copied behind it."""


class ClientConnection(asyncio.Protocol):
    """One connection of the data port."""

    __slots__ = (
        "_chunked", "_close_after", "_exchange", "_known", "_known_bytes", "_out", "_parse_error", "_parser",
        "_passage", "_paused", "_plane", "_pumping", "_queue", "_raw_head", "_raw_head_bytes", "_request", "_since_s",
        "_state", "_tail",
    )  # fmt: skip

    def __init__(self, plane: DataPlane) -> None:
        self._plane = plane
        self._out: asyncio.Transport = _NO_TRANSPORT
        self._parser = httptools.HttpRequestParser(self)
        self._state: State = "idle"
        self._since_s = plane.now_s()  # of the state, or the last byte of a body
        self._request = Request(Head())
        self._queue: deque[Request] = deque()
        self._parse_error: Refused | None = None  # answered after what was queued before it
        self._tail = b""  # read ahead while busy
        self._raw_head = b""  # of the message that the parser is in, when it came in one read
        self._raw_head_bytes = 0
        self._known: Head | None = None  # the last head that may come again, and its bytes
        self._known_bytes = b""
        self._exchange: Exchange | Passage | None = None
        self._passage: Passage | None = None  # the same, in state ``passed``
        self._pumping = False
        self._paused = False
        self._chunked = True
        self._close_after = False

    # what the event loop calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._out = cast("asyncio.Transport", transport)
        high = self._plane.limits.write_buffer_bytes
        self._out.set_write_buffer_limits(high=high, low=high // 4)
        self._plane.clients.add(self)

    def data_received(self, data: bytes) -> None:
        state = self._state
        if state == "counted":
            self._count(data)
            return
        if state == "linger":
            return
        if state == "passed":
            if self._passage is not None and not self._passage.complete:
                self._feed(data)
            return
        if self._exchange is not None or self._queue:
            self._tail += data
            if len(self._tail) > self._plane.limits.pipelined_bytes:
                self._out.pause_reading()
            return
        if state == "idle" and self._known is not None and data.startswith(self._known_bytes):
            known = self._known
            if known.epoch == self._plane.epoch and not self._raw_head_bytes:
                self._request = Request(known)
                self._state = "counted"
                self._count(data[len(self._known_bytes) :])
                return
            self._known = None
        self._feed(data)
        self._pump()

    def eof_received(self) -> None:
        # a client that has only finished sending looks the same as one that died; like nginx, take it as gone
        self._gone()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self._plane.client_closed(self)
        self._gone()
        self._parser = NOBODYS_PARSER

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
        self._passage = None
        self._queue.clear()
        self._tail = b""
        self._known = None
        self._state = "linger"
        if exchange is not None:
            exchange.client_left()

    # a request whose head is known

    def _count(self, data: bytes) -> None:
        """More of the body of a request that needs no parser."""
        request = self._request
        wanted_bytes = request.head.content_length - request.body_bytes
        size = len(data)
        if size > wanted_bytes:
            data, self._tail = data[:wanted_bytes], data[wanted_bytes:]
            size = wanted_bytes
        request.body.append(data)
        request.body_bytes += size
        if size < wanted_bytes:
            self._since_s = self._plane.now_s()
            return
        self._state = "idle"
        self._start(request)
        if self._exchange is None and self._tail:
            self._pump()

    # what the parser calls

    def on_message_begin(self) -> None:
        if self._state == "passed":
            raise _StopReading  # the connection ends with the request before
        self._request = Request(Head(self._plane.session_header))
        self._state = "head"
        self._since_s = self._plane.now_s()

    def on_url(self, part: bytes) -> None:
        self._request.head.add_url(part)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._request.head.add_header(name, value)

    def on_headers_complete(self) -> None:
        request, parser = self._request, self._parser
        head = request.head
        head.complete(
            method=parser.get_method(), version=parser.get_http_version(), keep_alive=parser.should_keep_alive()
        )
        self._state = "body"
        self._raw_head_bytes = 0
        problem = head.framing_problem(self._plane.limits)
        if problem is None and parser.should_upgrade():
            problem = BadRequest("upgrades are not offered", code="upgrade_not_offered", hint="speak plain HTTP/1.1")
        if problem is not None:
            self._stop_reading(problem)
            return
        self._plane.screen(head)
        if head.route is DOCUMENTS:
            self._pass_on(request)
            return
        if head.refused is None and head.content_length > head.most_bytes:
            self._stop_reading(body_too_large(head.most_bytes))
            return
        if head.expects_continue:
            if head.refused is not None:
                self._stop_reading(head.refused)
            elif not self._queue:
                self._write(CONTINUE)
        elif self._raw_head and head.reusable:
            self._known, self._known_bytes = head, self._raw_head

    def on_body(self, part: bytes) -> None:
        if self._passage is not None:
            self._passage.body(part)
            return
        request = self._request
        request.body_bytes += len(part)
        self._since_s = self._plane.now_s()
        if request.body_bytes > request.head.most_bytes:
            request.body.clear()
            self._stop_reading(body_too_large(request.head.most_bytes))
        elif request.head.refused is None:
            request.body.append(part)

    def on_message_complete(self) -> None:
        if self._passage is not None:
            self._passage.body_ended()
            return
        if self._parse_error is not None or self._state == "linger":
            return
        self._state = "idle"
        self._since_s = self._plane.now_s()
        self._raw_head = b""  # what follows in this read starts elsewhere
        self._queue.append(self._request)
        if len(self._queue) > self._plane.limits.pipelined_requests:
            self._stop_reading(BadRequest("too many requests sent ahead", code="malformed_request"))

    def _feed(self, data: bytes) -> None:
        if self._state == "idle" and not self._raw_head_bytes and data.startswith(b"POST "):
            end = data.find(b"\r\n\r\n") + 4
            self._raw_head = data[:end] if 4 <= end <= self._plane.limits.known_head_bytes else b""
        elif self._state != "body":
            self._raw_head = b""
        if self._state in ("idle", "head"):
            self._raw_head_bytes = len(data) + (self._raw_head_bytes if self._state == "head" else 0)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if self._passage is not None:
                self._passage.spoiled(_malformed(error))
            elif self._parse_error is None and not self._queue_closes():
                self._parse_error = _malformed(error)
        else:
            if self._state == "head" and self._raw_head_bytes > self._plane.limits.head_bytes:
                self._parse_error = head_too_large(self._plane.limits)

    def _pass_on(self, request: Request) -> None:
        """A request for documents: its body goes on as it comes, and its answer comes back as it is."""
        head = request.head
        try:
            if head.refused is not None:
                raise head.refused
            if self._queue:
                raise BadRequest("documents are not asked for behind another request", code="malformed_request")
            passage = self._plane.pass_on(self, request)
        except Refused as refused:
            self._stop_reading(refused)
            return
        if head.expects_continue:
            self._write(CONTINUE)
        self._state = "passed"
        self._exchange = self._passage = passage
        passage.start()

    def hold(self) -> None:
        """Read nothing for the moment."""
        self._out.pause_reading()

    def go_on(self) -> None:
        if not self._out.is_closing():
            self._out.resume_reading()

    def pass_back(self, data: bytes) -> None:
        """Of the answer to a request that was passed on."""
        self._write(data)

    def passage_over(self) -> None:
        """The request that was passed on is over, and so is the connection."""
        self._exchange = self._passage = None
        if self._state != "linger":
            self._linger()

    def _queue_closes(self) -> bool:
        """Whether the last whole request asked to close: what follows it is nobody's."""
        return bool(self._queue) and not self._queue[-1].head.keep_alive

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
                    self._start(self._queue.popleft())
                elif self._parse_error is not None:
                    refused = self._parse_error
                    self._plane.turned_away(refused, self._request)
                    self.refuse(refused, self._request, close=True)
                elif self._tail:
                    data, self._tail = self._tail, b""
                    if not self._out.is_closing():
                        self._out.resume_reading()
                    self._feed(data)
                else:
                    break
        finally:
            self._pumping = False

    def _start(self, request: Request) -> None:
        refused = request.head.refused
        if refused is not None:
            self._plane.turned_away(refused, request)
            self.refuse(refused, request)
            return
        exchange = self._plane.begin(self, request)
        if exchange is not None:
            self._exchange = exchange
            exchange.start()

    def exchange_over(self, exchange: Exchange) -> None:
        """The exchange has answered, in whatever way."""
        if self._exchange is exchange:
            self._exchange = None
            self._since_s = self._plane.now_s()
            if self._queue or self._tail or self._parse_error is not None:
                self._pump()

    # answers

    def refuse(self, refused: Refused, request: Request, *, close: bool = False) -> None:
        """Our own error as a response; ``close`` when it is not safe to read on."""
        body = error_body(refused, request.head.dialect)
        self.respond(refused.status, body, request, refusal_headers(refused), close=close)

    def respond(
        self,
        status: int,
        body: bytes,
        request: Request,
        headers: bytes = b"",
        content_type: bytes = JSON,
        *,
        close: bool = False,
    ) -> None:
        """A whole response; afterwards the connection is kept if the client and we both want that."""
        head, plane = request.head, self._plane
        close = close or not head.keep_alive or plane.draining or plane.retiring
        framing = b"content-length: %d\r\n" % len(body)
        start = response_head(status, content_type, headers, framing, close, request)
        if head.method == "HEAD":
            body = b""
        if len(body) > LARGE_BYTES:
            self._write(start)
            self._write(body)
        else:
            self._write(start + body)
        if close:
            self._linger()

    def begin_stream(
        self, request: Request, *, content_type: bytes, headers: bytes, exchange: Exchange, first: bytes
    ) -> None:
        """The head of a stream and its ``first`` events; ``write_events`` and ``end_stream`` follow."""
        self._chunked = request.head.version == "1.1"
        self._close_after = (
            not request.head.keep_alive or not self._chunked or self._plane.draining or self._plane.retiring
        )
        framing = b"cache-control: no-store\r\n"
        if self._chunked:
            framing = b"transfer-encoding: chunked\r\n" + framing
        head = response_head(200, content_type, headers, framing, self._close_after, request)
        self._write(head + self._framed(first) if first else head)
        if self._paused:
            exchange.client_paused()

    @property
    def raw_write(self) -> Callable[[bytes], None] | None:
        """Where bytes may be written that are chunked already; None if this stream is not."""
        return self._out.write if self._chunked else None

    def write_events(self, data: bytes) -> None:
        self._write(self._framed(data))

    def _framed(self, data: bytes) -> bytes:
        return b"%x\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def end_stream(self, *, close: bool, ended: bool = False) -> None:
        """``ended``: the last chunk has been written already."""
        if self._chunked and not ended:
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
            else:  # TLS: closing sends what is written, then says so
                self._out.close()

    def abort(self) -> None:
        self._exchange = None
        self._state = "linger"
        self._out.abort()

    def close(self) -> None:
        """Close once what is written has been taken."""
        self._state = "linger"
        self._out.close()

    def close_if_idle(self, since_s: float = math.inf) -> None:
        """For a gateway that stops: connections between two requests (and that since ``since_s``) go, the others after
        their answer."""
        if self._state == "idle" and self._exchange is None and not self._queue and self._since_s <= since_s:
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
        elif self._state in ("body", "counted"):
            if lasted_s > limits.body_timeout_s:
                self._time_out("the body of the request stopped coming")
        elif lasted_s > limits.keep_alive_s:
            self._out.close()

    def _time_out(self, message: str) -> None:
        self._parse_error = BadRequest(message, code="request_timeout", status=408, hint="send it again")
        self._pump()

    def _write(self, data: bytes) -> None:
        try:
            self._out.write(data)
        except RuntimeError:  # uvloop: closed, and the word of it is on its way to us
            return


class _StopReading(Exception):
    """Raised in a parser callback; httptools wraps it, see ``_feed``."""


def _malformed(error: Exception) -> Refused:
    return BadRequest(f"not a well-formed HTTP/1.1 request: {error}", code="malformed_request")
