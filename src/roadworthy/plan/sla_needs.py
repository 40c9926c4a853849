"""What would be needed where no layout meets the objectives: more GPUs for the rate, or a limit that can be met."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.core.units import format_count, format_duration
from roadworthy.plan.operating import operating_point
from roadworthy.plan.workload import demand_of

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import Deployment

ALONE = 1e-3
"""Requests in flight of an idle engine: each is served by itself."""


def what_would_meet(plan: Plan, deployment: Deployment) -> str:
    """Empty where some layout meets the objectives, or there are none, or nothing fits.

    First the least latency that any layout reaches with the engine to itself: no number of GPUs of this kind goes
    below it by replicas. Where that is within the limits, the rate is the matter, and replicas add to it.
    """
    sla, demand = deployment.sla, demand_of(deployment.workload)
    judged = [entry for entry in plan.layouts if entry.predicted is not None and entry.step_time is not None]
    if not judged or any(entry.predicted.meets_sla is not False for entry in judged if entry.predicted):
        return ""
    floors = {entry.layout: _alone(entry, entry.demand or demand) for entry in judged}
    for name, limit, which in (("TTFT P99", sla.ttft_p99_s, 0), ("TPOT P99", sla.tpot_p99_s, 1)):
        nearest = min(judged, key=lambda entry: floors[entry.layout][which])
        least = floors[nearest.layout][which]
        if limit is not None and least > limit:
            return (
                f"No layout meets {name} {format_duration(limit)}: {nearest.layout.label} comes nearest, "
                f"{format_duration(least)} for a request alone. More replicas do not shorten it; allow "
                f"{format_duration(least)} or more, or take a smaller model or faster GPUs"
            )
    within = [entry for entry in judged if _within(floors[entry.layout], deployment)]
    if not within:
        return "No layout meets both objectives, even for a request alone: one split is short in TTFT, another in TPOT"
    best = max(within, key=_most_tokens_per_s)
    carried = _most_tokens_per_s(best) / demand.output_mean
    gpus = deployment.cluster.gpus
    clusters = math.ceil(demand.rate_per_s / carried) if carried > 0 else 0
    if clusters <= 1:
        return ""
    return (
        f"No layout meets the objectives at {demand.rate_per_s:g} requests/s: {best.layout.label} carries "
        f"{carried:.3g} requests/s within them, so {clusters} x {gpus} = {format_count(clusters * gpus)} GPUs would be "
        f"needed, before queueing"
    )


def _alone(judged: LayoutPlan, demand: Demand) -> tuple[float, float]:
    """P99 of TTFT and TPOT with one request at a time."""
    assert judged.step_time is not None
    budget = judged.settings["max_num_batched_tokens"].value
    tokens = budget if isinstance(budget, int) else 2048
    point = operating_point(
        judged.step_time, demand, concurrency=ALONE, max_num_batched_tokens=tokens,
        scheduled_ahead=judged.scheduled_ahead,
    )  # fmt: skip
    return point.ttft_p99_s, point.tpot_p99_s


def _within(floor: tuple[float, float], deployment: Deployment) -> bool:
    limits = (deployment.sla.ttft_p99_s, deployment.sla.tpot_p99_s)
    return all(limit is None or value <= limit for value, limit in zip(floor, limits, strict=True))


def _most_tokens_per_s(judged: LayoutPlan) -> float:
    return judged.predicted.capacity_tokens_per_s * judged.layout.replicas if judged.predicted else 0.0
