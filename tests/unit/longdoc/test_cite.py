"""A quotation stands in the text or it does not; what is handed on is the text's own characters."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.cite import cite, find_quote, stands, weighty, wrongly_named
from roadworthy.longdoc.search import StoredUnit
from roadworthy.longdoc.values import Unit


def stored(text: str, *, id: int = 1, number: str = "33", label: str = "Article 33", start: int = 100) -> StoredUnit:
    unit = Unit(
        kind="article", number=number, label=label, title="", path=("Chapter IV",), text=text, char_start=start,
        char_end=start + len(text), page=7,
    )  # fmt: skip
    return StoredUnit(id=id, document="gdpr.txt", unit=unit)


@pytest.mark.parametrize(
    ("quote", "text", "found"),
    [
        ("not later than 72 hours", "and, not later\nthan 72 hours after", "not later\nthan 72 hours"),
        ("Not later than 72 hours.", "and, not later than 72 hours after", "not later than 72 hours"),
        ("“the controller's duty”", "x the controller’s duty y", "the controller’s duty"),
        ("自然人享有隐私权, 任何组织", "自然人享有隐私权，任何\n组织或者", "自然人享有隐私权，任何\n组织"),
        ("ＡＢＣ１２３", "the abc123 form", "abc123"),
        ("co-operate fully", "shall co\u2011oper\u00adate fully with", "co\u2011oper\u00adate fully"),
        ("re\u0301sume\u0301 du contrat", "le résumé du contrat", "résumé du contrat"),
        ("fine ﬁgures", "some fine figures", "fine figures"),
    ],
)
def test_what_copying_changes_is_overlooked_and_the_texts_own_words_come_back(
    quote: str, text: str, found: str
) -> None:
    span = find_quote(quote, text)
    assert span is not None
    assert text[slice(*span)] == found


@pytest.mark.parametrize(
    ("quote", "text"),
    [
        ("30 days after notice", "130 days after notice"),
        ("a fee of 20", "a fee of 20,000 EUR"),
        ("a rate of 1", "a rate of 1.5 per cent"),
        ("000 EUR", "20,000 EUR"),
        ("三十日内书面通知", "二百三十日内书面通知"),
        ("the party may", "the party maybe"),
        ("shall notify", "shall not notify"),
        ("资料不得公开", "资料可以公开"),
        ("resume du contrat", "résumé du contrat"),
        ("the e", "the é"),
        ("", "anything"),
        ("。，", "自然人。，"),
    ],
)
def test_other_words_cut_numbers_and_cut_words_do_not_stand_there(quote: str, text: str) -> None:
    assert find_quote(quote, text) is None


def test_a_second_place_counts_where_the_first_cuts_a_number() -> None:
    text = "130 days for goods, 30 days for services"
    span = find_quote("30 days", text)
    assert span is not None
    assert span[0] == text.rindex("30")


def test_a_citation_is_the_documents_text_between_its_offsets() -> None:
    (found,) = cite("not later than 72 hours", stored("Notify, not later than 72  hours after."))
    assert (found.document, found.section, found.page) == ("gdpr.txt", "Article 33", 7)
    assert found.quote == "not later than 72  hours"
    assert (found.start, found.end) == (108, 108 + len(found.quote))


def test_left_out_words_give_a_citation_for_each_piece_in_order() -> None:
    unit = stored("The controller shall without undue delay notify the authority of a breach.")
    assert [one.quote for one in cite("The controller shall … notify the authority", unit)] == [
        "The controller shall", "notify the authority",
    ]  # fmt: skip
    assert cite("notify the authority [...] The controller shall", unit) == ()
    assert cite("The controller shall ... notify the parliament", unit) == ()


def test_a_quotation_of_another_passage_is_cited_where_it_stands() -> None:
    one, other = stored("Something else is here."), stored("the data subject has the right", id=2, label="Article 17")
    (found,) = cite("the data subject has the right", one, [one, other])
    assert found.section == "Article 17"
    assert cite("the data subject has the duty", one, [one, other]) == ()


def test_a_few_letters_prove_nothing_unless_they_are_all_there_is() -> None:
    assert not weighty("the 1st")
    assert weighty("隐私权利")
    assert cite("the", stored("the controller")) == ()
    assert cite("废止。", stored("废止。")) != ()


def test_a_citation_is_false_once_the_text_has_changed() -> None:
    (found,) = cite("not later than 72 hours", stored("Notify, not later than 72 hours after."))
    assert stands(found, stored("Notify, not later than 72 hours after."))
    assert not stands(found, stored("Notify, not later than 24 hours after."))
    assert not stands(found, stored("Notify, not later than 72 hours after.", label="Article 34"))


def test_a_claim_may_name_only_what_is_cited_or_mentioned_there() -> None:
    privacy = stored("第一千零三十二条　自然人享有隐私权。依照第三条办理。", number="1032", label="第一千零三十二条")
    assert wrongly_named("第1024条规定了隐私权", [privacy]) == ("1024",)
    assert wrongly_named("第1032条规定了隐私权，见第3条", [privacy]) == ()
    assert wrongly_named("自然人享有隐私权", [privacy]) == ()


@pytest.mark.parametrize(
    ("claim", "number", "wrong"),
    [
        ("Section 9 says so", "9.2.2", ()),
        ("Section 9.2 says so", "9.2.2", ()),
        ("Section 2 says so", "5.2", ()),
        ("Section 9.3 says so", "9.2.2", ("9.3",)),
        ("Article 17 says so", "33", ("17",)),
        ("the 4th Amendment says so", "amendment.4", ()),
        ("the 5th Amendment says so", "amendment.4", ("amendment.5",)),
    ],
)
def test_a_section_may_be_named_by_a_part_of_its_number(claim: str, number: str, wrong: tuple[str, ...]) -> None:
    assert wrongly_named(claim, [stored("the text", number=number, label="")]) == wrong
