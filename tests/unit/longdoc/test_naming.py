"""Which document a question speaks of."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.naming import NAMED_FIT, document_fit
from roadworthy.longdoc.split import split

CODE = "# 中华人民共和国民法典\n\n（2020年5月28日通过）"
REGULATION = (
    "REGULATION (EU) 2016/679\n\nof 27 April 2016 on the protection of persons, and repealing Directive 95/46/EC "
    "(General Data Protection Regulation)"
)


@pytest.mark.parametrize(
    ("question", "name", "about"),
    [
        ("民法典第20条", "a/b.md", CODE),
        ("Article 20 of the Civil Code", "laws/civil_code.md", ""),
        ("Art. 17 GDPR", "eu/x.txt", REGULATION),
        ("gdpr article 17", "eu/gdpr.txt", ""),
        ("RFC 9110 section 9.2", "rfc9110.txt", ""),
        ("section 9.2 of rfc-9110", "rfc9110.txt", ""),
    ],
)
def test_a_document_is_named_by_its_file_its_title_or_its_initials(question: str, name: str, about: str) -> None:
    assert document_fit(question, name, about, "words") >= NAMED_FIT


@pytest.mark.parametrize(
    ("question", "name", "about"),
    [
        ("刑法第20条", "a/b.md", CODE),
        ("the status code of section 15", "laws/civil_code.md", ""),
        ("Art. 17 CCPA", "eu/x.txt", REGULATION),
        ("RFC 9111 section 9.2", "rfc9110.txt", ""),
        ("What is a party?", "contract.txt", "THIS AGREEMENT is made between the Parties"),
    ],
)
def test_one_that_is_not_named_has_at_most_the_language(question: str, name: str, about: str) -> None:
    assert document_fit(question, name, about, "words") < NAMED_FIT


def test_every_clause_and_exhibit_that_begins_in_a_piece_can_be_looked_up() -> None:
    text = "\n\n".join(
        (
            "ARTICLE IV",
            "4.1 The Supplier delivers.",
            "4.2 The Buyer pays.",
            "SCHEDULE 3",
            "Prices stand here.",
            "EXHIBIT B-1",
        )
    )
    units, _ = split(text, len)
    numbers = {number for unit in units for number in (unit.number, *unit.also)}
    assert numbers >= {"4", "4.1", "4.2", "schedule.3", "exhibit.b-1"}
