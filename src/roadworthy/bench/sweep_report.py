"""A sweep as rows, as text and as one HTML page with its rate-latency curves."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from roadworthy import __version__
from roadworthy.bench.plot_curves import STYLE, Curve, Scale, curves, legend
from roadworthy.bench.report_page import notes, page, sentence, table
from roadworthy.core.units import format_count, format_duration

if TYPE_CHECKING:
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.bench.sweep import Outcome
    from roadworthy.core.latency import LatencySummary
    from roadworthy.spec.values import Sla

WIDTH = 80

Level = Literal["rate", "users"]


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRow:
    """One load of a sweep; ``level`` is its requests a second or its users."""

    level: float
    outcome: Outcome
    why: str
    report: SlaReport
    requests: int
    ended_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepView:
    """What reports show. ``conclusion`` is one sentence; ``notes`` are cautions and facts."""

    title: str
    by: Level
    rows: tuple[SweepRow, ...]
    sla: Sla
    conclusion: str
    met: bool
    notes: tuple[str, ...] = ()

    @property
    def ordered(self) -> tuple[SweepRow, ...]:
        """Rows by level, the later one where a level was loaded twice."""
        return tuple({row.level: row for row in sorted(self.rows, key=lambda row: row.level)}.values())


HEADLINES = ("level", "outcome", "req/s", "tok/s", "TTFT P50", "TTFT P99", "TPOT P50", "TPOT P99")

Paint = Callable[["Outcome", str], str]


def render_sweep(view: SweepView, *, paint: Paint = lambda _, text: text) -> str:
    """Plain lines, the conclusion first."""
    widths = (9, 8, 8, 9, 11, 11, 11, 11)
    lines = [view.title, *_wrap(view.conclusion, "  "), ""]
    lines.append("".join(f"{name:>{width}}" for name, width in zip(HEADLINES, widths, strict=True)))
    for row in view.ordered:
        cells = list(_cells(row, view.by))
        written = [f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True)]
        written[1] = " " * (widths[1] - len(cells[1])) + paint(row.outcome, cells[1])
        lines.append("".join(written))
    lines.append("")
    lines += [line for note in view.notes for line in _wrap(note, "")]
    return "\n".join(lines).rstrip() + "\n"


def step_line(row: SweepRow, by: Level) -> str:
    """One load in one line, for progress."""
    level = _level(row.level, by)
    early = ", ended early" if row.ended_early else ""
    return f"{level}: {row.outcome}{early} ({row.why})"


def sweep_page(view: SweepView) -> str:
    """The page: conclusion, curves, table."""
    kind, sign = ("met", "✓") if view.met else ("missed", "✕")
    banner = (
        f'<div class="banner {kind}"><span class="sign">{sign}</span><div>'
        f"<strong>{escape(sentence(view.conclusion))}</strong></div></div>"
    )
    across = Scale(
        name="requests a second, asked" if view.by == "rate" else "users at once",
        text=lambda value: f"{value:g}",
        log=view.by == "users",
    )
    times = Scale(name="", text=lambda value: format_duration(value) if value > 0 else "0")
    rows = view.ordered
    figures = (
        ("TTFT, user", _latency_curves(rows, "user_ttft_s", "TTFT", across, times, view.sla.ttft_p99_s)),
        ("TPOT", _latency_curves(rows, "tpot_s", "TPOT", across, times, view.sla.tpot_p99_s)),
        ("Output tokens a second", _throughput(rows, across)),
        ("Latency against throughput", _trade(rows)),
    )
    drawn = "".join(f"<figure><figcaption>{escape(name)}</figcaption>{svg}</figure>" for name, svg in figures)
    body = (
        f'<section><h3>Curves</h3>{legend(("P50", "P99"))}<div class="plots">{drawn}</div>'
        f"<h3>Loads</h3>{table((*HEADLINES, 'why'), [(*_cells(row, view.by), row.why) for row in rows])}"
        f"{notes(view.notes)}</section>"
    )
    return page(view.title, (banner, body), generator=f"roadworthy {__version__}", style=STYLE)


def _latency_curves(
    rows: Sequence[SweepRow], field: str, name: str, across: Scale, times: Scale, limit_s: float | None
) -> str:
    lines = []
    for percent in ("p50", "p99"):
        points = [
            (row, getattr(getattr(row.report, field), percent)) for row in rows if getattr(row.report, field).count
        ]
        lines.append(
            Curve(
                name=percent,
                points=tuple((row.level, value) for row, value in points),
                marks=tuple(
                    (row.level, value, f"{row.level:g}: {percent.upper()} {format_duration(value)}, {row.outcome}",
                     _mark(row, name) if percent == "p99" else "")
                    for row, value in points
                ),
            )
        )  # fmt: skip
    highest = max((value for line in lines for _, value in line.points), default=0.0)
    lowest = min((value for line in lines for _, value in line.points), default=0.0)
    wide = lowest > 0 and highest / lowest > 30
    label = f"{name} at each level"
    scale = Scale(name=times.name, text=times.text, log=wide)
    return curves(label, lines, across, scale, limit=limit_s, limit_name="P99 limit")


def _mark(row: SweepRow, name: str) -> str:
    """The outcome, at the latency that decided it."""
    return row.outcome if row.outcome == "met" or row.why.startswith(name) else ""


def _throughput(rows: Sequence[SweepRow], across: Scale) -> str:
    points = tuple((row.level, row.report.output_tokens_per_s) for row in rows)
    marks = tuple((at, up, f"{at:g}: {up:,.0f} tokens/s", "") for at, up in points)
    return curves("output tokens a second at each level", [Curve(name="tokens", points=points, marks=marks)], across,
                  Scale(name="", text=format_count))  # fmt: skip


def _trade(rows: Sequence[SweepRow]) -> str:
    points = tuple(
        sorted((row.report.output_tokens_per_s, row.report.tpot_s.p50) for row in rows if row.report.tpot_s.count)
    )
    return curves(
        "time per token against throughput",
        [Curve(name="TPOT P50", points=points, marks=tuple((at, up, f"{at:,.0f} tokens/s", "") for at, up in points))],
        Scale(name="output tokens a second", text=format_count),
        Scale(name="", text=lambda value: format_duration(value) if value > 0 else "0"),
    )


def _cells(row: SweepRow, by: Level) -> Iterator[str]:
    report = row.report
    yield _level(row.level, by)
    yield row.outcome
    yield f"{report.request_rate_per_s:.2f}"
    yield format_count(report.output_tokens_per_s)
    for summary in (report.user_ttft_s, report.tpot_s):
        yield from (_time(summary, summary.p50), _time(summary, summary.p99))


def _time(summary: LatencySummary, value: float) -> str:
    return format_duration(value) if summary.count else "–"


def _level(level: float, by: Level) -> str:
    if by == "rate":
        return f"{level:.3g}/s"
    return "1 user" if level == 1 else f"{level:g} users"


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
