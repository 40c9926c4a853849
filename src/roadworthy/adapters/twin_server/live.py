"""The pure engine under the real clock: one timer that sleeps until its next event."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.twin.engine import Engine

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

    from roadworthy.adapters.twin_server.metrics import LatencyHistograms
    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import EngineStats, Output, TwinRequest

    Sink = Callable[[Output], None]


TIMER_SLACK_S = 0.0005
"""uvloop counts in whole milliseconds and rounds; half of one keeps a timer from firing just before its moment."""


class LiveEngine:
    """A twin whose moments are those of the event loop.

    Events keep the times that the model gave them, so a late timer delays what clients see of one step and nothing
    after it.
    """

    def __init__(self, config: TwinConfig, loop: asyncio.AbstractEventLoop, histograms: LatencyHistograms) -> None:
        self.config = config
        self._engine = Engine(config, detail="tokens")
        self.unit_tokens = self._engine.unit_tokens
        self._loop = loop
        self._histograms = histograms
        self._sinks: dict[str, Sink] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._timer_s = 0.0

    def submit(self, request: TwinRequest, sink: Sink) -> None:
        """Queue ``request``; ``sink`` hears each of its tokens. Raises Refused when the queue is full."""
        now_s = self._catch_up(before_now=True)
        self._engine.add(request, now_s)
        self._histograms.queued(request.id, now_s)
        self._sinks[request.id] = sink
        self._arm()

    def abort(self, request_id: str) -> None:
        """Free a request at once; fine when it has ended already."""
        if self._sinks.pop(request_id, None) is None:
            return
        now_s = self._catch_up(before_now=True)
        self._engine.abort(request_id, now_s)
        self._histograms.forget(request_id)
        self._arm()

    def stats(self) -> EngineStats:
        """The engine as of now."""
        self._catch_up()
        self._arm()
        return self._engine.stats()

    def _catch_up(self, *, before_now: bool = False) -> float:
        """Let everything due happen and tell the sinks; returns the moment.

        ``before_now`` leaves what is due at this very moment to the timer, so that requests that the loop handles in
        one go are scheduled together.
        """
        now_s = self._loop.time()
        until_s = math.nextafter(now_s, -math.inf) if before_now else now_s
        due_s = self._engine.next_event_s()
        if due_s is not None and due_s <= until_s:
            sinks, histograms = self._sinks, self._histograms
            for output in self._engine.advance(until_s):
                histograms.token(output)
                sink = sinks.get(output.request_id) if output.finished is None else sinks.pop(output.request_id, None)
                if sink is not None:
                    sink(output)
        return now_s

    def _arm(self) -> None:
        due_s = self._engine.next_event_s()
        if self._timer is not None:
            if due_s == self._timer_s:
                return
            self._timer.cancel()
            self._timer = None
        if due_s is not None:
            self._timer_s = due_s
            self._timer = self._loop.call_at(due_s + TIMER_SLACK_S, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._catch_up()
        self._arm()
