"""The fake engine on a loop of its own, for tests that run a command which brings its own loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from fakes.engine import Answer, Asked, FakeEngine, chat_events, stream_of


@contextmanager
def threaded_engine(answer: Answer | None = None) -> Iterator[FakeEngine]:
    """An engine that serves while the block runs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    engine = FakeEngine(answer or obedient)
    try:
        asyncio.run_coroutine_threadsafe(engine.start(), loop).result(10)
        yield engine
    finally:
        asyncio.run_coroutine_threadsafe(engine.stop(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
        loop.close()


async def obedient(asked: Asked) -> None:
    """As many tokens as asked for, at once; one token a word and four a message."""
    body = asked.json()
    messages: list[dict[str, str]] = body["messages"]  # type: ignore[assignment]
    tokens_in = sum(4 + len(message["content"].split()) for message in messages)
    count: int = body["max_tokens"]  # type: ignore[assignment]
    await stream_of(chat_events(*["w "] * count, usage=(tokens_in, count)))(asked)


def after(count: int, first: Answer, then: Answer) -> Answer:
    """``first`` for ``count`` requests, ``then`` for the rest."""
    seen = 0

    async def answer(asked: Asked) -> None:
        nonlocal seen
        seen += 1
        await (first if seen <= count else then)(asked)

    return answer


def eventually(true: Callable[[], bool], *, limit_s: float = 20.0) -> None:
    """Return once ``true()``; fail after ``limit_s``."""
    waiting = threading.Event()
    for _ in range(int(limit_s / 0.01)):
        if true():
            return
        waiting.wait(0.01)
    raise AssertionError(f"not within {limit_s} s")
