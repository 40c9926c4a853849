"""The cost report as one page that opens offline: decision, break-even curve, tornado and every number."""

from __future__ import annotations

from collections.abc import Iterator
from html import escape
from typing import TYPE_CHECKING

from roadworthy.bench.cost_plots import STYLE, Swing, break_even_curve, hour_bars, tornado
from roadworthy.bench.report_page import notes, page, table
from roadworthy.cli.cost_text import money_axis, own_cost, tokens
from roadworthy.cost.compare import clusters_needed
from roadworthy.cost.estimate import MTOK, SECONDS_PER_MONTH

if TYPE_CHECKING:
    from roadworthy.cost.report import CostReport

_TONES = {"self-host": "met", "change hardware": "missed"}
_SIGNS = {"met": "✓", "missed": "✕", "undecided": "?"}
POINTS = 240


def render_page(report: CostReport) -> str:
    """The page. Whatever came from the document is escaped."""
    body = (
        _banner(report),
        _section("Why", notes(report.decision.reasons)),
        _section("Break-even", curve(report)),
        _section("Use by hour of the day, UTC", _hours(report)),
        _section("What moves the result most", _tornado(report)),
        _section(f"Fixed cost a month, {report.fixed.currency}", _fixed(report)),
        _section("Tokens and prices", table((), tuple(_numbers(report)))),
        _section(f"Over {report.term.months} months" if report.term else "", _term(report)),
        _section("Where the figures come from", _inputs(report) + notes(report.notes)),
    )
    title = f"What {report.name} costs"
    return page(title, body, subtitle=f"{report.model} on {report.gpus} x {report.gpu}", style=STYLE)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{escape(title)}</h2>{content}</section>" if content else ""


def _banner(report: CostReport) -> str:
    choice = report.decision.choice
    tone = _TONES.get(choice, "undecided")
    return (
        f'<div class="banner {tone}"><span class="sign">{_SIGNS[tone]}</span><div><strong>{escape(choice)}</strong>'
        f"<p>{escape(report.decision.reasons[0])}</p></div></div>"
    )


def curve(report: CostReport) -> str:
    """Own cost and the API's against tokens a month; empty where no API price is known."""
    price = report.price_per_mtok
    if price is None:
        return ""
    far, _ = money_axis(report)
    even = report.break_even.tokens_per_month if report.break_even else None
    return break_even_curve(
        tuple(_own_steps(report, far)),
        ((0.0, 0.0), (far, price * far / MTOK)),
        break_even=None if even is None else (even, price * even / MTOK),
        expected=report.volume_tokens_per_month,
        volume=tokens,
        currency=report.fixed.currency,
    )


def _hours(report: CostReport) -> str:
    peak = report.api.peak_hours if report.api is not None and report.api.peak_multiplier != 1 else ()
    drawn = hour_bars(report.hours, peak)
    words = (
        f"Mean {report.utilisation_ratio:.0%}; it can rise to {report.max_utilisation_ratio:.0%} before the busiest "
    )
    words += "hour is full." + (" The other colour marks the API's peak hours." if peak else "")
    return drawn + notes((words,)) if drawn else ""


def _own_steps(report: CostReport, far: float) -> Iterator[tuple[float, float]]:
    """Own cost with upright steps: two points where a cluster is added."""
    held = 1
    yield 0.0, own_cost(report, 1.0)
    each = report.throughput.total_tokens_per_s * SECONDS_PER_MONTH * report.max_utilisation_ratio
    for index in range(1, POINTS + 1):
        volume = far * index / POINTS
        clusters = clusters_needed(volume, report.throughput.total_tokens_per_s, report.max_utilisation_ratio)
        if clusters > held:
            yield held * each, own_cost(report, held * each)
            yield (clusters - 1) * each, own_cost(report, (clusters - 1) * each) + report.fixed.per_month
            held = clusters
        yield volume, own_cost(report, volume)


def _tornado(report: CostReport) -> str:
    swings = tuple(
        Swing(name=one.name, low=one.low, high=one.high, at_low=one.at_low, at_high=one.at_high, reach=one.reach)
        for one in report.influences[:10]
        if one.spread > 0
    )
    rows = [
        (one.name, one.low, one.high, f"{one.at_low:.3g}", f"{one.at_high:.3g}", one.why)
        for one in report.influences
        if one.spread > 0
    ]
    what = "own cost over API price" if report.price_per_mtok else "own cost per million"
    columns = ("input", "from", "to", "result at from", "at to", "")
    drawn = tornado(swings, base=report.result, even=1.0 if report.price_per_mtok else None)
    legend = f"Result: {what}. Dashed: as it stands" + ("; solid: break-even." if report.price_per_mtok else ".")
    return f'<p class="note">{legend}</p>{drawn}{table(columns, rows)}' if rows else ""


def _fixed(report: CostReport) -> str:
    whole = report.fixed.per_month
    rows = [(name, f"{money:,.0f}", f"{money / whole:.0%}" if whole else "–") for name, money in report.fixed.parts]
    low, high = report.fixed.range
    rows.append(("in all", f"{whole:,.0f}", "100%"))
    ends = "" if low == high else f"; range {low:,.0f} to {high:,.0f}"
    about = f"{report.gpu_hour:,.3f} a GPU-hour{ends}"
    return table(("part", "a month", "share"), rows) + f'<p class="note">{escape(about)}</p>'


def _numbers(report: CostReport) -> Iterator[tuple[str, str, str]]:
    through, low_high = report.throughput, report.unit_cost_range
    yield "output tokens a second", f"{through.output_tokens_per_s:,.0f}", f"{through.kind}, {through.layout}"
    yield "input and output", f"{through.total_tokens_per_s:,.0f}", f"error {through.error_band:.0%} either way"
    yield "tokens a month", tokens(report.capacity_tokens_per_month), f"at {report.utilisation_ratio:.0%} mean use"
    yield "own cost per million", f"{report.unit_cost_per_mtok:,.2f}", f"{low_high[0]:,.2f} to {low_high[1]:,.2f}"
    yield (
        "own cost per million of output",
        f"{report.unit_cost_per_output_mtok:,.2f}",
        "the same money over output alone",
    )
    if report.price_per_mtok is not None and report.api is not None:
        yield "API price per million, this mix", f"{report.price_per_mtok:,.3g}", report.api.id
    even = report.break_even
    if even is not None:
        shown = "none on this cluster" if even.tokens_per_month is None else tokens(even.tokens_per_month)
        yield "break-even a month", shown, f"one cluster serves {tokens(even.limit_tokens_per_month)}"
    yield "expected a month", tokens(report.volume_tokens_per_month), f"clusters for it: {report.clusters}"


def _term(report: CostReport) -> str:
    term = report.term
    if term is None:
        return ""
    rows = [
        (f"year {year.year}", tokens(year.tokens), f"{year.clusters}", f"{year.own:,.0f}", f"{year.api:,.0f}")
        for year in term.years
    ]
    rows.append(("paid", "", "", f"{term.own:,.0f}", f"{term.api:,.0f}"))
    rows.append(("discounted to the start", "", "", f"{term.own_present:,.0f}", f"{term.api_present:,.0f}"))
    remark = f"Own sends {tokens(term.overflow_tokens)} tokens to the API, where another cluster would cost more."
    return table(("", "tokens", "clusters", "own", "API"), rows) + (notes((remark,)) if term.overflow_tokens else "")


def _inputs(report: CostReport) -> str:
    rows = [
        (one.name, f"{one.band.low:,.6g}", f"{one.band.base:,.6g}", f"{one.band.high:,.6g}", one.band.source)
        for one in report.fixed.inputs
    ]
    return table(("input", "low", "base", "high", "source"), rows) if rows else ""
