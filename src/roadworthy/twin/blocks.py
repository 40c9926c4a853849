"""The block pool of one engine and its prefix cache.

Blocks are interchangeable, so what no prefix names is only counted. The pool keeps this true at every moment::

    kv_blocks - 1  =  unused  +  idle (cached, nobody uses them)  +  held by some request

As in vLLM 0.32 (`vllm/v1/core/kv_cache_manager.py`, ``allocate_slots``) a prompt is admitted when its whole length
fits; a step then takes blocks for the tokens it computes, unused ones first, then idle ones, least recently freed
first; and what a step fills is findable from that step on. A hit is the longest prefix that every group can take up.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from roadworthy.twin.groups import Group
from roadworthy.twin.runs import IdleQueue
from roadworthy.twin.states import StateGroup
from roadworthy.twin.texts import Path, Text
from roadworthy.twin.tier import OffloadTier
from roadworthy.twin.windows import WindowGroup

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from roadworthy.plan.cache import CacheLayout
    from roadworthy.twin.groups import Part
    from roadworthy.twin.runs import Piece


class Hit:
    """A cached prefix: its pieces by group, and the ``junction``, a longer prefix that only some groups have (0
    where there is none). ``loaded`` tokens behind it come from the offload tier."""

    __slots__ = ("junction", "loaded", "pieces", "tokens")

    def __init__(self, pieces: list[list[Piece]], tokens: int, junction: int = 0, loaded: int = 0) -> None:
        self.loaded = loaded
        self.pieces = pieces
        self.tokens = tokens
        self.junction = junction


class Holding:
    """What one request holds, by group; ``path`` is its text, None without prefix caching."""

    __slots__ = ("boundaries", "cached_tokens", "parts", "path")

    def __init__(self, path: Path | None, prompt_tokens: int) -> None:
        self.cached_tokens = 0
        self.path = path
        self.parts: list[Part] = []
        self.boundaries = [prompt_tokens - 1]
        """Where a later request may resume: its own prompt sent again, and the junction seen at its admission."""


class BlockPool:
    """All blocks of one engine.

    Args:
        in_flight_tokens: scheduled and not settled, at most; a window group reserves room for them.
        longest: ``max_model_len``.
        offload_blocks: room in host memory for evicted blocks.
    """

    def __init__(
        self,
        cache: CacheLayout,
        kv_blocks: int,
        *,
        enable_prefix_caching: bool,
        in_flight_tokens: int,
        longest: int,
        offload_blocks: int = 0,
    ) -> None:
        self.total_blocks = self.unused_blocks = kv_blocks - 1
        self.tier: Final = OffloadTier(offload_blocks, cache.block_tokens) if offload_blocks else None
        self.queue: Final = IdleQueue(self.tier.store if self.tier is not None else None)
        self.caching: Final = enable_prefix_caching
        self._roots: Final = {"": Text(None, None, 0)}
        sizes = [group.block_tokens for group in cache.groups if group.kind != "state" or group.resident_blocks > 1]
        self.unit_tokens: Final = math.lcm(*sizes) if sizes else cache.block_tokens
        """Every hit is a multiple of it."""
        self.groups: Final = tuple(
            StateGroup(group, index, align_tokens=self.unit_tokens, queue=self.queue)
            if group.kind == "state"
            else WindowGroup(
                group,
                index,
                align_tokens=self.unit_tokens,
                queue=self.queue,
                in_flight_tokens=in_flight_tokens,
                longest=longest,
            )
            if group.kind == "window"
            else Group(group, index, align_tokens=self.unit_tokens, queue=self.queue)
            for index, group in enumerate(cache.groups)
        )
        alike: dict[tuple[str, int, int], list[Group]] = {}
        for group in self.groups:
            alike.setdefault(group.same, []).append(group)
        self._alike: Final = sorted(alike.values(), key=lambda groups: groups[0].same[0] != "full")
        self._several: Final = len(self.groups) > 1
        self._plain: Final = (
            self.groups[0] if not (self._several or self.caching) and type(self.groups[0]) is Group else None
        )
        """The only group, where all there is to it is how many blocks a request has."""
        growing: dict[int, int] = {}
        for group in self.groups:
            if not group.most_decoding():
                growing[group.block_tokens] = growing.get(group.block_tokens, 0) + 1
        self.growing: Final = tuple(growing.items())
        """Block sizes of the groups whose blocks grow with the context, and how many groups have each."""
        self.slack_blocks: Final = sum(group.most_decoding() for group in self.groups)
        """What a decoding request holds at most of the other groups."""
        self.slack_reserve: Final = self.slack_blocks - sum(group.usual_decoding() for group in self.groups)
        """What of it is not taken ahead of need, so that it must be left free for each decoding request."""
        self.states: Final = tuple(group for group in self.groups if isinstance(group, StateGroup) and group.aligned)

    @property
    def free_blocks(self) -> int:
        """Blocks that a request can get, cached ones that nobody uses included."""
        return self.unused_blocks + self.queue.blocks

    @property
    def usage_ratio(self) -> float:
        """Share of the pool in use, as ``vllm:kv_cache_usage_perc`` counts it."""
        return 1 - self.free_blocks / self.total_blocks

    def new_step(self, step: int) -> None:
        """Say that a step of this number is being scheduled."""
        for group in self.states:
            group.step = step

    def holding(self, pieces: Iterable[tuple[Hashable, int]], prompt_tokens: int, *, salt: str = "") -> Holding:
        """A request that holds nothing yet. ``pieces`` are its prompt and answer: identities of text, and tokens;
        requests of different salts share nothing."""
        if not self.caching:
            return Holding(None, prompt_tokens)
        root = self._roots.get(salt)
        if root is None:
            root = self._roots[salt] = Text(None, None, 0)
        return Holding(Path(root, pieces), prompt_tokens)

    def find(self, holding: Holding, tokens: int) -> Hit:
        """The longest cached prefix of a request of ``tokens`` that leaves at least one token to compute."""
        path = holding.path
        if path is None:
            return NOTHING
        for text in path.texts:
            if text.writers:
                for writer in tuple(text.writers):
                    writer.tell()
        if not self._several:
            found, hit_tokens = self.groups[0].hit(path, tokens - 1)
            if self.tier is not None:
                return Hit([found], hit_tokens, loaded=self.tier.more(path, hit_tokens, tokens - 1))
            return Hit([found], hit_tokens) if found else NOTHING
        return self._find_common(path, tokens - 1)

    def _find_common(self, path: Path, limit: int) -> Hit:
        """What all groups can take up: each shortens what those before it left, until none does."""
        pieces: dict[int, list[Piece]] = {}
        full_tokens: dict[int, int] = {}
        tokens, longest = limit, 0
        while True:
            now = tokens
            for at, groups in enumerate(self._alike):
                if at in full_tokens:
                    now = min(now, full_tokens[at])
                    continue
                for group in groups:
                    pieces[group.index], now = group.hit(path, now)
                now -= now % self.unit_tokens
                if groups[0].same[0] == "full":
                    full_tokens[at] = now
                elif len(groups) > 1:  # alike groups resume at one place; the first may have found a later one
                    for group in groups:
                        pieces[group.index], again = group.hit(path, now)
                        now = min(now, again)
                longest = max(longest, now)
            if now >= tokens:
                break
            tokens = now
            if not tokens:
                break
        if not tokens:
            return Hit([[] for _ in self.groups], 0, longest) if longest else NOTHING
        found = [group.trimmed(pieces[group.index], tokens) for group in self.groups]
        return Hit(found, tokens, longest if longest > tokens else 0)

    def admit(self, holding: Holding, hit: Hit, *, new_tokens: int, tokens: int, lookahead: int = 0) -> bool:
        """Give a request of ``tokens`` the ``hit`` and blocks for its first ``new_tokens``, or nothing.

        Like vLLM with ``scheduler_reserve_full_isl`` (its default), it must fit whole before its first chunk starts.
        """
        hit_tokens, first_tokens = hit.tokens, hit.tokens + new_tokens + lookahead
        if self._plain is not None:
            return self._admit_plain(holding, self._plain, first_tokens, tokens)
        whole = first = 0
        for index, group in enumerate(self.groups):
            pieces = hit.pieces[index] if hit_tokens else []
            whole += group.lacks_first(pieces, hit_tokens, tokens, whole=True)
            if first_tokens != tokens or self._several:
                first += group.lacks_first(pieces, hit_tokens, first_tokens, whole=False)
        if whole > self.unused_blocks + self.queue.blocks or first > self.unused_blocks + self.queue.blocks:
            return False
        holding.parts = parts = []
        holding.cached_tokens = 0
        for group in self.groups:
            part = group.new_part()
            parts.append(part)
            if hit_tokens:
                group.adopt(part, hit.pieces[group.index], hit_tokens)
        taken = 0
        for group, part in zip(self.groups, parts, strict=True):
            taken += group.extend(part, first_tokens)
        self.take(taken)
        if self._several:
            boundaries = holding.boundaries
            holding.boundaries = [boundaries[0], hit.junction] if hit.junction else boundaries[:1]
        self.cache(holding, min(hit_tokens + new_tokens, tokens))
        return True

    def _admit_plain(self, holding: Holding, group: Group, first_tokens: int, tokens: int) -> bool:
        """:meth:`admit` where nothing is cached and blocks are all alike."""
        size = group.block_tokens
        whole, first = -(-tokens // size), -(-first_tokens // size)
        if whole > self.unused_blocks or first > self.unused_blocks:
            return False
        part = group.new_part()
        part.blocks = first
        holding.parts = [part]
        self.unused_blocks -= first
        return True

    def grow(
        self, holding: Holding, *, computed: int, new_tokens: int, settled: int, known: int, lookahead: int
    ) -> bool:
        """Hold what a step that adds ``new_tokens`` to ``computed`` needs, False when the pool lacks them.

        Args:
            settled: tokens whose steps have ended; what their windows have left is let go, even if this fails.
            known: tokens that are not drafts or in flight, so that what they fill can be cached.
        """
        wanted_tokens = computed + new_tokens + lookahead
        lacks = 0
        for group, part in zip(self.groups, holding.parts, strict=True):
            self.unused_blocks += group.slide(part, settled)
            lacks += group.lacks(part, wanted_tokens)
        if lacks:
            if lacks > self.unused_blocks + self.queue.blocks:
                return False
            for group, part in zip(self.groups, holding.parts, strict=True):
                group.extend(part, wanted_tokens)
            self.take(lacks)
        self.cache(holding, min(computed + new_tokens, known))
        return True

    def most_blocks(self, tokens: int) -> int:
        """Blocks that a request of ``tokens`` may take, whatever it hits."""
        return sum([group.lacks_first([], 0, tokens, whole=False) for group in self.groups]) + self.slack_blocks

    def lacks(self, holding: Holding, tokens: int) -> int:
        """Blocks that a running request needs to hold ``tokens``."""
        return sum([group.lacks(part, tokens) for group, part in zip(self.groups, holding.parts, strict=True)])

    def cache(self, holding: Holding, tokens: int) -> None:
        """Make what the first ``tokens`` fill findable."""
        path = holding.path
        if path is None:
            return
        if self._several:
            tokens -= tokens % self.unit_tokens
            if tokens <= holding.cached_tokens and not self.states:
                return
            holding.cached_tokens = tokens
        for group, part in zip(self.groups, holding.parts, strict=True):
            group.cache(part, path, tokens, holding.boundaries)

    def loosen(self, holding: Holding, tokens: int) -> None:
        """Give a decoding request of ``tokens`` what it will mostly hold of windows and states, once and for all."""
        taken = 0
        for group, part in zip(self.groups, holding.parts, strict=True):
            usual = group.usual_decoding()
            if usual:
                self.unused_blocks += group.slide(part, tokens)
                spare = max(0, usual - part.held)
                part.spare += spare
                taken += spare
        self.take(taken)

    def lets_go_at(self, holding: Holding) -> int:
        """The settled tokens at which a decoding request must next be looked at; 0 for never."""
        soonest = 0
        for group, part in zip(self.groups, holding.parts, strict=True):
            at = group.lets_go_at(part)
            if at and (not soonest or at < soonest):
                soonest = at
        return soonest

    def catch_up(self, holding: Holding, tokens: int) -> None:
        """Set the parts of a request that has decoded up to ``tokens`` and whose blocks are taken already."""
        if self._plain is not None:
            holding.parts[0].blocks = -(-tokens // self._plain.block_tokens)
            return
        spared = 0
        for group, part in zip(self.groups, holding.parts, strict=True):
            spared += group.caught_up(part, tokens)
        if spared >= 0:
            self.unused_blocks += spared
        else:
            self.take(-spared)
        self.cache(holding, tokens)

    def take(self, blocks: int) -> None:
        """Take ``blocks`` out of the free ones; the caller has checked that they are there."""
        left = self.unused_blocks - blocks
        if left < 0:
            self.queue.evict(-left)
            left = 0
        self.unused_blocks = left

    def release(self, holding: Holding) -> None:
        """Take everything back; what is cached stays findable until it is evicted."""
        if self._plain is not None:
            for part in holding.parts:
                self.unused_blocks += part.blocks
        else:
            for group, part in zip(self.groups, holding.parts, strict=False):
                self.unused_blocks += group.release(part)
        holding.parts = []

    def leak(self, blocks: int) -> int:
        """Lose up to ``blocks`` free ones for good; returns how many there were to lose."""
        lost = min(blocks, self.free_blocks)
        self.take(lost)
        return lost

    def forget(self) -> None:
        """Empty the prefix cache of what nobody uses."""
        blocks = self.queue.blocks
        self.queue.evict(blocks)
        self.unused_blocks += blocks


NOTHING: Final = Hit([], 0)
