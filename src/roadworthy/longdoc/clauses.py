"""Contracts and other prose: paragraphs gathered into pieces that begin at numbered headings; a clause stays whole.

Sizes follow what was measured on 1,237 clauses labelled by lawyers (docs/concepts/longdoc.md): a new piece at a heading
once the current one has some tokens, a paragraph cut only where it is too long, and then at the end of a sentence.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.longdoc.references import attached_number, canonical_number
from roadworthy.longdoc.values import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FEWEST_TOKENS = 300
MOST_TOKENS = 1500

OPENING = re.compile(  # matched at the start of a paragraph, so without an anchor
    r"\s*(?:(?:ARTICLE|Article|SECTION|Section|EXHIBIT|Exhibit|SCHEDULE|Schedule|ANNEX|Annex|APPENDIX|Appendix|ADDENDUM|Addendum)"
    r"\s+[\w.]+|\d{1,3}(?:\.\d{1,3}){0,5}\.?(?:\s+|(?=[A-Z\"“]))(?=[\"“A-Z(])|[A-Z]\.\s+[A-Z]|[IVXLC]{1,6}\.\s+[A-Z]|第\S{1,8}[条章节])"
)
LABEL = re.compile(
    r"^\s*(?P<label>(?:(?:ARTICLE|Article|SECTION|Section|EXHIBIT|Exhibit|SCHEDULE|Schedule|ANNEX|Annex|APPENDIX|Appendix|ADDENDUM|Addendum)"
    r"\s+[\w.]*\w|\d{1,3}(?:\.\d{1,3}){0,5}))"
)
NUMBERED_LINE = re.compile(
    r"^[ \t]*(?:(?P<what>ARTICLE|Article|SECTION|Section|EXHIBIT|Exhibit|SCHEDULE|Schedule|ANNEX|Annex|APPENDIX|Appendix"
    r"|ADDENDUM|Addendum)[ \t]+(?P<number>\d{1,3}(?:\.\d{1,3})*|[A-Z](?:-\d+)?\b|[IVXLC]+\b)"
    r"|(?P<plain>\d{1,3}(?:\.\d{1,3}){0,5})\.?[ \t]+(?=[\"“A-Z(]))",
    re.MULTILINE,
)
PARAGRAPH = re.compile(r"[^\n](?:[^\n]|\n(?!\s*\n))*")
SENTENCE_END = re.compile(
    r"(?<=[.;:。；！？])\s+(?=[\"“(]?(?:\(?[a-z0-9ivx]{1,4}\)|\d{1,3}\.\d|[A-Z\u4e00-\u9fff]))|(?<=[。；！？])"
)


def clauses(text: str, count_tokens: Callable[[str], int]) -> Iterator[Unit]:
    """Pieces of ``text`` in order, without overlap."""
    start, end, tokens = -1, -1, 0
    for piece_start, piece_end, piece_tokens in _pieces(text, count_tokens):
        opens = OPENING.match(text, piece_start, piece_end) is not None
        if start >= 0 and ((opens and tokens >= FEWEST_TOKENS) or tokens + piece_tokens > MOST_TOKENS):
            yield _unit(text, start, end)
            start, tokens = -1, 0
        if start < 0:
            start = piece_start
        end = piece_end
        tokens += piece_tokens
    if start >= 0:
        yield _unit(text, start, end)


def _pieces(text: str, count_tokens: Callable[[str], int]) -> Iterator[tuple[int, int, int]]:
    """Paragraphs, and parts of those that are too long, as (start, end, tokens)."""
    for found in PARAGRAPH.finditer(text):
        tokens = count_tokens(found.group())
        if tokens <= MOST_TOKENS:
            yield found.start(), found.end(), tokens
        else:
            yield from _cut(text, found.start(), found.end(), count_tokens)


def _cut(text: str, start: int, end: int, count_tokens: Callable[[str], int]) -> Iterator[tuple[int, int, int]]:
    """A long paragraph at ends of sentences, as few pieces as fit; a single endless sentence is cut at spaces."""
    breaks = [found.end() for found in SENTENCE_END.finditer(text, start, end)] + [end]
    piece_start, last = start, start
    for at in breaks:
        if count_tokens(text[piece_start:at]) > MOST_TOKENS and last > piece_start:
            yield piece_start, last, count_tokens(text[piece_start:last])
            piece_start = last
        while count_tokens(text[piece_start:at]) > MOST_TOKENS:
            share = MOST_TOKENS / count_tokens(text[piece_start:at])
            middle = piece_start + max(1, int((at - piece_start) * share * 0.95))
            space = text.rfind(" ", piece_start + 1, middle)
            middle = space if space > piece_start else middle
            yield piece_start, middle, count_tokens(text[piece_start:middle])
            piece_start = middle
        last = at
    if last > piece_start:
        yield piece_start, last, count_tokens(text[piece_start:last])


def _unit(text: str, start: int, end: int) -> Unit:
    body = text[start:end].rstrip()
    found = LABEL.match(body)
    label = " ".join(found["label"].split()) if found else ""
    number = label if label[:1].isdigit() else ""
    first = body.split("\n", 1)[0].strip()
    return Unit(
        kind="clause", number=number, label=f"Section {label}" if number else label or first[:60], title=first[:120],
        path=(), text=body, char_start=start, char_end=start + len(body), also=tuple(_numbers(body)),
    )  # fmt: skip


def _numbers(body: str) -> Iterator[str]:
    """Canonical numbers of everything that begins on a line of ``body``, each once."""
    found: dict[str, None] = {}
    for line in NUMBERED_LINE.finditer(body):
        what, number = line["what"], line["number"] or line["plain"]
        if what is None or what.lower() in ("article", "section"):
            found[canonical_number(number)] = None
        else:
            found[attached_number(what, number)] = None
    yield from found
