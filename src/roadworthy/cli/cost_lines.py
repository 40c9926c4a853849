"""The cost of a million tokens at the throughput of one run, as a table for terminal and report."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.bench.sections import TableSection
from roadworthy.cost import CostEstimate, Counted, estimate, fixed_cost

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned


def cost_section(planned: Planned, output_tokens_per_s: float, total_tokens_per_s: float) -> TableSection:
    """Unit cost at a throughput that a run reached, for both ways of counting tokens.

    The throughput is that of the run, which the asked rate may have bounded: it is what was served, not the most that
    could be.
    """
    deployment = planned.deployment
    fixed = fixed_cost(deployment.cost, deployment.cluster, planned.gpu)
    if fixed is None:
        return TableSection(
            title="Cost",
            rows=(
                ("fixed cost", f"no price is known for {planned.gpu.id}: set cost.gpu_hour or cost.fixed_per_month"),
            ),
        )
    counted: tuple[tuple[Counted, float], ...] = (
        ("output", output_tokens_per_s),
        ("input and output", total_tokens_per_s),
    )
    estimates = [
        estimate(fixed, tokens_per_s=rate, utilisation_ratio=deployment.cost.utilisation_ratio, counted=which)
        for which, rate in counted
    ]
    rows = [("fixed cost", f"{fixed.per_month:,.0f} {fixed.currency} a month", fixed.source)]
    rows += [_row(one) for one in estimates]
    return TableSection(
        title="Cost of a million tokens",
        rows=tuple(rows),
        columns=("", "cost", "basis"),
        note=f"At the throughput this run served and {deployment.cost.utilisation_ratio:.0%} mean use of it over a "
        "month; `roadworthy cost` breaks the fixed cost down and compares with an API.",
    )


def _row(one: CostEstimate) -> tuple[str, str, str]:
    price = "nothing was served" if one.unit_cost_per_mtok is None else f"{one.unit_cost_per_mtok:,.2f} {one.currency}"
    return (
        f"per million tokens, {one.counted}",
        price,
        f"{one.tokens_per_s:,.0f} tokens/s, {one.capacity_tokens_per_month / 1e9:,.2f} billion a month",
    )
