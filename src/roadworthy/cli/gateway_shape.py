"""What a KV block is, for quotas in bytes: out of the document's plan, where some tenant has such a quota."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from pathlib import Path

    from roadworthy.route.govern.advice import ReplicaSize
    from roadworthy.route.govern.footprint import BlockShape
    from roadworthy.spec.values import Deployment


def shape_of(deployment: Deployment, *, base: Path) -> tuple[BlockShape | None, ReplicaSize | None]:
    """The shape of the best layout's blocks, and what one more replica would add; None where no tenant has a quota in
    bytes, or where there is no plan.

    Planning takes some seconds, so nobody pays for it who has no use for it.
    """
    if all(tenant.kv_quota_bytes is None for tenant in deployment.tenants):
        return None, None
    from roadworthy.adapters.model_files import resolve_model
    from roadworthy.catalog.gpus import gpu_by_name
    from roadworthy.plan.search import make_plan
    from roadworthy.route.govern.advice import ReplicaSize
    from roadworthy.route.govern.footprint import BlockShape

    try:
        best = make_plan(
            deployment, resolve_model(deployment.model, base=base), gpu_by_name(deployment.cluster.gpu)
        ).best
    except RoadworthyError:  # the gateway serves engines that run already, whatever the document's cluster may be
        return None, None
    return (BlockShape.planned(best.cache), ReplicaSize.planned(best)) if best is not None else (None, None)
