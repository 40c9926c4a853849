"""A cache group with a sliding window: what leaves it is let go, and a hit needs only what is within it."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

from roadworthy.twin.groups import Group, idle_blocks
from roadworthy.twin.runs import IdleQueue, Piece, find, reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.plan.cache import CacheGroup
    from roadworthy.twin.groups import Part
    from roadworthy.twin.texts import Path


class WindowGroup(Group):
    """A sliding window: blocks below it are let go, and a hit needs only those within it."""

    def __init__(
        self, group: CacheGroup, index: int, *, align_tokens: int, queue: IdleQueue, in_flight_tokens: int, longest: int
    ) -> None:
        super().__init__(group, index, align_tokens=align_tokens, queue=queue)
        self.window_tokens: Final = group.window_tokens
        self._needed: Final = -(-group.window_tokens // group.block_tokens)
        self._most: Final = -(-min(group.window_tokens + in_flight_tokens, longest) // group.block_tokens) + 1

    def hit(self, path: Path, limit_tokens: int) -> tuple[list[Piece], int]:
        if all(self.index not in text.runs for text in path.texts):
            return [], 0
        at = limit_tokens // self.align_tokens * self.align_tokens
        while at:
            to = at // self.block_tokens
            pieces = self._pieces(path, max(0, to - self._needed), to)
            if pieces is not None:
                return pieces, at
            at -= self.align_tokens
        return [], 0

    def trimmed(self, pieces: list[Piece], tokens: int) -> list[Piece]:  # noqa: ARG002
        return pieces  # found at the length that holds for all groups

    def lacks_first(self, pieces: list[Piece], hit_tokens: int, tokens: int, *, whole: bool) -> int:
        wanted = -(-tokens // self.block_tokens)
        if whole:
            wanted = min(wanted, self._most)
        return max(wanted - hit_tokens // self.block_tokens, 0) + (idle_blocks(pieces) if pieces else 0)

    def adopt(self, part: Part, pieces: list[Piece], hit_tokens: int) -> None:
        super().adopt(part, pieces, hit_tokens)
        part.first = min(max(0, hit_tokens - self.window_tokens) // self.block_tokens, part.blocks)

    def slide(self, part: Part, settled_tokens: int) -> int:
        below = (settled_tokens - self.window_tokens) // self.block_tokens
        return self._let_go_below(part, below) if below > part.first else 0

    def cache(self, part: Part, path: Path, tokens: int, boundaries: Sequence[int]) -> None:
        full = min(tokens // self.block_tokens, part.blocks)
        if full <= part.cached:
            return
        done = max(part.cached, part.first)
        for boundary in sorted(boundaries):
            end = boundary // self.align_tokens * self.align_tokens // self.block_tokens
            to = min(end, full)
            lo = max(done, end - self._needed)
            if lo < to:
                self._cache_range(part, path, lo, to)
                done = to
        part.cached = full

    def most_decoding(self) -> int:
        return self._needed + 1

    def lets_go_at(self, part: Part) -> int:
        if not part.hashed:
            return 0
        to = part.holds[-1][1]
        assert isinstance(to, int)
        return self.window_tokens + to * self.block_tokens

    def caught_up(self, part: Part, tokens: int) -> int:
        held = part.held
        part.spare = 0
        part.blocks = -(-tokens // self.block_tokens)
        # what of the window was cached goes back to the queue; the rest is a number
        bare_before = held - part.hashed
        first = min(max(0, tokens - 1 - self.window_tokens) // self.block_tokens, part.blocks)
        if first > part.first:
            self._let_go_below(part, first)
        return bare_before - (part.held - part.hashed)

    def _pieces(self, path: Path, lo: int, hi: int) -> list[Piece] | None:
        """The cached runs of blocks ``[lo, hi)``, None when one is missing."""
        size, pieces = self.block_tokens, []
        at = bisect_left(path.ends, (lo + 1) * size)
        while lo < hi:
            if at >= len(path.ends):
                return None
            last = min(path.ends[at] // size, hi)
            runs = path.texts[at].runs.get(self.index)
            while lo < last:
                run = find(runs, lo) if runs is not None else None
                if run is None or runs is None:
                    return None
                to = min(reach(runs, run, lo), last)
                pieces.append((run, lo, to))
                lo = to
            at += 1
        return pieces
