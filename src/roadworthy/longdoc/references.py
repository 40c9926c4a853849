"""The number rule: a question that names an article or a section goes straight to it."""

from __future__ import annotations

import re
import unicodedata
from typing import TYPE_CHECKING

from roadworthy.longdoc.numerals import CARDINALS, CHINESE, chinese_number, ordinal_number, roman_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.longdoc.values import UnitKind

Reference = tuple["UnitKind | None", str]
"""Kind, None for any, and canonical number."""

_N = rf"(?:\d{{1,4}}|[{CHINESE}]+)"
ZH = re.compile(rf"第?\s*(?P<numbers>{_N}(?:\s*[、,，和与及]\s*第?\s*{_N})*)\s*[条條]")
ZH_RANGE = re.compile(rf"第\s*(?P<one>{_N})\s*[条條]?\s*(?:至|到|-|—|–|~)\s*第?\s*(?P<two>{_N})\s*[条條]")
ZH_BARE = re.compile(
    rf"第\s*(?P<number>\d{{2,4}}|[{CHINESE}]{{2,}})(?=\s*(?:$|[，。？?！!；;\s的是讲说里中]|规定|怎么|什么|写))"
)
ZH_COUNTED = ("件", "款", "例", "约", "街", "鱼", "狗")
"""Behind 条: then it counts something, or begins another word."""

_ROMAN = r"[IVXLC]+\b"
_WORD = "|".join(CARDINALS)
_ARTICLE = r"\bArt(?:icle)?s?\b\.?"
_SECTION = r"(?:\b(?:Sections?|Sect?s?)\b\.?|§+)"
ARTICLE_SECTION = re.compile(
    rf"{_ARTICLE}\s*(?P<article>{_ROMAN}|\d+|(?:{_WORD})\b)\s*,?\s*{_SECTION}\s*(?P<section>\d+|(?:{_WORD})\b)"
    r"(?:\s*,?\s*cl(?:ause)?\b\.?\s*\d+)?"
    rf"|{_SECTION}\s*(?P<section2>\d+|(?:{_WORD})\b)\s*,?\s*(?:(?:of|in)\s+)?(?:the\s+)?"
    rf"{_ARTICLE}\s*(?P<article2>{_ROMAN}|\d+|(?:{_WORD})\b)",
    re.IGNORECASE,
)
_ORDINAL = r"\d{1,2}(?:st|nd|rd|th)|[A-Za-z]+(?:[- ][a-z]+)?"
AMENDMENT = re.compile(
    rf"\b(?P<ordinal>{_ORDINAL})\s+Amendment\b|\bAmendment\s+(?:No\.?\s*)?(?P<number>{_ROMAN}|\d+)\b", re.IGNORECASE
)
_BEHIND_AMENDMENT = re.compile(rf"\s*,?\s*{_SECTION}\s*\d+", re.IGNORECASE)
RECITAL = re.compile(r"\bRec(?:ital)?s?\b\.?\s*\(?(?P<number>\d{1,3})\)?", re.IGNORECASE)
ARTICLE = re.compile(
    rf"{_ARTICLE}\s*(?P<number>{_ROMAN}|\d+[a-z]?\b|(?:{_WORD})\b)|\bArt(?P<close>\d+)\b", re.IGNORECASE
)
SECTION = re.compile(
    r"(?:\b(?:Sections?|Sect?s?|Clauses?)\b\.?\s*|\b(?:Cl|S)\.\s*|§+\s*)(?P<number>(?:\d{1,3}|[A-Z](?=\.\d))(?:\.\d{1,3})*)(?!\d)",
    re.IGNORECASE,
)
PARAGRAPH = re.compile(r"\bPara(?:graph)?s?\b\.?\s*(?P<number>\d{1,3}(?:\.\d{1,3})+)", re.IGNORECASE)
ROMAN_SECTION = re.compile(rf"\b[Ss](?:ections?|ECTIONS?)\s+(?P<number>{_ROMAN})")
ATTACHED = re.compile(
    r"\b(?P<what>Schedule|Exhibit|Annex|Appendix|Addendum|Attachment)\s+(?P<number>[A-Z](?:[-.]\d{1,3})*\b|\d{1,3}(?:\.\d{1,3})*|[IVXLC]+\b)",
    re.IGNORECASE,
)
MORE = re.compile(
    r"\s*(?:\([^()\s]{1,4}\)\s*)*(?:,|and|or|&|和|与|及|、|to|–|-|vs\.?)\s*(?:Articles?|Sections?|Recitals?|Art\.?|§)?\s*"
    r"\(?(?P<number>[IVXLC]+\b|\d{1,3}(?:\.\d{1,3})*)\)?(?![\d.]*\s*(?:%|days|hours|years|months|weeks|percent|euros?|EUR))",
    re.IGNORECASE,
)
BARE = re.compile(r"(?<![\w./§-])(?P<number>\d{1,3}(?:\.\d{1,3}){2,}|[A-Z]\.\d{1,2}(?:\.\d{1,2})*)(?![\w%/]|\.\d)")
BARE_ALONE = re.compile(
    r"^\W*(?:RFC\s*\d{1,5}\W+)?(?P<number>\d{1,3}(?:\.\d{1,3})+)\W*(?:of\s+RFC\s*\d{1,5}\W*)?$", re.IGNORECASE
)
OF_RFC = re.compile(
    r"(?<![\w.])(?P<number>\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})*)\s+(?:of|in)\s+(?:the\s+)?RFC"
    r"|\bRFC\W?\d{3,5}[\s,:]+(?P<behind>\d{1,3}(?:\.\d{1,3})*|[A-Z](?:\.\d{1,3})*)\W*$",
    re.IGNORECASE,
)
LETTER = re.compile(r"(?:\b[Ss]ection\s+|§\s*)(?P<number>[A-H])(?![\w.'])")
_MOST_IN_RANGE = 20


def references(question: str) -> tuple[Reference, ...]:
    """What ``question`` names, in its order, each once."""
    text = unicodedata.normalize("NFKC", question)
    return tuple(dict.fromkeys((*_chinese(text), *_english(text))))


def _chinese(text: str) -> Iterator[Reference]:
    for found in ZH_RANGE.finditer(text):
        one, two = chinese_number(found["one"]), chinese_number(found["two"])
        if one is not None and two is not None and 0 < two - one <= _MOST_IN_RANGE:
            yield from (("article", str(number)) for number in range(one, two + 1))
    numbered = any(found.group().startswith("第") for found in ZH.finditer(text))
    none = True
    for found in ZH.finditer(text):
        if text[found.end() : found.end() + 1] in ZH_COUNTED:
            continue
        parts = [part.strip() for part in re.split(r"[、,，和与及]\s*第?", found["numbers"])]
        for part in parts:
            number = chinese_number(part)
            # beside a "第497条", a bare "一百条" counts articles; alone, "1024条" names one
            named = found.group().startswith("第") or (not numbered and (part.isdigit() or len(part) > 1))
            if number and named:
                none = False
                yield "article", str(number)
    if none:
        for found in ZH_BARE.finditer(text):
            if number := chinese_number(found["number"]):
                yield "article", str(number)


def _english(text: str) -> Iterator[Reference]:
    taken: list[tuple[int, int]] = []
    for found in ARTICLE_SECTION.finditer(text):
        article, section = found["article"] or found["article2"], found["section"] or found["section2"]
        taken.append(found.span())
        yield "section", f"{canonical_number(article)}.{canonical_number(section)}"
    for found in AMENDMENT.finditer(text):
        if number := _amendment(found):
            taken.append((found.start(), found.end() + _subsection(text, found.end())))
            yield "amendment", f"amendment.{number}"
    for found in ATTACHED.finditer(text):
        taken.append(found.span())
        yield None, attached_number(found["what"], found["number"])
        if "." in found["number"]:
            yield None, found["number"].upper()
    for found in (*OF_RFC.finditer(text), *LETTER.finditer(text)):
        named = found["number"] or found.groupdict().get("behind")
        if named and not _within(taken, found.start()):
            taken.append(found.span())
            yield None, named.upper()
    for kind, pattern in (
        ("recital", RECITAL), ("article", ARTICLE), ("section", SECTION), ("section", PARAGRAPH), ("section", ROMAN_SECTION),
    ):  # fmt: skip
        for found in pattern.finditer(text):
            if _within(taken, found.start()):
                continue
            end = found.end()
            yield from _one(kind, found["number"] or found["close"] if kind == "article" else found["number"])
            while more := MORE.match(text, end):
                yield from _one(kind, more["number"])
                end = more.end()
            taken.append((found.start(), end))
    for found in (*BARE.finditer(text), *BARE_ALONE.finditer(text)):
        if not _within(taken, found.start("number")):
            taken.append(found.span("number"))
            yield None, found["number"]


def _within(spans: list[tuple[int, int]], at: int) -> bool:
    return any(start <= at < end for start, end in spans)


def _one(kind: str, number: str) -> Iterator[Reference]:
    if kind == "recital":
        yield "recital", f"recital.{number}"
    else:
        yield kind, canonical_number(number)  # type: ignore[misc]


def attached_number(what: str, number: str) -> str:
    """``schedule.3`` of Schedule 3 and of Schedule III: how what is attached to a document is looked up."""
    return f"{what.lower()}.{canonical_number(number).lower()}"


def _subsection(text: str, at: int) -> int:
    """Length of a ``section 1`` right behind an amendment, which is a part of it."""
    found = _BEHIND_AMENDMENT.match(text, at)
    return found.end() - at if found else 0


def canonical_number(number: str) -> str:
    """In digits, of digits, a Roman number or a word; what is none of these as it is."""
    if number.lower() in CARDINALS:
        return str(CARDINALS[number.lower()])
    roman = roman_number(number) if number.isalpha() else None
    return str(roman) if roman is not None else number


def _amendment(found: re.Match[str]) -> int | None:
    if found["number"]:
        return int(found["number"]) if found["number"].isdigit() else roman_number(found["number"])
    words = found["ordinal"]
    return (
        ordinal_number(words)
        or ordinal_number(words.split()[-1])
        or ordinal_number(words.split("-")[-1])
        or (roman_number(words) if words.isupper() else None)
    )
