"""The parts of the plan's report that speak of load: layouts under queueing, and latency against throughput."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roadworthy.advise.pareto import front_of, pareto
from roadworthy.advise.ranking import distinct, name_of
from roadworthy.cli.narrow import Fitting
from roadworthy.core.units import format_count, format_duration

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Queueing, Simulated
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, Predicted

_VERDICT = {"met": "green", "missed": "red", "undecided": "yellow"}
OFFERED_MIN = 0.85
"""Below this share of the asked rate a reader is told that the simulated load was lighter."""
_MEETS = {True: "met", False: "missed", None: ""}


def _table(*names: str, left: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for at, name in enumerate(names):
        table.add_column(name, justify="left" if at < left else "right", no_wrap=True)
    return table


def queueing_report(planned: Planned, queueing: Queueing) -> Iterator[RenderableType]:
    """Simulated numbers beside the analytic ones, in the order that the simulation gave."""
    if queueing.results:
        table = _table("layout", "TTFT\nP50", "TTFT\nP99", "TPOT\nP50", "TPOT\nP99", "tokens\n/s", left=1)
        table.add_column("SLA", no_wrap=True)
        for group in distinct([judged for judged in planned.plan.layouts if judged.layout in queueing.results]):
            result, predicted = queueing.results[group[0].layout], group[0].predicted
            table.add_row(name_of(group))
            table.add_row("  simulated", *_numbers(group[0], result), _verdict(result))
            if predicted is not None:
                table.add_row("  analytic", *_numbers(group[0], predicted), _MEETS[predicted.meets_sla])
        lines = [Text(line, style="dim") for line in queueing_notes(queueing)]
        title = "The best layouts at the asked rate, ordered by simulation"
        yield Group(Text("\n" + title, style="bold"), Fitting(table), *lines)
    for name, why in skipped_groups(planned, queueing):
        yield Text(f"\n{name} was not simulated: {why}", style="yellow")


def skipped_groups(planned: Planned, queueing: Queueing) -> Iterator[tuple[str, str]]:
    """Name and reason of each layout that could not be simulated, those alike as one."""
    for group in distinct([judged for judged in planned.plan.layouts if judged.layout in queueing.skipped]):
        yield name_of(group), queueing.skipped[group[0].layout]


def _numbers(judged: LayoutPlan, numbers: Simulated | Predicted) -> tuple[str, ...]:
    return (
        format_duration(numbers.ttft_p50_s),
        format_duration(numbers.ttft_p99_s),
        format_duration(numbers.tpot_p50_s),
        format_duration(numbers.tpot_p99_s),
        format_count(numbers.output_tokens_per_s * judged.layout.replicas),
    )


def _verdict(result: Simulated) -> Text:
    share = f", {result.attainment_ratio:.0%}" if result.verdict != "met" else ""
    return Text(result.verdict + share, style=_VERDICT[result.verdict])


def queueing_notes(queueing: Queueing) -> Iterator[str]:
    """What a reader must know to read the simulated numbers right."""
    results = list(queueing.results.values())
    counts = sorted({result.requests for result in results})
    each = f"{counts[0]:,}" if len(counts) == 1 else f"{counts[0]:,} to {counts[-1]:,}"
    yield (
        f"simulated: {each} requests each through vLLM's scheduler on the plan's step times, "
        "queueing included; a share counts the requests that kept every limit"
    )
    if any(result.engines < result.engines_total for result in results):
        most = max(result.engines for result in results)
        yield f"at most {most} of a layout's equal engines were simulated, at their share of the rate"
    offered = min(result.offered_ratio for result in results)
    if offered < OFFERED_MIN:
        yield f"one run saw only {offered:.0%} of the asked rate: its conversations take longer, and start over later"


def pareto_report(planned: Planned) -> Iterator[RenderableType]:
    """The points that no other layout beats in both latency and throughput."""
    front = front_of(pareto(planned.plan, planned.deployment.workload))
    if not front:
        return
    table = _table("layout", "in\nflight", "TPOT\nP50", "TTFT\nP50", "tokens/s\na GPU", "requests\n/s", left=1)
    table.add_column("asked\nrate", no_wrap=True)
    for point in front:
        table.add_row(
            point.label,
            format_count(point.concurrency),
            format_duration(point.tpot_p50_s),
            format_duration(point.ttft_p50_s),
            f"{point.tokens_per_s_and_gpu:,.1f}",
            f"{point.request_rate_per_s:,.3g}",
            "carried" if point.carries else "",
        )
    note = "analytic, before queueing; none of the others is both faster for a user and more for a GPU"
    yield Group(Text("\nLatency against throughput", style="bold"), Fitting(table), Text(note, style="dim"))
