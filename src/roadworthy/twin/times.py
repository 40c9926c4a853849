"""When steps ended, kept by the stretch: a million tokens cost as much as the events between them.

A :class:`Stretch` is a row of steps with the same requests. As their contexts grow by one token each, step times grow
evenly, so the moment of every one of them follows from three numbers.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable


class Stretch(NamedTuple):
    """Steps ``first`` to ``first + steps - 1``: the first takes ``step_s``, each later one ``growth_s`` more."""

    first: int
    steps: int
    start_s: float
    step_s: float
    growth_s: float

    def end_s(self, count: int) -> float:
        """When the ``count``-th of the steps ends; 0 is the start."""
        return self.start_s + (count * self.step_s + self.growth_s * (count * (count - 1) // 2))

    def ended(self, now_s: float) -> int:
        """How many of the steps have ended at ``now_s``."""
        left_s = now_s - self.start_s
        if self.growth_s:
            half = self.step_s - self.growth_s / 2
            root = half * half + 2 * self.growth_s * left_s
            count = int((math.sqrt(max(root, 0.0)) - half) / self.growth_s)
        else:
            count = int(left_s / self.step_s) if self.step_s else self.steps
        count = max(0, min(count, self.steps))
        while count < self.steps and self.end_s(count + 1) <= now_s:
            count += 1
        while count and self.end_s(count) > now_s:
            count -= 1
        return count


new_stretch: Callable[[tuple[int, int, float, float, float]], Stretch] = partial(tuple.__new__, Stretch)
"""A stretch of its five values, at half the price: a named tuple's own constructor is a Python function, and an engine
makes several for every request."""


class History:
    """The stretches of one row of steps, in order; ``last_s`` is when the last step ended.

    Args:
        keep: keep the stretches; without, only ``last_s`` is known.
    """

    __slots__ = ("keep", "last_s", "stretches")

    def __init__(self, *, keep: bool = True) -> None:
        self.keep = keep
        self.last_s = -math.inf
        self.stretches: list[Stretch] = []

    def add(self, stretch: Stretch, end_s: float) -> None:
        """Add the stretch that ended at ``end_s``."""
        if self.keep:
            self.stretches.append(stretch)
        self.last_s = end_s

    def between(self, after: int, to: int) -> list[Stretch]:
        """The stretches that steps ``after + 1`` to ``to`` belong to, cut to them."""
        found: list[Stretch] = []
        at = max(0, bisect_right(self.stretches, after + 1, key=_first) - 1)
        for stretch in self.stretches[at:]:
            if stretch.first > to:
                break
            skip = max(0, after + 1 - stretch.first)
            steps = min(stretch.steps, to - stretch.first + 1) - skip
            if skip or steps < stretch.steps:
                step_s = stretch.step_s + skip * stretch.growth_s
                stretch = Stretch(stretch.first + skip, steps, stretch.end_s(skip), step_s, stretch.growth_s)
            found.append(stretch)
        return found


def _first(stretch: Stretch) -> int:
    return stretch.first


class Span(NamedTuple):
    """Tokens that came with steps ``after + 1`` to ``to`` of ``history``."""

    history: History
    after: int
    to: int


class TokenTimes:
    """When the tokens of one answer came: moments and spans, worked out only when somebody asks."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[float | Span, ...]) -> None:
        self._parts: Final = parts

    def moments_s(self) -> tuple[float, ...]:
        """Every token's moment."""
        moments: list[float] = []
        for part in self._parts:
            if isinstance(part, float):
                moments.append(part)
                continue
            for stretch in part.history.between(part.after, part.to):
                moments.extend([stretch.end_s(count) for count in range(1, stretch.steps + 1)])
        return tuple(moments)

    def gaps(self) -> list[tuple[float, int]]:
        """Gaps between tokens in order, as (mean gap in seconds, how many): one entry a stretch, whose gaps differ
        only by what a few tokens of context cost."""
        gaps: list[tuple[float, int]] = []
        before_s: float | None = None
        for part in self._parts:
            if isinstance(part, float):
                if before_s is not None:
                    gaps.append((part - before_s, 1))
                before_s = part
                continue
            for stretch in part.history.between(part.after, part.to):
                end_s, steps = stretch.end_s(stretch.steps), stretch.steps
                if before_s is None:
                    before_s, steps = stretch.end_s(1), steps - 1
                if steps:
                    gaps.append(((end_s - before_s) / steps, steps))
                before_s = end_s
        return gaps

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TokenTimes) and self.moments_s() == other.moments_s()

    def __hash__(self) -> int:
        return hash(self.moments_s())

    def __repr__(self) -> str:
        return f"TokenTimes({self.moments_s()!r})"


NO_TIMES: Final = TokenTimes(())


_floor, _log = math.floor, math.log
_LOG_RATIO: Final = math.log(1.01)
_NO_GAP: Final = -(1 << 30)
"""The bucket of gaps of nothing: tokens that came together."""


class GapHistogram:
    """Gaps between tokens over all requests: exact in count and sum, percentiles within half a per cent.

    Bucket n counts gaps from ``RATIO**n`` seconds on.
    """

    RATIO: Final = 1.01

    __slots__ = ("buckets", "count", "sum_s")

    def __init__(self) -> None:
        self.buckets: dict[int, int] = {}
        self.count = 0
        self.sum_s = 0.0

    def add(self, gap_s: float, count: int) -> None:
        """``count`` gaps of ``gap_s``."""
        bucket = _floor(_log(gap_s) / _LOG_RATIO) if gap_s > 0 else _NO_GAP
        buckets = self.buckets
        buckets[bucket] = buckets.get(bucket, 0) + count
        self.count += count
        self.sum_s += gap_s * count

    def merge(self, other: GapHistogram) -> None:
        """Add what another engine saw."""
        for bucket, count in other.buckets.items():
            self.buckets[bucket] = self.buckets.get(bucket, 0) + count
        self.count += other.count
        self.sum_s += other.sum_s

    def percentile_s(self, ratio: float) -> float | None:
        """The gap that ``ratio`` (0 to 1) of all gaps do not exceed; None without any."""
        if not self.count:
            return None
        rank, seen = max(1, math.ceil(ratio * self.count)), 0
        for bucket in sorted(self.buckets):
            seen += self.buckets[bucket]
            if seen >= rank:
                return self.RATIO ** (bucket + 0.5) if bucket > _NO_GAP else 0.0
        raise AssertionError("the buckets add up to the count")
