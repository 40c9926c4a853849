"""A scripted engine: real sockets, and any fault at any byte. It never plays vLLM's timing; the twin does that.

``async with FakeEngine(answer) as engine`` serves at ``engine.url``. ``answer`` is called for every completion request
with an ``Asked`` to write on; what a test waits for are events (``asked``, ``left``), never time.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import cast

Answer = Callable[["Asked"], Awaitable[None]]


@dataclass
class Asked:
    """One completion request, and the wire to answer it on."""

    method: str
    path: str
    headers: list[tuple[str, str]]
    body: bytes
    transport: asyncio.Transport
    left: asyncio.Event = field(default_factory=asyncio.Event)
    writable: asyncio.Event = field(default_factory=asyncio.Event)

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key == name), None)

    def json(self) -> dict[str, object]:
        return json.loads(self.body)

    async def send(self, data: bytes) -> None:
        """Write as one piece and let the loop turn, so that pieces are likely to be read one by one."""
        if not self.transport.is_closing():  # uvloop's transports raise
            self.transport.write(data)
        await asyncio.sleep(0)

    def cut(self) -> None:
        """Break the connection as a dying process would."""
        self.transport.abort()


class FakeEngine:
    """See the module. ``health_status`` and ``metrics`` may be changed while it runs."""

    def __init__(self, answer: Answer | None = None, *, models: Sequence[str] = ("m",)) -> None:
        self.answer = answer or stream_of(chat_events("hello", " world"))
        self.models = tuple(models)
        self.health_status = 200
        self.metrics = "vllm:num_requests_running 0.0\nvllm:num_requests_waiting 0.0\nvllm:kv_cache_usage_perc 0.0\n"
        self.pages: dict[str, tuple[int, bytes] | None] = {}  # other answers to GET, by path; None never answers
        self.looked_at: list[str] = []
        self.requests: list[Asked] = []
        self.asked = asyncio.Event()
        self.all_closed = asyncio.Event()
        self.connections = 0
        self.open: set[_Connection] = set()
        self.url = ""
        self._server: asyncio.Server | None = None
        self._port = 0

    async def start(self) -> None:
        """Listen; a second start takes the same port again."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self), "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"

    async def stop(self) -> None:
        """Refuse connections and break those that are open."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for connection in tuple(self.open):
            connection.end()
        if self.open:
            self.all_closed.clear()
            await self.all_closed.wait()

    def close_idle(self) -> None:
        """Close every connection that is between requests, as uvicorn does after five seconds."""
        for connection in tuple(self.open):
            if connection.task is None:
                connection.transport.close()

    async def __aenter__(self) -> FakeEngine:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()


class _Connection(asyncio.Protocol):
    def __init__(self, engine: FakeEngine) -> None:
        self.engine = engine
        self.buffer = b""
        self.task: asyncio.Task[None] | None = None
        self.current: Asked | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is no subclass
        self.engine.connections += 1
        self.engine.open.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.engine.open.discard(self)
        if not self.engine.open:
            self.engine.all_closed.set()
        if self.current is not None:
            self.current.left.set()
            self.current.writable.set()

    def eof_received(self) -> None:
        if self.current is not None:
            self.current.left.set()

    def pause_writing(self) -> None:
        if self.current is not None:
            self.current.writable.clear()

    def resume_writing(self) -> None:
        if self.current is not None:
            self.current.writable.set()

    def end(self) -> None:
        if self.task is not None:
            self.task.cancel()
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        self._next()

    def _next(self) -> None:
        head, blank, rest = self.buffer.partition(b"\r\n\r\n")
        if self.task is not None or not blank:
            return
        first, *lines = head.decode().split("\r\n")
        headers = [(name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
        length = int(next((value for name, value in headers if name == "content-length"), 0))
        if len(rest) < length:
            return
        self.buffer = rest[length:]
        method, path, _ = first.split(" ")
        asked = Asked(method, path, headers, rest[:length], self.transport)
        asked.writable.set()
        self.current = asked
        self.task = asyncio.get_running_loop().create_task(self._answer(asked))

    async def _answer(self, asked: Asked) -> None:
        try:
            if asked.method == "GET" and not asked.path.startswith("/v1/responses/"):
                await self._answer_probe(asked)
            else:
                self.engine.requests.append(asked)
                self.engine.asked.set()
                await self.engine.answer(asked)
        finally:
            self.task = self.current = None
        if not self.transport.is_closing():
            self._next()

    async def _answer_probe(self, asked: Asked) -> None:
        self.engine.looked_at.append(asked.path)
        if asked.path in self.engine.pages:
            page = self.engine.pages[asked.path]
            if page is None:
                await asked.left.wait()
            else:
                await asked.send(response(*page))
        elif asked.path == "/health":
            await asked.send(response(self.engine.health_status, b""))
        elif asked.path == "/metrics":
            await asked.send(response(200, self.engine.metrics.encode(), content_type="text/plain"))
        elif asked.path == "/v1/models":
            card = {"object": "model", "root": "/srv/secret", "max_model_len": 4096}
            cards = [{"id": name, **card} for name in self.engine.models]
            await asked.send(response(200, json.dumps({"object": "list", "data": cards}).encode()))
        else:
            await asked.send(response(404, b"{}"))


# what engines say


def chat_events(*texts: str, usage: tuple[int, int] | None = None) -> list[bytes]:
    """The events of a chat stream in vLLM's shape, ``[DONE]`` included."""
    base = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas: list[dict[str, object]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    chunks: list[dict[str, object]] = [
        {**base, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ]
    chunks[-1]["choices"] = [{"index": 0, "delta": deltas[-1], "finish_reason": "stop"}]
    if usage is not None:
        prompt, output = usage
        counts = {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output}
        chunks.append({**base, "choices": [], "usage": counts})
    return [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks] + [b"data: [DONE]\n\n"]


def error_event(code: int) -> bytes:
    """How vLLM refuses or fails inside a stream."""
    error = {"message": "engine text with 10.0.0.7", "type": "ServiceUnavailableError", "param": None, "code": code}
    return b"data: " + json.dumps({"error": error}).encode() + b"\n\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


STREAM_HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\nserver: uvicorn\r\n"
    b"x-engine-secret: 10.0.0.7\r\ntransfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def response(status: int, body: bytes, *, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status} X\r\ncontent-type: {content_type}\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


def completion(text: str = "hello", usage: tuple[int, int] = (3, 2)) -> bytes:
    """A plain chat completion's body."""
    prompt, output = usage
    return json.dumps(
        {
            "id": "chatcmpl-1",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}],
            "usage": {"prompt_tokens": prompt, "completion_tokens": output, "total_tokens": prompt + output},
        }
    ).encode()


# scripts


def stream_of(events: Iterable[bytes]) -> Answer:
    """Each event as one chunk."""

    async def answer(asked: Asked) -> None:
        await asked.send(STREAM_HEAD)
        for event in events:
            await asked.send(chunk(event))
        await asked.send(END)

    return answer


def plain(status: int = 200, body: bytes | None = None) -> Answer:
    """One response with a length."""

    async def answer(asked: Asked) -> None:
        await asked.send(response(status, completion() if body is None else body))

    return answer


def wire(*pieces: bytes, cut: bool = False) -> Answer:
    """Exactly these bytes, piece by piece; then the connection breaks, if ``cut``."""

    async def answer(asked: Asked) -> None:
        for piece in pieces:
            await asked.send(piece)
        if cut:
            asked.transport.close()  # after what was written, unlike ``cut``

    return answer


def hang(*pieces: bytes) -> Answer:
    """These bytes, then silence until the other side leaves."""

    async def answer(asked: Asked) -> None:
        for piece in pieces:
            await asked.send(piece)
        await asked.left.wait()

    return answer


def in_turn(*answers: Answer) -> Answer:
    """The first answer to the first request, and so on; the last one for all the rest."""
    left = list(answers)

    async def answer(asked: Asked) -> None:
        current = left.pop(0) if len(left) > 1 else left[0]
        await current(asked)

    return answer
