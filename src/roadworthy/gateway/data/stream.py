"""What the relay holds back of a stream, and what it remembers of one.

Only whole events are let through, so that a stream which dies can still end in a well-formed event. The start is held
until the first event is whole, since vLLM refuses some streams with a 200 and an error event.
"""

from __future__ import annotations

from typing import Literal

from roadworthy.gateway.data.events import (
    TAIL_BYTES,
    Usage,
    end_of_last_event,
    ends_in_error,
    error_status,
    first_event,
    last_usage,
)

FULL = frozenset({429, 503})
"""How an engine says that it is full: 503 at its own queue limit, 429 from a balancer in front of it."""

Verdict = Literal["wait", "relay", "full", "hard"]


class EventGate:
    """One stream on its way through. ``hold_bytes`` bounds what is held back; beyond it bytes pass as they come."""

    __slots__ = ("_held", "_hold_bytes", "_tail", "events", "mid_event", "passed_bytes")

    def __init__(self, hold_bytes: int) -> None:
        self._hold_bytes = hold_bytes
        self._held = b""
        self._tail = b""
        self.events = 0
        self.passed_bytes = 0
        self.mid_event = False  # what has passed ends inside an event that was too long to hold

    def look(self, data: bytes) -> Verdict:
        """Hold ``data`` too, and say what the first event tells: nothing yet, relay, or an engine that will not."""
        self._held += data
        event = first_event(self._held)
        if event is None:
            return "relay" if len(self._held) > self._hold_bytes else "wait"
        status = error_status(event)
        if status is None or (status < 500 and status not in FULL):
            return "relay"
        return "full" if status in FULL else "hard"

    def forget(self) -> None:
        """Drop what is held: the stream is another engine's from here on."""
        self._held = b""

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
        self._note(data)
        return data

    def rest(self) -> bytes:
        """What is still held when the stream has ended properly: it passes as it is."""
        data, self._held = self._held, b""
        self._note(data)
        return data

    def usage(self) -> Usage | None:
        return last_usage(self._tail)

    def ended_in_error(self) -> bool:
        return ends_in_error(self._tail)

    def _note(self, data: bytes) -> None:
        if data:
            self.passed_bytes += len(data)
            self.events += data.count(b"data:")
            self._tail = data[-TAIL_BYTES:] if len(data) >= TAIL_BYTES else (self._tail + data)[-TAIL_BYTES:]
