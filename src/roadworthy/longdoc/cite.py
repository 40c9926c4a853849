"""Whether a quotation stands in the text, and where: decided here, never by the model that quotes.

A model copies a text as it reads it: other quotation marks, a full-width comma turned plain, a line break gone. So both
sides are compared as they are indexed (compatibility forms, case, spaces), and what is handed on is the text's own
characters between two offsets, not the model's copy. A citation that exists is therefore right about its words, its
section and its place; whether a claim follows from them is another question.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.longdoc.numerals import CHINESE
from roadworthy.longdoc.references import references

if TYPE_CHECKING:
    from roadworthy.longdoc.search import StoredUnit

LEAST_WEIGHT = 8
"""Of a quotation, a Chinese character counting 2 and any other letter or digit 1: fewer prove nothing."""

_SAME = str.maketrans(
    dict.fromkeys("“”„‟«»「」『』〝〞", '"') | dict.fromkeys("‘’‚‛`´", "'") | dict.fromkeys("‐‑‒–—―−", "-")
)
_ELISION = re.compile(r"\s*(?:\[\s*(?:\.{3}|…+)\s*\]|\(\s*(?:\.{3}|…+)\s*\)|\.{3,}|…+|\. \. \.)\s*")
_EDGES = " \t\r\n\"'“”‘’«»「」『』.,;:。，；：、…"


@dataclass(frozen=True, slots=True, kw_only=True)
class Citation:
    """A place in a stored document; ``quote`` is exactly the document's text from ``start`` to ``end``.

    Args:
        section: the label of the unit, as people cite it.
        page: on which the unit begins, counted from 1; None for formats without pages.
    """

    document: str
    section: str
    path: tuple[str, ...]
    page: int | None
    quote: str
    start: int
    end: int
    unit: int


@dataclass(frozen=True, slots=True)
class _Compared:
    """A text as it is compared, with the place in the original of each of its characters."""

    text: str
    places: tuple[int, ...]


def compared(text: str) -> _Compared:
    """``text`` without what copying changes; a space is left only where it parts two words."""
    letters: list[str] = []
    places: list[int] = []
    space = -1
    for at, letter in enumerate(text):
        if letter.isspace():
            space = at
            continue
        # a soft hyphen or a zero-width space is of category Cf
        if unicodedata.category(letter) in ("Cf", "Cc"):
            continue
        for one in unicodedata.normalize("NFKD", letter.translate(_SAME)).translate(_SAME).lower():
            if one.isspace():
                space = at
                continue
            if space >= 0 and letters and _wordy(letters[-1]) and _wordy(one):
                letters.append(" ")
                places.append(space)
            space = -1
            letters.append(one)
            places.append(at)
    return _Compared("".join(letters), tuple(places))


def _wordy(letter: str) -> bool:
    """A letter or a digit of a script that writes spaces between words."""
    return letter.isalnum() and not "\u2e80" <= letter <= "\u9fff" and not "\U00020000" <= letter <= "\U0003ffff"


def find_quote(quote: str, text: str) -> tuple[int, int] | None:
    """Start and end in ``text`` of what ``quote`` says word for word; None where it does not stand there.

    Whole words and whole numbers only: "30 days" does not stand in "130 days".
    """
    needle = compared(quote.strip(_EDGES)).text
    if not needle:
        return None
    hay = compared(text)
    at = hay.text.find(needle)
    while at >= 0:
        end = at + len(needle)
        if _whole(hay, at, end):
            return hay.places[at], hay.places[end - 1] + 1
        at = hay.text.find(needle, at + 1)
    return None


def _whole(hay: _Compared, at: int, end: int) -> bool:
    """Whether no word, number or character is cut at either end."""
    text, places = hay.text, hay.places
    if at and (places[at - 1] == places[at] or _one_word(text[at - 1], text[at])):
        return False
    if end < len(text) and (
        places[end - 1] == places[end] or unicodedata.combining(text[end]) or _one_word(text[end - 1], text[end])
    ):
        return False
    before, after = text[max(0, at - 2) : at][::-1], text[end : end + 2]
    return not (_number_goes_on(before, text[at]) or _number_goes_on(after, text[end - 1]))


def _one_word(before: str, after: str) -> bool:
    """Whether two neighbours are of one word, or of one Chinese number."""
    return (_wordy(before) and _wordy(after)) or (before in CHINESE and after in CHINESE)


def _number_goes_on(beyond: str, edge: str) -> bool:
    """``1`` of ``1.5`` and ``000`` of ``20,000`` are parts of a number."""
    return edge.isdigit() and len(beyond) == 2 and beyond[0] in ".," and beyond[1].isdigit()


def weighty(quote: str) -> bool:
    """Whether ``quote`` is long enough to be found by more than chance."""
    return sum(2 if "\u2e80" <= one <= "\u9fff" else 1 for one in quote if one.isalnum()) >= LEAST_WEIGHT


def cite(quote: str, named: StoredUnit | None, others: Iterable[StoredUnit] = ()) -> tuple[Citation, ...]:
    """The places of ``quote``: in the unit that was named for it, else in one of ``others``.

    A quotation with words left out gives one citation for each piece, all of one unit and in the order of the text.
    Empty where any piece does not stand there, or is too short to prove anything.
    """
    candidates = [named] if named is not None else []
    candidates += [one for one in others if named is None or one.id != named.id]
    pieces = [piece for piece in _ELISION.split(quote) if piece.strip(_EDGES)]
    for stored in candidates:
        whole = stored.unit.text
        for spans in ([find_quote(quote, whole)], _in_order(pieces, whole)):
            found = [span for span in spans if span is not None]
            enough = all(weighty(whole[start:end]) or end - start >= len(whole.strip(_EDGES)) for start, end in found)
            if found and len(found) == len(spans) and enough:
                return tuple(_citation(stored, start, end) for start, end in found)
    return ()


def _in_order(pieces: Sequence[str], text: str) -> list[tuple[int, int] | None]:
    spans: list[tuple[int, int] | None] = []
    after = 0
    for piece in pieces:
        span = find_quote(piece, text[after:])
        if span is None:
            return [None]
        spans.append((after + span[0], after + span[1]))
        after += span[1]
    return spans


def _citation(stored: StoredUnit, start: int, end: int) -> Citation:
    unit = stored.unit
    return Citation(
        document=stored.document, section=unit.label, path=unit.path, page=unit.page, quote=unit.text[start:end],
        start=unit.char_start + start, end=unit.char_start + end, unit=stored.id,
    )  # fmt: skip


def stands(citation: Citation, stored: StoredUnit) -> bool:
    """Whether ``citation`` is true of the unit as it is stored now."""
    unit = stored.unit
    start, end = citation.start - unit.char_start, citation.end - unit.char_start
    return (
        stored.document == citation.document
        and unit.label == citation.section
        and 0 <= start < end
        and unit.text[start:end] == citation.quote
    )


def wrongly_named(claim: str, cited: Sequence[StoredUnit]) -> tuple[str, ...]:
    """Numbers of sections that ``claim`` names and that are neither cited for it, nor named in what is cited or above
    it. Section 9 is named rightly for 9.2.2, and Section 2 for Article 5, Section 2."""
    right: set[str] = set()
    for one in cited:
        unit = one.unit
        parts = unit.number.split(".")
        right |= {".".join(parts[:depth]) for depth in range(1, len(parts) + 1)} | {parts[-1]}
        right |= {number for _, number in references("\n".join((*unit.path, unit.label, unit.title, unit.text)))}
    return tuple(dict.fromkeys(number for _, number in references(claim) if number not in right))
