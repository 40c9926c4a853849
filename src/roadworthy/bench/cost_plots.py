"""The break-even curve and the tornado as inline SVG: no script, no font, no address; colours by class."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

from roadworthy.bench.plots import Axis, svg

WIDTH, HEIGHT = 720, 330
_LEFT, _RIGHT, _TOP, _BOTTOM = 78, 18, 18, 44
_ROW, _NAME = 30, 190

STYLE = """
svg .own{fill:none;stroke:var(--accent);stroke-width:2.2;stroke-linejoin:round}
svg .api{fill:none;stroke:var(--undecided);stroke-width:2.2}
svg text.own-label{fill:var(--accent);font-weight:600;stroke:none}
svg text.api-label{fill:var(--undecided);font-weight:600;stroke:none}
svg .swing{fill:var(--accent);opacity:.55}
svg .even{stroke:var(--text);stroke-width:1.4}
svg text.name{fill:var(--text)}
svg .hour{fill:var(--accent);opacity:.55}
svg .hour.peak{fill:var(--undecided);opacity:.75}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Swing:
    """One input: its two ends as text, the result at each, and the least and greatest result between them."""

    name: str
    low: str
    high: str
    at_low: float
    at_high: float
    reach: tuple[float, float]


def break_even_curve(
    own: Sequence[tuple[float, float]],
    api: Sequence[tuple[float, float]],
    *,
    break_even: tuple[float, float] | None,
    expected: float,
    volume: Callable[[float], str],
    currency: str,
) -> str:
    """Money a month against tokens a month, own cost in steps of clusters and the API's line.

    Args:
        own, api: (tokens, money) pairs, rising in tokens.
        break_even: where they meet; None when they do not on this cluster.
        expected: the volume that is expected, marked by a dashed line.
        volume: a count of tokens as text.
    """
    far = max(at for at, _ in (*own, *api))
    top = max(money for _, money in (*own, *api)) * 1.06
    if far <= 0 or top <= 0:
        return ""
    x = Axis(low=0, high=far, start_px=_LEFT, end_px=WIDTH - _RIGHT)
    y = Axis(low=0, high=top, start_px=HEIGHT - _BOTTOM, end_px=_TOP)
    bottom, at = HEIGHT - _BOTTOM, x.px(expected)
    anchor, shift = ("end", -6) if at > WIDTH * 0.7 else ("start", 6)
    parts = [
        *(
            f'<line class="grid" x1="{x.px(tick):.1f}" x2="{x.px(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
            f'<text x="{x.px(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{escape(volume(tick))}</text>'
            for tick in x.ticks()
        ),
        *(
            f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.px(tick):.1f}" y2="{y.px(tick):.1f}"/>'
            f'<text x="{_LEFT - 7}" y="{y.px(tick) + 4:.1f}" text-anchor="end">{tick:,.0f}</text>'
            for tick in y.ticks()
        ),
        f'<line class="limit" x1="{at:.1f}" x2="{at:.1f}" y1="{_TOP}" y2="{bottom}"/>',
        f'<text class="limit-label" x="{at + shift:.1f}" y="{_TOP + 12}" text-anchor="{anchor}">expected</text>',
        f'<polyline class="own" points="{_points(own, x, y)}"/>',
        f'<polyline class="api" points="{_points(api, x, y)}"/>',
        _label("own", own[-1], x, y),
        _label("api", api[-1], x, y),
    ]
    if break_even is not None:
        tokens, money = break_even
        parts.append(
            f'<circle class="mark" cx="{x.px(tokens):.1f}" cy="{y.px(money):.1f}" r="5">'
            f"<title>break-even at {escape(volume(tokens))} tokens a month</title></circle>"
        )
    middle = (_LEFT + WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="axis" x="{middle:.0f}" y="{HEIGHT - 6}" text-anchor="middle">'
        f"tokens a month; up: {escape(currency)} a month</text>"
    )
    return svg("cost a month against tokens a month, own and API", parts, width=WIDTH, height=HEIGHT)


def tornado(swings: Sequence[Swing], *, base: float, even: float | None) -> str:
    """One bar an input from its result at the low end to that at the high end; ``base`` is dotted, ``even`` solid."""
    if not swings:
        return ""
    values = [value for one in swings for value in one.reach] + [base] + ([even] if even else [])
    low, high = min(values), max(values)
    margin = (high - low) * 0.08 or 1.0
    x = Axis(low=max(0.0, low - margin), high=high + margin, start_px=_NAME, end_px=WIDTH - _RIGHT)
    bottom = _TOP + _ROW * len(swings)
    parts = [
        f'<line class="grid" x1="{x.px(tick):.1f}" x2="{x.px(tick):.1f}" y1="{_TOP}" y2="{bottom}"/>'
        f'<text x="{x.px(tick):.1f}" y="{bottom + 16}" text-anchor="middle">{tick:.3g}</text>'
        for tick in x.ticks()
    ]
    for index, one in enumerate(swings):
        top = _TOP + index * _ROW
        start, end = (x.px(value) for value in one.reach)
        about = f"{one.low}: {one.at_low:.3g}; {one.high}: {one.at_high:.3g}"
        parts.append(
            f'<text class="name" x="{_NAME - 10}" y="{top + 19}" text-anchor="end">{escape(one.name)}</text>'
            f'<rect class="swing" x="{start:.1f}" y="{top + 6}" width="{max(1.0, end - start):.1f}" '
            f'height="{_ROW - 12}" rx="2"><title>{escape(about)}</title></rect>'
        )
    parts.append(f'<line class="limit" x1="{x.px(base):.1f}" x2="{x.px(base):.1f}" y1="{_TOP}" y2="{bottom}"/>')
    if even is not None:
        parts.append(f'<line class="even" x1="{x.px(even):.1f}" x2="{x.px(even):.1f}" y1="{_TOP}" y2="{bottom}"/>')
    return svg("what each input does to the result", parts, width=WIDTH, height=bottom + 26)


def hour_bars(shares: Sequence[float], peak_hours: Sequence[int]) -> str:
    """Use of each hour of a day, UTC; hours at the API's peak price in another colour. Empty without a profile."""
    if not shares:
        return ""
    height, bottom = 170, 140
    step = (WIDTH - _LEFT - _RIGHT) / len(shares)
    y = Axis(low=0, high=1, start_px=bottom, end_px=_TOP)
    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{WIDTH - _RIGHT}" y1="{y.px(tick):.1f}" y2="{y.px(tick):.1f}"/>'
        f'<text x="{_LEFT - 7}" y="{y.px(tick) + 4:.1f}" text-anchor="end">{tick:.0%}</text>'
        for tick in (0, 0.5, 1)
    ]
    for hour, share in enumerate(shares):
        left, top = _LEFT + hour * step, y.px(share)
        kind = "hour peak" if hour in peak_hours else "hour"
        parts.append(
            f'<rect class="{kind}" x="{left + 1:.1f}" y="{top:.1f}" width="{step - 2:.1f}" '
            f'height="{bottom - top:.1f}"><title>{hour:02d}:00 UTC: {share:.0%}</title></rect>'
        )
        if hour % 3 == 0:
            parts.append(f'<text x="{left + step / 2:.1f}" y="{bottom + 16}" text-anchor="middle">{hour:02d}</text>')
    return svg("use by hour of the day, UTC", parts, width=WIDTH, height=height)


def _label(kind: str, end: tuple[float, float], x: Axis, y: Axis) -> str:
    where = f'x="{x.px(end[0]):.1f}" y="{y.px(end[1]) - 7:.1f}"'
    return f'<text class="{kind}-label" {where} text-anchor="end">{"API" if kind == "api" else kind}</text>'


def _points(pairs: Sequence[tuple[float, float]], x: Axis, y: Axis) -> str:
    return " ".join(f"{x.px(across):.1f},{y.px(up):.1f}" for across, up in pairs)
