"""Markdown that text of a document cannot break out of."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.render.shell import plain_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """``text`` as a code span, whatever backticks it holds."""
    plain = plain_line(text)
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence = "`" * (longest + 1)
    pad = " " if plain.startswith("`") or plain.endswith("`") else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; a bar within a cell stays in it."""
    lines = [
        tuple(head),
        tuple("---" for _ in head),
        *(tuple(cell.replace("|", r"\|") for cell in row) for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
