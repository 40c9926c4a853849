"""What a document becomes: units that can be cited, each with its place in the text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

UnitKind = Literal["article", "section", "recital", "amendment", "clause", "preamble", "text"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One citable piece of a document; pieces of one document never overlap.

    Args:
        number: canonical, for look-up: ``1032``, ``9.2.2``, ``1.8`` (Article I, Section 8), ``amendment.4``; empty
            where it has none.
        label: as people cite it: ``第一千零三十二条``, ``Article 17``, ``Section 9.2.2``.
        path: headings from the outside in, without the unit's own.
        char_start: first character in the document's text; ``text`` is exactly ``document[char_start:char_end]``.
        page: first page, counted from 1; None for formats without pages.
        part: which piece of a unit that had to be cut, counted from 0.
        also: numbers of further clauses, schedules or exhibits that begin in it.
    """

    kind: UnitKind
    number: str
    label: str
    title: str
    path: tuple[str, ...]
    text: str
    char_start: int
    char_end: int
    page: int | None = None
    part: int = 0
    also: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.char_end - self.char_start != len(self.text):
            raise ValueError(f"{self.label}: {len(self.text)} characters between {self.char_start} and {self.char_end}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParseNote:
    """Something odd about a document's numbering: a gap, a repeat."""

    message: str
    char_start: int
