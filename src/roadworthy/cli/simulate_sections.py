"""What the HTML report of a simulation shows beyond that of `bench`: governance by tenant, and the run over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.bench.sections import Levels, TableSection
from roadworthy.cli.simulate_text import fairness
from roadworthy.core.units import format_count, format_duration
from roadworthy.simulate.timeline import levels_of

if TYPE_CHECKING:
    from roadworthy.cli.simulate_run import JudgedRun
    from roadworthy.simulate.standing import TenantStanding


def governance_table(judged: JudgedRun) -> tuple[TableSection, ...]:
    """Each tenant's way through the gateway, one row each; nothing where requests have no tenant."""
    if not judged.standings:
        return ()
    money = judged.currency if judged.cost is not None else ""
    columns = (
        "tenant", "requests", "admitted", "refused", "queued", "wait P99", "borrowed", "tokens served", "weight",
        "work", "SLA misses", *((money,) if money else ()),
    )  # fmt: skip
    misses = {one.id: one.sla_misses for one in judged.report.tenants}
    rows = tuple(_row(one, misses.get(one.id, 0), judged.cost if money else None) for one in judged.standings)
    even = fairness(judged)
    note = (
        "Weight is the tenant's share of all weights, work its share of what was computed (an output token counts as "
        "two). Who asks for less than its share leaves the rest to others."
    )
    if even is not None:
        note += f" Fairness {even:.3f}: Jain's index of the share of its requests that each had answered."
    return (TableSection(title="Governance", columns=columns, rows=rows, note=note),)


def _row(one: TenantStanding, misses: int, cost: float | None) -> tuple[str, ...]:
    refused = ", ".join(f"{format_count(times)} {code}" for code, times in one.refused)
    return (
        one.id,
        format_count(one.requests),
        format_count(one.admitted),
        refused or "0",
        format_count(one.waited),
        "–" if one.waited_p99_s is None else format_duration(one.waited_p99_s),
        format_count(one.borrowed),
        format_count(one.tokens),
        "–" if one.weight_ratio is None else f"{one.weight_ratio:.1%}",
        f"{one.work_ratio:.1%}",
        format_count(misses),
        *((f"{cost * one.work_ratio:,.2f}",) if cost is not None else ()),
    )


def run_levels(judged: JudgedRun) -> tuple[Levels, ...]:
    """How busy the engines were over time, and what ran and waited."""
    run = judged.run
    levels = levels_of(run.timeline, run.log, len(run.engines))
    if not levels.utilisation_ratio:
        return ()
    return (
        Levels(
            name="Utilisation",
            lines=(("engines busy", levels.utilisation_ratio), ("KV pool in use", levels.kv_usage_ratio)),
            as_ratio=True,
        ),
        Levels(
            name="Running and waiting",
            lines=(
                ("running", levels.running),
                ("waiting in engines", levels.waiting),
                ("in the gateway's queue", levels.queued),
            ),
        ),
    )
