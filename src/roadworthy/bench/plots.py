"""Plots as inline SVG: no script, no font, no address; colours come from the page's style sheet by class."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape
from typing import TypeVar

from roadworthy.core.latency import percentile
from roadworthy.core.units import format_duration

_T = TypeVar("_T")

WIDTH, HEIGHT = 480, 250
_LEFT, _RIGHT, _TOP, _BOTTOM = 52, 14, 14, 38
MAX_CURVE_POINTS = 160
MAX_SCATTER_POINTS = 1500


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A scale from values to pixels; ``log`` needs a positive ``low``."""

    low: float
    high: float
    start_px: float
    end_px: float
    log: bool = False

    def px(self, value: float) -> float:
        """Where ``value`` goes, held inside the plot."""
        if self.log:
            share = math.log(max(value, self.low) / self.low) / math.log(self.high / self.low)
        else:
            share = (value - self.low) / (self.high - self.low)
        return self.start_px + min(1.0, max(0.0, share)) * (self.end_px - self.start_px)

    def ticks(self) -> list[float]:
        """Round values inside the scale: about four of them, or the decades and their halves on a log scale."""
        if self.log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            steps = (1, 2, 5) if len(decades) <= 3 else (1,)
            ticks = [step * 10.0**decade for decade in decades for step in steps]
        else:
            step = _round_step((self.high - self.low) / 4)
            first = math.ceil(self.low / step)
            ticks = [index * step for index in range(first, math.floor(self.high / step) + 1)]
        return [tick for tick in ticks if self.low * (1 - 1e-9) <= tick <= self.high * (1 + 1e-9)]


def _round_step(step: float) -> float:
    scale = 10.0 ** math.floor(math.log10(step))
    return next(factor * scale for factor in (1, 2, 5, 10) if factor * scale >= step * 0.999)


def latency_cdf(name: str, values_s: Sequence[float], *, limit_s: float | None = None, limit_name: str = "") -> str:
    """Share of samples at or below each latency, with P50, P95, P99 marked and the limit as a dashed line."""
    ordered = sorted(values_s)
    if not ordered:
        return empty(f"{name}: no sample")
    high = max(ordered[-1], limit_s or 0.0, 1e-6) * 1.03  # a microsecond is the least that a scale can show
    low = ordered[0] if ordered[0] > 0 else high / 1000
    log = high / max(low, high / 1e4) > 30
    x = Axis(low=max(low * 0.9, high / 1e4) if log else 0.0, high=high, start_px=_LEFT, end_px=WIDTH - _RIGHT, log=log)
    y = Axis(low=0, high=1, start_px=HEIGHT - _BOTTOM, end_px=_TOP)
    parts = [_x_axis(x, _duration, name), _y_axis(y, lambda share: f"{share:.0%}")]
    if limit_s is not None:
        at = x.px(limit_s)
        parts.append(f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{HEIGHT - _BOTTOM}"/>')
        anchor, shift = ("end", -5) if at > WIDTH * 0.6 else ("start", 5)
        label = escape(f"{limit_name} {format_duration(limit_s)}".strip())
        where = f'x="{at + shift:.1f}" y="{HEIGHT - _BOTTOM - 8}"'
        parts.append(f'<text class="limit-label" {where} text-anchor="{anchor}">{label}</text>')
    parts.append(f'<polyline class="curve" points="{_points(_cdf_points(ordered), x, y)}"/>')
    for percent in (50, 95, 99):
        value = percentile(ordered, percent)
        title = f"<title>P{percent} {format_duration(value)}</title>"
        parts.append(
            f'<circle class="mark" cx="{x.px(value):.1f}" cy="{y.px(percent / 100):.1f}" r="3.5">{title}</circle>'
        )
    return svg(f"{name}: cumulative distribution of {len(ordered):,} samples", parts)


def _cdf_points(ordered: Sequence[float]) -> list[tuple[float, float]]:
    """(value, share) pairs, thinned evenly by rank, the first and the last sample kept."""
    count = len(ordered)
    ranks = range(count) if count <= MAX_CURVE_POINTS else sorted(
        {round(index * (count - 1) / (MAX_CURVE_POINTS - 1)) for index in range(MAX_CURVE_POINTS)}
    )  # fmt: skip
    return [(ordered[0], 0.0), *((ordered[rank], (rank + 1) / count) for rank in ranks)]


def in_flight(spans_s: Sequence[tuple[float, float]]) -> str:
    """Requests in flight over the run, from the (send, end) of each."""
    if not spans_s:
        return empty("no request was sent")
    changes = sorted([(start, 1) for start, _ in spans_s] + [(end, -1) for _, end in spans_s])
    level, steps = 0, [(0.0, 0)]
    for at_s, change in changes:
        level += change
        steps.append((at_s, level))
    end_s = max(changes[-1][0], 1e-3)
    peak = max(level for _, level in steps)
    x = Axis(low=0, high=end_s, start_px=_LEFT, end_px=WIDTH - _RIGHT)
    y = Axis(low=0, high=max(1, peak) * 1.08, start_px=HEIGHT - _BOTTOM, end_px=_TOP)
    points = _points(_peaks(steps, end_s), x, y)
    floor = f"{x.px(end_s):.1f},{y.px(0):.1f} {x.px(0):.1f},{y.px(0):.1f}"
    parts = [
        _x_axis(x, seconds, "time since start"),
        _y_axis(y, lambda level: f"{level:.0f}" if level == int(level) else ""),
        f'<polygon class="area" points="{points} {floor}"/>',
        f'<polyline class="curve" points="{points}"/>',
    ]
    return svg(f"requests in flight over time, at most {peak}", parts)


def _peaks(steps: Sequence[tuple[float, int]], end_s: float) -> list[tuple[float, float]]:
    """The level at the end of each of some 240 equal slices, or the highest inside it: thinning hides no peak."""
    slices = 240
    levels: list[float] = [0.0] * (slices + 1)
    index, level = 0, 0
    for slot in range(slices + 1):
        highest = level
        while index < len(steps) and steps[index][0] <= end_s * (slot + 1) / slices:
            level = steps[index][1]
            highest = max(highest, level)
            index += 1
        levels[slot] = highest if slot < slices else level
    return [(end_s * slot / slices, levels[slot]) for slot in range(slices + 1)]


def latency_scatter(
    name: str,
    points_s: Sequence[tuple[float, float]],
    failures_s: Sequence[float],
    *,
    limit_s: float | None = None,
) -> str:
    """One dot a request, (scheduled time, latency); a request that failed is a cross on the upper edge."""
    if not points_s and not failures_s:
        return empty("no request ended")
    end_s = max([at for at, _ in points_s] + list(failures_s) + [1e-3])
    high = max([value for _, value in points_s] + [limit_s or 0.0, 1e-3]) * 1.06
    x = Axis(low=0, high=end_s, start_px=_LEFT, end_px=WIDTH - _RIGHT)
    y = Axis(low=0, high=high, start_px=HEIGHT - _BOTTOM, end_px=_TOP)
    parts = [_x_axis(x, seconds, "scheduled arrival"), _y_axis(y, _duration)]
    if limit_s is not None:
        at = y.px(limit_s)
        parts.append(f'<line class="limit" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>')
    dots = "".join(f"M{x.px(at):.1f} {y.px(value):.1f}h0" for at, value in _thin(points_s, MAX_SCATTER_POINTS))
    crosses = "".join(f"M{x.px(at) - 3:.1f} {_TOP}l6 6m0 -6l-6 6" for at in _thin(failures_s, MAX_SCATTER_POINTS))
    parts += [f'<path class="dots" d="{dots}"/>'] if dots else []
    parts += [f'<path class="failures" d="{crosses}"/>'] if crosses else []
    shown = "" if len(points_s) <= MAX_SCATTER_POINTS else f", {MAX_SCATTER_POINTS:,} of {len(points_s):,} shown"
    return svg(f"{name} of each request over time{shown}", parts)


def _thin(values: Sequence[_T], at_most: int) -> Sequence[_T]:
    """At most ``at_most`` of ``values``, evenly by place, the first kept."""
    if len(values) <= at_most:
        return values
    return [values[index * len(values) // at_most] for index in range(at_most)]


def _points(pairs: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return " ".join(f"{x.px(across):.1f},{y.px(up):.1f}" for across, up in pairs)


def seconds(time_s: float) -> str:
    """A moment of a run on an axis."""
    return f"{time_s:g} s" if time_s < 600 else f"{time_s / 60:g} min"


def _duration(time_s: float) -> str:
    return format_duration(time_s) if time_s > 0 else "0"


def _x_axis(axis: Axis, text: Callable[[float], str], name: str) -> str:
    bottom = HEIGHT - _BOTTOM
    ticks = "".join(
        f'<line class="grid" x1="{axis.px(tick):.1f}" x2="{axis.px(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f"{tick_label(axis.px(tick), bottom + 15, text(tick))}"
        for tick in axis.ticks()
    )
    middle = (axis.start_px + axis.end_px) / 2
    return f'{ticks}<text class="axis" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">{escape(name)}</text>'


def tick_label(at_px: float, y_px: float, text: str) -> str:
    """A word under a place of the x axis: centred there, or drawn in where it would leave the plot."""
    half_px = 3.7 * len(text)  # of a digit's mean width in the page's font
    at_px = min(at_px, WIDTH - 1 - half_px)
    return f'<text class="tick" x="{at_px:.1f}" y="{y_px}" text-anchor="middle">{escape(text)}</text>'


def _y_axis(axis: Axis, text: Callable[[float], str]) -> str:
    return "".join(
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{axis.px(tick):.1f}" y2="{axis.px(tick):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{axis.px(tick) + 4:.1f}" text-anchor="end">{escape(text(tick))}</text>'
        for tick in axis.ticks()
    )


def svg(label: str, parts: Sequence[str], *, width: int = WIDTH, height: int = HEIGHT) -> str:
    """The frame of a plot: ``label`` is its title and what a screen reader says."""
    return (
        f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(label)}">'
        f"<title>{escape(label)}</title>{''.join(parts)}</svg>"
    )


def empty(text: str, *, height: int = HEIGHT) -> str:
    """A plot without data that says why."""
    middle = f'x="{WIDTH / 2:.0f}" y="{height / 2:.0f}" text-anchor="middle"'
    return svg(text, [f'<text class="axis" {middle}>{escape(text)}</text>'], height=height)
