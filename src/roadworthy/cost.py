"""What a million tokens costs on this cluster (facts: economics_and_sla.md, section 4).

Capacity a month is C = R * 3600 * H * U, with R the tokens a second served within the SLA, H = 730 hours and U the
month's mean utilisation of R. The unit cost is F / C * 1e6 with F the fixed cost of a month. Which tokens R counts
(output, or input and output) must be said beside the number; ``CostEstimate`` carries the word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.spec.values import ClusterSpec, CostSpec

HOURS_PER_MONTH = 730

Counted = Literal["output", "input and output"]


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """Money of one month, all included, and where the figure comes from."""

    per_month: float
    currency: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CostEstimate:
    """Cost of a million tokens at a given throughput. ``counted`` says which tokens."""

    fixed_per_month: float
    currency: str
    capacity_tokens_per_month: float
    unit_cost_per_mtok: float | None
    tokens_per_s: float
    utilisation_ratio: float
    counted: Counted
    assumptions: tuple[str, ...]


def fixed_cost(cost: CostSpec, cluster: ClusterSpec, gpu: Gpu) -> FixedCost | None:
    """The month's fixed cost: the document's own figure, its GPU-hour price, or the catalog's dated one.

    None when no price is known for the GPU: no number is better than an invented one.
    """
    if cost.fixed_per_month is not None:
        return FixedCost(per_month=cost.fixed_per_month, currency=cost.currency, source="cost.fixed_per_month")
    if cost.gpu_hour is not None:
        price, source = cost.gpu_hour, "cost.gpu_hour"
    elif gpu.gpu_hour is not None:
        price, source = gpu.gpu_hour, gpu.sources.get("gpu_hour", f"catalog, {gpu.id}")
    else:
        return None
    return FixedCost(
        per_month=price * cluster.gpus * HOURS_PER_MONTH,
        currency=cost.currency if cost.gpu_hour is not None else "USD",
        source=f"{cluster.gpus} GPUs x {price:g} an hour x {HOURS_PER_MONTH} h ({source})",
    )


def estimate(fixed: FixedCost, *, tokens_per_s: float, utilisation_ratio: float, counted: Counted) -> CostEstimate:
    """Unit cost at ``tokens_per_s`` and ``utilisation_ratio``; None when nothing is served."""
    capacity = tokens_per_s * 3600 * HOURS_PER_MONTH * utilisation_ratio
    return CostEstimate(
        fixed_per_month=fixed.per_month,
        currency=fixed.currency,
        capacity_tokens_per_month=capacity,
        unit_cost_per_mtok=fixed.per_month / capacity * 1e6 if capacity > 0 else None,
        tokens_per_s=tokens_per_s,
        utilisation_ratio=utilisation_ratio,
        counted=counted,
        assumptions=(fixed.source, f"{utilisation_ratio:.0%} mean utilisation of that throughput over a month"),
    )
