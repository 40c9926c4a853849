"""Plots of a plan as inline SVG: the memory of every rank, what the cache holds, latency against throughput.

Like :mod:`bench.plots` they hold no script, no font and no address; colours come by class from ``STYLE`` below and
from the page's own style sheet.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from roadworthy.bench.plots import Axis, empty, svg
from roadworthy.core.units import format_duration

WIDTH, HEIGHT = 480, 270
_LEFT, _RIGHT, _TOP, _BOTTOM = 62, 16, 14, 40
BAR_WIDTH, BAR_HEIGHT, _BAR_STEP, _BAR_LEFT = 540, 20, 28, 136

STYLE = """
:root{--p0:#4472b8;--p1:#a05aa8;--p2:#c98a1b;--p3:#7d8a2e;--p4:#2e9c74;--p5:#c2554d;--p6:transparent;
--c0:#2b62c4;--c1:#b4541a}
@media (prefers-color-scheme:dark){:root{--p0:#6f9be0;--p1:#c285ca;--p2:#e0ad4f;--p3:#a9b65a;--p4:#57c79c;--p5:#e58078;
--c0:#79a8ff;--c1:#f0a066}}
svg .p0{fill:var(--p0)}svg .p1{fill:var(--p1)}svg .p2{fill:var(--p2)}svg .p3{fill:var(--p3)}svg .p4{fill:var(--p4)}
svg .p5{fill:var(--p5)}svg .p6{fill:var(--p6)}
svg .frame{fill:none;stroke:var(--soft);stroke-width:1}
svg .c0{stroke:var(--c0);fill:none;stroke-width:2.2;stroke-linejoin:round}
svg .c1{stroke:var(--c1);fill:none;stroke-width:2.2;stroke-linejoin:round}
svg .other{stroke:var(--soft);stroke-width:4.2;stroke-linecap:round;opacity:.38;fill:none}
svg text.rank{fill:var(--text)}
.legend{display:flex;flex-wrap:wrap;gap:4px 16px;margin:0 0 10px;padding:0;list-style:none;font-size:.86rem;
color:var(--soft)}
.legend i{display:inline-block;width:11px;height:11px;border-radius:2px;margin-right:6px;border:1px solid transparent}
.legend .k0{background:var(--p0)}.legend .k1{background:var(--p1)}.legend .k2{background:var(--p2)}
.legend .k3{background:var(--p3)}.legend .k4{background:var(--p4)}.legend .k5{background:var(--p5)}
.legend .k6{border-color:var(--soft)}
.legend .l0{background:var(--c0)}.legend .l1{background:var(--c1)}
figure.single{max-width:640px}
svg.bars{max-width:860px}
@media (min-width:700px){tbody td:first-child{white-space:nowrap}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """One rank: its name, the size of the device, and its parts as (class number, name, bytes) from left to right."""

    name: str
    device_bytes: int
    parts: tuple[tuple[int, str, int], ...]


def memory_stack(bars: Sequence[Bar], text: Callable[[float], str]) -> str:
    """One horizontal bar a rank, every part to scale; a part's size is told when pointed at.

    A rank that does not fit runs over the device's edge, which is drawn as a frame.
    """
    if not bars:
        return ""
    height = _BAR_STEP * len(bars) + 22
    longest = max(max(bar.device_bytes, sum(max(0, size) for _, _, size in bar.parts)) for bar in bars)
    scale = (BAR_WIDTH - _BAR_LEFT - 2) / longest
    drawn = []
    for row, bar in enumerate(bars):
        top, left = row * _BAR_STEP + 4, float(_BAR_LEFT)
        where = f'x="{_BAR_LEFT - 10}" y="{top + BAR_HEIGHT / 2 + 4:.0f}" text-anchor="end"'
        drawn.append(f'<text class="rank" {where}>{escape(bar.name)}</text>')
        for kind, name, size in bar.parts:
            width = max(0, size) * scale
            title = f"<title>{escape(f'{bar.name}: {name} {text(size)}')}</title>"
            box = f'x="{left:.1f}" y="{top}" width="{width:.1f}" height="{BAR_HEIGHT}"'
            drawn.append(f'<rect class="p{kind}" {box}>{title}</rect>')
            left += width
        edge = f'x="{_BAR_LEFT}" y="{top}" width="{bar.device_bytes * scale:.1f}" height="{BAR_HEIGHT}"'
        drawn.append(f'<rect class="frame" {edge}/>')
    at = _BAR_LEFT + bars[0].device_bytes * scale
    where = f'x="{at:.0f}" y="{height - 4}" text-anchor="end"'
    drawn.append(f'<text class="tick" {where}>device: {escape(text(bars[0].device_bytes))}</text>')
    label = f"memory of {len(bars)} distinct ranks by part"
    return (
        f'<svg class="bars" viewBox="0 0 {BAR_WIDTH} {height}" role="img" '
        f'aria-label="{escape(label)}"><title>{escape(label)}</title>{"".join(drawn)}</svg>'
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """A named curve of (x, y) pairs, x ascending, both positive."""

    name: str
    points: tuple[tuple[float, float], ...]


def log_lines(lines: Sequence[Line], *, x_name: str, y_name: str, marks: Sequence[tuple[str, float]] = ()) -> str:
    """Curves on two log scales of counts; ``marks`` are dashed verticals with a name."""
    points = [point for line in lines for point in line.points]
    if not points:
        return empty(f"{y_name}: nothing to show", height=HEIGHT)
    x = _log_axis([at for at, _ in points], _LEFT, WIDTH - _RIGHT, 1.0)
    y = _log_axis([up for _, up in points], HEIGHT - _BOTTOM, _TOP, 1.25)
    parts = [_across(x, short_count, x_name, _powers_of_two(x)), _up(y, short_count, y_name)]
    for at, (name, value) in enumerate(marks):
        parts.append(_mark(x.px(value), name, _TOP + 12 + 15 * at))
    for index, line in enumerate(lines):
        drawn = " ".join(f"{x.px(at):.1f},{y.px(up):.1f}" for at, up in line.points)
        parts.append(f'<polyline class="c{index}" points="{drawn}"><title>{escape(line.name)}</title></polyline>')
    return svg(f"{y_name} against {x_name}", parts, height=HEIGHT)


@dataclass(frozen=True, slots=True, kw_only=True)
class Dot:
    """A point of a front plot: latency across, throughput up, and what it is."""

    x_s: float
    y: float
    name: str
    on_front: bool


def front(dots: Sequence[Dot], *, x_name: str, y_name: str, limit_s: float | None = None, limit_name: str = "") -> str:
    """Every dot, and the front through those that nothing beats; lower is better across, higher is better up."""
    dots = [dot for dot in dots if dot.x_s > 0 and dot.y > 0]
    if not dots:
        return empty("no layout fits", height=HEIGHT)
    across = [dot.x_s for dot in dots] + ([limit_s] if limit_s else [])
    x = _log_axis(across, _LEFT, WIDTH - _RIGHT, 1.1)
    y = _log_axis([dot.y for dot in dots], HEIGHT - _BOTTOM, _TOP, 1.25)
    parts = [_across(x, format_duration, x_name), _up(y, short_count, y_name)]
    if limit_s is not None:
        parts.append(_mark(x.px(limit_s), f"{limit_name} {format_duration(limit_s)}".strip(), HEIGHT - _BOTTOM - 8))
    others = "".join(f"M{x.px(dot.x_s):.1f} {y.px(dot.y):.1f}h0" for dot in dots if not dot.on_front)
    parts += [f'<path class="other" d="{others}"/>'] if others else []
    best = sorted((dot for dot in dots if dot.on_front), key=lambda dot: dot.x_s)
    drawn = " ".join(f"{x.px(dot.x_s):.1f},{y.px(dot.y):.1f}" for dot in best)
    parts.append(f'<polyline class="curve" points="{drawn}"/>')
    parts += [
        f'<circle class="mark" cx="{x.px(dot.x_s):.1f}" cy="{y.px(dot.y):.1f}" r="3.5">'
        f"<title>{escape(dot.name)}</title></circle>"
        for dot in best
    ]
    return svg(f"{y_name} against {x_name}: {len(best)} points on the front of {len(dots)}", parts, height=HEIGHT)


def short_count(count: float) -> str:
    """``800``, ``32K``, ``1M``: powers of 1,024 where they are whole, else of 1,000."""
    if count < 1:
        return f"{count:g}"
    for unit, binary, decimal in (("M", 2**20, 10**6), ("K", 2**10, 10**3)):
        if count >= binary and count % binary == 0:
            return f"{count / binary:g}{unit}"
        if count >= decimal:
            return f"{count / decimal:.3g}{unit.lower() if unit == 'K' else unit}"
    return f"{count:g}"


def _log_axis(values: Sequence[float], start_px: float, end_px: float, room: float) -> Axis:
    low, high = min(values) / room, max(values) * room
    return Axis(low=low, high=high if high > low * 1.01 else low * 2, start_px=start_px, end_px=end_px, log=True)


def _mark(at: float, name: str, y: float) -> str:
    anchor, shift = ("end", -5) if at > WIDTH * 0.55 else ("start", 5)
    return (
        f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>'
        f'<text class="limit-label" x="{at + shift:.1f}" y="{y:.0f}" text-anchor="{anchor}">{escape(name)}</text>'
    )


def _spaced(axis: Axis, at_least_px: float, ticks: Sequence[float] | None) -> list[float]:
    """``ticks``, or the axis's own, thinned until labels have room."""
    kept: list[float] = []
    for tick in axis.ticks() if ticks is None else ticks:
        if not kept or abs(axis.px(tick) - axis.px(kept[-1])) >= at_least_px:
            kept.append(tick)
    return kept


def _powers_of_two(axis: Axis) -> list[float]:
    first, last = math.ceil(math.log2(axis.low)), math.floor(math.log2(axis.high))
    return [2.0**power for power in range(first, last + 1)]


def _across(axis: Axis, text: Callable[[float], str], name: str, ticks_at: Sequence[float] | None = None) -> str:
    bottom = HEIGHT - _BOTTOM
    ticks = "".join(
        f'<line class="grid" x1="{axis.px(tick):.1f}" x2="{axis.px(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f'<text class="tick" x="{axis.px(tick):.1f}" y="{bottom + 15}" text-anchor="middle">{escape(text(tick))}</text>'
        for tick in _spaced(axis, 44, ticks_at)
    )
    middle = (axis.start_px + axis.end_px) / 2
    return f'{ticks}<text class="axis" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>'


def _up(axis: Axis, text: Callable[[float], str], name: str) -> str:
    where = f'x="10" y="{HEIGHT / 2 - 10:.0f}" text-anchor="middle" transform="rotate(-90 10 {HEIGHT / 2 - 10:.0f})"'
    return f'<text class="axis" {where}>{escape(name)}</text>' + "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{axis.px(tick):.1f}" y2="{axis.px(tick):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{axis.px(tick) + 4:.1f}" text-anchor="end">{escape(text(tick))}</text>'
        for tick in _spaced(axis, 18, None)
    )
