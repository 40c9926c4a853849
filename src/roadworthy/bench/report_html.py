"""The HTML report: one file that opens offline, with no script and no address in it.

Everything that came from outside (names, errors, URLs of the target) is escaped, and the page's own policy forbids
loading anything, so that a report can be mailed around.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from roadworthy.bench import plots
from roadworthy.bench.plot_curves import STYLE, Curve, Scale, curves, legend
from roadworthy.bench.report_page import notes, page, paragraph, scroll, sentence, table
from roadworthy.bench.sections import (
    GROUP_COLUMNS,
    LATENCIES,
    OF_MET,
    Levels,
    RunSection,
    Section,
    TableSection,
    group_cells,
    group_word,
    objective_interval,
    objective_name,
    objective_value,
    sample_notes,
    too_few,
)
from roadworthy.core.units import format_count, format_duration

if TYPE_CHECKING:
    from roadworthy.advise.objectives import Objective
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.core.latency import LatencySummary

_WORDS = {"met": "Met", "missed": "Missed", "undecided": "Undecided"}
_SIGNS = {"met": "✓", "missed": "✕", "undecided": "?"}


def render_html(title: str, sections: Sequence[Section], *, subtitle: str = "", generator: str = "roadworthy") -> str:
    """The whole page. Runs get a verdict each at the top, in the order of ``sections``."""
    runs = [section for section in sections if isinstance(section, RunSection)]
    body = [
        *(_banner(run, linked=len(runs) > 1) for run in runs),
        *(_section(section, index, headed=len(sections) > 1) for index, section in enumerate(sections)),
    ]
    return page(title, body, subtitle=subtitle, generator=generator, style=STYLE if any(r.levels for r in runs) else "")


def _section(section: Section, index: int, *, headed: bool) -> str:
    if isinstance(section, TableSection):
        rows = table(section.columns, section.rows)
        return f"<section><h2>{escape(section.title)}</h2>{rows}{paragraph(section.note, 'note')}</section>"
    return _run(section, headed=headed or index > 0)


def _banner(run: RunSection, *, linked: bool) -> str:
    verdict = run.report.verdict
    title = f'<span class="of">{escape(run.title)}</span>' if linked else ""
    return (
        f'<div class="banner {verdict}"><span class="sign">{_SIGNS[verdict]}</span><div>'
        f"<strong>{_WORDS[verdict]}</strong>{title}{_badge(run)}"
        f"<p>{escape(sentence(run.report.reason))}</p></div></div>"
    )


def _run(run: RunSection, *, headed: bool) -> str:
    report = run.report
    remarks = (*run.notes, *sample_notes(report))
    heading = f"<h2>{escape(run.title)}{_badge(run)}</h2>" if headed else ""
    return (
        f"<section>{heading}"
        f"{_tiles(report)}"
        f"<h3>Objectives</h3>{_objectives(report.objectives)}"
        f"<h3>Latency</h3>{_latencies(report)}"
        f"{notes(remarks)}"
        f"{_plots(run)}"
        f"{_groups(run) if run.groups else _tenants(report)}{_tables(run)}{_errors(report)}"
        f"<details><summary>Gates passed on the way to the verdict</summary>{_gates(report)}</details>"
        f"{_facts(run.facts)}</section>"
    )


def _badge(run: RunSection) -> str:
    badges = ['<span class="badge simulated">simulated engine</span>'] if run.simulated else []
    badges += ['<span class="badge">partial</span>'] if run.report.partial else []
    return "".join(badges)


def _tiles(report: SlaReport) -> str:
    asked = "" if report.asked_rate_per_s is None else f"asked {report.asked_rate_per_s:.2f}/s"
    attained = "" if report.attainment_ratio is None else f"{report.attainment_ratio:.1%} of requests"
    tiles = (
        ("requests", format_count(report.requests), f"{format_count(report.failed)} failed"),
        ("completed a second", f"{report.request_rate_per_s:.2f}", asked),
        ("output tokens a second", format_count(report.output_tokens_per_s), f"{report.total_tokens_per_s:,.0f} total"),
        ("goodput a second", f"{report.goodput_rps:.2f}", attained),
        ("duration", format_duration(report.duration_s), "drain included"),
    )
    cells = (
        f"<div><span>{escape(name)}</span><b>{escape(value)}</b><small>{escape(more)}</small></div>"
        for name, value, more in tiles
    )
    return f'<div class="tiles">{"".join(cells)}</div>'


def _objectives(objectives: Sequence[Objective]) -> str:
    rows = "".join(
        f'<tr><td class="word {OF_MET[item.met]}">{_SIGNS[OF_MET[item.met]]} {OF_MET[item.met]}</td>'
        f"<th>{escape(objective_name(item))}</th>"
        f'<td class="number">{escape(objective_value(item, item.limit))}</td>'
        f'<td class="number">{escape(objective_value(item, item.measured))}</td>'
        f'<td class="why">{escape("; ".join(filter(None, (item.why, objective_interval(item)))))}</td></tr>'
        for item in objectives
    )
    numbers = '<td class="number">limit</td><td class="number">measured</td>'
    head = f"<tr><td></td><th>objective</th>{numbers}<td>why</td></tr>"
    return f'<table class="objectives"><thead>{head}</thead><tbody>{rows}</tbody></table>'


def _latencies(report: SlaReport) -> str:
    rows = "".join(
        f'<tr><th title="{escape(meaning)}">{escape(name)}</th>{_cells(getattr(report, field))}'
        f'<td class="meaning">{escape(meaning)}</td></tr>'
        for field, name, meaning in LATENCIES
    )
    names = "".join(f'<td class="number">{name}</td>' for name in ("mean", "P50", "P90", "P95", "P99"))
    head = f"<tr><td></td>{names}<td></td></tr>"
    return scroll(f"<table><thead>{head}</thead><tbody>{rows}</tbody></table>")


def _cells(summary: LatencySummary) -> str:
    if not summary.count:
        return '<td class="number">–</td>' * 5
    mean = f'<td class="number">{format_duration(summary.mean)}</td>'
    return mean + "".join(
        f'<td class="number weak">{format_duration(value)}*</td>'
        if too_few(summary, percent)
        else f'<td class="number">{format_duration(value)}</td>'
        for percent, value in ((50, summary.p50), (90, summary.p90), (95, summary.p95), (99, summary.p99))
    )


def _plots(run: RunSection) -> str:
    figures = (*_requests(run), *(_levels(one) for one in run.levels))
    drawn = [f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in figures if svg]
    return f'<h3>Distribution and timeline</h3><div class="plots">{"".join(drawn)}</div>' if drawn else ""


def _levels(levels: Levels) -> tuple[str, str]:
    """One plot of several lines over time."""
    lines = [Curve(name=name, points=points) for name, points in levels.lines if points]
    drawn = curves(
        f"{levels.name} over time",
        lines,
        Scale(name="time since start", text=plots.seconds),
        Scale(name="", text=_share if levels.as_ratio else _count),
    )
    return levels.name, f"{legend([line.name for line in lines])}{drawn}"


def _share(ratio: float) -> str:
    return f"{ratio:.0%}"


def _count(level: float) -> str:
    return f"{level:,.0f}" if level == int(level) else ""


def _tables(run: RunSection) -> str:
    return "".join(
        f"<h3>{escape(one.title)}</h3>{table(one.columns, one.rows)}{paragraph(one.note, 'note')}" for one in run.tables
    )


def _requests(run: RunSection) -> tuple[tuple[str, str], ...]:
    """Plots that need every request."""
    done = [record for record in run.records if record.ok]
    if not run.records:
        return ()
    limits = {item.name: item.limit for item in run.report.objectives}
    ttft, tpot = limits.get("ttft_p99"), limits.get("tpot_p99")
    user_ttft = [(record.t_sched_s, record.user_ttft_s) for record in done if record.user_ttft_s is not None]
    gaps = [gap for record in done for gap in record.itl_s]
    return (
        ("TTFT, user", plots.latency_cdf("TTFT", [value for _, value in user_ttft], limit_s=ttft, limit_name="P99 ≤")),
        (
            "TPOT",
            plots.latency_cdf(
                "TPOT", [r.tpot_s for r in done if r.tpot_s is not None], limit_s=tpot, limit_name="P99 ≤"
            ),
        ),
        ("ITL", plots.latency_cdf("ITL", gaps)) if gaps else ("", ""),
        ("E2E", plots.latency_cdf("E2E", [record.e2e_s for record in done])),
        ("TTFT over time", plots.latency_scatter("TTFT", user_ttft, _failures(run), limit_s=ttft)),
        ("Requests in flight", plots.in_flight([(record.t_send_s, record.t_last_s) for record in run.records])),
    )


def _failures(run: RunSection) -> list[float]:
    return [record.t_sched_s for record in run.records if not record.ok]


def _groups(run: RunSection) -> str:
    """A table for each way the run is cut up; a row whose promises are broken says so."""
    tables = []
    for name, groups in run.groups:
        rows = [(group.id or "(none)", *group_cells(group), OF_WORD[group_word(group)]) for group in groups]
        tables.append(f"<h3>By {escape(name)}</h3>{table((name, *GROUP_COLUMNS, 'objectives'), rows)}")
    return "".join(tables)


OF_WORD = {"met": "✓ met", "missed": "✕ missed", "undecided": "? undecided"}


def _tenants(report: SlaReport) -> str:
    if not report.tenants:
        return ""
    rows = [
        (
            tenant.id or "(none)",
            format_count(tenant.requests),
            format_count(tenant.failed),
            format_count(tenant.tokens),
            format_count(tenant.sla_misses),
            format_duration(tenant.ttft_s.p50) if tenant.ttft_s.count else "–",
            format_duration(tenant.ttft_s.p95) if tenant.ttft_s.count else "–",
        )
        for tenant in report.tenants
    ]
    columns = ("tenant", "requests", "failed", "tokens", "SLA misses", "TTFT P50", "TTFT P95")
    return f"<h3>Tenants</h3>{table(columns, rows)}"


def _errors(report: SlaReport) -> str:
    if not report.errors:
        return ""
    rows = [(format_count(count), error) for error, count in report.errors[:12]]
    return f"<h3>Failures</h3>{table(('requests', 'error'), rows)}"


def _gates(report: SlaReport) -> str:
    return table(
        ("gate", "passed", "why"), [(gate.name, _PASSED[gate.passed], gate.why) for gate in report.gates]
    )  # fmt: skip


_PASSED = {True: "yes", False: "no", None: "cannot tell"}


def _facts(facts: Sequence[tuple[str, str]]) -> str:
    if not facts:
        return ""
    items = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in facts)
    return f"<h3>The run</h3><dl>{items}</dl>"
