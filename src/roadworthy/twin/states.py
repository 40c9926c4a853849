"""A cache group of recurrent state: constant in length, and taken up again only at the end of a block."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roadworthy.twin.groups import Group, Part, idle_blocks
from roadworthy.twin.runs import Hold, IdleQueue, Piece, Run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.plan.cache import CacheGroup
    from roadworthy.twin.texts import Path, Text


class StatePart(Part):
    """``places`` are the numbers of the blocks that hold a state, at most two; the others of the table are empty."""

    __slots__ = ("places",)

    def __init__(self) -> None:
        super().__init__()
        self.places: list[int] = []

    @property
    def held(self) -> int:
        return len(self.places) + self.spare


class StateGroup(Group):
    """Recurrent state: one block at the end of what is computed, and the one before it until the next is written.

    A hit needs the state at exactly its end. Without prefix caching a sequence has one block, whatever its length.
    """

    def __init__(self, group: CacheGroup, index: int, *, align_tokens: int, queue: IdleQueue) -> None:
        super().__init__(group, index, align_tokens=align_tokens, queue=queue)
        self._resident: Final = group.resident_blocks
        self.aligned: Final = group.resident_blocks > 1
        """vLLM's mode "align": states are kept at block boundaries, so that a prefix can be taken up again."""

    def new_part(self) -> StatePart:
        return StatePart()

    def hit(self, path: Path, limit_tokens: int) -> tuple[list[Piece], int]:
        size, limit = self.block_tokens, limit_tokens // self.block_tokens
        for text, end in zip(reversed(path.texts), reversed(path.ends), strict=True):
            last = min(limit, end // size)
            best: Run | None = None
            for run in text.runs.get(self.index, ()):
                if run.hi <= last and run.hi * size % self.align_tokens == 0 and (best is None or run.hi > best.hi):
                    best = run
            if best is not None:
                return [(best, best.lo, best.hi)], best.hi * size
        return [], 0

    def trimmed(self, pieces: list[Piece], tokens: int) -> list[Piece]:  # noqa: ARG002
        return pieces

    def lacks(self, part: Part, tokens: int) -> int:
        return int(self._places(tokens) > part.blocks)

    def lacks_first(self, pieces: list[Piece], hit_tokens: int, tokens: int, *, whole: bool) -> int:  # noqa: ARG002
        if any(run.cached_step == self.step for run, _, _ in pieces):
            return 1 << 60  # a state that this very step writes cannot be read in it
        return int(self._places(tokens) > hit_tokens // self.block_tokens) + (idle_blocks(pieces) if pieces else 0)

    def adopt(self, part: Part, pieces: list[Piece], hit_tokens: int) -> None:
        assert isinstance(part, StatePart)
        super().adopt(part, pieces, hit_tokens)
        part.places = [lo for _, lo, _ in pieces]

    def extend(self, part: Part, tokens: int) -> int:
        assert isinstance(part, StatePart)
        wanted = self._places(tokens)
        if wanted <= part.blocks:
            return 0
        part.blocks = wanted
        part.places.append(wanted - 1)
        return 1

    def slide(self, part: Part, settled_tokens: int) -> int:
        assert isinstance(part, StatePart)
        below = (settled_tokens - 1) // self.block_tokens
        if not self.aligned or not part.places or part.places[0] >= below:
            return 0
        part.places, gone = [at for at in part.places if at >= below], [at for at in part.places if at < below]
        kept: list[Hold] = []
        bare = len(gone)
        for hold in reversed(part.holds):
            run = hold[0]
            assert isinstance(run, Run)
            if run.lo >= below:
                kept.append(hold)
                continue
            bare -= 1
            part.hashed -= 1
            run.users -= 1
            if not run.users:
                self.queue.append(run)
        part.holds = kept[::-1]
        return bare

    def cache(self, part: Part, path: Path, tokens: int, boundaries: Sequence[int]) -> None:
        assert isinstance(part, StatePart)
        full = min(tokens // self.block_tokens, part.blocks)
        if not self.aligned:
            return
        if boundaries[0] // self.block_tokens == full:
            self._mark(part, full - 1)
        if full <= part.cached:
            return
        for at in sorted({boundary // self.align_tokens * self.align_tokens for boundary in boundaries}):
            block = at // self.block_tokens - 1
            if part.cached <= block < full and block in part.places:
                part.text = 0
                self._cache_range(part, path, block, block + 1)
        part.cached = full

    def _mark(self, part: Part, block: int) -> None:
        """A request that begins or goes on at the end of its prompt's last whole block is taken to write that state
        (again): vLLM lets nobody read it in the same step."""
        for hold in part.holds:
            run = hold[0]
            if isinstance(run, Run) and run.lo == block:
                for copy in run.text.runs[self.index]:
                    if copy.lo == block:
                        copy.cached_step = self.step

    def most_decoding(self) -> int:
        return self._resident

    def usual_decoding(self) -> int:
        return 1  # the second is there only for the step that crosses a block's end

    def lets_go_at(self, part: Part) -> int:
        assert isinstance(part, StatePart)
        if not self.aligned:
            return 0
        if len(part.places) > 1:
            return (part.places[0] + 1) * self.block_tokens + 1
        return part.blocks * self.block_tokens  # then a second one is there for one step

    def caught_up(self, part: Part, tokens: int) -> int:
        bare = part.held - part.hashed
        part.spare = 0
        self.extend(part, tokens)
        self.slide(part, tokens - 1)
        return bare - (part.held - part.hashed)

    def _places(self, tokens: int) -> int:
        return -(-tokens // self.block_tokens) if self.aligned else 1

    def _put(self, part: Part, text: Text, lo: int, hi: int) -> None:
        part.hashed += hi - lo
        run = Run(text, self.index, lo, hi, users=1, cached_step=self.step)
        text.runs.setdefault(self.index, []).append(run)
        part.holds.append([run, hi])
