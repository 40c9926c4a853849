"""Terms of art for the everyday words of a question, so that both meet in one index.

People do not ask in the words of a statute: a tenant says "landlord" where the law says "lessor". The dictionaries are
:mod:`roadworthy.longdoc.everyday_zh` and :mod:`roadworthy.longdoc.everyday_en`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from roadworthy.longdoc.everyday_en import EN
from roadworthy.longdoc.everyday_zh import ZH
from roadworthy.longdoc.words import stem

MOST_TERMS = 24
"""Terms of one question; a long one would drown its own words in them."""

_Concept = tuple[tuple[str, ...], tuple[str, ...]]
"""Everyday words, and terms of art."""

_WORD = re.compile(r"[a-z0-9]+(?:['’-][a-z]+)?")


def terms_of_art(question: str) -> tuple[str, ...]:
    """What documents may call what ``question`` speaks of; each once, empty where the dictionaries know nothing."""
    found: dict[str, None] = {}
    for words, terms in _chinese():
        if any(word in question for word in words):
            found |= dict.fromkeys(term for term in terms if term not in question)
    asked = f" {' '.join(_stems(question))} "
    for phrases, terms in _english():
        if any(phrase in asked for phrase in phrases):
            found |= dict.fromkeys(terms)
    return tuple(found)[:MOST_TERMS]


def in_everyday_words(sentence: str) -> str:
    """``sentence`` with everyday words in the place of the terms of art that the dictionaries know: a question in other
    words than the text's."""
    for term, word in _everyday():
        if term in sentence:
            sentence = sentence.replace(term, word)
    return sentence


@cache
def _everyday() -> tuple[tuple[str, str], ...]:
    """Terms with the first everyday word for each, the longest first."""
    found: dict[str, str] = {}
    for words, terms in (*_concepts(ZH, None), *_concepts(EN, ",")):
        for term in terms:
            if len(term) > 1:
                found.setdefault(term, words[0])
    return tuple(sorted(found.items(), key=lambda pair: -len(pair[0])))


def _stems(text: str) -> list[str]:
    return [stem(word) for word in _WORD.findall(text.lower())]


def _concepts(dictionary: str, apart: str | None) -> Iterator[_Concept]:
    for line in dictionary.splitlines():
        words, terms = (tuple(one.strip() for one in side.split(apart)) for side in line.split(">"))
        yield words, terms


@cache
def _chinese() -> tuple[_Concept, ...]:
    return tuple(_concepts(ZH, None))


@cache
def _english() -> tuple[_Concept, ...]:
    """Phrases as stems between spaces, so that a word is found whole."""
    return tuple(
        (tuple(f" {' '.join(_stems(phrase))} " for phrase in phrases), terms) for phrases, terms in _concepts(EN, ",")
    )
