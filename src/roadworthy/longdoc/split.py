"""A document into units: by the structure that it has, never by counting characters first.

The grammar whose unit headings count up without gaps over most of the text wins. Where none does, the text is split as
contracts are (:mod:`roadworthy.longdoc.clauses`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from roadworthy.longdoc.clauses import clauses
from roadworthy.longdoc.headings import (
    Heading,
    chinese_headings,
    code_headings,
    markdown_headings,
    numbered_headings,
    recitals,
)
from roadworthy.longdoc.numerals import roman_number
from roadworthy.longdoc.values import ParseNote, Unit

if TYPE_CHECKING:
    from collections.abc import Iterator

CountTokens = Callable[[str], int]

APPENDIX = 1000
LARGE_TOKENS = 2000
MOST_LARGE = 0.25
"""Share of the text that may lie in large units."""

FEWEST_UNITS = 5
"""A structure with fewer units than this is taken for chance."""


def split(text: str, count_tokens: CountTokens) -> tuple[tuple[Unit, ...], tuple[ParseNote, ...]]:
    """Units in the order of the text, and what was odd about their numbers."""
    for grammar in (_chinese, _code, _numbered, _markdown):
        headings = grammar(text)
        units = tuple(_units(text, headings))
        if len(units) >= FEWEST_UNITS and _fine_enough(units, count_tokens):
            return units, tuple(_gaps(units))
    return tuple(clauses(text, count_tokens)), ()


def _fine_enough(units: Sequence[Unit], count_tokens: CountTokens) -> bool:
    """Whether units are what people cite: a contract's Articles hold dozens of clauses each, a statute's do not."""
    sizes = [count_tokens(unit.text) for unit in units]
    return sum(size for size in sizes if size > LARGE_TOKENS) <= MOST_LARGE * sum(sizes)


def _chinese(text: str) -> list[Heading]:
    headings = sorted(chinese_headings(text), key=lambda one: one.char_start)
    return headings if sum(one.leaf for one in headings) >= FEWEST_UNITS else []


def _code(text: str) -> list[Heading]:
    headings = sorted(code_headings(text), key=lambda one: one.char_start)
    articles = [one for one in headings if one.kind in ("article", "amendment")]
    if len(articles) < FEWEST_UNITS or not _mostly_consecutive(articles):
        return []
    first = articles[0].char_start
    headings = [*recitals(text, before=first), *headings]
    headings.sort(key=lambda one: one.char_start)
    return _containers_by_content(headings)


def _containers_by_content(headings: Sequence[Heading]) -> list[Heading]:
    """An Article that has Sections is a container; a Section above Articles is one too (as in EU acts)."""
    above = _sections_above(headings)
    result: list[Heading] = []
    for index, one in enumerate(headings):
        after = headings[index + 1] if index + 1 < len(headings) else None
        if one.kind == "section" and one.level == 6 and above:
            result.append(replace(one, level=3, leaf=False))
        elif one.kind == "article" and after is not None and after.kind == "section" and after.level == 6 and not above:
            result.append(replace(one, leaf=False))
        else:
            result.append(one)
    return result


def _sections_above(headings: Sequence[Heading]) -> bool:
    """Whether sections contain articles: the heading after a section is mostly an article."""
    pairs = list(pairwise(headings))
    then_article = sum(one.level == 6 and after.kind == "article" for one, after in pairs)
    return then_article > sum(one.level == 6 and after.level == 6 for one, after in pairs)


def _mostly_consecutive(headings: Sequence[Heading]) -> bool:
    values = [int(one.number) if one.number.isdigit() else roman_number(one.number) for one in headings]
    steps = [after - one for one, after in pairwise(values) if one is not None and after is not None]
    return bool(steps) and sum(step == 1 for step in steps) >= 0.6 * len(steps)


def _numbered(text: str) -> list[Heading]:
    """Only headings that continue the numbering: a list item ``2. Something`` inside a section does not."""
    kept: list[Heading] = []
    last: tuple[int, ...] = ()
    for one in numbered_headings(text):
        number = tuple(_place(part) for part in one.number.split("."))
        if _follows(last, number) and _stands_alone(text, one):
            kept.append(one)
            last = number
    return kept


def _place(part: str) -> int:
    """Appendix letters come after every number."""
    return int(part) if part.isdigit() else APPENDIX + ord(part) - ord("A")


def _follows(last: tuple[int, ...], number: tuple[int, ...]) -> bool:
    """9.2.2 follows 9.2.1, 9.2 (as its first) and 9.2.1.4; nothing else."""
    if not last:
        return number == (1,)
    if len(number) == 1 and number[0] >= APPENDIX > last[0]:
        return True
    if len(number) == len(last) + 1:
        return number[:-1] == last and number[-1] == 1
    depth = len(number)
    return depth <= len(last) and number[:-1] == last[: depth - 1] and number[-1] == last[depth - 1] + 1


def _stands_alone(text: str, one: Heading) -> bool:
    """A heading has an empty line before it, or begins the text."""
    before = text[max(0, one.char_start - 2) : one.char_start]
    return one.char_start < 3 or before.endswith("\n\n") or before == "\n"


def _markdown(text: str) -> list[Heading]:
    return list(markdown_headings(text))


def _units(text: str, headings: Sequence[Heading]) -> Iterator[Unit]:
    open_ones: list[Heading] = []
    recital_path = ("Recitals",)
    for index, one in enumerate(headings):
        while open_ones and open_ones[-1].level >= one.level:
            open_ones.pop()
        end = headings[index + 1].char_start if index + 1 < len(headings) else len(text)
        if one.leaf:
            path = recital_path if one.kind == "recital" else tuple(above.text for above in open_ones)
            yield _unit(text, one, end, path)
        open_ones.append(one)


def _unit(text: str, one: Heading, end: int, path: tuple[str, ...]) -> Unit:
    start = one.char_start
    body = text[start:end].rstrip()
    title = one.title
    if one.kind == "article" and not one.inline and not title:
        title = next((line.strip() for line in body.split("\n")[1:3] if line.strip()), "")[:160]
    number, label = one.number, one.label
    container = path[-1] if path else ""
    if one.kind == "section" and one.level == 6 and container.startswith(("Article ", "ARTICLE ")):
        article = container.split()[1]
        roman = roman_number(article)
        number = f"{article if roman is None else roman}.{one.number}"
        label = f"Article {article}, Section {one.number}"
    if one.kind == "amendment":
        number = f"amendment.{one.number}"
    return Unit(
        kind=one.kind, number=number, label=label, title=title, path=path, text=body, char_start=start,
        char_end=start + len(body),
    )  # fmt: skip


def _gaps(units: Iterable[Unit]) -> Iterator[ParseNote]:
    """Article numbers that do not count up by one, which is a fault of the text or of its extraction."""
    last = 0
    for unit in units:
        if unit.kind != "article" or not unit.number.isdigit():
            continue
        number = int(unit.number)
        if last and number != last + 1:
            what = "a repeat" if number <= last else "a gap"
            yield ParseNote(message=f"{unit.label} follows number {last}: {what}", char_start=unit.char_start)
        last = number
