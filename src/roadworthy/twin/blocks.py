"""The block pool of one engine and its prefix cache, in counts.

Blocks are interchangeable, so only how many are held, free or reusable matters, and which prefixes they hold. The
pool keeps this true at every moment, over all sequences::

    kv_blocks - 1  =  unused  +  evictable (cached, nobody uses them)  +  shared (cached, in use)  +  private

A cached *unit* is the shortest prefix step at which every full-context group ends on a block boundary: one block of
the main group, or the least common multiple when groups have different block sizes. vLLM keeps hits aligned alike.
Sliding-window and state blocks are not cached here: a hit saves their computation and takes fresh blocks for them.
A freed block without a prefix is reused before any cached one, and cached ones go least recently used first, a
sequence's tail before its beginning (vLLM 0.32: `vllm/v1/core/block_pool.py`, ``free_blocks``).
"""

from __future__ import annotations

import math
from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

    from roadworthy.plan.cache import CacheLayout


class Unit:
    """One cached step of a prefix. ``users`` sequences refer to it; with none it may be evicted."""

    __slots__ = ("key", "users")

    def __init__(self, key: int) -> None:
        self.key = key
        self.users = 1


class Holding:
    """What one sequence holds: the cached units it refers to, and blocks of its own.

    ``covered_tokens`` is how far the context may grow, decoding, before another block is needed.
    """

    __slots__ = ("covered_tokens", "keys", "next_unit", "private_blocks", "units")

    def __init__(self, keys: list[int]) -> None:
        self.keys = keys
        self.units: list[Unit] = []
        self.private_blocks = 0
        self.covered_tokens = 0
        self.next_unit = 0


class BlockPool:
    """All blocks of one engine."""

    def __init__(self, cache: CacheLayout, kv_blocks: int, *, enable_prefix_caching: bool) -> None:
        self._cache = cache
        self.total_blocks = kv_blocks - 1
        self.unused_blocks = self.total_blocks
        self.caching = enable_prefix_caching and any(group.kind == "full" for group in cache.groups)
        self.unit_tokens = cache.unit_tokens
        self.unit_blocks = cache.unit_blocks if self.caching else 0
        self._by_key: dict[int, Unit] = {}
        self._evictable: OrderedDict[int, Unit] = OrderedDict()  # in eviction order

    @property
    def free_blocks(self) -> int:
        """Blocks a new sequence can get, cached prefixes that nobody uses included."""
        return self.unused_blocks + len(self._evictable) * self.unit_blocks

    @property
    def shared_blocks(self) -> int:
        """Distinct cached blocks that some sequence refers to."""
        return (len(self._by_key) - len(self._evictable)) * self.unit_blocks

    @property
    def usage_ratio(self) -> float:
        """Share of the pool in use, as ``vllm:kv_cache_usage_perc`` counts it."""
        return 1 - self.free_blocks / self.total_blocks

    def keys_of(self, contents: Iterable[Hashable], *, salt: str = "") -> list[int]:
        """Hash chain from ``salt`` over the contents of a sequence's full units; empty without prefix caching."""
        keys: list[int] = []
        key = hash(salt) if salt else 0
        if self.caching:
            for content in contents:
                key = hash((key, content))
                keys.append(key)
        return keys

    def find(self, holding: Holding, tokens: int) -> list[Unit]:
        """The longest cached prefix of a sequence of ``tokens`` that leaves at least one token to compute."""
        found: list[Unit] = []
        for key in holding.keys[: (tokens - 1) // self.unit_tokens]:
            unit = self._by_key.get(key)
            if unit is None:
                break
            found.append(unit)
        return found

    def admit(
        self, holding: Holding, units: list[Unit], *, new_tokens: int, tokens: int, in_flight_tokens: int
    ) -> bool:
        """Give a sequence of ``tokens`` the cached ``units`` and blocks for its first ``new_tokens``, or nothing.

        Like vLLM with ``scheduler_reserve_full_isl`` (its default), it must fit whole before its first chunk starts.
        """
        hit_tokens = len(units) * self.unit_tokens
        hit_blocks = len(units) * self.unit_blocks
        idle_hits = sum(unit.users == 0 for unit in units) * self.unit_blocks
        whole = sum(
            -(-tokens // group.block_tokens)
            if group.kind == "full"
            else min(-(-tokens // group.block_tokens), group.admitted(tokens, in_flight_tokens))
            if group.kind == "window"
            else group.admission_blocks
            for group in self._cache.groups
        )
        first = self.prefill_blocks(hit_tokens, new_tokens)
        if max(whole, first) - hit_blocks + idle_hits > self.free_blocks:
            return False
        for unit in units:
            if unit.users == 0:
                del self._evictable[unit.key]
            unit.users += 1
        holding.units = list(units)
        holding.next_unit = len(units)
        holding.private_blocks = 0
        self._take(holding, first - hit_blocks)
        self._cache_units(holding, hit_tokens + new_tokens)
        return True

    def grow(self, holding: Holding, *, computed_tokens: int, new_tokens: int, decoding: bool) -> bool:
        """Hold what a step that adds ``new_tokens`` needs; False, and nothing changed, when the pool lacks them."""
        context = computed_tokens + new_tokens
        wanted = self._cache.held_blocks(context) if decoding else self.prefill_blocks(computed_tokens, new_tokens)
        extra = wanted - len(holding.units) * self.unit_blocks - holding.private_blocks
        if extra > self.free_blocks:
            return False
        self._take(holding, extra)
        holding.covered_tokens = self._covered_tokens(context) if decoding else 0
        self._cache_units(holding, context)
        return True

    def release(self, holding: Holding, *, computed_tokens: int) -> None:
        """Take everything back; units that ``computed_tokens`` filled stay findable until they are evicted."""
        self._cache_units(holding, computed_tokens)
        self.unused_blocks += holding.private_blocks
        holding.private_blocks = 0
        for unit in reversed(holding.units):
            unit.users -= 1
            if unit.users == 0:
                self._evictable[unit.key] = unit
        holding.units = []
        holding.next_unit = holding.covered_tokens = 0

    def prefill_blocks(self, computed_tokens: int, new_tokens: int) -> int:
        """Blocks held while ``new_tokens`` after ``computed_tokens`` are computed in one step.

        A window group holds the blocks of the whole chunk and gives back those below the window when the next step
        is scheduled, so a chunk may hold more than decoding does.
        """
        context = computed_tokens + new_tokens
        blocks = 0
        for group in self._cache.groups:
            if group.kind == "window":
                below_window = max(0, computed_tokens - group.window_tokens) // group.block_tokens
                blocks += -(-context // group.block_tokens) - below_window
            else:
                blocks += group.held(context)
        return blocks

    def _covered_tokens(self, context: int) -> int:
        """The longest context that ``held_blocks(context)`` blocks hold while decoding."""
        covered = math.inf
        for group in self._cache.groups:
            held = group.held(context)
            if group.held(held * group.block_tokens + 1) > held:
                covered = min(covered, held * group.block_tokens)
        return int(covered) if covered < math.inf else 1 << 62

    def _take(self, holding: Holding, blocks: int) -> None:
        """Move ``blocks`` (negative: back) between the pool and ``holding``; the caller has checked that they exist."""
        while self.unused_blocks < blocks:
            key, _ = self._evictable.popitem(last=False)  # constant time, which the first key of a dict is not
            del self._by_key[key]
            self.unused_blocks += self.unit_blocks
        self.unused_blocks -= blocks
        holding.private_blocks += blocks

    def _cache_units(self, holding: Holding, tokens: int) -> None:
        """Make every unit that ``tokens`` fill findable; one that another sequence cached first stays private."""
        full_units = min(tokens // self.unit_tokens, len(holding.keys))
        for index in range(holding.next_unit, full_units):
            key = holding.keys[index]
            if key not in self._by_key:
                self._by_key[key] = unit = Unit(key)
                holding.units.append(unit)
                holding.private_blocks -= self.unit_blocks
        holding.next_unit = max(holding.next_unit, full_units)
