"""Tables and bars that stay readable where the terminal is narrow, and output without trailing blanks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from rich.console import Group
from rich.measure import Measurement
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import TextIO

    from rich.console import Console, ConsoleOptions, RenderResult
    from rich.table import Table

UNBOUNDED_COLUMNS = 10_000
_TRAILING = re.compile(r"[ \t]+(?=\n)")


class Fitting:
    """``table`` where its widest rows fit; else one block a row, each cell on a line with its column's name.

    For tables of numbers whose cells must not be cut. The first column names the row.

    Args:
        least: columns below which a table whose words may wrap is told row by row; None measures the widest rows.
    """

    def __init__(self, table: Table, *, least: int | None = None) -> None:
        self.table, self.least = table, least

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        room = options.update(width=UNBOUNDED_COLUMNS)
        least = self.least or Measurement.get(console, room, self.table).maximum
        if least <= options.max_width:
            yield self.table
        else:
            yield self._stacked()

    def _stacked(self) -> Group:
        names = [" ".join(str(column.header).split()) for column in self.table.columns]
        blocks = []
        for cells in zip(*(column.cells for column in self.table.columns), strict=True):
            first, *rest = (cell if isinstance(cell, Text) else Text(str(cell)) for cell in cells)
            told = [
                Text.assemble((f"{name}: ", "dim"), value) if name else value
                for name, value in zip(names[1:], rest, strict=True)
                if value.plain.strip()
            ]
            blocks.append(Text("\n  ").join([first, *told]))
        return Group(*blocks)


class Stretching:
    """What ``draw`` makes of the columns that there are, at most ``most``."""

    def __init__(self, draw: Callable[[int], Text], *, most: int) -> None:
        self._draw, self._most = draw, most

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield self._draw(min(self._most, options.max_width))


class Trimmed:
    """A text stream without blanks at the ends of lines, which tables fill up with; for files and pipes."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._held = ""

    def write(self, text: str) -> int:
        whole = _TRAILING.sub("", self._held + text)
        kept = whole.rstrip(" \t")
        self._held = whole[len(kept) :]
        self._stream.write(kept)
        return len(text)

    def flush(self) -> None:
        """Blanks that no line end has followed yet are kept back: more of the line may come."""
        self._stream.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
