"""Everyday words of a question meet the law's words for them."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.everyday import MOST_TERMS, terms_of_art
from roadworthy.longdoc.everyday_en import EN
from roadworthy.longdoc.everyday_zh import ZH
from roadworthy.longdoc.lexical import build_lexical, count_terms


@pytest.mark.parametrize(
    ("question", "term"),
    [
        ("房东能不能随便涨房租？", "出租人"),
        ("跟老公过不下去了怎么办", "离婚"),
        ("Can they wipe what they have on me?", "right to erasure"),
        ("Who checks the kids' accounts?", "child"),
    ],
)
def test_an_everyday_word_brings_its_term(question: str, term: str) -> None:
    assert term in terms_of_art(question)


def test_words_are_found_whole_and_terms_once() -> None:
    assert terms_of_art("the kidney") == ()  # no "kid"
    found = terms_of_art("wipe it, delete it, erase it")
    assert len(found) == len(set(found))
    assert len(terms_of_art("，".join(line.split(" > ")[0] for line in ZH.splitlines()))) == MOST_TERMS


@pytest.mark.parametrize("line", [*EN.splitlines(), *ZH.splitlines()])
def test_every_line_has_words_and_terms_on_its_sides(line: str) -> None:
    words, terms = line.split(" > ")
    assert words.strip()
    assert terms.strip()


def test_what_a_question_may_mean_counts_less_than_what_it_says() -> None:
    index = build_lexical([count_terms(["the landlord pays", "the lessor pays", "the tenant pays"])])
    scores = index.scores("landlord", ["lessor"])
    assert scores[0] > scores[1] > scores[2] == 0
