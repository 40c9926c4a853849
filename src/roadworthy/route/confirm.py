"""What one engine says of its own blocks, set against what the index supposes.

vLLM publishes the blocks it stores and drops by hashes of token ids; the gateway knows bytes and has no tokenizer. Two
facts join them. The engine repeats in each stored event the session id that came with the request, and the gateway
puts its own request id there, so events are matched to the request that caused them, exactly. And when the request has
ended, ``usage`` says how many tokens its bytes became: a bound at byte *b* of *B* lies at token ``b / B * tokens``.
That proportion is an estimate inside one prompt (a prompt half in another script shifts it), never across prompts.

For each key of the prompt this answers one of three: the engine stored it (and the block in which it ends is noted, so
that its removal removes the key), the engine had it before the request (nothing changes), or the engine did not keep
it, and then the index forgets it. An engine that never repeats the id (vLLM before 0.32, or events of other requests)
confirms nothing; what it drops, and that it dropped everything, still counts.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from typing import TYPE_CHECKING

from roadworthy.route.prefix import BOUNDS_BYTES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.prefix import EngineIndex

PENDING_REQUESTS = 4096
"""Requests of one engine whose events are kept until they end; beyond it the oldest is left to supposition."""


class _Stored:
    """Blocks that one request had stored, in order: ``end_tokens`` counts from the prompt's beginning."""

    __slots__ = ("blocks", "end_tokens", "start_tokens")

    def __init__(self) -> None:
        self.start_tokens = -1
        self.end_tokens: list[int] = []
        self.blocks: list[int] = []


class Confirmations:
    """Of one engine; ``index`` is what it corrects. Blocks are 64-bit numbers, whatever hash the engine has."""

    __slots__ = ("_block_of", "_depth_tokens", "_index", "_keys_of", "_pending", "confirmed_total", "refuted_total")

    def __init__(self, index: EngineIndex) -> None:
        self._index = index
        self._pending: OrderedDict[str, _Stored] = OrderedDict()
        self._depth_tokens: OrderedDict[int, int] = OrderedDict()  # where each stored block ends
        self._keys_of: dict[int, tuple[int, ...]] = {}  # by the last whole block within them
        self._block_of: dict[int, int] = {}
        self.confirmed_total = self.refuted_total = 0

    def __len__(self) -> int:
        """Keys whose block is known."""
        return len(self._block_of)

    def expect(self, request_id: str) -> None:
        """Events that carry ``request_id`` are about to come."""
        self._pending[request_id] = _Stored()
        if len(self._pending) > PENDING_REQUESTS:
            self._pending.popitem(last=False)

    def stored(self, request_id: str | None, parent: int | None, blocks: Sequence[int], block_tokens: int) -> None:
        """``blocks`` of ``block_tokens`` tokens each were stored after ``parent`` (None: from the beginning)."""
        depth = self._depth_tokens
        start_tokens = 0 if parent is None else depth.get(parent, -1)
        if start_tokens < 0:
            return  # after a block stored before we listened
        for at, block in enumerate(blocks, 1):  # each block, since a later prompt may branch off anywhere
            depth[block] = start_tokens + at * block_tokens
        while len(depth) > self._index.entries:
            depth.popitem(last=False)
        pending = self._pending.get(request_id) if request_id else None
        if pending is None:
            return
        if pending.start_tokens < 0:
            pending.start_tokens = start_tokens
        pending.end_tokens.extend(start_tokens + at * block_tokens for at in range(1, len(blocks) + 1))
        pending.blocks.extend(blocks)

    def removed(self, blocks: Sequence[int]) -> None:
        """The engine has evicted ``blocks``."""
        for block in blocks:
            self._depth_tokens.pop(block, None)
            for key in self._keys_of.pop(block, ()):
                del self._block_of[key]
                self._index.forget(key)

    def settle(self, request_id: str, keys: Sequence[int], *, prompt_bytes: int, prompt_tokens: int | None) -> None:
        """``request_id`` has ended; its prompt of ``prompt_bytes`` was ``prompt_tokens`` tokens, None if it is not
        known. Without that, or without a word of the engine, all stays as supposed."""
        stored = self._pending.pop(request_id, None)
        if stored is None or not stored.blocks or not prompt_tokens or not prompt_bytes:
            return
        ends, start_tokens = stored.end_tokens, stored.start_tokens
        kept_tokens = ends[-1] + ends[0] - start_tokens  # and the prompt's last block, which is not full
        bounds_tokens = [BOUNDS_BYTES[index] * prompt_tokens / prompt_bytes for index in range(len(keys))]
        kept = bisect_right(bounds_tokens, kept_tokens)
        if start_tokens == 0:
            self._index.add(keys[:kept])  # they may have been forgotten when the engine dropped all, just before
        for key, at_tokens in zip(keys[:kept], bounds_tokens, strict=False):
            # the last whole block within the bound: tails go first, so while this one stays all before it do
            within = bisect_right(ends, at_tokens) - 1
            if within >= 0:
                self._confirm(key, stored.blocks[within])
        self._refute(keys[kept:])

    def drop(self, request_id: str) -> None:
        """``request_id`` came to nothing."""
        self._pending.pop(request_id, None)

    def dropped(self) -> None:
        """The engine has dropped all its blocks; requests under way store theirs from now on."""
        self._pending = OrderedDict((request_id, _Stored()) for request_id in self._pending)
        self._depth_tokens.clear()
        self._keys_of.clear()
        self._block_of.clear()

    def clear(self) -> None:
        """Nothing is known any more: events were missed, or the engine is another process."""
        self.dropped()
        self._pending.clear()

    def _confirm(self, key: int, block: int) -> None:
        if key not in self._index:
            return  # evicted meanwhile
        self._detach(key)
        self._block_of[key] = block
        self._keys_of[block] = (*self._keys_of.get(block, ()), key)
        self.confirmed_total += 1
        if len(self._block_of) > 2 * self._index.entries:
            for stale in [one for one in self._block_of if one not in self._index]:
                self._detach(stale)

    def _refute(self, keys: Sequence[int]) -> None:
        for key in keys:
            self._index.forget(key)
            self._detach(key)
        self.refuted_total += len(keys)

    def _detach(self, key: int) -> None:
        block = self._block_of.pop(key, None)
        if block is not None:
            rest = tuple(one for one in self._keys_of[block] if one != key)
            if rest:
                self._keys_of[block] = rest
            else:
                del self._keys_of[block]
