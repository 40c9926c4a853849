"""How fast waiting requests get their turn, for honest answers to how long one more would wait."""

from __future__ import annotations

import math

_MEMORY_S = 15.0
"""Seconds of waiting after which what was seen counts 1/e."""
_LEAST_S, _LEAST_STARTS = 0.5, 2.0
"""So much has to have been seen before a pace is spoken of."""


class Pace:
    """Starts a second, measured only while something waited: a gateway with room to spare says nothing about how fast
    a queue would move."""

    __slots__ = ("_seconds", "_seen_s", "_starts")

    def __init__(self) -> None:
        self._seen_s = 0.0
        self._seconds = self._starts = 0.0

    def backlog_began(self, now_s: float) -> None:
        self._seen_s = now_s

    def started(self, now_s: float) -> None:
        """One that waited has its turn."""
        self._pass(now_s)
        self._starts += 1.0

    def per_s(self, now_s: float) -> float | None:
        """Starts a second, None while unknown. To be asked only while something waits: a queue that stands still is
        slower with every second."""
        self._pass(now_s)
        if self._seconds < _LEAST_S or self._starts < _LEAST_STARTS:
            return None
        return self._starts / self._seconds

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._seen_s
        if passed_s > 0:
            kept = math.exp(-passed_s / _MEMORY_S)
            self._starts *= kept
            self._seconds = self._seconds * kept + _MEMORY_S * (1 - kept)
            self._seen_s = now_s
