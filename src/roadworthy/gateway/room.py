"""How much work the engines that can be used hold together: KV blocks and requests at once."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.route.govern.prefill import PrefillPace


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """None is no bound: nobody has said what there is.

    Args:
        prompt_tokens: of prompts that each engine may have still to compute, at ``prompt_tokens_per_s``; this process's
            share of both.
        used_blocks: in use by the engines' own count, at their last look.
    """

    blocks: int | None = None
    slots: int | None = None
    prompt_tokens: int | None = None
    prompt_tokens_per_s: float = 0.0
    used_blocks: int | None = None


def room_of(
    engines: Sequence[Endpoint],
    *,
    count_blocks: bool,
    slots_per_engine: int | None,
    workers: int,
    prefill: PrefillPace | None = None,
    backlog_s: float | None = None,
) -> Room:
    """The share of one of ``workers`` processes in the room of ``engines``, which are those that can be used now.

    Blocks count only with ``count_blocks``, where a plan tells what requests hold: of windows, states and shared
    prefixes a guess from tokens knows nothing, and would keep work back that engines have room for. They are known only
    if every engine tells of its pool. Where no engine can be used there is no bound either: what
    comes is then told so at once, instead of waiting for an engine that may not come back.

    Args:
        prefill: of one engine; prompts are bounded only with it and ``backlog_s``, how long they may keep it busy, and
            where all engines serve the same: else a crowd before some would keep work from the others.
    """
    if not engines:
        return Room()
    pools = [engine.kv_blocks for engine in engines if engine.kv_blocks is not None]
    blocks = sum(pools) if count_blocks and len(pools) == len(engines) else None
    slots = None if slots_per_engine is None else slots_per_engine * len(engines)
    prompt_tokens, prompt_tokens_per_s = None, 0.0
    alike = len({engine.models for engine in engines if engine.models}) <= 1
    if prefill is not None and backlog_s is not None and alike:
        prompt_tokens = max(1, prefill.tokens_in(backlog_s) // workers)
        prompt_tokens_per_s = prefill.tokens_per_s / workers
    return Room(
        prompt_tokens=prompt_tokens,
        prompt_tokens_per_s=prompt_tokens_per_s,
        blocks=None if blocks is None else max(1, blocks // workers),
        slots=None if slots is None else max(1, slots // workers),
        used_blocks=None if blocks is None else _used(engines) // workers,
    )


def _used(engines: Sequence[Endpoint]) -> int:
    return int(sum((engine.kv_blocks or 0) * engine.kv_usage_ratio for engine in engines))
