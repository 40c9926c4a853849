"""The plan as a table of the HTML report: the layouts that fit first, then the nearest that do not."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.bench.sections import TableSection
from roadworthy.core.units import format_bytes, format_count, format_duration, format_gib

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan

SHOWN = 10


def plan_section(plan: Plan) -> TableSection:
    """``plan`` as one table; what was assumed stands below it."""
    return TableSection(
        title=f"Plan: {plan.model.id}, {format_bytes(plan.weights_bytes_total)} of weights",
        columns=(
            "layout",
            "fits",
            "weights, fullest rank",
            "KV blocks",
            "requests resident",
            "TTFT P50",
            "TPOT P50",
            "why",
        ),
        rows=tuple(_row(layout) for layout in plan.layouts[:SHOWN]),
        note=f"{len(plan.layouts)} layouts considered. " + " ".join(_sentence(one) for one in plan.assumptions),
    )


def _row(judged: LayoutPlan) -> tuple[str, ...]:
    fits = {True: "yes", False: "no", "uncertain": "uncertain"}[judged.feasible]
    fullest = max((rank.weights_bytes for rank in judged.ranks), default=0)
    predicted = judged.predicted
    return (
        judged.layout.label,
        fits,
        format_gib(fullest) if fullest else "–",
        format_count(judged.kv_blocks) if judged.kv_blocks else "–",
        format_count(judged.resident_requests) if judged.resident_requests else "–",
        format_duration(predicted.ttft_p50_s) if predicted else "–",
        format_duration(predicted.tpot_p50_s) if predicted else "–",
        judged.reasons[0] if judged.reasons else "",
    )


def _sentence(text: str) -> str:
    return text if text.endswith(".") else f"{text}."
