"""Counters of engines, added up: over processes that followed each other, and over runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.twin.requests import EngineStats


def added(stats: EngineStats, before: EngineStats) -> EngineStats:
    """``stats`` with the counters of ``before`` on top."""
    return replace(
        stats,
        prompt_tokens=stats.prompt_tokens + before.prompt_tokens,
        generation_tokens=stats.generation_tokens + before.generation_tokens,
        prefix_cache_query_tokens=stats.prefix_cache_query_tokens + before.prefix_cache_query_tokens,
        prefix_cache_hit_tokens=stats.prefix_cache_hit_tokens + before.prefix_cache_hit_tokens,
        preemptions=stats.preemptions + before.preemptions,
        refused=stats.refused + before.refused,
        finished={reason: times + before.finished[reason] for reason, times in stats.finished.items()},
        steps=stats.steps + before.steps,
        busy_s=stats.busy_s + before.busy_s,
    )
