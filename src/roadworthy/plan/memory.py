"""One rank's budget, stage by stage, and the KV pool that is left: vLLM's own start-up arithmetic.

``budget = ceil(device * gpu_memory_utilization)``; ``pool = budget - weights - what the profile run finds``;
``blocks = floor(pool / bytes per block)``, the least over all ranks; a request of full length must fit
(facts: models.md section 5).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.units import format_gib
from roadworthy.plan.values import Feasible, Layout, MemoryBudget

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.cache import CacheLayout
    from roadworthy.plan.overhead import Overhead
    from roadworthy.plan.weights import StageWeights


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """The KV pool of one replica and how sure we are of it.

    Args:
        blocks: on the tightest rank, since every rank of a replica allocates in step.
        short_by_bytes: what the tightest rank lacks for one request of full length; 0 when it fits.
        feasible: "uncertain" when it fits or fails only inside the band of the assumed overhead.
    """

    ranks: tuple[MemoryBudget, ...]
    tightest_rank: int
    blocks: int
    short_by_bytes: int
    feasible: Feasible
    reasons: tuple[str, ...]


def pool_of(
    layout: Layout,
    gpu: Gpu,
    *,
    weights: Sequence[StageWeights],
    overheads: Sequence[Overhead],
    cache: CacheLayout,
    utilisation_ratio: float,
    kv_pool_bytes: int | None,
    request_blocks: int,
    request_tokens: int,
) -> Pool:
    """Budgets of every distinct rank of ``layout`` and the blocks that the tightest can hold.

    Args:
        weights: of each stage, as are ``overheads``.
        kv_pool_bytes: the operator's fixed pool (``kv_cache_memory_bytes``), which skips the arithmetic; or None.
        request_blocks: blocks the start-up check charges a request of ``request_tokens`` tokens.
    """
    ranks, blocks, lacks = [], [], []
    for stage, (loaded, extra) in enumerate(zip(weights, overheads, strict=True)):
        available = _available_bytes(gpu, loaded, extra, utilisation_ratio, kv_pool_bytes)
        ranks.append(_budget(layout, gpu, stage, loaded, extra, available))
        blocks.append(max(0, available) // cache.bytes_per_block[stage])
        lacks.append(request_blocks * cache.bytes_per_block[stage] - available)
    fewest, worst = min(range(len(blocks)), key=blocks.__getitem__), max(range(len(lacks)), key=lacks.__getitem__)
    band = 0 if kv_pool_bytes is not None else overheads[worst].band_bytes
    tightest = worst if lacks[worst] > 0 else fewest
    return Pool(
        ranks=tuple(ranks),
        tightest_rank=ranks[tightest].rank,
        blocks=blocks[fewest],
        short_by_bytes=max(0, lacks[worst]),
        feasible=_verdict(lacks[worst], band),
        reasons=_reasons(
            ranks[worst], overheads[worst], lacks[worst], band, gpu, utilisation_ratio,
            request_blocks * cache.bytes_per_block[worst], request_tokens,
        ),
    )  # fmt: skip


def _available_bytes(
    gpu: Gpu, loaded: StageWeights, extra: Overhead, utilisation_ratio: float, kv_pool_bytes: int | None
) -> int:
    if kv_pool_bytes is not None:
        if gpu.id == "cpu":  # no figure for host memory is part of the plan: the pool is what the operator set
            return kv_pool_bytes
        room = gpu.device_bytes - extra.outside_bytes - _weights_bytes(loaded, extra) - extra.in_budget_bytes
        return min(kv_pool_bytes, room)
    return math.ceil(gpu.device_bytes * utilisation_ratio) - _weights_bytes(loaded, extra) - extra.in_budget_bytes


def _weights_bytes(loaded: StageWeights, extra: Overhead) -> int:
    """What the engine logs as loaded."""
    return loaded.total_bytes + extra.loaded_bytes


def _budget(
    layout: Layout, gpu: Gpu, stage: int, loaded: StageWeights, extra: Overhead, available_bytes: int
) -> MemoryBudget:
    pool = max(0, available_bytes)
    taken = extra.activation_bytes + extra.comm_bytes + extra.cudagraph_bytes + extra.runtime_bytes
    used = _weights_bytes(loaded, extra) + taken + pool
    device = max(gpu.device_bytes, used) if gpu.id == "cpu" else gpu.device_bytes
    return MemoryBudget(
        rank=stage * layout.tp,
        count=layout.tp * layout.dp * layout.replicas,
        stage=stage,
        device_bytes=device,
        weights_bytes=_weights_bytes(loaded, extra),
        activation_bytes=extra.activation_bytes,
        comm_bytes=extra.comm_bytes,
        runtime_bytes=extra.runtime_bytes,
        cudagraph_bytes=extra.cudagraph_bytes,
        kv_pool_bytes=pool,
        free_bytes=device - used,
    )


def _verdict(lack_bytes: int, band_bytes: int) -> Feasible:
    if lack_bytes + band_bytes <= 0:
        return True
    return "uncertain" if lack_bytes - band_bytes <= 0 else False


def _reasons(
    rank: MemoryBudget, extra: Overhead, lack_bytes: int, band_bytes: int, gpu: Gpu, utilisation_ratio: float,
    request_bytes: int, request_tokens: int,
) -> tuple[str, ...]:  # fmt: skip
    if lack_bytes + band_bytes <= 0:
        return ()
    budget = math.ceil(gpu.device_bytes * utilisation_ratio)
    parts = (
        f"weights {format_gib(rank.weights_bytes)} + overhead {format_gib(extra.in_budget_bytes)}"
        + (f" ({format_gib(extra.assumed_bytes)} of it assumed)" if extra.assumed_bytes else "")
        + f" + one request of {request_tokens:,} tokens {format_gib(request_bytes)}"
        + f" against a budget of {format_gib(budget)} ({utilisation_ratio:g} of {format_gib(gpu.device_bytes)})"
    )
    where = f"rank {rank.rank}" if rank.stage == 0 else f"rank {rank.rank} (stage {rank.stage})"
    if lack_bytes > 0:
        return (f"{where} short by {format_gib(lack_bytes)}: {parts}",)
    return (f"{where} fits with {format_gib(-lack_bytes)} to spare, less than the overhead's band: {parts}",)
