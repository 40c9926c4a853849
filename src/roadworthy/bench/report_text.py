"""The report as a terminal shows it: 80 columns, readable without colour."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from roadworthy.bench.sections import (
    LATENCIES,
    OF_MET,
    RunSection,
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
    from roadworthy.advise.gates import Verdict
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.core.latency import LatencySummary

WIDTH = 80
SHOWN_ERRORS = 5

Paint = Callable[["Verdict", str], str]


def render_text(run: RunSection, *, paint: Paint = lambda _, text: text) -> str:
    """The run in plain lines, its verdict first.

    Args:
        paint: puts the colour of a verdict on a word, where the reader's terminal has one.
    """
    report = run.report
    lines = [
        *_headline(run, paint),
        "",
        *_objectives(report, paint),
        "",
        *_traffic(report),
        "",
        *_latencies(report),
        *(_groups(run, paint) if run.groups else _tenants(report)),
        *_errors(report),
        "",
        *(line for note in (*run.notes, *sample_notes(report)) for line in _wrap(note)),
    ]
    return "\n".join(lines).rstrip() + "\n"


def _headline(run: RunSection, paint: Paint) -> Iterator[str]:
    labels = [label for label, on in (("simulated engine", run.simulated), ("partial", run.report.partial)) if on]
    label = f" ({', '.join(labels)})" if labels else ""
    yield f"{run.title}{label}: {paint(run.report.verdict, run.report.verdict.upper())}"
    yield from _wrap(run.report.reason, indent="  ")


def _objectives(report: SlaReport, paint: Paint) -> Iterator[str]:
    yield f"{'objective':<12}{'limit':>10}{'measured':>12}  verdict"
    for item in report.objectives:
        word = OF_MET[item.met]
        limit, measured = objective_value(item, item.limit), objective_value(item, item.measured)
        yield f"{objective_name(item):<12}{limit:>10}{measured:>12}  {paint(word, word)}"
        yield from _wrap(item.why, indent="    ")
        yield from _wrap(objective_interval(item), indent="    ")


def _traffic(report: SlaReport) -> Iterator[str]:
    asked = "" if report.asked_rate_per_s is None else f", asked {report.asked_rate_per_s:.2f}/s"
    yield f"{'requests':<12}{format_count(report.requests)}, {format_count(report.failed)} failed"
    yield f"{'duration':<12}{format_duration(report.duration_s)}, drain included"
    yield f"{'completed':<12}{report.request_rate_per_s:.2f}/s{asked}"
    yield f"{'tokens':<12}{report.output_tokens_per_s:,.0f}/s output, {report.total_tokens_per_s:,.0f}/s with input"
    attained = "" if report.attainment_ratio is None else f", {report.attainment_ratio:.1%} of requests"
    yield f"{'goodput':<12}{report.goodput_rps:.2f}/s{attained}"


def _latencies(report: SlaReport) -> Iterator[str]:
    yield f"{'latency':<12}" + "".join(f"{name:>11}" for name in ("mean", "P50", "P90", "P95", "P99"))
    for field, name, _ in LATENCIES:
        yield f"{name:<12}" + "".join(f"{cell:>11}" for cell in _cells(getattr(report, field)))


def _cells(summary: LatencySummary) -> Iterator[str]:
    if not summary.count:
        yield from ["–"] * 5
        return
    yield format_duration(summary.mean)
    for percent, value in ((50, summary.p50), (90, summary.p90), (95, summary.p95), (99, summary.p99)):
        yield format_duration(value) + ("*" if too_few(summary, percent) else "")


def _groups(run: RunSection, paint: Paint) -> Iterator[str]:
    for name, groups in run.groups:
        yield ""
        yield f"{name:<16}{'requests':>8}{'misses':>8}{'TTFT P50':>10}{'TTFT P99':>10}{'TPOT P50':>10}{'TPOT P99':>10}"
        for group in groups:
            requests, _, misses, *latencies = group_cells(group)
            word = group_word(group)
            shown = textwrap.shorten(group.id or "(none)", 15, placeholder="…")
            cells = "".join(f"{cell:>10}" for cell in latencies)
            yield f"{shown:<16}{requests:>8}{misses:>8}{cells} {paint(word, _SIGNS[word])}"


_SIGNS = {"met": "met", "missed": "missed", "undecided": "?"}


def _tenants(report: SlaReport) -> Iterator[str]:
    if not report.tenants:
        return
    yield ""
    yield f"{'tenant':<24}{'requests':>10}{'failed':>8}{'tokens':>13}{'misses':>8}{'TTFT P95':>12}"
    for tenant in report.tenants:
        p95 = format_duration(tenant.ttft_s.p95) if tenant.ttft_s.count else "–"
        name = textwrap.shorten(tenant.id or "(none)", 23, placeholder="…")
        yield f"{name:<24}{tenant.requests:>10,}{tenant.failed:>8,}{tenant.tokens:>13,}{tenant.sla_misses:>8,}{p95:>12}"


def _errors(report: SlaReport) -> Iterator[str]:
    if not report.errors:
        return
    yield ""
    yield "failures"
    for error, count in report.errors[:SHOWN_ERRORS]:
        yield from _wrap(f"{count:,} × {error}", indent="  ")
    if len(report.errors) > SHOWN_ERRORS:
        yield f"  and {len(report.errors) - SHOWN_ERRORS:,} other kinds"


def _wrap(text: str, *, indent: str = "") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
