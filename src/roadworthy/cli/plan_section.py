"""The plan as a table of the HTML report: the layouts that fit first, then the nearest that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.advise.queueing import NOT_SIMULATED, Queueing
from roadworthy.advise.ranking import distinct, name_of, why_behind
from roadworthy.bench.report_page import sentence
from roadworthy.bench.sections import TableSection
from roadworthy.core.units import format_bytes, format_count, format_duration, format_gib

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan

SHOWN = 10
NO_BREAK = "\u00a0"
"""Keeps a layout's name on one line."""

COLUMNS = (
    "layout", "fits", "weights, fullest rank", "KV blocks", "requests resident", "TTFT P99", "TPOT P99", "why",
)  # fmt: skip


def plan_section(planned: Planned) -> TableSection:
    """The plan as one table; what was assumed stands below it."""
    plan, queueing = planned.plan, planned.queueing or NOT_SIMULATED
    groups = distinct(plan.layouts)
    how = "; latencies with * are simulated, the others analytic, before queueing" if queueing.results else ""
    return TableSection(
        title=f"Plan: {plan.model.id}, {format_bytes(plan.weights_bytes_total)} of weights",
        columns=COLUMNS,
        rows=tuple(_row(group, planned, queueing) for group in groups[:SHOWN]),
        note=" ".join(sentence(one) for one in (f"{len(plan.layouts)} layouts considered{how}", *plan.assumptions)),
    )


def _row(group: Sequence[LayoutPlan], planned: Planned, queueing: Queueing) -> tuple[str, ...]:
    judged = group[0]
    fits = {True: "yes", False: "no", "uncertain": "uncertain"}[judged.feasible]
    fullest = max((rank.weights_bytes for rank in judged.ranks), default=0)
    return (
        name_of(group).replace(" ", NO_BREAK),
        fits,
        format_gib(fullest) if fullest else "–",
        format_count(judged.kv_blocks) if judged.kv_blocks else "–",
        format_count(judged.resident_requests) if judged.resident_requests else "–",
        *_latencies(judged, queueing),
        why_behind(judged, planned.plan, queueing, planned.deployment.sla),
    )


def _latencies(judged: LayoutPlan, queueing: Queueing) -> tuple[str, ...]:
    result, predicted = queueing.of(judged), judged.predicted
    if result is not None:
        return f"{format_duration(result.ttft_p99_s)}*", f"{format_duration(result.tpot_p99_s)}*"
    if predicted is not None:
        return format_duration(predicted.ttft_p99_s), format_duration(predicted.tpot_p99_s)
    return "–", "–"
