"""Latency against throughput: what each layout gives at each level of load, and which of those nothing beats.

Analytic, before queueing. A point is one layout with so many requests in flight; it is on the front when no other
point has both a lower time per output token and more tokens a second for each GPU.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.advise.ranking import distinct, name_of
from roadworthy.catalog.engines import sequences_ceiling
from roadworthy.plan.operating import operating_point
from roadworthy.plan.workload import demand_of

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.spec.values import RequestProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One layout at one level. ``concurrency`` counts requests in flight over all GPUs; ``carries`` says whether that
    level serves the document's rate; the throughput is output tokens."""

    label: str
    concurrency: int
    ttft_p50_s: float
    tpot_p50_s: float
    tokens_per_s_and_gpu: float
    request_rate_per_s: float
    carries: bool
    on_front: bool = False


def pareto(plan: Plan, workload: RequestProfile) -> tuple[Point, ...]:
    """Every distinct layout that fits, at doubling concurrency up to what its pool holds, best layouts first."""
    fitting = [judged for judged in plan.layouts if judged.feasible is not False and judged.step_time is not None]
    points = [
        point for group in distinct(fitting) for point in _levels(name_of(group), group[0], workload)
    ]  # fmt: skip
    best = _front(points)
    return tuple(replace(point, on_front=index in best) for index, point in enumerate(points))


def _levels(label: str, judged: LayoutPlan, workload: RequestProfile) -> Iterable[Point]:
    assert judged.step_time is not None
    demand, layout = judged.demand or demand_of(workload), judged.layout
    tokens_max = judged.settings["max_num_batched_tokens"].value
    assert isinstance(tokens_max, int)
    holds = max(0, judged.kv_blocks - 1) // judged.cache.held_blocks(round(demand.context_mean))
    engines, gpus = layout.dp * layout.replicas, layout.world_size * layout.replicas
    for level in _doubling(min(holds, sequences_ceiling())):
        point = operating_point(
            judged.step_time, demand, concurrency=float(level), max_num_batched_tokens=tokens_max,
            scheduled_ahead=judged.scheduled_ahead,
        )  # fmt: skip
        rate = point.rate_per_s * engines
        yield Point(
            label=label,
            concurrency=level * engines,
            ttft_p50_s=point.ttft_p50_s,
            tpot_p50_s=point.tpot_p50_s,
            tokens_per_s_and_gpu=rate * demand.output_mean / gpus,
            request_rate_per_s=rate,
            carries=rate >= workload.rate_per_s,
        )


def _doubling(ceiling: int) -> list[int]:
    """1, 2, 4 … and the ceiling itself; nothing when not one request fits."""
    levels, level = [], 1
    while level < ceiling:
        levels.append(level)
        level *= 2
    return [*levels, ceiling] if ceiling >= 1 else []


def _front(points: Sequence[Point]) -> set[int]:
    """Places of the points that none other beats in both latency and throughput; of equals the first."""
    order = sorted(range(len(points)), key=lambda at: (points[at].tpot_p50_s, -points[at].tokens_per_s_and_gpu, at))
    front, most = set(), 0.0
    for at in order:
        if points[at].tokens_per_s_and_gpu > most:
            most = points[at].tokens_per_s_and_gpu
            front.add(at)
    return front


def front_of(points: Sequence[Point]) -> tuple[Point, ...]:
    """The front, fastest answer first."""
    return tuple(sorted((point for point in points if point.on_front), key=lambda point: point.tpot_p50_s))
