"""The result of the probes in words and as one HTML page with a heat map for each kind."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Literal

from roadworthy import __version__
from roadworthy.bench.plot_curves import STYLE, Curve, Scale, curves, heat_map, legend
from roadworthy.bench.report_page import notes, page, sentence

if TYPE_CHECKING:
    from roadworthy.bench.probes.cases import ProbeKind
    from roadworthy.bench.probes.score import Cell, KindReport

WIDTH = 80

Verdict = Literal["met", "missed", "undecided"]

MEANINGS: dict[ProbeKind, str] = {
    "needle": "one fact at one depth",
    "many": "four facts over the whole text, all asked for",
    "overwrite": "a fact stated twice, the later one counts",
    "alias": "the question uses a name that another place in the text explains",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeView:
    """What reports show. ``floor_ratio`` is the score that every cell has to reach."""

    title: str
    kinds: tuple[KindReport, ...]
    verdict: Verdict
    reason: str
    floor_ratio: float
    notes: tuple[str, ...] = ()


def verdict_of(kinds: Sequence[KindReport], floor_ratio: float, *, partial: bool) -> tuple[Verdict, str]:
    """Whether every length and depth reaches the floor. Unanswered questions are no pass."""
    cells = [(kind.kind, cell) for kind in kinds for cell in kind.cells]
    if not cells:
        return "undecided", "no question was answered"
    low = [(kind, cell) for kind, cell in cells if cell.score is not None and cell.score < floor_ratio]
    if low:
        kind, cell = min(low, key=lambda one: one[1].score or 0.0)
        places = f"{len(low)} of {len(cells)} places are" if len(low) > 1 else f"1 of {len(cells)} places is"
        return "missed", f"{places} below {floor_ratio:.0%}, lowest {kind} {place_of(cell)} with {cell.score:.0%}"
    failed = sum(cell.failed for _, cell in cells)
    if failed:
        return "undecided", f"{failed} questions were not answered"
    if partial:
        return "undecided", "the probe was ended early: it can show a miss, never a pass"
    return "met", f"every length and depth reaches {floor_ratio:.0%}"


def place_of(cell: Cell) -> str:
    """``at 32K, depth 50%``."""
    return f"at {length_of(cell.length_tokens)}, depth {cell.depth_ratio:.0%}"


def length_of(tokens: int) -> str:
    """``32K`` of 32,768, and plain numbers otherwise."""
    return f"{tokens // 1024}K" if tokens % 1024 == 0 else f"{tokens:,}"


def render_probes(view: ProbeView, *, paint: Callable[[Verdict, str], str] = lambda _, text: text) -> str:
    """Plain lines, the verdict first, then a table of depth by length for each kind."""
    lines = [f"{view.title}: {paint(view.verdict, view.verdict.upper())}", *_wrap(view.reason, "  ")]
    for kind in view.kinds:
        share = "–" if kind.score is None else f"{kind.score:.0%}"
        interval = f"{kind.interval.low:.0%} to {kind.interval.high:.0%}"
        lines += ["", f"{kind.kind}: {share} ({MEANINGS[kind.kind]}; 95 % interval {interval})"]
        lines += _table(kind)
    lines.append("")
    lines += [line for note in view.notes for line in _wrap(note, "")]
    return "\n".join(lines).rstrip() + "\n"


def _table(kind: KindReport) -> Iterator[str]:
    lengths = kind.lengths_tokens
    yield f"{'depth':>8}" + "".join(f"{length_of(length):>8}" for length in lengths)
    for depth in kind.depths:
        name = "all" if kind.kind == "many" else f"{depth:.0%}"
        yield f"{name:>8}" + "".join(f"{_share(cell):>8}" for cell in _row(kind, depth))


def _row(kind: KindReport, depth: float) -> list[Cell | None]:
    cells = {(cell.length_tokens, cell.depth_ratio): cell for cell in kind.cells}
    return [cells.get((length, depth)) for length in kind.lengths_tokens]


def _share(cell: Cell | None) -> str:
    return "–" if cell is None or cell.score is None else f"{cell.score:.0%}"


def probe_page(view: ProbeView) -> str:
    """The page: verdict, a heat map for each kind, score by length."""
    sign = {"met": "✓", "missed": "✕", "undecided": "?"}[view.verdict]
    banner = (
        f'<div class="banner {view.verdict}"><span class="sign">{sign}</span><div>'
        f"<strong>{view.verdict.capitalize()}</strong><p>{escape(sentence(view.reason))}</p></div></div>"
    )
    figures = "".join(
        f"<figure><figcaption>{escape(kind.kind)}: {escape(MEANINGS[kind.kind])}</figcaption>{_heat(kind)}</figure>"
        for kind in view.kinds
    )
    names = [kind.kind for kind in view.kinds]
    body = (
        f'<section><h3>Score by depth and length</h3><div class="plots">{figures}</div>'
        f'<h3>Score by length</h3>{legend(names)}<figure class="single">{_by_length(view.kinds)}</figure>'
        f"{notes(view.notes)}</section>"
    )
    return page(view.title, (banner, body), generator=f"roadworthy {__version__}", style=STYLE)


def _heat(kind: KindReport) -> str:
    rows = ["all depths"] if kind.kind == "many" else [f"{depth:.0%}" for depth in kind.depths]
    cells = [[None if cell is None else cell.score for cell in _row(kind, depth)] for depth in kind.depths]
    columns = [length_of(length) for length in kind.lengths_tokens]
    return heat_map(f"{kind.kind}: score by depth and length", rows, columns, cells, across="tokens of the prompt")


def _by_length(kinds: Sequence[KindReport]) -> str:
    lines = [
        Curve(
            name=kind.kind,
            points=tuple((length, score) for length, score in kind.by_length() if score is not None),
            marks=tuple(
                (length, score, f"{kind.kind} at {length_of(length)}: {score:.0%}", "")
                for length, score in kind.by_length()
                if score is not None
            ),
        )
        for kind in kinds
    ]
    x = Scale(name="tokens of the prompt", text=lambda value: length_of(round(value)), log=True)
    return curves("score by length", lines, x, Scale(name="score", text=lambda share: f"{share:.0%}"))


def _wrap(text: str, indent: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent)
