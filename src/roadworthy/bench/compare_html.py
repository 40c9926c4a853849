"""A comparison as one page that opens offline: the table, and both distributions over each other."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from roadworthy import __version__
from roadworthy.bench.compare_text import HEADLINES, name_of, value_of
from roadworthy.bench.plot_curves import STYLE, distributions, legend
from roadworthy.bench.report_page import notes, page, sentence, table

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.bench.compare import Comparison, Difference, Measured

_BANNER = {"worse": ("missed", "✕"), "better": ("met", "✓"), "same": ("met", "="), "unknown": ("undecided", "?")}
_LATENCIES = (("ttft_s", "TTFT"), ("tpot_s", "TPOT"), ("e2e_s", "E2E"))


def comparison_page(found: Comparison, a: Measured, b: Measured) -> str:
    """The whole page."""
    kind, sign = _BANNER[found.outcome]
    banner = (
        f'<div class="banner {kind}"><span class="sign">{sign}</span><div>'
        f"<strong>{escape(sentence(HEADLINES[found.outcome]))}</strong></div></div>"
    )
    columns = ("", "A", "B", "B / A", "95 % interval", "chance", "B is")
    rows = (tuple(_cells(one)) for one in found.differences)
    names = (f"A: {found.a}", f"B: {found.b}")
    plots = "".join(
        f"<figure><figcaption>{title}</figcaption>"
        + distributions(title, [(run.name, [one for one in getattr(run, field) if one is not None]) for run in (a, b)])
        + "</figure>"
        for field, title in _LATENCIES
    )
    body = (
        f"<section>{table(columns, rows)}{notes(found.cautions)}<h3>Distributions</h3>{legend(names)}"
        f'<div class="plots">{plots}</div></section>'
    )
    return page(
        "Comparison of two runs",
        (banner, body),
        subtitle=f"A {found.a}, B {found.b}",
        generator=f"roadworthy {__version__}",
        style=STYLE,
    )


def _cells(one: Difference) -> Iterator[str]:
    yield name_of(one)
    yield value_of(one, one.a)
    yield value_of(one, one.b)
    yield "–" if one.ratio is None else f"{one.ratio:.3f}"
    yield "–" if one.low is None or one.high is None else f"{one.low:.3f} to {one.high:.3f}"
    yield "–" if one.probability is None else f"{one.probability:.1%}"
    yield f"{one.outcome}: {one.why}" if one.why else one.outcome
