"""What the gateway takes from the document's plan: blocks for quotas in bytes, the engines' room and pace."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from pathlib import Path

    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.spec.values import Deployment, Scalar


def plan_for(deployment: Deployment, *, base: Path) -> LayoutPlan | None:
    """The best layout; None where there is no plan, or nobody who has a use for it: tenants that share engines, and
    quotas in bytes. Planning takes a second or so."""
    if len(deployment.tenants) < 2 and all(tenant.kv_quota_bytes is None for tenant in deployment.tenants):
        return None
    from roadworthy.adapters.model_files import resolve_model
    from roadworthy.catalog.gpus import gpu_by_name
    from roadworthy.plan.search import make_plan

    try:
        return make_plan(
            deployment, resolve_model(deployment.model, base=base), gpu_by_name(deployment.cluster.gpu)
        ).best
    except RoadworthyError:  # the gateway serves engines that run already, whatever the document's cluster may be
        return None


def with_plan(
    config: GatewayConfig, best: LayoutPlan | None, *, max_num_seqs: Scalar = None, ranks: int | None = None
) -> GatewayConfig:
    """``config`` with the room and the pace of engines like those of ``best``.

    Args:
        max_num_seqs: what a rank of the engines was started with, where that is known; the plan's own choice says
            nothing of engines that somebody else has started.
        ranks: data-parallel ranks behind one URL; None for all of a replica.
    """
    if best is None:
        return config
    from roadworthy.route.govern.advice import ReplicaSize
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.route.govern.prefill import PrefillPace

    ranks, governance = ranks or best.layout.dp, config.governance
    if governance.slots_per_engine is None and isinstance(max_num_seqs, int):
        governance = replace(governance, slots_per_engine=max_num_seqs * ranks)
    return replace(
        config,
        governance=governance,
        shape=BlockShape.planned(best.cache),
        replica=ReplicaSize.planned(best),
        prefill=PrefillPace.planned(best, ranks=ranks),
    )
