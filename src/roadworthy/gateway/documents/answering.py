"""A question's answer, whole or as it goes; given up as soon as nobody waits for it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import threading
from typing import TYPE_CHECKING, Any

from starlette.requests import ClientDisconnect
from starlette.responses import StreamingResponse

from roadworthy.core.errors import ProbeError, Refused, Temporary
from roadworthy.gateway.data.errors import error_body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from roadworthy.gateway.documents.operations import Call

PING_S = 15.0
"""A comment goes out after so much silence, so that proxies keep the connection, and a client that left is noticed."""

AT_ONCE = 8
"""Questions of one tenant."""

DEFAULTS: Mapping[str, Any] = {
    "model": None, "reranker": None, "documents": [], "quick": False, "budget_tokens": None, "answer_tokens": None,
}  # fmt: skip

_in_progress: dict[str, int] = {}
_log = logging.getLogger(__name__)


async def ask(call: Call) -> Any:
    """Raises Refused, ProbeError and Temporary while nothing has gone out yet."""
    asked = {**DEFAULTS, **call.body}
    running = _in_progress.get(call.tenant, 0)
    if running >= AT_ONCE:
        raise Refused(
            f"{AT_ONCE} questions are being answered", code="documents_busy", status=429, hint="wait for one of them",
            retry_after_s=1.0,
        )  # fmt: skip
    _in_progress[call.tenant] = running + 1
    question = _Question(call, asked)
    streamed = False
    try:
        if not call.body.get("stream", False):
            return await question.whole()
        first = await question.first()
        streamed = True
        return StreamingResponse(
            question.events(first), headers={"Cache-Control": "no-store"}, media_type="text/event-stream"
        )
    finally:
        if not streamed:
            question.end()


class _Question:
    """One question on its thread."""

    def __init__(self, call: Call, asked: Mapping[str, Any]) -> None:
        self._call = call
        self._stop = threading.Event()
        self._events: asyncio.Queue[tuple[str, Mapping[str, Any]] | None] = asyncio.Queue()
        loop = asyncio.get_running_loop()

        def tell(kind: str, value: Mapping[str, Any]) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is gone
                loop.call_soon_threadsafe(self._events.put_nowait, (kind, value))

        self._work = asyncio.ensure_future(
            call.on_thread(
                call.library.ask, call.tenant, asked, key=call.key, stop=self._stop, tell=tell, pool=call.questions
            )
        )
        self._work.add_done_callback(self._done)

    def _done(self, work: asyncio.Future[Any]) -> None:
        left = _in_progress[self._call.tenant] - 1
        if left:
            _in_progress[self._call.tenant] = left
        else:
            del _in_progress[self._call.tenant]
        self._events.put_nowait(None)
        if not work.cancelled():
            work.exception()  # looked at, whether or not anybody waits for it

    def end(self) -> None:
        """Nobody wants more."""
        self._stop.set()

    async def whole(self) -> Any:
        """The answer. Raises ClientDisconnect when nobody waits for it any more."""
        await self._while_wanted(self._work)
        return self._work.result()

    async def first(self) -> list[tuple[str, Mapping[str, Any]]]:
        """What happened until the model spoke once: until then a refusal still has a status of its own."""
        seen: list[tuple[str, Mapping[str, Any]]] = []
        spoke = asyncio.ensure_future(self._until_it_speaks(seen))
        try:
            await self._while_wanted(spoke)
        finally:
            spoke.cancel()
        if self._work.done() and self._work.exception() is not None:
            self._work.result()
        return seen

    async def _until_it_speaks(self, seen: list[tuple[str, Mapping[str, Any]]]) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(PING_S):
                while len(seen) < 2:
                    one = await self._events.get()
                    if one is None:
                        self._events.put_nowait(None)
                        return
                    seen.append(one)

    async def _while_wanted(self, work: asyncio.Future[Any]) -> None:
        gone = asyncio.ensure_future(_gone(self._call))
        try:
            await asyncio.wait({work, gone}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not work.done():
            raise ClientDisconnect

    async def events(self, first: list[tuple[str, Mapping[str, Any]]]) -> AsyncIterator[bytes]:
        try:
            for kind, value in first:
                yield _event(kind, value)
            while True:
                try:
                    async with asyncio.timeout(PING_S):
                        one = await self._events.get()
                except TimeoutError:
                    yield b": waiting\n\n"
                    continue
                if one is None:
                    break
                yield _event(*one)
            yield self._last()
        finally:
            self.end()

    def _last(self) -> bytes:
        try:
            return _event("answer", self._work.result())
        except Refused as error:
            refused = error
        except (ProbeError, Temporary) as error:
            refused = Refused(str(error), code="engine_error", status=502, hint=error.hint)
        except Exception:
            _log.exception("documents: a question")
            refused = Refused("a fault of ours", code="internal_error", status=500, hint="tell the operator")
        return b"event: error\ndata: " + error_body(refused) + b"\n\n"


async def _gone(call: Call) -> None:
    """Return when the client has left."""
    while (await call.request.receive())["type"] != "http.disconnect":
        pass


def _event(kind: str, value: Mapping[str, Any]) -> bytes:
    data = json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str)
    return f"event: {kind}\ndata: {data}\n\n".encode(errors="backslashreplace")
