"""Pages of lines into one flowing text: what belongs to the sheet of paper goes, what was broken by it is joined.

A page's text, from a PDF or from OCR, has a line for each line of print. Running heads, page numbers and tables of
contents are the paper's; a sentence that goes on in the next line, or on the next page, is one sentence.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

from roadworthy.longdoc.numerals import CHINESE

if TYPE_CHECKING:
    from roadworthy.longdoc.values import Unit

EDGE_LINES = 2
"""Lines at the top and at the bottom of a page among which running heads and page numbers are looked for."""

REPEATED_SHARE = 0.4
"""Of the pages: a line at the edge that stands on so many, numbers aside, is a running head."""

CONTENTS_LINES = 6
"""A page with so many lines that end in page numbers, in rising order, shows a table of contents."""

FULL_SHARE = 0.82
"""Of the longest lines' width: a line so wide was broken by the margin, not by its author."""

_HAN = "\u3000-\u303f\u3400-\u9fff\uff00-\uffef"
_SPACES = re.compile(r"[ \t\xa0]+")
_BETWEEN_SCRIPTS = re.compile(
    rf"(?<=[\u3400-\u9fff（）《》“”、，。；：])\ (?=[0-9A-Za-z{_HAN}])|(?<=[0-9A-Za-z])\ (?=[{_HAN}])"
)
_AFTER_NUMBER = re.compile(rf"^(第[{CHINESE}\d]+(?:编|分编|章|节|条)) (?=[\u3400-\u9fff])")
_WIDE_SPACE = re.compile(r"\u3000 +| +\u3000")
_PAGE_NUMBER = re.compile(
    r"^(?:[-–—·]?\s*(?:\d{1,4}|[ivxlc]{1,7}|[A-Z]{1,2}-?\d{1,3})\s*[-–—·]?"
    r"|(?:page|p\.)\s*\d+(?:\s*(?:of|/)\s*\d+)?|第\s*\d+\s*页.*|\d+\s*/\s*\d+)$",
    re.IGNORECASE,
)
_LEADERS = re.compile(r"(?:\.{4,}|(?:\. ){4,}|…{2,}|·{4,})\s*[\divxlcIVXLC]*\s*$")
_ENDS_IN_NUMBER = re.compile(r"^(?P<title>\S.*?\D)\s+(?P<page>\d{1,4})$")
_OPENS = re.compile(
    rf"(?:第[{CHINESE}\d]+(?:编|分编|章|节|条|款)(?:之[{CHINESE}]+)?(?=\s|　|$)|附\s*则$"
    rf"|[（(][{CHINESE}]+[）)]|[{CHINESE}]+、|"
    r"(?:ARTICLE|Article|SECTION|Section|CHAPTER|Chapter|PART|EXHIBIT|Exhibit|SCHEDULE|Schedule|ANNEX|Annex)\b"
    r"|(?:APPENDIX|Appendix|RECITALS?|WITNESSETH)\b|[A-Z]\.\s+[A-Z“\"]"
    r"|\d{1,3}(?:\.\d{1,3}){1,5}\.?\s+\S|\d{1,3}(?:\.\s?\d{1,3}\.){1,4}\s|\d{1,3}\.\s+[A-Z“\"]|\d{1,3}[．、]\S"
    r"|\((?:[a-z]{1,2}|[ivxlc]{1,6}|\d{1,3}|[A-Z])\)\s|[•▪●□☐■\-–]\s)"
)
_STOPS = '.;:!?。；：！？”’")）'


@dataclass(frozen=True, slots=True)
class Flow:
    """One text with the place of its pages.

    Args:
        text: paragraphs with an empty line between them.
        page_starts: where each page's first own words begin in ``text``; pages without words begin where the next does.
    """

    text: str
    page_starts: tuple[int, ...]

    def page_of(self, char_start: int) -> int:
        """The page, counted from 1, on which the character at ``char_start`` stands."""
        return _page_at(self.page_starts, char_start)


def _page_at(page_starts: Sequence[int], char_start: int) -> int:
    return max(1, bisect_right(page_starts, char_start))


def paged(units: Iterable[Unit], page_starts: Sequence[int]) -> tuple[Unit, ...]:
    """``units`` with the page on which each begins; as they are where there are no pages."""
    if not page_starts:
        return tuple(units)
    return tuple(replace(unit, page=_page_at(page_starts, unit.char_start)) for unit in units)


def flowing(pages: Sequence[str]) -> Flow:
    """``pages`` as one text."""
    lines = [[_tidy(line) for line in page.splitlines()] for page in pages]
    lines = [[line for line in page if line] for page in lines]
    kept = list(_without_contents(_without_edges(lines)))
    full = _full_width(line for page in kept for line in page)
    pieces: list[str] = []
    starts: list[int] = []
    length = 0
    before = ""
    for page in kept:
        first = True
        for line in page:
            joint = _joint(before, line, full) if before else ""
            if joint == "" and before.endswith("\u00ad"):  # a word broken by its hyphen
                pieces[-1] = pieces[-1][:-1]
                length -= 1
            pieces += (joint, line)
            length += len(joint)
            if first:
                starts.append(length)
                first = False
            length += len(line)
            before = line
        if first:
            starts.append(-1)
    text = "".join(pieces)
    for at in range(len(starts) - 1, -1, -1):
        if starts[at] < 0:
            starts[at] = starts[at + 1] if at + 1 < len(starts) else len(text)
    return Flow(text, tuple(starts))


def _tidy(line: str) -> str:
    """Single spaces, none between Chinese and figures, hyphens as they are meant."""
    line = _SPACES.sub(" ", line.replace("\x02", "\u00ad").replace("\x00", "")).strip()
    line = _WIDE_SPACE.sub("\u3000", line)
    line = _AFTER_NUMBER.sub("\\1\u3000", line)
    line = re.sub("\u00ad(?=[^a-z])(?!$)", "-", line)  # non-Competition keeps its hyphen
    line = re.sub("\u00ad(?=[a-z])", "", line)
    return _BETWEEN_SCRIPTS.sub("", line)


def _without_edges(pages: Sequence[Sequence[str]]) -> Iterator[list[str]]:
    """Without running heads and page numbers."""
    seen: Counter[str] = Counter()
    for page in pages:
        seen.update({_masked(line) for line in (*page[:EDGE_LINES], *page[-EDGE_LINES:])})
    often = max(3, REPEATED_SHARE * sum(bool(page) for page in pages))
    repeated = {line for line, times in seen.items() if times >= often and len(line) < 120}
    for page in pages:
        start, end = 0, len(page)
        while start < min(EDGE_LINES, end) and _of_the_paper(page[start], repeated):
            start += 1
        while end > max(start, len(page) - EDGE_LINES) and _of_the_paper(page[end - 1], repeated):
            end -= 1
        # where nothing would be left, lines that are alike are what the page says
        yield list(page[start:end]) or [line for line in page if not _PAGE_NUMBER.match(line)]


def _of_the_paper(line: str, repeated: set[str]) -> bool:
    return bool(_PAGE_NUMBER.match(line)) or (_masked(line) in repeated and not _OPENS.match(line))


def _masked(line: str) -> str:
    return re.sub(r"\d+", "#", line).strip(" -–—")


def _without_contents(pages: Iterable[Sequence[str]]) -> Iterator[list[str]]:
    """Without the lines of a table of contents, which repeat every heading."""
    for page in pages:
        led = [bool(_LEADERS.search(line)) for line in page]
        numbers = [
            (place, int(found["page"])) for place, line in enumerate(page) if (found := _ENDS_IN_NUMBER.match(line))
        ]
        rising = sum(after[1] >= one[1] for one, after in pairwise(numbers))
        if len(numbers) >= CONTENTS_LINES and rising >= 0.8 * (len(numbers) - 1) and 2 * len(numbers) >= len(page):
            for place, _ in numbers:
                led[place] = True
        yield [line for line, one in zip(page, led, strict=True) if not one]


def _width(line: str) -> int:
    return sum(2 if unicodedata.east_asian_width(letter) in "WF" else 1 for letter in line)


def _full_width(lines: Iterable[str]) -> float:
    """The width above which a line was broken by the margin."""
    widths = sorted(_width(line) for line in lines)
    return FULL_SHARE * median(widths[-max(1, len(widths) // 4) :]) if widths else 0.0


def _joint(before: str, line: str, full: float) -> str:
    """What stands between two lines: nothing or a space inside a paragraph, an empty line between two."""
    if _OPENS.match(line):
        return "\n\n"
    width = _width(before)
    if width < full and (before[-1] in _STOPS or width < 0.7 * full or line[:1].isupper()):
        return "\n\n"
    return _space(before, line)


def _space(before: str, line: str) -> str:
    if before.endswith("\u00ad") or _is_han(before[-1]) or _is_han(line[0]):
        return ""
    return " "


def _is_han(letter: str) -> bool:
    return "\u3000" <= letter <= "\u9fff" or "\uff00" <= letter <= "\uffef" or letter in "“”‘’"
