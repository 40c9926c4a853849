"""`plan --second-opinion`: another estimator's time per output token beside ours, for the layouts worth looking at."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roadworthy.adapters.second_opinion import TABLES, VERSION, SecondOpinion
from roadworthy.advise.ranking import distinct
from roadworthy.cli.narrow import Fitting
from roadworthy.cli.plan_advice import item
from roadworthy.core.units import format_duration
from roadworthy.plan.operating import operating_point

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan

ASKED = 3
"""The first so many distinct layouts, and the first without stages, which is the one it can judge."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpinionRow:
    """One layout. ``sequences`` are in flight on each data-parallel rank; ``ratio`` is theirs over ours.

    ``theirs_tpot_s`` and ``ratio`` are None where it has no opinion, and ``refused`` says why.
    """

    label: str
    sequences: int
    ours_tpot_s: float
    theirs_tpot_s: float | None
    ratio: float | None
    refused: str
    source: str = f"aiconfigurator-core {VERSION}, tables of vLLM {TABLES}"


def opinions_of(planned: Planned) -> tuple[OpinionRow, ...]:
    """Ours and theirs at the concurrency that the asked rate leads to. Raises Unsupported without the package."""
    second = SecondOpinion(planned.model, planned.gpu, weights=planned.deployment.model.weights)
    return tuple(row for judged in _asked(planned) if (row := _row(second, judged)) is not None)


def _asked(planned: Planned) -> Sequence[LayoutPlan]:
    fitting = [
        group[0]
        for group in distinct([judged for judged in planned.plan.layouts if judged.feasible is not False])
    ]  # fmt: skip
    flat = next((judged for judged in fitting[ASKED:] if judged.layout.pp == 1), None)
    return [*fitting[:ASKED], *([flat] if flat is not None else [])]


def _row(second: SecondOpinion, judged: LayoutPlan) -> OpinionRow | None:
    predicted, step, demand = judged.predicted, judged.step_time, judged.demand
    budget = judged.settings["max_num_batched_tokens"].value
    if predicted is None or step is None or demand is None or not isinstance(budget, int):
        return None
    sequences = max(1, round(predicted.concurrency / judged.layout.dp))
    ours = operating_point(step, demand, concurrency=float(sequences), max_num_batched_tokens=budget).tpot_p50_s
    opinion = second.tpot(
        judged.layout, sequences=sequences, prompt_tokens=round(demand.prompt_mean),
        output_tokens=round(demand.output_mean), batched_tokens=budget, cached_tokens=round(demand.cached_mean),
    )  # fmt: skip
    refused = opinion.refused
    if not refused and step.draft_tokens:
        refused = "it was not asked with drafts: compare without speculative_config"
    theirs = None if refused else opinion.tpot_s
    return OpinionRow(
        label=judged.layout.label, sequences=sequences, ours_tpot_s=ours, theirs_tpot_s=theirs,
        ratio=theirs / ours if theirs is not None else None, refused=refused,
    )  # fmt: skip


def opinions_report(rows: Sequence[OpinionRow]) -> Iterator[RenderableType]:
    """A table, and below it why some layouts have no second number."""
    title = Text("\nSecond opinion on the time per output token", style="bold")
    known = [row for row in rows if row.theirs_tpot_s is not None and row.ratio is not None]
    lines = [f"{row.label}: {row.refused}" for row in rows if row.refused]
    if not rows:
        lines = ["no layout has a predicted time"]
    parts: list[RenderableType] = [title]
    if known:
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
        for name in ("layout", "in flight\na rank", "ours", "theirs", "theirs\n/ ours"):
            table.add_column(name, justify="left" if name == "layout" else "right", no_wrap=True)
        for row in known:
            assert row.theirs_tpot_s is not None
            table.add_row(
                row.label, f"{row.sequences:,}", format_duration(row.ours_tpot_s),
                format_duration(row.theirs_tpot_s), f"{row.ratio:.2f}",
            )  # fmt: skip
        parts.append(Fitting(table))
    parts += [item(Text(line)) for line in lines]
    source = rows[0].source if rows else ""
    parts.append(Text(f"theirs: {source}; its memory, TTFT and pipelines are not used", style="dim"))
    yield Group(*parts)
