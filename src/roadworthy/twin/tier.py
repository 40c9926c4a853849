"""A tier of host memory behind the block pool: cached blocks that the pool evicts are kept there, and loaded back.

Like a synchronous KV connector: what a request finds in the tier beyond its hit in the pool is copied into fresh
blocks, and the step that takes the request in lasts as much longer. The tier is exclusive by use, not by rule: a block
stays in it after it was loaded, until it is the least recently stored one and room is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from roadworthy.twin.runs import IdleQueue, Run, find

if TYPE_CHECKING:
    from roadworthy.twin.texts import Path

TIER: Final = -1
"""Stands for the tier where a run names its cache group."""


class OffloadTier:
    """Room for ``blocks`` blocks of ``block_tokens`` tokens; ``stored`` are in it."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self._room = blocks
        self._block_tokens = block_tokens
        self._queue = IdleQueue()

    @property
    def stored(self) -> int:
        return self._queue.blocks

    def store(self, run: Run, lo: int, hi: int) -> None:
        """Keep blocks ``[lo, hi)`` of a run that the pool is about to forget."""
        runs = run.text.runs.setdefault(TIER, [])
        kept = find(runs, lo)
        if kept is not None:
            if kept.hi >= hi:
                return
            lo = kept.hi
        copy = Run(run.text, TIER, lo, hi, users=0, cached_step=0)
        runs.append(copy)
        self._queue.append(copy)
        if self._queue.blocks > self._room:
            self._queue.evict(self._queue.blocks - self._room)

    def more(self, path: Path, hit_tokens: int, limit_tokens: int) -> int:
        """Tokens right behind the first ``hit_tokens`` that the tier holds, up to ``limit_tokens`` in all."""
        size = self._block_tokens
        block, limit = hit_tokens // size, limit_tokens // size
        for text, end in zip(path.texts, path.ends, strict=True):
            last = min(end // size, limit)
            while block < last:
                run = find(text.runs.get(TIER, []), block)
                if run is None:
                    return block * size - hit_tokens
                block = min(run.hi, last)
            if last == limit:
                break
        return block * size - hit_tokens
