"""What a million tokens costs on this cluster.

Capacity a month is C = R * 3600 * H * U, with R the tokens a second served within the SLA, H = 730 hours and U the
month's mean utilisation of R. The unit cost is F / C * 1e6 with F the fixed cost of a month. Which tokens R counts
(output, or input and output) must be said beside the number; ``CostEstimate`` carries the word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.cost.fixed import FixedCost

HOURS_PER_MONTH = 730
SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600
MTOK = 1e6

Counted = Literal["output", "input and output"]


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


def capacity_tokens_per_month(tokens_per_s: float, utilisation_ratio: float = 1.0) -> float:
    """Tokens a month at ``tokens_per_s`` and the mean share of it that is used."""
    return tokens_per_s * SECONDS_PER_MONTH * utilisation_ratio


def unit_cost_per_mtok(per_month: float, tokens_per_month: float) -> float | None:
    """Money per million tokens; None when there are none."""
    return per_month / tokens_per_month * MTOK if tokens_per_month > 0 else None


def gpu_hour(fixed_per_month: float, gpus: int) -> float:
    """What one GPU costs an hour when ``gpus`` of them cost ``fixed_per_month``."""
    return fixed_per_month / gpus / HOURS_PER_MONTH


def estimate(fixed: FixedCost, *, tokens_per_s: float, utilisation_ratio: float, counted: Counted) -> CostEstimate:
    """Unit cost at ``tokens_per_s`` and ``utilisation_ratio``; None when nothing is served."""
    capacity = capacity_tokens_per_month(tokens_per_s, utilisation_ratio)
    return CostEstimate(
        fixed_per_month=fixed.per_month,
        currency=fixed.currency,
        capacity_tokens_per_month=capacity,
        unit_cost_per_mtok=unit_cost_per_mtok(fixed.per_month, capacity),
        tokens_per_s=tokens_per_s,
        utilisation_ratio=utilisation_ratio,
        counted=counted,
        assumptions=(fixed.source, f"{utilisation_ratio:.0%} mean utilisation of that throughput over a month"),
    )
