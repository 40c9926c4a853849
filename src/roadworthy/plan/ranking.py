"""Which layout is better: by the SLA, then by capacity; where those tie, by what is known better than speed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.spec.values import Sla

ALIKE_RATIO = 1.1
"""Two layouts of one model whose predictions differ by less than this are not told apart: their errors are shared."""


def ranked(layouts: Sequence[LayoutPlan], sla: Sla) -> tuple[LayoutPlan, ...]:
    """The layouts in groups of decreasing merit, and within a group by what is known better than speed."""
    predicted = [judged for judged in layouts if judged.predicted is not None]
    most = max((_capacity(judged) for judged in predicted if _meets(judged)), default=0.0)
    least_miss = min((_worst_miss(judged, sla) for judged in predicted), default=1.0)

    def key(judged: LayoutPlan) -> tuple[float, ...]:
        order = {True: 0, "uncertain": 1, False: 2}[judged.feasible]
        layout = judged.layout
        # without padding to save, expert parallelism inside one TP group only adds imbalance: off goes before on
        known = (-layout.tp, -judged.max_concurrency, layout.ep, layout.world_size)
        if judged.predicted is None:
            # what cannot be built stands behind what only lacks memory
            return (order, 0 if judged.ranks else 1, judged.short_by_bytes, *known)
        # of two that do not carry the load, the one that carries more of it
        saturated = 1 + _steps(judged.predicted.load_ratio, 1.0, ALIKE_RATIO) if judged.predicted.saturated else 0
        if _meets(judged):
            return (order, 0, saturated, _steps(most, _capacity(judged), 1 + judged.predicted.error_band), 0, *known)
        return (order, 1, saturated, 0, _steps(_worst_miss(judged, sla), least_miss, ALIKE_RATIO), *known)

    return tuple(sorted(layouts, key=key))


def _capacity(judged: LayoutPlan) -> float:
    """Output tokens a second of all replicas at the highest load within the SLA."""
    return judged.predicted.capacity_tokens_per_s * judged.layout.replicas if judged.predicted else 0.0


def _meets(judged: LayoutPlan) -> bool:
    return judged.predicted is not None and judged.predicted.meets_sla in (True, None)


def _steps(more: float, less: float, ratio: float) -> int:
    """How many times ``ratio`` lies between two positive numbers; 0 while they are alike."""
    return int(math.log(more / less) / math.log(ratio)) if more > less > 0 else 0


def _worst_miss(judged: LayoutPlan, sla: Sla) -> float:
    """How many times over its limit the worst objective is; 1 without objectives."""
    predicted = judged.predicted
    assert predicted is not None
    ratios = [predicted.ttft_p99_s / sla.ttft_p99_s] if sla.ttft_p99_s is not None else []
    ratios += [predicted.tpot_p99_s / sla.tpot_p99_s] if sla.tpot_p99_s is not None else []
    return max(ratios, default=1.0)
