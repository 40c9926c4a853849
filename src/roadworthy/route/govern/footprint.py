"""What a request will hold and use, before it runs: KV blocks, and how long its answer will be."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.plan.cache import CacheLayout

_REMEMBERED = 16_384
"""Lengths whose blocks are kept at hand; over several groups the sum costs microseconds."""

BLOCK_TOKENS = 16
"""Tokens of a block where neither a plan nor an engine says: vLLM's preset on GPUs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockShape:
    """How tokens become blocks in one group of engines, and blocks bytes.

    Args:
        cache: the plan's layout; None where there is no plan, and then a request holds ceil(tokens / block_tokens).
        block_tokens: tokens of one block where there is no plan.
        block_bytes: what one block id costs, the stages of a replica added up; None where nobody knows, and then no
            quota in bytes can be enforced.
    """

    cache: CacheLayout | None = None
    block_tokens: int = BLOCK_TOKENS
    block_bytes: int | None = None
    _known: dict[int, int] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.block_tokens < 1 or (self.block_bytes is not None and self.block_bytes < 1):
            raise ValueError(f"a block of {self.block_tokens} tokens and {self.block_bytes} bytes")

    @classmethod
    def planned(cls, cache: CacheLayout) -> BlockShape:
        """The shape of a planned layout. A block's bytes are those the plan prints as ``bytes_per_block``: of one rank,
        the stages of a pipeline added up. Copies on the ranks of a tensor-parallel group are not counted again."""
        return cls(cache=cache, block_tokens=cache.block_tokens, block_bytes=sum(cache.bytes_per_block) or None)

    def held(self, tokens: int) -> int:
        """Blocks that a request holds with ``tokens`` tokens of context (``plan.cache.CacheLayout.held_blocks``)."""
        cache = self.cache
        if cache is None:
            return -(-tokens // self.block_tokens)
        known = self._known
        blocks = known.get(tokens)
        if blocks is None:
            if len(known) >= _REMEMBERED:
                known.clear()
            blocks = known[tokens] = cache.held_blocks(tokens)
        return blocks


class OutputLengths:
    """The 90th percentile of the answers' lengths, learned from those that ended by themselves.

    Lengths are counted in steps of an eighth of a power of two, so the answer is at most 13 % too high. The past fades:
    after 1,024 answers every count is halved.
    """

    __slots__ = ("_counts", "_seen")

    LEARN_FROM = 20
    _QUANTILE = 0.9
    _FADE_AT = 1024

    def __init__(self) -> None:
        self._counts: dict[int, int] = {}
        self._seen = 0

    def learn(self, answers: Iterable[int]) -> None:
        """So many tokens each had."""
        for tokens in answers:
            self._count(tokens)

    @property
    def p90(self) -> int | None:
        """Tokens; None before there were ``LEARN_FROM`` answers."""
        return self._quantile() if self._seen >= self.LEARN_FROM else None

    def _count(self, output_tokens: int) -> None:
        shift = max(0, output_tokens.bit_length() - 4)
        # the upper end of its step: 8 steps to each power of two, exact up to 15
        step = ((output_tokens >> shift) + 1 << shift) - 1 if shift else output_tokens
        counts = self._counts
        counts[step] = counts.get(step, 0) + 1
        self._seen += 1
        if self._seen >= self._FADE_AT:
            self._counts = {length: kept for length, count in counts.items() if (kept := count // 2)}
            self._seen = sum(self._counts.values())

    def _quantile(self) -> int:
        wanted = self._QUANTILE * self._seen
        for step in sorted(self._counts):
            wanted -= self._counts[step]
            if wanted <= 1e-9:
                return step
        raise AssertionError("counts add up to what was seen")
