"""The matrix as a terminal shows it: rows send, columns receive, slow pairs marked."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection

    from roadworthy.diagnose.hosts.fabric.values import End, Kind, Measured

MARK, NOTHING, FAILED = "!", "-", "x"
NAME_MOST = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What stands at one place: the worst number of what was measured there, marked or not."""

    value: float | None
    slow: bool = False
    failed: bool = False
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """One table: a title, names in order, and cells by (row, column)."""

    title: str
    unit: str
    kind: Kind
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    cells: dict[tuple[str, str], Cell]


def matrices(everything: Sequence[Measured], slow: Collection[Measured]) -> tuple[Matrix, ...]:
    """Hosts against hosts for each program and kind, hosts against rails where there are several, and the GPUs of each
    host."""
    found: list[Matrix] = []
    groups: dict[tuple[str, Kind, str], list[Measured]] = defaultdict(list)
    for link in everything:
        if link.status != "missing":  # nothing was tried: a dash, if there is a table at all
            groups[link.one.host if link.inside else "", link.kind, link.program].append(link)
    for (host, kind, program), links in groups.items():
        what = "Bandwidth" if kind == "bandwidth" else "Latency"
        if host:
            known = [link for link in links if "*" not in link.one.part]
            if known:
                found.append(
                    _square(f"{what} between the GPUs of {host}, {program}", known, slow, lambda end: end.part)
                )
            continue
        rails = {link.one.part for link in links if link.one.part}
        of = ", slowest rail" if len(rails) > 1 and kind == "bandwidth" else ", latest rail" if len(rails) > 1 else ""
        found.append(_square(f"{what} between hosts{of}, {program}", links, slow, lambda end: end.host))
        if len(rails) > 1:
            found.append(_by_rail(f"{what} of each host's rails, to its best peer, {program}", links, slow))
    return tuple(found)


def _square(title: str, links: Sequence[Measured], slow: Collection[Measured], name: Callable[[End], str]) -> Matrix:
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for link in links:
        one, two = name(link.one), name(link.two)
        groups[one, two].append(link)
        if link.both_ways:
            groups[two, one].append(link)
    names = tuple(sorted({name for pair in groups for name in pair}, key=_natural))
    return _matrix(title, links[0].kind, names, names, groups, slow)


def _by_rail(title: str, links: Sequence[Measured], slow: Collection[Measured]) -> Matrix:
    groups: dict[tuple[str, str], list[Measured]] = defaultdict(list)
    for link in links:
        for end in (link.one, link.two):
            groups[end.host, end.part].append(link)
    rows = tuple(sorted({row for row, _ in groups}, key=_natural))
    columns = tuple(sorted({column for _, column in groups}, key=_natural))
    return _matrix(title, links[0].kind, rows, columns, {place: [_best(some)] for place, some in groups.items()}, slow)


def _best(links: Sequence[Measured]) -> Measured:
    """A port is as good as its best link: the others may be slow for their other ends."""
    numbers = [link for link in links if link.value is not None]
    if not numbers:
        return links[0]
    return (max if numbers[0].kind == "bandwidth" else min)(numbers, key=lambda link: link.value or 0.0)


def _matrix(
    title: str,
    kind: Kind,
    rows: tuple[str, ...],
    columns: tuple[str, ...],
    groups: dict[tuple[str, str], list[Measured]],
    slow: Collection[Measured],
) -> Matrix:
    unit = "GB/s" if kind == "bandwidth" else "us"
    cells = {place: _cell(links, kind, slow) for place, links in groups.items()}
    return Matrix(title=title, unit=unit, kind=kind, rows=rows, columns=columns, cells=cells)


def _cell(links: Sequence[Measured], kind: Kind, slow: Collection[Measured]) -> Cell:
    numbers = [link for link in links if link.value is not None]
    failed = len(numbers) < len(links)
    if not numbers:
        return Cell(value=None, failed=True, about=links[0].why)
    worst = (min if kind == "bandwidth" else max)(numbers, key=lambda link: link.value or 0.0)
    scale = 1e-9 if kind == "bandwidth" else 1e6
    about = f"{worst.one.text} to {worst.two.text}"
    return Cell(
        value=(worst.value or 0.0) * scale, slow=any(link in slow for link in links), failed=failed, about=about
    )


def _natural(name: str) -> tuple[object, ...]:
    """mlx5_2 before mlx5_10."""
    head = name.rstrip("0123456789")
    return (head, int(name[len(head) :] or -1), name)


def drawn(matrix: Matrix) -> list[str]:
    """Lines of text. ``!`` marks a slow place, ``x`` one that failed, ``-`` one that was not measured."""
    shown = {place: _text(cell) for place, cell in matrix.cells.items()}
    columns = [_short(name) for name in matrix.columns]
    widths = [
        max(len(head), *(len(shown.get((row, column), NOTHING)) for row in matrix.rows))
        for head, column in zip(columns, matrix.columns, strict=True)
    ]
    left = max(len(_short(row)) for row in matrix.rows)
    lines = [
        f"{matrix.title}, {matrix.unit}",
        f"  {'':{left}}  " + "  ".join(f"{h:>{w}}" for h, w in zip(columns, widths, strict=True)),
    ]
    for row in matrix.rows:
        cells = [
            f"{shown.get((row, column), NOTHING):>{width}}"
            for column, width in zip(matrix.columns, widths, strict=True)
        ]
        lines.append(f"  {_short(row):{left}}  " + "  ".join(cells))
    return [line.rstrip() for line in lines]


def _text(cell: Cell) -> str:
    if cell.value is None:
        return FAILED
    digits = 1 if cell.value >= 10 else 2 if cell.value >= 1 else 3
    return f"{cell.value:.{digits}f}" + (MARK if cell.slow else FAILED if cell.failed else "")


def _short(name: str) -> str:
    return name if len(name) <= NAME_MOST else name[: NAME_MOST - 9] + "…" + name[-8:]
