"""What a planned cluster costs an hour."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned


def cost_per_hour(planned: Planned) -> float | None:
    """Money of one hour of the whole cluster; None when no price is known for the GPU."""
    from roadworthy.cost import HOURS_PER_MONTH, fixed_cost

    fixed = fixed_cost(planned.deployment.cost, planned.deployment.cluster, planned.gpu)
    return fixed.per_month / HOURS_PER_MONTH if fixed is not None else None
