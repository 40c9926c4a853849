"""How fast waiting requests get their turn, for honest answers to how long one more would wait."""

from __future__ import annotations

import math

_MEMORY_S = 15.0
"""Seconds of waiting after which what was seen counts 1/e."""
_LEAST_S, _LEAST_STARTS = 0.5, 2
"""So much has to have been seen before a pace is spoken of."""


class Pace:
    """Starts a second, measured only while something waited: a gateway with room to spare says nothing about how fast
    a queue would move."""

    __slots__ = ("_ever", "_last_s", "_seconds", "_seen_s", "_starts")

    def __init__(self) -> None:
        self._seen_s = self._last_s = 0.0
        self._seconds = self._starts = 0.0
        self._ever = 0

    def backlog_began(self, now_s: float) -> None:
        self._seen_s = self._last_s = now_s

    def started(self, now_s: float) -> None:
        """One that waited has its turn. It counts as spread over the time since the one before: all at its end, evenly
        spaced starts would look faster than they are."""
        self._pass(now_s)
        gap = (now_s - self._last_s) / _MEMORY_S
        self._starts += -math.expm1(-gap) / gap if gap > 1e-9 else 1.0
        self._last_s = now_s
        self._ever += 1

    def per_s(self, now_s: float) -> float | None:
        """Starts a second, None while unknown. To be asked only while something waits.

        A queue that stands still is slower with every second, but not without end: after a long time without a start
        the next is taken to come after as long again.
        """
        self._pass(now_s)
        if self._seconds < _LEAST_S or self._ever < _LEAST_STARTS:
            return None
        per_s = self._starts / self._seconds
        still_s = now_s - self._last_s
        return max(per_s, 1 / still_s) if still_s > _MEMORY_S else per_s

    def _pass(self, now_s: float) -> None:
        passed_s = now_s - self._seen_s
        if passed_s > 0:
            kept = math.exp(-passed_s / _MEMORY_S)
            self._starts *= kept
            self._seconds = self._seconds * kept + _MEMORY_S * (1 - kept)
            self._seen_s = now_s
