"""Gaps between a stream's events: the 99th percentile of any number of them in bounded memory."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

FEWEST = 20
"""Below so many gaps a 99th percentile says nothing."""

_PER_OCTAVE = 16
_SHORTEST_S = 1e-5


class Gaps:
    """Gaps folded into logarithmic buckets, 16 to the doubling: a percentile is read some 2 % exact."""

    __slots__ = ("_counts", "_last_s", "count")

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._last_s: float | None = None
        self.count = 0

    def fold(self, marks_s: Sequence[float]) -> None:
        """Take in the times of events, in order, that follow those folded before."""
        last_s, counts = self._last_s, self._counts
        for mark_s in marks_s:
            if last_s is not None:
                gap_s = max(mark_s - last_s, _SHORTEST_S)
                bucket = int(math.log2(gap_s / _SHORTEST_S) * _PER_OCTAVE)
                counts[bucket] = counts.get(bucket, 0) + 1
                self.count += 1
            last_s = mark_s
        self._last_s = last_s

    def p99_s(self) -> float | None:
        """In seconds; None with fewer than ``FEWEST`` gaps."""
        if self.count < FEWEST:
            return None
        above = self.count - math.ceil(self.count * 0.99)  # gaps longer than the one looked for
        for bucket in sorted(self._counts, reverse=True):
            above -= self._counts[bucket]
            if above < 0:
                return float(_SHORTEST_S * 2 ** ((bucket + 0.5) / _PER_OCTAVE))
        return None


def p99_of(marks_s: Sequence[float]) -> float | None:
    """The exact 99th percentile (nearest rank) of the gaps between ``marks_s``, for streams short enough to keep."""
    count = len(marks_s) - 1
    if count < FEWEST:
        return None
    gaps = sorted(map(float.__sub__, marks_s[1:], marks_s[:-1]))
    return gaps[math.ceil(count * 0.99) - 1]
