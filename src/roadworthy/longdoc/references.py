"""The number rule: a question that names an article or a section goes straight to it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from roadworthy.longdoc.numerals import CHINESE, chinese_number, ordinal_number, roman_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.longdoc.values import UnitKind

Reference = tuple["UnitKind | None", str]
"""Kind, None for any, and canonical number."""

ZH = re.compile(rf"第?\s*(?P<number>\d{{1,4}}|[{CHINESE}]+)\s*条")
ZH_RANGE = re.compile(
    rf"第\s*(?P<one>\d{{1,4}}|[{CHINESE}]+)\s*条?\s*(?:至|到|-|—|~)\s*第?\s*(?P<two>\d{{1,4}}|[{CHINESE}]+)\s*条"
)
ARTICLE_SECTION = re.compile(
    r"\b(?:Article|Art\.?)\s+(?P<article>[IVXLC]+|\d+)\s*,?\s*(?:Section|Sec\.?|§)\s*(?P<section>\d+)|"
    r"\b(?:Section|Sec\.?|§)\s*(?P<section2>\d+)\s+(?:of|in)\s+(?:Article|Art\.?)\s+(?P<article2>[IVXLC]+|\d+)", re.IGNORECASE,
)  # fmt: skip
AMENDMENT = re.compile(
    r"\b(?P<ordinal>\d{1,2}(?:st|nd|rd|th)|[A-Za-z]+(?:[- ][a-z]+)?)\s+Amendment\b|\bAmendment\s+(?:No\.?\s*)?(?P<number>[IVXLC]+|\d+)\b",
    re.IGNORECASE,
)
RECITAL = re.compile(r"\bRecitals?\s+\(?(?P<number>\d{1,3})\)?", re.IGNORECASE)
ARTICLE = re.compile(r"\b(?:Articles?|Art\.?)\s+(?P<number>[IVXLC]+\b|\d+[a-z]?)", re.IGNORECASE)
SECTION = re.compile(
    r"(?:\b(?:Sections?|Sect?\.?|Clauses?|Para(?:graph)?s?)\s+|§+\s*)(?P<number>(?:\d{1,3}|[A-Z](?=\.\d))(?:\.\d{1,3})*)",
    re.IGNORECASE,
)
MORE = re.compile(
    r"\s*(?:,|and|or|&|和|与|及|、|to|–|-)\s*(?:Articles?|Sections?|Art\.?)?\s*(?P<number>[IVXLC]+\b|\d{1,3}(?:\.\d{1,3})*)(?![\d.]*\s*(?:%|days|hours|years))",
    re.IGNORECASE,
)
BARE = re.compile(r"^\W*(?:section\s+)?(?P<number>\d{1,3}(?:\.\d{1,3})+)\W*$", re.IGNORECASE)


def references(question: str) -> tuple[Reference, ...]:
    """What ``question`` names, in its order, each once."""
    text = unicodedata.normalize("NFKC", question)
    return tuple(dict.fromkeys((*_chinese(text), *_english(text))))


def _chinese(text: str) -> Iterator[Reference]:
    for found in ZH_RANGE.finditer(text):
        one, two = chinese_number(found["one"]), chinese_number(found["two"])
        if one is not None and two is not None and 0 < two - one <= 20:
            yield from (("article", str(number)) for number in range(one, two + 1))
    numbered = any(found.group().startswith("第") for found in ZH.finditer(text))
    for found in ZH.finditer(text):
        number = chinese_number(found["number"])
        # beside a "第497条", a bare "一百条" counts articles; alone, "1024条" names one
        named = found.group().startswith("第") or (
            not numbered and (found["number"].isdigit() or len(found["number"]) > 1)
        )
        if number and named and not text[found.end() : found.end() + 2].startswith(("件", "款", "例", "约")):
            yield "article", str(number)


def _english(text: str) -> Iterator[Reference]:
    taken: list[tuple[int, int]] = []
    for found in ARTICLE_SECTION.finditer(text):
        article = found["article"] or found["article2"]
        taken.append(found.span())
        yield "section", f"{_canonical(article)}.{found['section'] or found['section2']}"
    for found in AMENDMENT.finditer(text):
        number = _amendment(found)
        if number:
            taken.append(found.span())
            yield "amendment", f"amendment.{number}"
    for found in RECITAL.finditer(text):
        yield "recital", f"recital.{found['number']}"
    for kind, pattern in (("article", ARTICLE), ("section", SECTION)):
        for found in pattern.finditer(text):
            if any(start <= found.start() < end for start, end in taken):
                continue
            yield kind, _canonical(found["number"])  # type: ignore[misc]
            after = found.end()
            while more := MORE.match(text, after):
                yield kind, _canonical(more["number"])  # type: ignore[misc]
                after = more.end()
    if (found_bare := BARE.match(text)) and not SECTION.search(text):
        yield None, found_bare["number"]


def _canonical(number: str) -> str:
    roman = roman_number(number) if number.isalpha() else None
    return str(roman) if roman is not None else number


def _amendment(found: re.Match[str]) -> int | None:
    if found["number"]:
        return int(found["number"]) if found["number"].isdigit() else roman_number(found["number"])
    words = found["ordinal"]
    return ordinal_number(words) or ordinal_number(words.split()[-1]) or ordinal_number(words.split("-")[-1])
