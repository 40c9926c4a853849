"""What the relay holds back of a stream, and what it remembers of one.

Only whole events are let through, so that a stream which dies can still end in a well-formed event. The start is held
until the first event is whole, since vLLM refuses some streams with a 200 and an error event.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import msgspec

from roadworthy.gateway.data.events import end_of_last_event, error_status, first_event, without_private_text
from roadworthy.gateway.data.gaps import Gaps, p99_of
from roadworthy.gateway.data.usage import Usage, last_usage, usage_of

if TYPE_CHECKING:
    from collections.abc import Callable

FULL = frozenset({429, 503})
"""How an engine says that it is full: 503 at its own queue limit, 429 from a balancer in front of it."""

MARKS_KEPT = 256
"""Times of events kept as they are; beyond it they are folded into buckets."""

Verdict = Literal["wait", "relay", "full", "hard"]


class EventGate:
    """One stream on its way through. ``hold_bytes`` bounds what is held back; beyond it bytes pass as they come.

    Args:
        first: the first event's payload.
        latest: the last pieces that passed: ``usage`` stands in one of them.
        marks_s: when each piece passed, since they were last folded into ``gaps``.
        events: that have passed.
        mid_event: what has passed ends inside an event that was too long to hold.
        failed: the engine itself reported an error in the stream.
    """

    __slots__ = (
        "_gaps", "_held", "_hold_bytes", "events", "events_told", "failed", "first", "latest",
        "marks_s", "mid_event", "passed_bytes",
    )  # fmt: skip
    estimated = False  # what ``usage`` says was reckoned by us

    def __init__(self, hold_bytes: int) -> None:
        self._hold_bytes = hold_bytes
        self._held = b""
        self._gaps: Gaps | None = None
        self.first = b""
        self.latest = (b"", b"", b"")
        self.marks_s: list[float] = []
        self.events = 0
        self.events_told = 0  # of ``events``, those that the plane's total has
        self.passed_bytes = 0
        self.mid_event = False
        self.failed = False

    @property
    def empty(self) -> bool:
        """Nothing is held, and what has passed ends with an event."""
        return not self._held and not self.mid_event

    def writers(self, write: Callable[[bytes], None]) -> tuple[Callable[[bytes], None], Callable[[bytes], None]]:
        """Where the engine's connection may put one whole chunk, and a run of them, framed as they are; both end at
        ``write``."""
        return write, write

    @property
    def tokens_so_far(self) -> int:
        """Of the answer, as well as it is known."""
        return self.events

    def look(self, data: bytes) -> Verdict:
        """Hold ``data`` too, and say what the first event tells: nothing yet, relay, or an engine that will not."""
        self._held = self._held + data if self._held else data
        event = first_event(self._held)
        if event is None:
            return "relay" if len(self._held) > self._hold_bytes else "wait"
        self.first = event
        status = error_status(event)
        if status is None or (status < 500 and status not in FULL):
            return "relay"
        return "full" if status in FULL else "hard"

    def take(self, data: bytes) -> bytes:
        """What may pass now that ``data`` has come."""
        if self._held:
            data = self._held + data
        end = end_of_last_event(data)
        if end == len(data):
            self._held = b""
            self.mid_event = False
        elif len(data) - end > self._hold_bytes:
            self._held = b""
            self.mid_event = True
        else:
            data, self._held = data[:end], data[end:]
            self.mid_event = self.mid_event and end == 0
        return self._checked(data)

    def rest(self) -> bytes:
        """What is still held when the stream has ended properly: it passes as it is."""
        data, self._held = self._held, b""
        return self._checked(data)

    def passed(self, data: bytes, now_s: float) -> None:
        """``data``, whole events with or without chunk framing, has passed."""
        self.marks_s.append(now_s)
        self.latest = (self.latest[1], self.latest[2], data)
        self.events += data.count(b"data:")
        self.passed_bytes += len(data)

    def fold(self) -> None:
        """Keep the memory of a long stream's gaps bounded; called now and then."""
        if len(self.marks_s) > MARKS_KEPT:
            if self._gaps is None:
                self._gaps = Gaps()
            self._gaps.fold(self.marks_s)
            self.marks_s.clear()

    def itl_p99_s(self) -> float | None:
        """Of the gaps between events; exact for a short stream, some 2 % off for a long one."""
        if self._gaps is None:
            return p99_of(self.marks_s)
        self._gaps.fold(self.marks_s)
        self.marks_s.clear()
        return self._gaps.p99_s()

    def usage(self) -> Usage | None:
        """What the stream's end says; of a message's the prompt may stand in its first event alone."""
        last = last_usage(b"\n".join(self.latest))
        if last is not None and not last.prompt_tokens and b'"message"' in self.first:
            start = usage_of(self.first)
            if start is not None:
                return msgspec.structs.replace(
                    last, prompt_tokens=start.prompt_tokens, cached_tokens=start.cached_tokens
                )
        return last

    def _checked(self, data: bytes) -> bytes:
        if b'"error"' in data:
            data, failed = without_private_text(data)
            self.failed = self.failed or failed
        return data


NO_STREAM = EventGate(1)
"""Stands where there is no stream."""
