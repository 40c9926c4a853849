"""Which layouts are worth telling apart, and their order once some of them were simulated."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.units import GIB, format_duration

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Queueing, Simulated
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.spec.values import Sla

ALIKE_RATIO = 1.01
"""Predictions of two layouts that differ by less than this, in every number, are the same for a reader."""

ALIKE_POOL_RATIO, ALIKE_SHORT_BYTES = 1.05, GIB // 2
"""So near may KV pools be, and what two layouts lack: about what the plan's memory is good for."""

ATTAINMENT_STEP = 0.02
MISS_STEP = 1.1
"""Simulated layouts that differ by less than these are not told apart: their step times share one error."""


def alike(one: LayoutPlan, other: LayoutPlan) -> bool:
    """Whether two layouts differ by expert parallelism alone, and that to no effect that a reader would act on."""
    a, b = one.layout, other.layout
    if (a.tp, a.pp, a.dp, a.replicas) != (b.tp, b.pp, b.dp, b.replicas) or one.feasible != other.feasible:
        return False
    if not one.ranks or not other.ranks:
        return one.layout == other.layout or (not one.ranks and not other.ranks and one.reasons == other.reasons)
    if not _near(one.kv_blocks, other.kv_blocks, ALIKE_POOL_RATIO):
        return False
    if abs(one.short_by_bytes - other.short_by_bytes) > ALIKE_SHORT_BYTES:
        return False
    if one.predicted is None or other.predicted is None:
        return one.predicted is other.predicted
    pairs = (
        (one.predicted.ttft_p99_s, other.predicted.ttft_p99_s),
        (one.predicted.tpot_p50_s, other.predicted.tpot_p50_s),
        (one.predicted.tpot_p99_s, other.predicted.tpot_p99_s),
        (one.predicted.output_tokens_per_s, other.predicted.output_tokens_per_s),
    )
    return all(_near(*pair, ALIKE_RATIO) for pair in pairs)


def _near(one: float, other: float, ratio: float) -> bool:
    return max(one, other) <= ratio * min(one, other)


def distinct(layouts: Sequence[LayoutPlan]) -> list[list[LayoutPlan]]:
    """The layouts in groups of those alike, in the order of each group's first."""
    groups: list[list[LayoutPlan]] = []
    by_split: dict[tuple[int, ...], list[list[LayoutPlan]]] = {}
    for judged in layouts:
        layout = judged.layout
        split = by_split.setdefault((layout.tp, layout.pp, layout.dp, layout.replicas), [])
        for group in split:
            if alike(group[0], judged):
                group.append(judged)
                break
        else:
            split.append([judged])
            groups.append(split[-1])
    return groups


def name_of(group: Sequence[LayoutPlan]) -> str:
    """``TP8 PP4 (EP or not)`` where expert parallelism makes no difference; the numbers are those of the first."""
    if len(group) == 1:
        return group[0].layout.label
    return min((judged.layout for judged in group), key=lambda layout: layout.ep).label + " (EP or not)"


def reranked(plan: Plan, queueing: Queueing, sla: Sla) -> Plan:
    """``plan`` with the simulated layouts in the order that the simulation gives them; the rest stay behind, as ranked.

    First those whose every objective is met, then most requests within the limits (the output tokens a second and GPU
    that count, and so the cost of one), then those that miss by least. Without a latency objective: those that carry
    the asked rate, then most tokens a second. What ties keeps the plan's order, which is by capacity. All layouts use
    all GPUs, so tokens a second and GPU, and cost per token, order them alike.
    """
    results = queueing.results
    known = [judged for judged in plan.layouts if judged.layout in results]
    rest = [judged for judged in plan.layouts if judged.layout not in results]
    ahead = [judged for judged in rest if judged.layout in queueing.skipped]
    if not known:
        return plan
    most = max(_tokens(judged, results[judged.layout]) for judged in known)
    known.sort(key=lambda judged: _key(judged, results[judged.layout], sla, most))
    # a layout that could not be simulated was no worse by the plan: it goes behind those that were, before the rest
    return replace(plan, layouts=(*known, *ahead, *(one for one in rest if one.layout not in queueing.skipped)))


def _key(judged: LayoutPlan, result: Simulated, sla: Sla, most: float) -> tuple[float, ...]:
    fits = {True: 0, "uncertain": 1, False: 2}[judged.feasible]
    if sla.ttft_p99_s is None and sla.tpot_p99_s is None:
        return (fits, 0 if result.carried else 1, _steps(most, _tokens(judged, result)))
    miss = worst_miss(result, sla)
    # too few requests for a verdict do not excuse a latency that is over its limit
    verdict = 0 if result.verdict == "met" else 1 if result.verdict == "undecided" and miss <= 1 else 2
    missed = math.floor((1 - result.attainment_ratio) / ATTAINMENT_STEP + 1e-9) if verdict else 0
    return (fits, verdict, missed, _steps(max(1.0, miss), 1.0))


def _tokens(judged: LayoutPlan, result: Simulated) -> float:
    return result.output_tokens_per_s * judged.layout.replicas


def _steps(more: float, less: float) -> int:
    return int(math.log(more / less) / math.log(MISS_STEP)) if more > less > 0 and math.isfinite(more) else 0


def worst_miss(result: Simulated, sla: Sla) -> float:
    """How many times over its limit the worst latency objective is; below 1 when all are kept."""
    ratios = [result.ttft_p99_s / sla.ttft_p99_s] if sla.ttft_p99_s is not None else []
    ratios += [result.tpot_p99_s / sla.tpot_p99_s] if sla.tpot_p99_s is not None else []
    return max(ratios, default=0.0)


def why_behind(judged: LayoutPlan, plan: Plan, queueing: Queueing, sla: Sla) -> str:
    """Why a layout is where it is, in words: its reasons if it does not fit, else what the first does better."""
    if judged.feasible is False:
        return "; ".join(judged.reasons)
    best = plan.best
    words = [f"fits only if the overhead is as assumed ({judged.reasons[0]})"] if judged.reasons else []
    words += _latency_words(judged, queueing.of(judged), sla)
    if best is not None and judged is not best:
        words += _against(judged, best, queueing)
    elif judged is best:
        words.insert(0, "first choice")
    return "; ".join(words)


def _latency_words(judged: LayoutPlan, result: Simulated | None, sla: Sla) -> list[str]:
    source = result if result is not None else judged.predicted
    if source is None:
        return ["its speed is not modelled"]
    words = []
    how = "simulated " if result is not None else ""
    for name, limit_s, value_s in (
        ("TTFT P99", sla.ttft_p99_s, source.ttft_p99_s),
        ("TPOT P99", sla.tpot_p99_s, source.tpot_p99_s),
    ):
        if limit_s is not None and value_s > limit_s:
            words.append(f"{how}{name} {format_duration(value_s)} over {format_duration(limit_s)}")
    if judged.predicted is not None and judged.predicted.saturated:
        words.append("carries less than the asked rate")
    elif result is not None and not result.carried:
        words.append("the backlog grows in simulation")
    if not words and (sla.ttft_p99_s is not None or sla.tpot_p99_s is not None):
        words.append(f"{how}latencies keep the limits")
    return words


def _against(judged: LayoutPlan, best: LayoutPlan, queueing: Queueing) -> list[str]:
    words = []
    mine, first = judged.predicted, best.predicted
    if mine is not None and first is not None:
        ours = mine.capacity_tokens_per_s * judged.layout.replicas
        theirs = first.capacity_tokens_per_s * best.layout.replicas
        if ours < 0.9 * theirs:
            words.append(f"carries {ours:,.0f} output tokens/s at most within the limits, the first {theirs:,.0f}")
    if judged.resident_requests < 0.9 * best.resident_requests:
        words.append(
            f"holds {judged.resident_requests:,} requests of full length, the first {best.resident_requests:,}"
        )
    one, other = queueing.of(judged), queueing.of(best)
    if one is not None and other is not None and one.attainment_ratio < other.attainment_ratio - ATTAINMENT_STEP:
        words.append(
            f"{one.attainment_ratio:.0%} of requests within the limits, the first {other.attainment_ratio:.0%}"
        )
    elif one is None and other is not None:
        words.append("not simulated")
    return words
