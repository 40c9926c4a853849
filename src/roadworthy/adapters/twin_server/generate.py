"""One generation over HTTP: body in, tokens out, and an abort when the client leaves."""

from __future__ import annotations

import asyncio
import itertools
import time
import uuid
from contextlib import suppress
from typing import TYPE_CHECKING

from roadworthy.adapters.twin_server import wire
from roadworthy.adapters.twin_server.asked import BadRequest, parse
from roadworthy.adapters.twin_server.text import contents, filler
from roadworthy.core.errors import Refused
from roadworthy.twin.prompt import Segment
from roadworthy.twin.requests import TwinRequest

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

    from roadworthy.adapters.twin_server.asked import Asked, Kind
    from roadworthy.adapters.twin_server.live import LiveEngine
    from roadworthy.twin.requests import Finished, Output

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [(b"content-type", b"text/event-stream; charset=utf-8")]


class ClientLeft(Exception):
    """The connection closed before the answer was complete."""


class Generate:
    """The ASGI application of one route; ``kind`` says which."""

    def __init__(self, kind: Kind, live: LiveEngine) -> None:
        self._kind: Kind = kind
        self._live = live
        self._ids = itertools.count(1)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with suppress(ClientLeft):
            body = await _body(receive)
            headers = dict(scope["headers"])
            try:
                asked = parse(self._kind, body, headers, self._live.config)
            except BadRequest as error:
                await _answer(send, error.status, wire.compact(error.document))
                return
            await self._run(asked, _response_id(self._kind, headers), receive, send)

    async def _run(self, asked: Asked, response_id: str, receive: Receive, send: Send) -> None:
        answer = filler(asked.prompt, asked.output_tokens)
        request = TwinRequest(
            id=f"{response_id}#{next(self._ids)}",
            segments=(Segment("prompt", len(asked.prompt)),),
            output_tokens=asked.output_tokens,
            ends_with=asked.ends_with,
            priority=asked.priority,
            contents=contents(asked.prompt + answer, self._live.unit_tokens, asked.cache_salt),
        )
        arrived = _Arrived()
        try:
            self._live.submit(request, arrived.hear)
        except Refused:
            if asked.stream:
                await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
                await send({"type": "http.response.body", "body": wire.REFUSED_STREAM})
            else:
                await _answer(send, 503, wire.compact(wire.BUSY))
            return
        watch = asyncio.create_task(_watch(receive, arrived))
        try:
            if asked.stream:
                await _stream(send, asked, response_id, answer, arrived)
            else:
                finished = await arrived.all()
                text = "".join(answer[: finished.output_tokens])
                await _answer(send, 200, wire.whole(asked, response_id, int(time.time()), text, finished))
        finally:
            watch.cancel()
            self._live.abort(request.id)  # on every way out; nothing happens when the request has ended


class _Arrived:
    """Tokens that the engine has put out and the writer has not taken."""

    __slots__ = ("_left", "_waiter", "count", "finished")

    def __init__(self) -> None:
        self.count = 0
        self.finished: Finished | None = None
        self._left = False
        self._waiter: asyncio.Future[None] | None = None

    def hear(self, output: Output) -> None:
        """Called by the engine at each token."""
        self.count += 1
        self.finished = output.finished
        self._wake()

    def leave(self) -> None:
        """Called when the client is gone."""
        self._left = True
        self._wake()

    async def more(self, than: int) -> None:
        """Return once more than ``than`` tokens are there. Raises ClientLeft."""
        while self.count <= than or self._left:
            if self._left:
                raise ClientLeft
            self._waiter = asyncio.get_running_loop().create_future()
            await self._waiter

    async def all(self) -> Finished:
        """The end of the request. Raises ClientLeft."""
        seen = 0
        while self.finished is None:
            await self.more(seen)
            seen = self.count
        return self.finished

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


async def _stream(send: Send, asked: Asked, response_id: str, answer: list[str], arrived: _Arrived) -> None:
    """One event a token. Like vLLM's, the head goes out at once and the first event when the first token is there."""
    chunks = wire.ChunkWriter(asked, response_id, int(time.time()))
    await send({"type": "http.response.start", "status": 200, "headers": _EVENTS})
    written = 0
    while arrived.finished is None or written < arrived.count:
        await arrived.more(written)
        ready, finished = arrived.count, arrived.finished
        parts = [] if written else [chunks.first()]
        last = ready - 1 if finished is not None else ready
        parts += [chunks.token(answer[index], None) for index in range(written, last)]
        if finished is not None:
            parts += [chunks.token(answer[last], finished), chunks.last()]
        written = ready
        await send({"type": "http.response.body", "body": b"".join(parts), "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _watch(receive: Receive, arrived: _Arrived) -> None:
    """Wait for the client to hang up."""
    while (await receive())["type"] != "http.disconnect":
        pass
    arrived.leave()


async def _body(receive: Receive) -> bytes:
    parts = []
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientLeft
        parts.append(message.get("body", b""))
        if not message.get("more_body", False):
            return b"".join(parts)


async def _answer(send: Send, status: int, body: bytes) -> None:
    length = (b"content-length", str(len(body)).encode())
    await send({"type": "http.response.start", "status": status, "headers": [*_JSON, length]})
    await send({"type": "http.response.body", "body": body})


def _response_id(kind: Kind, headers: dict[bytes, bytes]) -> str:
    """vLLM's: a prefix before the caller's ``X-Request-Id``, or before a random one."""
    given = headers.get(b"x-request-id", b"").decode("latin-1")
    return ("chatcmpl-" if kind == "chat" else "cmpl-") + _json_safe(given or uuid.uuid4().hex[:16])


def _json_safe(text: str) -> str:
    return "".join(char for char in text if char.isprintable())
