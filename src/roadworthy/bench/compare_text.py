"""A comparison as a terminal shows it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator

from roadworthy.bench.compare import Comparison, Difference, Outcome
from roadworthy.core.units import format_duration

WIDTH = 80

Paint = Callable[[Outcome, str], str]

HEADLINES: dict[Outcome, str] = {
    "worse": "B is worse than A",
    "better": "B is better than A",
    "same": "no difference shown between A and B",
    "unknown": "too few requests to compare",
}


def render_comparison(found: Comparison, *, paint: Paint = lambda _, text: text) -> str:
    """Plain lines, the conclusion first."""
    lines = [
        paint(found.outcome, HEADLINES[found.outcome]),
        f"  A {found.a}",
        f"  B {found.b}",
        "",
        f"{'':<10}{'A':>11}{'B':>11}{'B / A':>8}{'95 % interval':>17}{'chance':>9}  ",
        *(line for one in found.differences for line in _row(one, paint)),
        "",
        *_wrapped(
            f"Chance: how often two equal services would differ so much, over all {len(found.differences)} rows. Below "
            f"5 %, and beyond {found.tolerance_ratio:.0%} for a latency, a row is called better or worse."
        ),
        *(line for caution in found.cautions for line in _wrapped(f"Caution: {caution}")),
    ]
    return "\n".join(lines) + "\n"


def _row(one: Difference, paint: Paint) -> Iterator[str]:
    name = name_of(one)
    interval = "–" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
    ratio = "–" if one.ratio is None else f"{one.ratio:.3f}"
    chance = "–" if one.probability is None else "< 0.1 %" if one.probability < 0.001 else f"{one.probability:.1%}"
    cells = f"{name:<10}{value_of(one, one.a):>11}{value_of(one, one.b):>11}{ratio:>8}{interval:>17}{chance:>9}  "
    yield cells + paint(one.outcome, one.outcome)


def name_of(one: Difference) -> str:
    """``TTFT P50`` of ``ttft_p50``."""
    word, _, stat = one.name.partition("_")
    return f"{word.upper()} {stat.upper()}" if stat else word


def value_of(one: Difference, value: float | None) -> str:
    """A value of either run in its own unit; a dash for none."""
    if value is None:
        return "–"
    return format_duration(value) if one.unit == "s" else f"{value:.2%}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, subsequent_indent="  ")
