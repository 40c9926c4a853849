"""Clients that count what they get: every token of every answer, to the last byte that was sent to them.

A client that leaves half-closes its connection and reads on to the end: what the gateway had written by then arrives,
so that delivered tokens are known exactly, and not only those that were read before the decision to leave.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

MODEL = "fake-model"
GIVE_UP_S = 60.0
UNAVAILABLE = 503
_ID = re.compile(rb"x-request-id: ([0-9a-f]{32})\r\n")
_LENGTH = re.compile(rb"content-length: (\d+)\r\n")
_TOKEN = b'"choices":[{'
"""The fake engine sends one token an event; an event without choices is no token."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """One request as its client saw it.

    Args:
        request_id: the gateway's, empty when no head arrived.
        status: 0 when no head arrived.
        tokens: in whole events, or by the ``usage`` of a plain answer.
        left: it went away on purpose.
        whole: the answer ended as answers do.
    """

    request_id: str = ""
    status: int = 0
    tokens: int = 0
    left: bool = False
    whole: bool = False


@dataclass(slots=True, kw_only=True)
class Plan:
    """What one client asks: ``leave_after`` events it goes away, None for not at all."""

    key: str
    stream: bool
    tokens: int
    leave_after: int | None = None
    operation: str = "chat"

    def request(self) -> bytes:
        path = "/v1/chat/completions" if self.operation == "chat" else "/v1/completions"
        asked = {"messages": [{"role": "user", "content": "hi"}]} if self.operation == "chat" else {"prompt": "hi"}
        body = json.dumps({"model": MODEL, "stream": self.stream, "max_tokens": self.tokens, **asked}).encode()
        head = (
            f"POST {path} HTTP/1.1\r\nHost: check\r\nAuthorization: Bearer {self.key}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        return head.encode() + body


def plans(count: int, leave: int, rng: Random, *, key: str) -> Iterator[Plan]:
    """``count`` requests, ``leave`` of whose clients go early, spread evenly; one in ten is no stream."""
    leaving = set(rng.sample(range(count), leave))
    for at in range(count):
        tokens = rng.randint(1, 40)
        leaves = at in leaving
        yield Plan(
            key=key,
            stream=leaves or rng.random() > 0.1,
            tokens=tokens + 20 if leaves else tokens,
            leave_after=rng.randint(0, tokens + 10) if leaves else None,
            operation=rng.choice(("chat", "chat", "completions")),
        )


class Connection:
    """One connection, used for one request after the other."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._seen = Seen()

    async def ask(self, plan: Plan) -> Seen:
        """Send one request and take all that comes."""
        seen = self._seen = Seen()
        try:
            async with asyncio.timeout(GIVE_UP_S):
                await self._ask(plan, seen)
        except (OSError, TimeoutError, asyncio.IncompleteReadError):
            self.close()
        if not seen.whole:
            self.close()
        return seen

    async def _ask(self, plan: Plan, seen: Seen) -> None:
        if self._writer is None:
            self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._reader, self._writer
        assert reader is not None
        writer.write(plan.request())
        if plan.leave_after == 0:
            await asyncio.sleep(0)
            self.leave()
        head = await reader.readuntil(b"\r\n\r\n")
        seen.status = int(head[9:12])
        found = _ID.search(head)
        seen.request_id = found[1].decode() if found else ""
        length = _LENGTH.search(head)
        if length is not None:
            body = await reader.readexactly(int(length[1]))
            if seen.status == 200:
                seen.tokens = int(json.loads(body)["usage"]["completion_tokens"])
            seen.whole = True
            return
        rest = b""
        while data := await reader.read(1 << 16):
            rest += data
            end = rest.rfind(b"\n\n") + 2
            if end > 1:
                seen.tokens += rest.count(_TOKEN, 0, end)
            if rest.endswith(b"\r\n0\r\n\r\n"):
                seen.whole = True
                return
            rest = rest[end:] if end > 1 else rest
            if plan.leave_after is not None and not seen.left and seen.tokens >= plan.leave_after:
                self.leave()

    def leave(self) -> None:
        """Send no more, and read on: whoever asked hears the end of it."""
        if self._writer is not None:
            self._writer.write_eof()
            self._seen.left = True

    def close(self) -> None:
        writer, self._writer, self._reader = self._writer, None, None
        if writer is not None:
            writer.transport.abort()


@dataclass(slots=True, kw_only=True)
class Crowd:
    """Many clients at once, who share a list of requests. ``reached`` is set when ``half`` of them are over."""

    port: int
    half: int = 0
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    seen: list[Seen] = field(default_factory=list)
    reset: int = 0
    """Connections that were reset before anything of an answer came: of a worker that was killed. Sent again."""
    turned_away: int = 0
    """Answered 503: a machine too busy to count limits in time. Sent again."""

    async def run(self, requests: Iterator[Plan], clients: int) -> None:
        await asyncio.gather(*(self._client(requests) for _ in range(clients)))

    async def _client(self, requests: Iterator[Plan]) -> None:
        """One request after the other, each until it is answered."""
        connection = Connection(self.port)
        for plan in requests:
            while True:
                seen = await connection.ask(plan)
                if seen.left:
                    connection.close()
                if seen.status == UNAVAILABLE:
                    self.turned_away += 1
                    await asyncio.sleep(0.2)
                elif seen.status or seen.left:
                    break
                else:
                    self.reset += 1
                    await asyncio.sleep(0.02)
            self.seen.append(seen)
            if len(self.seen) >= self.half:
                self.reached.set()
        connection.close()
