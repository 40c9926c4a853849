"""The cost report for a terminal of 80 columns: the decision first, then the numbers that it rests on."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from roadworthy.cost.compare import clusters_needed
from roadworthy.cost.estimate import MTOK

if TYPE_CHECKING:
    from roadworthy.cost.report import CostReport
    from roadworthy.cost.sensitivity import Influence

WIDTH = 80
SHOWN_INFLUENCES = 8
PICTURE_COLUMNS, PICTURE_LINES = 60, 11
BAR_COLUMNS = 6
_COLOURS = {
    "self-host": "green", "API": "cyan", "API now, re-check quarterly": "cyan", "change hardware": "red",
    "undecided": "yellow",
}  # fmt: skip
_BARS = " ▁▂▃▄▅▆▇█"

Style = Callable[..., str]


def render(report: CostReport, *, style: Style) -> str:
    """The whole report, ending in a newline. ``style`` is click's, or one that leaves text alone."""
    parts = (
        _head(report, style),
        _fixed(report, style),
        _numbers(report, style),
        _use(report, style),
        _picture(report, style),
        _term(report, style),
        _tornado(report, style),
        (style("Notes", bold=True), *_items(report.notes)),
    )
    return "\n\n".join("\n".join(part) for part in map(tuple, parts) if part) + "\n"


def _items(texts: Sequence[str]) -> Iterator[str]:
    for text in texts:
        yield textwrap.fill(text, WIDTH, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)


def _head(report: CostReport, style: Style) -> Iterator[str]:
    yield style(f"{report.name}: {report.model} on {report.gpus} x {report.gpu}", bold=True)
    choice = report.decision.choice
    yield "Decision: " + style(choice, fg=_COLOURS[choice], bold=True)
    yield from _items(report.decision.reasons)


def _row(name: str, value: str, more: str = "") -> str:
    return f"  {name:<34}{value:>12}  {more}".rstrip()


def _fixed(report: CostReport, style: Style) -> Iterator[str]:
    fixed = report.fixed
    low, high = fixed.range
    ends = "" if low == high else f"{low:,.0f} to {high:,.0f}"
    yield style(f"Fixed cost a month, {fixed.currency}", bold=True)
    for name, money in fixed.parts:
        share = money / fixed.per_month if fixed.per_month else 0.0
        yield _row(name, f"{money:,.0f}", f"{share:>4.0%}")
    yield _row("in all", f"{fixed.per_month:,.0f}", ends)
    yield _row("a GPU-hour", f"{report.gpu_hour:,.3f}")


def _numbers(report: CostReport, style: Style) -> Iterator[str]:
    through, currency = report.throughput, report.fixed.currency
    low, high = report.unit_cost_range
    ends = "" if low == high else f"{low:,.2f} to {high:,.2f}"
    yield style("Tokens", bold=True)
    yield _row("output tokens/s", f"{through.output_tokens_per_s:,.0f}", f"{through.kind}, {through.standing}")
    yield _row("input and output tokens/s", f"{through.total_tokens_per_s:,.0f}", through.layout)
    yield _row(
        "tokens a month", tokens(report.capacity_tokens_per_month), f"at {report.utilisation_ratio:.0%} mean use"
    )
    yield _row(f"own cost per million, {currency}", f"{report.unit_cost_per_mtok:,.2f}", ends)
    yield _row("  counting output alone", f"{report.unit_cost_per_output_mtok:,.2f}")
    if report.price_per_mtok is None or report.api is None:
        yield _row("API price per million", "not known", "set cost.api")
    else:
        yield _row("API price per million, this mix", f"{report.price_per_mtok:,.3g}", report.api.id)
    even = report.break_even
    if even is not None:
        shown = tokens(even.tokens_per_month) if even.tokens_per_month is not None else "none"
        yield _row("break-even volume a month", shown, f"one cluster serves {tokens(even.limit_tokens_per_month)}")
    expected = "stated" if report.volume_stated else "what the utilisation makes"
    yield _row("expected volume a month", tokens(report.volume_tokens_per_month), expected)
    if report.clusters > 1:
        yield _row("clusters for it", f"{report.clusters:,}", f"{report.own_at_volume:,.0f} {currency} a month")
    if report.break_even_price_per_mtok is not None:
        yield _row("break-even price there", f"{report.break_even_price_per_mtok:,.2f}")


def tokens(count: float) -> str:
    """``22.8 B``; three figures."""
    if count >= 1e15:
        return f"{count / 1e12:,.0f} T"
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:,.3g} {unit}"
    return f"{count:,.0f}"


def _use(report: CostReport, style: Style) -> Iterator[str]:
    if not report.hours:
        return
    yield style("Use by hour of the day, UTC", bold=True)
    yield "  " + "".join(_BARS[round(share * (len(_BARS) - 1))] * 3 for share in report.hours)
    yield "  " + "".join(f"{hour:02d}    " for hour in range(0, 24, 2)).rstrip()
    if report.api is not None and report.api.peak_hours and report.api.peak_multiplier != 1:
        peak = set(report.api.peak_hours)
        yield ("  " + "".join("^^^" if hour in peak else "   " for hour in range(24))).rstrip()
        yield f"  ^ the API's peak: {report.mix.peak_ratio:.0%} of the tokens at {report.api.peak_multiplier:g} times"
    yield (
        f"  busiest hour {max(report.hours):.0%}, mean {report.utilisation_ratio:.0%}; the mean can rise to "
        f"{report.max_utilisation_ratio:.0%}"
    )
    yield "  before the busiest hour is full"


def money_axis(report: CostReport) -> tuple[float, float]:
    """(volume, money) at the far corner of the picture: room for the expected volume and a second cluster."""
    limit = report.throughput.total_tokens_per_s * 3600 * 730 * report.max_utilisation_ratio
    volume = max(2 * limit, 1.15 * report.volume_tokens_per_month)
    return volume, max(own_cost(report, volume), (report.price_per_mtok or 0.0) * volume / MTOK)


def own_cost(report: CostReport, volume: float) -> float:
    """Own cost a month of a volume, with the clusters that it needs."""
    clusters = clusters_needed(volume, report.throughput.total_tokens_per_s, report.max_utilisation_ratio)
    variable = (report.own_at_volume - report.fixed.per_month * report.clusters) / report.volume_tokens_per_month
    return report.fixed.per_month * clusters + variable * volume


def _picture(report: CostReport, style: Style) -> Iterator[str]:
    """Money a month (up) against tokens a month (across): own cost in steps of clusters, the API's as a line."""
    price = report.price_per_mtok
    if price is None:
        return
    far, top = money_axis(report)
    if top <= 0:
        return
    grid = [[" "] * PICTURE_COLUMNS for _ in range(PICTURE_LINES)]

    def line(money: float) -> int:
        return PICTURE_LINES - 1 - round(money / top * (PICTURE_LINES - 1))

    for column in range(PICTURE_COLUMNS):
        volume = (column + 0.5) / PICTURE_COLUMNS * far
        grid[line(own_cost(report, volume))][column] = "="
        at = line(price * volume / MTOK)
        grid[at][column] = "X" if grid[at][column] == "=" else "."
    yield style(f"Cost a month, {report.fixed.currency}, against tokens a month", bold=True)
    for index, cells in enumerate(grid):
        money = top * (PICTURE_LINES - 1 - index) / (PICTURE_LINES - 1)
        label = f"{money:,.0f}" if money < 1e8 else f"{money:.3g}"
        label = label if index % 5 == 0 else ""
        yield f"  {label:>10} |{''.join(cells)}".rstrip()
    expected = min(PICTURE_COLUMNS - 1, int(report.volume_tokens_per_month / far * PICTURE_COLUMNS))
    yield "  " + " " * 10 + " +" + "-" * expected + "^" + "-" * (PICTURE_COLUMNS - 1 - expected)
    middle, end = tokens(far / 2), tokens(far)
    yield "  " + " " * 12 + f"{'0':<{PICTURE_COLUMNS // 2}}{middle:<{PICTURE_COLUMNS // 2 - len(end)}}{end}"
    yield "  = own, a step a cluster   . API   X both   ^ expected volume"


def _term(report: CostReport, style: Style) -> Iterator[str]:
    term = report.term
    if term is None:
        return
    yield style(f"{term.months} months, {report.fixed.currency}", bold=True)
    yield f"  {'year':<10}{'tokens':>12}{'clusters':>10}{'own':>14}{'API':>14}"
    for year in term.years:
        yield f"  {year.year:<10}{tokens(year.tokens):>12}{year.clusters:>10}{year.own:>14,.0f}{year.api:>14,.0f}"
    yield f"  {'paid':<32}{term.own:>14,.0f}{term.api:>14,.0f}"
    yield f"  {'discounted to the start':<32}{term.own_present:>14,.0f}{term.api_present:>14,.0f}"
    if term.overflow_tokens > 0:
        yield f"  own sends {tokens(term.overflow_tokens)} tokens to the API, where another cluster would cost more"
    if term.payback_month is None:
        yield "  self-hosting does not pay back within the term"
    elif term.payback_month > 0:
        yield f"  self-hosting has cost less from the end of month {term.payback_month} on, discounted"
    else:
        yield "  self-hosting costs less from the start"


def _tornado(report: CostReport, style: Style) -> Iterator[str]:
    shown = [one for one in report.influences[:SHOWN_INFLUENCES] if one.spread > 0]
    if not shown:
        return
    what = "own cost over API price (1 is break-even)" if report.price_per_mtok else "own cost per million"
    yield style(f"What moves the result most: {what}", bold=True)
    widest = max(one.spread for one in shown)
    for one in shown:
        yield _bar(one, widest)
    yield textwrap.fill(
        f"the two to settle first: {' and '.join(report.strongest)}", WIDTH, initial_indent="  ", subsequent_indent="  "
    )


def _bar(one: Influence, widest: float) -> str:
    cells = "#" * max(1, round(one.spread / widest * BAR_COLUMNS))
    return f"  {one.name:<26}{one.low:>11} .. {one.high:<11}{one.at_low:>8.3g} .. {one.at_high:<8.3g}{cells}"[:WIDTH]
