"""What a report is made of, whoever renders it: runs that were judged, and tables that came from elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.latency import MIN_SAMPLES
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from roadworthy.advise.breakdown import GroupReport
    from roadworthy.advise.gates import Verdict
    from roadworthy.advise.objectives import Objective
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.core.latency import LatencySummary
    from roadworthy.core.records import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class Levels:
    """Something that rises and falls during a run, drawn over time.

    Args:
        lines: each a name with (seconds from the start, level) pairs.
        as_ratio: levels run from 0 to 1; otherwise they count.
    """

    name: str
    lines: tuple[tuple[str, tuple[tuple[float, float], ...]], ...]
    as_ratio: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSection:
    """One run with its verdict, such as "live, 20 s" or "virtual time".

    Args:
        facts: (name, value) pairs that let a reader repeat the run: target, model, seed, rate.
        notes: what a reader must know to read the numbers right.
        simulated: the engine was a model of one; it is said wherever the numbers show.
        records: the requests, for the plots; may be empty.
        groups: the run by tenant, prompt length or kind of session, each with its name.
        levels: what rose and fell during the run.
        tables: what else is known of it, shown behind the tenants.
    """

    title: str
    report: SlaReport
    records: tuple[RequestRecord, ...] = ()
    facts: tuple[tuple[str, str], ...] = ()
    notes: tuple[str, ...] = ()
    simulated: bool = False
    groups: tuple[tuple[str, tuple[GroupReport, ...]], ...] = ()
    levels: tuple[Levels, ...] = ()
    tables: tuple[TableSection, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSection:
    """A table made elsewhere, such as the plan or the cost: column names may be empty, cells are plain text."""

    title: str
    rows: tuple[tuple[str, ...], ...]
    columns: tuple[str, ...] = ()
    note: str = ""


Section = RunSection | TableSection

LATENCIES = (
    ("ttft_s", "TTFT", "send to first token"),
    ("user_ttft_s", "TTFT, user", "scheduled arrival to first token; judged"),
    ("tpot_s", "TPOT", "time per output token after the first; judged"),
    ("itl_s", "ITL", "gap between stream events"),
    ("e2e_s", "E2E", "send to last token"),
    ("client_queue_s", "client lag", "scheduled arrival to send"),
)
"""Field of the report, short name, meaning; the order in which reports show them."""


OF_MET: dict[bool | None, Verdict] = {True: "met", False: "missed", None: "undecided"}
"""The word for an objective's ``met``."""


def objective_name(objective: Objective) -> str:
    """``TTFT P99`` of ``ttft_p99``; other names are words already."""
    word, _, percentile = objective.name.partition("_")
    return f"{word.upper()} {percentile.upper()}" if percentile else word


def objective_value(objective: Objective, value: float | None) -> str:
    """A limit or a measurement in the objective's own unit; a dash for none."""
    if value is None:
        return "–"
    if objective.unit == "s":
        return format_duration(value)
    return f"{value:.2%}" if objective.unit == "ratio" else f"{value:.2f}/s"


def objective_interval(objective: Objective) -> str:
    """``95 %: 240 ms to 262 ms``, and what it means where the limit lies inside; empty without an interval."""
    if objective.low is None or objective.high is None:
        return ""
    words = f"95 %: {objective_value(objective, objective.low)} to {objective_value(objective, objective.high)}"
    inside = objective.low <= objective.limit < objective.high if objective.unit == "s" else False
    return f"{words}, the limit is inside: a repeated run may end otherwise" if inside else words


def group_word(group: GroupReport) -> Verdict:
    """What became of a group's promises: missed when any is, undecided when any cannot be told."""
    found = {item.met for item in group.objectives}
    return "missed" if False in found else "undecided" if None in found else "met"


def group_cells(group: GroupReport) -> tuple[str, ...]:
    """Requests, failed, misses, TTFT P50 and P99, TPOT P50 and P99, as written; ``GROUP_COLUMNS`` names them."""
    latencies = [
        "–" if not summary.count else format_duration(value) + ("*" if too_few(summary, percent) else "")
        for summary in (group.ttft_s, group.tpot_s)
        for percent, value in ((50, summary.p50), (99, summary.p99))
    ]
    return (f"{group.requests:,}", f"{group.failed:,}", f"{group.sla_misses:,}", *latencies)


GROUP_COLUMNS = ("requests", "failed", "misses", "TTFT P50", "TTFT P99", "TPOT P50", "TPOT P99")


def too_few(summary: LatencySummary, percent: int) -> bool:
    """Whether a percentile is shown only for orientation, since a verdict on it would want more samples."""
    return summary.count < MIN_SAMPLES[percent]


def sample_notes(report: SlaReport) -> tuple[str, ...]:
    """What the size of the sample allows to be said, in sentences."""
    notes = []
    short = [percent for percent in sorted(MIN_SAMPLES) if report.completed < MIN_SAMPLES[percent]]
    if short:
        wanted = ", ".join(f"P{percent} {MIN_SAMPLES[percent]:,}" for percent in short)
        notes.append(
            f"{report.completed:,} requests completed; a verdict wants more for {wanted}. "
            "Percentiles marked * are shown, not judged."
        )
    if report.warmup_requests:
        notes.append(f"{report.warmup_requests:,} warm-up requests are left out of every number.")
    if report.default_limits:
        notes.append("No objective was stated: the default acceptance limits apply.")
    if report.partial:
        notes.append("The run was ended early; this report is partial.")
    return tuple(notes)
