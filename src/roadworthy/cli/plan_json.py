"""A plan as the JSON that `plan --json` prints: the keys pinned in the design, and a few beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from roadworthy.cli.output import plain
from roadworthy.plan.weights import checkpoint_totals

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Queueing, Simulated
    from roadworthy.cli.plan_second_opinion import OpinionRow
    from roadworthy.plan.values import LayoutPlan, Plan, PlanOption


def plan_json(
    plan: Plan,
    *,
    needed: str = "",
    queueing: Queueing | None = None,
    options: Sequence[PlanOption] = (),
    objectives_needed: str = "",
    second_opinion: Sequence[OpinionRow] | None = None,
) -> Mapping[str, object]:
    """Every layout, best first. ``needed`` says what would be needed where nothing fits; ``queueing`` is what the
    order of the first layouts rests on, None when they were not simulated; ``second_opinion`` None when not asked."""
    totals = checkpoint_totals(plan.model)
    return {
        "model": plan.model.id,
        "architecture": plan.model.architecture,
        "source": plan.model.source,
        "parameters": totals.parameters,
        "layers": plan.model.num_layers,
        "weights_bytes_total": plan.weights_bytes_total,
        "weights_bytes": {name: stored.bytes for name, stored in totals.components.items()},
        "feasible": plan.best is not None,
        "needed": needed,
        "assumptions": plan.assumptions,
        "ranked_by": "simulation" if queueing is not None and queueing.results else "analytic",
        "not_simulated": {layout.label: why for layout, why in queueing.skipped.items()} if queueing else {},
        "objectives_needed": objectives_needed,
        "options": options,
        "second_opinion": second_opinion,
        "layouts": [layout_json(judged, queueing.of(judged) if queueing else None) for judged in plan.layouts],
    }


def layout_json(judged: LayoutPlan, simulated: Simulated | None = None) -> Mapping[str, object]:
    """One layout, flat. ``bytes_per_block`` has one entry for each pipeline stage."""
    layout = judged.layout
    return {
        "label": layout.label,
        "tp": layout.tp,
        "pp": layout.pp,
        "dp": layout.dp,
        "ep": layout.ep,
        "stage_layers": layout.stage_layers,
        "replicas": layout.replicas,
        "feasible": judged.feasible,
        "reasons": judged.reasons,
        "short_by_bytes": judged.short_by_bytes,
        "ranks": judged.ranks,
        "tightest_rank": judged.tightest_rank,
        "kv_capacity_tokens": judged.kv_capacity_tokens,
        "max_concurrency": round(judged.max_concurrency, 4),
        "kv_resident_tokens": judged.kv_resident_tokens,
        "resident_requests": judged.resident_requests,
        "kv_blocks": judged.kv_blocks,
        "block_tokens": judged.cache.block_tokens,
        "bytes_per_block": judged.cache.bytes_per_block,
        "state_bytes_per_sequence": judged.cache.state_bytes_per_sequence,
        "settings": judged.settings,
        "warnings": judged.warnings,
        "predicted": _predicted(judged, simulated),
    }


def _predicted(judged: LayoutPlan, simulated: Simulated | None) -> Mapping[str, object] | None:
    """The analytic numbers, and beside them those of the simulation, both of one replica; None where none is known."""
    if judged.predicted is None:
        return None
    analytic = plain(judged.predicted)
    assert isinstance(analytic, dict)  # a dataclass becomes an object
    return {**analytic, "simulated": simulated}
