"""How supervisor and worker talk: questions with answers, one JSON object a line, over a socket pair."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import socket
    from collections.abc import Awaitable, Callable

LONGEST_LINE_BYTES = 256 * 2**20
"""Documents, metrics of many tenants and a hundred thousand keys travel in a line."""


class LinkClosedError(Exception):
    """The other side is gone."""


class Link:
    """One end.

    Args:
        answer: called with every question of the other side; what it returns is the answer.
        closed: called once when the other side is gone.
    """

    def __init__(
        self, answer: Callable[[dict[str, Any]], Awaitable[Any]], closed: Callable[[], None] = lambda: None
    ) -> None:
        self._answer, self._closed = answer, closed
        self._writer: asyncio.StreamWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._next = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def open(self, end: socket.socket) -> None:
        end.setblocking(False)
        reader, self._writer = await asyncio.open_connection(sock=end, limit=LONGEST_LINE_BYTES)
        self._spawn(self._read(reader))

    async def ask(self, what: str, **more: Any) -> Any:
        """The other side's answer. Raises LinkClosedError when it is gone, or goes before it answers."""
        if self._writer is None or self._writer.is_closing():
            raise LinkClosedError
        self._next += 1
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[self._next] = answer
        self._send({"ask": what, "id": self._next, **more})
        return await answer

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        for task in tuple(self._tasks):
            task.cancel()
        self._lost()

    def _send(self, message: dict[str, Any]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            self._writer.write(json.dumps(message).encode() + b"\n")

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        try:
            while line := await reader.readline():
                message = json.loads(line)
                if "ask" in message:
                    self._spawn(self._reply(message))
                else:
                    answer = self._waiting.pop(message["id"], None)
                    if answer is not None and not answer.done():
                        answer.set_result(message["answer"])
        except (OSError, ValueError):
            pass  # as good as closed
        if self._writer is not None:
            self._writer.close()
        self._lost()
        self._closed()

    async def _reply(self, message: dict[str, Any]) -> None:
        self._send({"id": message["id"], "answer": await self._answer(message)})

    def _lost(self) -> None:
        for answer in self._waiting.values():
            if not answer.done():
                answer.set_exception(LinkClosedError())
        self._waiting.clear()
