"""A plan as the JSON that `plan --json` prints: the keys pinned in the design, and a few beside them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from roadworthy.plan.weights import checkpoint_totals

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan


def plan_json(plan: Plan, *, needed: str = "") -> Mapping[str, object]:
    """Every layout, best first. ``needed`` says what would be needed where nothing fits."""
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
        "layouts": [layout_json(judged) for judged in plan.layouts],
    }


def layout_json(judged: LayoutPlan) -> Mapping[str, object]:
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
        "predicted": judged.predicted,
    }
