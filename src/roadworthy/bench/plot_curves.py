"""Several curves in one plot, and a heat map: for sweeps, comparisons and probes, as inline SVG by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from roadworthy.bench.plots import HEIGHT, MAX_CURVE_POINTS, WIDTH, Axis, empty, svg, tick_label
from roadworthy.core.units import format_duration

_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 16, 14, 40
_CELL_LEFT, _CELL_TOP, _CELL_HEIGHT = 74, 10, 34

STYLE = """
:root{--s0:#2b62c4;--s1:#b4541a;--s2:#2e8a68;--s3:#8a4fa0}
@media (prefers-color-scheme:dark){:root{--s0:#79a8ff;--s1:#f0a066;--s2:#57c79c;--s3:#c58ad8}}
svg .s0,svg .s1,svg .s2,svg .s3{fill:none;stroke-width:2.1;stroke-linejoin:round}
svg .s0{stroke:var(--s0)}svg .s1{stroke:var(--s1)}svg .s2{stroke:var(--s2)}svg .s3{stroke:var(--s3)}
svg circle.s0,svg circle.s1,svg circle.s2,svg circle.s3{fill:var(--card)}
svg circle.missed{fill:var(--missed);stroke:var(--missed)}svg circle.unsure{stroke-dasharray:2 2}
.legend{display:flex;flex-wrap:wrap;gap:3px 16px;margin:0 0 4px;padding:0;list-style:none;font-size:.84rem;
color:var(--soft)}
.legend i{display:inline-block;width:14px;height:3px;margin-right:6px;vertical-align:middle}
.legend .s0{background:var(--s0)}.legend .s1{background:var(--s1)}.legend .s2{background:var(--s2)}
.legend .s3{background:var(--s3)}
svg .cell{stroke:var(--card);stroke-width:2}
svg text.in-cell{fill:#10151c;font-size:11px}
svg polyline.s2{stroke-dasharray:9 5}svg polyline.s3{stroke-dasharray:3 4}
figure.single{max-width:520px}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """(x, y) pairs, x ascending. ``marks`` are points to be pointed at: (x, y, words, kind of the dot)."""

    name: str
    points: tuple[tuple[float, float], ...]
    marks: tuple[tuple[float, float, str, str], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What an axis shows: its name, how a value is written, and whether equal steps are equal factors."""

    name: str
    text: Callable[[float], str]
    log: bool = False


def curves(
    name: str, lines: Sequence[Curve], x: Scale, y: Scale, *, limit: float | None = None, limit_name: str = ""
) -> str:
    """All ``lines`` in one plot, at most four; ``limit`` is a dashed level."""
    points = [point for line in lines for point in line.points]
    if not points:
        return empty(f"{name}: no measurement")
    levels = [up for _, up in points] + ([limit] if limit is not None else [])
    across = _axis(x, [at for at, _ in points], _LEFT, WIDTH - _RIGHT)
    upward = _axis(y, levels, HEIGHT - _BOTTOM, _TOP)
    parts = [_grid(across, upward, x, y)]
    if limit is not None:
        at = upward.px(limit)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
        label = escape(f"{limit_name} {y.text(limit)}".strip())
        parts.append(f'<text class="limit-label" x="{_LEFT + 4}" y="{at - 5:.1f}">{label}</text>')
    for place, line in enumerate(lines[:4]):
        drawn = " ".join(f"{across.px(at):.1f},{upward.px(up):.1f}" for at, up in line.points)
        parts.append(f'<polyline class="s{place}" points="{drawn}"/>')
        parts += [
            f'<circle class="s{place} {kind}" cx="{across.px(at):.1f}" cy="{upward.px(up):.1f}" r="3.6">'
            f"<title>{escape(words)}</title></circle>"
            for at, up, words, kind in line.marks
        ]
    return svg(name, parts)


def legend(names: Sequence[str]) -> str:
    """Which curve is which."""
    items = "".join(f'<li><i class="s{place}"></i>{escape(name)}</li>' for place, name in enumerate(names))
    return f'<ul class="legend">{items}</ul>'


def distributions(name: str, samples: Sequence[tuple[str, Sequence[float]]]) -> str:
    """Cumulative distributions of several samples in seconds over one axis."""
    lines = [Curve(name=label, points=_cdf(sorted(values))) for label, values in samples if values]
    positive = [at for line in lines for at, _ in line.points if at > 0]
    log = bool(positive) and max(positive) / min(positive) > 30
    return curves(
        name, lines, Scale(name=name, text=_duration, log=log), Scale(name="share", text=lambda share: f"{share:.0%}")
    )


def _cdf(ordered: Sequence[float]) -> tuple[tuple[float, float], ...]:
    count = len(ordered)
    ranks = sorted({round(step * (count - 1) / (MAX_CURVE_POINTS - 1)) for step in range(MAX_CURVE_POINTS)})
    return ((ordered[0], 0.0), *((ordered[rank], (rank + 1) / count) for rank in ranks))


def heat_map(
    name: str, rows: Sequence[str], columns: Sequence[str], cells: Sequence[Sequence[float | None]], *, across: str
) -> str:
    """Shares from 0 (red) to 1 (green) by row and column; None, nothing asked there, stays grey.

    Every cell has its number in it, so that nothing depends on seeing colours.
    """
    if not rows or not columns:
        return empty(f"{name}: nothing was asked")
    width = (WIDTH - _CELL_LEFT - _RIGHT) / len(columns)
    bottom = _CELL_TOP + _CELL_HEIGHT * len(rows)
    parts = []
    for down, (row, shares) in enumerate(zip(rows, cells, strict=True)):
        top = _CELL_TOP + down * _CELL_HEIGHT
        where = f'x="{_CELL_LEFT - 8}" y="{top + _CELL_HEIGHT / 2 + 4:.0f}" text-anchor="end"'
        parts.append(f'<text class="tick" {where}>{escape(row)}</text>')
        for place, (column, share) in enumerate(zip(columns, shares, strict=True)):
            left = _CELL_LEFT + place * width
            box = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_CELL_HEIGHT}"'
            text = "–" if share is None else f"{share:.0%}"
            title = f"<title>{escape(f'{row}, {column}: {text}')}</title>"
            parts.append(f'<rect class="cell" {box} fill="{_heat(share)}">{title}</rect>')
            middle = f'x="{left + width / 2:.1f}" y="{top + _CELL_HEIGHT / 2 + 4:.0f}" text-anchor="middle"'
            parts.append(f'<text class="in-cell" {middle}>{text}</text>')
    for place, column in enumerate(columns):
        where = f'x="{_CELL_LEFT + (place + 0.5) * width:.1f}" y="{bottom + 16}" text-anchor="middle"'
        parts.append(f'<text class="tick" {where}>{escape(column)}</text>')
    centre = (_CELL_LEFT + WIDTH - _RIGHT) / 2
    parts.append(f'<text class="axis" x="{centre:.0f}" y="{bottom + 34}" text-anchor="middle">{escape(across)}</text>')
    return svg(name, parts, height=bottom + 42)


def _heat(share: float | None) -> str:
    """From red over yellow to green, light enough for dark letters; colours are given, since they are data."""
    if share is None:
        return "#c9ced6"
    low, middle, high = (238, 128, 116), (247, 217, 120), (128, 204, 150)
    start, end, part = (low, middle, share * 2) if share < 0.5 else (middle, high, share * 2 - 1)
    red, green, blue = (round(a + (b - a) * part) for a, b in zip(start, end, strict=True))
    return f"#{red:02x}{green:02x}{blue:02x}"


def _axis(scale: Scale, values: Sequence[float], start_px: float, end_px: float) -> Axis:
    high = max(*values, 1e-9) if len(values) > 1 else max(values[0], 1e-9)
    if not scale.log:
        return Axis(low=0.0, high=high * 1.06, start_px=start_px, end_px=end_px)
    low = min((value for value in values if value > 0), default=high / 10)
    low = min(low, high / 1.5)
    return Axis(low=max(low * 0.85, high / 1e6), high=high * 1.15, start_px=start_px, end_px=end_px, log=True)


def _grid(across: Axis, upward: Axis, x: Scale, y: Scale) -> str:
    bottom, right = HEIGHT - _BOTTOM, WIDTH - _RIGHT
    columns = "".join(
        f'<line class="grid" x1="{across.px(tick):.1f}" x2="{across.px(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f"{tick_label(across.px(tick), bottom + 15, x.text(tick))}"
        for tick in across.ticks()
    )
    rows = "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{right}" y1="{upward.px(tick):.1f}" y2="{upward.px(tick):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{upward.px(tick) + 4:.1f}" text-anchor="end">{escape(y.text(tick))}'
        "</text>"
        for tick in upward.ticks()
    )
    middle = f'x="{(_LEFT + right) / 2:.0f}" y="{HEIGHT - 6}" text-anchor="middle"'
    return f'{columns}{rows}<text class="axis" {middle}>{escape(x.name)}</text>'


def _duration(time_s: float) -> str:
    return format_duration(time_s) if time_s > 0 and math.isfinite(time_s) else "0"
