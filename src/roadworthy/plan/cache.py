"""How many KV blocks a request holds. The one function that plan, twin, admission and quotas share.

vLLM preallocates one pool of equal blocks. Layers with the same caching rule form a group; each group takes blocks of
its own from the common pool, and a block id costs ``bytes_per_block`` on every rank whatever the group uses of it
(`vllm/v1/core/kv_cache_planning.py`; facts: models.md section 4). Three kinds of group exist: full context,
sliding window, and recurrent state that is constant in length.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheGroup:
    """Layers that cache by the same rule.

    Args:
        kind: ``full`` grows with the context, ``window`` keeps ``window_tokens``, ``state`` is constant.
        block_tokens: tokens one block of this group covers (for ``state`` the alignment only).
        window_tokens: tokens a ``window`` group must keep before the current one (vLLM: window - 1).
        resident_blocks: blocks a ``state`` group holds while decoding.
        admission_blocks: blocks a ``state`` group is charged when admission checks.
        layers: how many layers are in the group on the stage with the most of them.
    """

    kind: Literal["full", "window", "state"]
    block_tokens: int
    layers: int
    window_tokens: int = 0
    resident_blocks: int = 1
    admission_blocks: int = 1

    def held(self, tokens: int) -> int:
        """Blocks held by a request with ``tokens`` computed tokens while it decodes."""
        if self.kind == "full":
            return -(-tokens // self.block_tokens)
        if self.kind == "window":
            return min(-(-tokens // self.block_tokens), -(-self.window_tokens // self.block_tokens) + 1)
        return self.resident_blocks

    def admitted(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks vLLM's start-up check charges a request of ``tokens`` with ``in_flight_tokens`` scheduled."""
        if self.kind == "full":
            return -(-tokens // self.block_tokens)
        if self.kind == "window":
            return -(-min(self.window_tokens + in_flight_tokens, tokens) // self.block_tokens) + 1
        return self.admission_blocks


@dataclass(frozen=True, slots=True, kw_only=True)
class CacheLayout:
    """Every group of one replica, and what a block costs.

    Args:
        bytes_per_block: on each pipeline stage, bytes of one block id on one rank.
        state_bytes_per_sequence: recurrent and convolution state of one sequence, all layers, on one rank.
    """

    groups: tuple[CacheGroup, ...]
    bytes_per_block: tuple[int, ...]
    state_bytes_per_sequence: int = 0

    @property
    def block_tokens(self) -> int:
        """Tokens of one block of the first full-context group: the unit of prefix caching."""
        return next((group.block_tokens for group in self.groups if group.kind == "full"), self.groups[0].block_tokens)

    @property
    def unit_tokens(self) -> int:
        """Tokens of the shortest prefix that can be cached: every full-context group ends on a block boundary."""
        full = [group.block_tokens for group in self.groups if group.kind == "full"]
        return math.lcm(*full) if full else self.block_tokens

    @property
    def unit_blocks(self) -> int:
        """Blocks of one such prefix; 1 where nothing grows with the context."""
        unit = self.unit_tokens
        return sum(unit // group.block_tokens for group in self.groups if group.kind == "full") or 1

    def held_blocks(self, tokens: int) -> int:
        """Blocks that a decoding request with ``tokens`` tokens of context holds."""
        return sum(group.held(tokens) for group in self.groups)

    def admission_blocks(self, tokens: int, in_flight_tokens: int) -> int:
        """Blocks that vLLM's start-up check and "Maximum concurrency" charge a request of ``tokens``."""
        return sum(group.admitted(tokens, in_flight_tokens) for group in self.groups)
