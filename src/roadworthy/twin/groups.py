"""How a cache group holds, caches and finds blocks; the base of all kinds, and itself that of full context.

Each kind follows its manager in vLLM 0.32 (`vllm/v1/core/single_type_kv_cache_manager.py`): what a step needs, what
leaves the window, what is worth caching and where a prefix can be taken up again. Windows and states are cached only
where a later request can resume (``prefix_cache_retention_interval`` 0, vLLM's default): at the last aligned position
before the prompt's last token, and where another request was seen to branch off.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roadworthy.twin.runs import Hold, IdleQueue, Piece, Run, cut, find, holders_runs, reach

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.plan.cache import CacheGroup
    from roadworthy.twin.texts import Path, Text


class Part:
    """What one request holds of one group: blocks ``[first, blocks)`` of its context, ``hashed`` of them cached and
    kept in ``holds``, and ``spare`` more that a decoding request holds ahead of need. Blocks below ``cached`` have
    been looked at for caching; ``text`` is the place in the path where caching goes on."""

    __slots__ = ("blocks", "cached", "first", "hashed", "holds", "spare", "text")

    def __init__(self) -> None:
        self.blocks = self.cached = self.first = self.hashed = self.spare = self.text = 0
        self.holds: list[Hold] = []

    @property
    def held(self) -> int:
        """Blocks of the pool that are this request's, alone or with others."""
        return self.blocks - self.first + self.spare


class Group:
    """One cache group, of full context.

    Args:
        index: its place among the groups.
        align_tokens: every hit is a multiple of it (the least common multiple of all groups' blocks).
    """

    def __init__(self, group: CacheGroup, index: int, *, align_tokens: int, queue: IdleQueue) -> None:
        self.index: Final = index
        self.block_tokens: Final = group.block_tokens
        self.align_tokens: Final = align_tokens
        self.same: Final = (group.kind, group.block_tokens, group.window_tokens)
        """Groups of which this is equal are looked up together."""
        self.queue: Final = queue
        self.step = 0

    def new_part(self) -> Part:
        return Part()

    # -- finding ---------------------------------------------------------------------------------------------------

    def hit(self, path: Path, limit_tokens: int) -> tuple[list[Piece], int]:
        """The longest cached prefix of at most ``limit_tokens``, and its length."""
        size, index = self.block_tokens, self.index
        limit, block = limit_tokens // size, 0
        pieces: list[Piece] = []
        for text, end in zip(path.texts, path.ends, strict=True):
            last = min(end // size, limit)
            if block >= last:
                if last == limit:
                    break
                continue
            runs = text.runs.get(index)
            if runs is None:
                break
            while block < last:
                run = find(runs, block)
                if run is None:
                    return pieces, block * size
                to = min(reach(runs, run, block), last)
                pieces.append((run, block, to))
                block = to
        return pieces, block * size

    def trimmed(self, pieces: list[Piece], tokens: int) -> list[Piece]:
        """What of a hit is left when it is shortened to ``tokens``."""
        limit = tokens // self.block_tokens
        return [(run, lo, min(hi, limit)) for run, lo, hi in pieces if lo < limit]

    # -- counting --------------------------------------------------------------------------------------------------

    def lacks(self, part: Part, tokens: int) -> int:
        """Blocks that a running request needs to hold ``tokens``."""
        return max(-(-tokens // self.block_tokens) - part.blocks, 0)

    def lacks_first(self, pieces: list[Piece], hit_tokens: int, tokens: int, *, whole: bool) -> int:  # noqa: ARG002
        """Blocks of the free ones that a request with this hit takes to hold ``tokens``, idle ones of the hit
        included; ``whole`` is asked for the admission of the whole prompt."""
        wanted = -(-tokens // self.block_tokens) - hit_tokens // self.block_tokens
        return max(wanted, 0) + (idle_blocks(pieces) if pieces else 0)

    # -- holding ---------------------------------------------------------------------------------------------------

    def adopt(self, part: Part, pieces: list[Piece], hit_tokens: int) -> None:
        """Hold the blocks of a hit."""
        part.blocks = part.cached = hit_tokens // self.block_tokens
        for run, lo, hi in pieces:
            self._hold(part, run, lo, hi)

    def extend(self, part: Part, tokens: int) -> int:
        """Hold ``tokens``; returns the blocks to take for it."""
        wanted = self.lacks(part, tokens)
        part.blocks += wanted
        return wanted

    def slide(self, part: Part, settled_tokens: int) -> int:  # noqa: ARG002
        """Let go what a context of ``settled_tokens`` looks at no more; returns how many uncached blocks that gave."""
        return 0

    def cache(self, part: Part, path: Path, tokens: int, boundaries: Sequence[int]) -> None:  # noqa: ARG002
        """Make the full blocks of the first ``tokens`` findable."""
        full = min(tokens // self.block_tokens, part.blocks)
        if full > part.cached:
            self._cache_range(part, path, part.cached, full)
            part.cached = full

    def release(self, part: Part) -> int:
        """Let go of everything; returns how many uncached blocks that gave."""
        bare = part.held - part.hashed
        queue = self.queue
        for hold in reversed(part.holds):
            for run in reversed(holders_runs(hold)):
                run.users -= 1
                if not run.users:
                    queue.append(run)
        return bare

    # -- decoding without looking: see roadworthy.twin.lane ---------------------------------------------------------

    def most_decoding(self) -> int:
        """Blocks that a decoding request may hold whatever its length; 0 where they grow with it."""
        return 0

    def usual_decoding(self) -> int:
        """Blocks that it holds at most steps."""
        return self.most_decoding()

    def lets_go_at(self, part: Part) -> int:  # noqa: ARG002
        """The settled tokens at which a decoding request must be looked at, because it lets go of a cached block or
        crosses the end of a state's block; 0 for never."""
        return 0

    def caught_up(self, part: Part, tokens: int) -> int:
        """Set the counts of a request that has decoded up to ``tokens`` without being looked at, its blocks taken
        already; returns how many blocks it held ahead of need."""
        part.blocks = -(-tokens // self.block_tokens)
        return 0

    # -- pieces ----------------------------------------------------------------------------------------------------

    def _hold(self, part: Part, run: Run, lo: int, hi: int) -> None:
        while run.hi <= lo:  # an earlier piece of the same hit has cut it
            assert run.rest is not None
            run = run.rest
        if run.lo < lo:
            run = cut(run, lo, self.queue)
        if run.hi > hi:
            cut(run, hi, self.queue)
        if not run.users:
            self.queue.remove(run)
        run.users += 1
        part.holds.append([run, hi])
        part.hashed += hi - lo

    def _cache_range(self, part: Part, path: Path, lo: int, hi: int) -> None:
        """Cache blocks ``[lo, hi)``, which the request holds; those past the known text cannot be found again."""
        size, ends, at = self.block_tokens, path.ends, part.text
        while lo < hi and at < len(ends):
            to = min(ends[at] // size, hi)
            if to > lo:
                self._put(part, path.texts[at], lo, to)
                lo = to
            if lo < hi:
                at += 1
        part.text = at

    def _put(self, part: Part, text: Text, lo: int, hi: int) -> None:
        part.hashed += hi - lo
        if part.holds:
            hold = part.holds[-1]
            run = hold[0]
            if (
                isinstance(run, Run)
                and run.text is text
                and hold[1] == run.hi == lo
                and run.users == 1
                and run.rest is None
                and text.runs[self.index][-1] is run  # else a copy of what follows may be older than this one
            ):
                run.hi = hold[1] = hi
                run.cached_step = self.step
                return
        run = Run(text, self.index, lo, hi, users=1, cached_step=self.step)
        runs = text.runs.get(self.index)
        if runs is None:
            text.runs[self.index] = [run]
        else:
            runs.append(run)
        part.holds.append([run, hi])

    def _let_go_below(self, part: Part, block: int) -> int:
        """Let go of held blocks before ``block``, the last first; returns the uncached ones among them."""
        block = min(block, part.blocks)
        gone = block - part.first
        if gone <= 0:
            return 0
        part.first = block
        kept: list[Hold] = []
        idle: list[Run] = []
        for hold in part.holds:
            for run in holders_runs(hold):
                if run.lo >= block:
                    kept.append([run, run.hi])
                    continue
                if run.hi > block:
                    rest = cut(run, block, self.queue)
                    kept.append([rest, rest.hi])
                part.hashed -= run.hi - run.lo
                gone -= run.hi - run.lo
                run.users -= 1
                if not run.users:
                    idle.append(run)
        for run in reversed(idle):
            self.queue.append(run)
        part.holds = kept
        return gone


def idle_blocks(pieces: list[Piece]) -> int:
    """Blocks of a hit that nobody uses, so that taking them leaves less for others."""
    return sum([hi - lo for run, lo, hi in pieces if not run.users])
