"""Lines that open a part of a document, in the forms of statutes, regulations, standards, contracts and Markdown."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.longdoc.numerals import CHINESE, chinese_number, roman_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.longdoc.values import UnitKind


@dataclass(frozen=True, slots=True, kw_only=True)
class Heading:
    """One line that opens something.

    Args:
        level: containers have low ones; a heading closes every open one of the same level or deeper.
        leaf: what follows is a unit of its own; containers only give the path.
        inline: the unit's words begin on the heading's own line (``第一条　为了…``, ``(1) The protection``).
    """

    kind: UnitKind
    level: int
    number: str
    label: str
    title: str
    text: str
    char_start: int
    char_end: int
    leaf: bool
    inline: bool = False


MARK = r"^[ \t]*#{0,6}[ \t　]*"
ZH_CONTAINER = re.compile(
    MARK + rf"(?P<label>第(?P<number>[{CHINESE}\d]+)(?P<what>编|分编|章|节))[　 \t]+(?P<title>\S.*)$", re.MULTILINE
)
ZH_ARTICLE = re.compile(
    rf"^[ \t　]*#{{0,6}}[ \t　]*(?P<label>第(?P<number>[{CHINESE}\d]+)条(?:之[{CHINESE}]+)?)[　 \t]+(?=\S)",
    re.MULTILINE,
)
ZH_UNNUMBERED = re.compile(r"^[ \t　]*#{0,6}[ \t　]*(?P<title>附[ 　]*则|附[ 　]*录)[ \t　]*$", re.MULTILINE)
ZH_LEVELS = {"编": 1, "分编": 2, "章": 3, "节": 4}

CONTAINER = re.compile(
    MARK
    + r"(?P<label>(?:CHAPTER|Chapter|PART|Part|TITLE|Title)\s+(?P<number>[IVXLC]+|\d+))\b[.:]?[ \t]*(?P<title>[^\n]{0,160})$",
    re.MULTILINE,
)
ARTICLE = re.compile(
    MARK + r"(?P<label>(?:ARTICLE|Article)\s+(?P<number>[IVXLC]+|\d+[a-z]?))\b[.:]?[ \t]*(?P<title>[^\n]{0,120})$",
    re.MULTILINE,
)
SECTION = re.compile(
    MARK + r"(?P<label>(?:SECTION|Section)\s+(?P<number>\d+[A-Za-z]?))\b[.:]?[ \t]*(?P<title>[^\n]{0,120})$",
    re.MULTILINE,
)
AMENDMENT = re.compile(
    MARK + r"(?P<label>(?:AMENDMENT|Amendment)\s+(?P<number>[IVXLC]+|\d+))\b[.:]?[ \t]*(?P<title>[^\n]{0,120})$",
    re.MULTILINE,
)
NUMBERED = re.compile(
    MARK
    + r"(?:Appendix[ \t]+)?(?P<number>(?:\d{1,3}|[A-Z](?=\.))(?:\.\d{1,3}){0,5})\.?[ \t　]+(?P<title>\S[^\n]{0,110})$",
    re.MULTILINE,
)
MARKDOWN = re.compile(r"^(?P<marks>#{1,6})[ \t]+(?P<title>\S[^\n]*)$", re.MULTILINE)
PREAMBLE = re.compile(MARK + r"(?P<title>Preamble|PREAMBLE|前言|序言)[ \t]*$", re.MULTILINE)
RECITAL = re.compile(r"^\((?P<number>\d{1,3})\)[ \t]+(?=\S)", re.MULTILINE)


def chinese_headings(text: str) -> Iterator[Heading]:
    """编, 分编, 章, 节 as containers, 条 as units."""
    for found in ZH_CONTAINER.finditer(text):
        what = found["what"]
        yield Heading(
            kind="section", level=ZH_LEVELS[what], number=str(chinese_number(found["number"]) or ""), label=found["label"],
            title=found["title"].strip(), text=f"{found['label']}　{found['title'].strip()}", char_start=found.start(),
            char_end=found.end(), leaf=False,
        )  # fmt: skip
    for found in ZH_UNNUMBERED.finditer(text):
        title = "".join(found["title"].split())
        yield Heading(
            kind="section", level=ZH_LEVELS["编"], number="", label=title, title=title, text=title, char_start=found.start(),
            char_end=found.end(), leaf=False,
        )  # fmt: skip
    for found in ZH_ARTICLE.finditer(text):
        number = chinese_number(found["number"])
        if number is not None:
            start = found.start("label")
            yield Heading(
                kind="article", level=9, number=str(number), label=found["label"], title="", text=found["label"],
                char_start=start, char_end=found.end(), leaf=True, inline=True,
            )  # fmt: skip


def _title(found: re.Match[str]) -> str:
    return found["title"].strip(" \t.:")


def _canonical(number: str) -> str:
    """Roman numbers in digits, so that Article 6 finds Article VI."""
    roman = roman_number(number) if number.isalpha() else None
    return str(roman) if roman is not None else number


def code_headings(text: str) -> Iterator[Heading]:
    """CHAPTER and PART as containers; Article, Section, Amendment, Preamble and recitals as units."""
    for found in CONTAINER.finditer(text):
        yield _heading("section", 2, found, leaf=False)
    for found in ARTICLE.finditer(text):
        yield _heading("article", 5, found, leaf=True)
    for found in SECTION.finditer(text):
        yield _heading("section", 6, found, leaf=True)
    for found in AMENDMENT.finditer(text):
        yield _heading("amendment", 5, found, leaf=True)
    for found in PREAMBLE.finditer(text):
        yield Heading(
            kind="preamble", level=5, number="preamble", label=found["title"].title(), title="", text=found["title"],
            char_start=found.start(), char_end=found.end(), leaf=True,
        )  # fmt: skip


def _heading(kind: UnitKind, level: int, found: re.Match[str], *, leaf: bool) -> Heading:
    label = " ".join(found["label"].split())
    text = " ".join(part for part in (label, _title(found)) if part)
    return Heading(
        kind=kind, level=level, number=_canonical(found["number"]), label=label, title=_title(found), text=text,
        char_start=found.start(), char_end=found.end(), leaf=leaf,
    )  # fmt: skip


def recitals(text: str, *, before: int) -> Iterator[Heading]:
    """``(1) …`` paragraphs that count up from 1 ahead of the first article."""
    wanted = 1
    for found in RECITAL.finditer(text, 0, before):
        if int(found["number"]) == wanted:
            yield Heading(
                kind="recital", level=5, number=f"recital.{wanted}", label=f"Recital {wanted}", title="", text=f"Recital {wanted}",
                char_start=found.start(), char_end=found.end(), leaf=True, inline=True,
            )  # fmt: skip
            wanted += 1


def numbered_headings(text: str) -> Iterator[Heading]:
    """``9.2.2. Title`` as units at every depth; the path comes from the numbers above."""
    for found in NUMBERED.finditer(text):
        number = found["number"]
        yield Heading(
            kind="section", level=10 + number.count("."), number=number, label=f"Section {number}", title=_title(found),
            text=f"{number} {_title(found)}", char_start=found.start(), char_end=found.end(), leaf=True,
        )  # fmt: skip


def markdown_headings(text: str) -> Iterator[Heading]:
    """``#`` headings, each a unit with what follows it."""
    for found in MARKDOWN.finditer(text):
        depth = len(found["marks"])
        yield Heading(
            kind="section", level=20 + depth, number="", label=found["title"].strip(), title=found["title"].strip(),
            text=found["title"].strip(), char_start=found.start(), char_end=found.end(), leaf=True,
        )  # fmt: skip
