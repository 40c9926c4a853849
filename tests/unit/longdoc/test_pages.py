"""Pages of print into one flowing text."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.pages import flowing

FULL = "The tenant shall keep the premises in good repair and shall not without consent"


def test_a_line_that_the_margin_broke_goes_on() -> None:
    flow = flowing([f"{FULL}\nassign the lease.\n{FULL}\nsublet it."])
    assert flow.text == f"{FULL} assign the lease.\n\n{FULL} sublet it."


def test_chinese_lines_join_without_a_space() -> None:
    lines = ("第一条　为了保护民事主体的合法权益，调整民事关系，维护社会和经济秩序，", "适应发展要求，制定本法。")
    after = "第二条　民法调整人身关系。"
    assert flowing(["\n".join((*lines, after))]).text == f"{lines[0]}{lines[1]}\n\n{after}"


def test_spaces_that_a_pdf_puts_between_figures_and_chinese_go() -> None:
    assert (
        flowing(["2020 年 5 月 28 日第十三届全国人民代表大会通过"]).text == "2020年5月28日第十三届全国人民代表大会通过"
    )


def test_a_sentence_goes_on_over_the_page_and_its_page_is_known() -> None:
    flow = flowing([f"{FULL}", f"assign the lease.\n{FULL}\nsublet it."])
    assert "consent assign" in flow.text
    assert flow.page_of(0) == 1
    assert flow.page_of(flow.text.index("assign")) == 2


def test_running_heads_and_page_numbers_go() -> None:
    pages = [
        f"Master Agreement v{number}\nClause of page {word} stands here.\n- {number} -"
        for number, word in enumerate("abcde", 1)
    ]
    text = flowing(pages).text
    assert "Master Agreement" not in text
    assert "- 3 -" not in text
    assert "Clause of page c stands here." in text


def test_a_table_of_contents_goes_whether_it_has_leaders_or_not() -> None:
    leaders = "第一章　基本规定 .................... 4\n第二章　自然人 . . . . . . . . . . 9"
    plain = "\n".join(f"{number} Duties of a party {2 * number}" for number in range(1, 9))
    text = flowing([leaders, plain, "1. Grant of the licence follows."]).text
    assert text == "1. Grant of the licence follows."


def test_a_numbered_heading_at_the_edge_of_every_page_is_no_running_head() -> None:
    pages = [f"{number}.1 Payment of instalment\nIt is due." for number in range(1, 6)]
    assert flowing(pages).text.count("Payment of instalment") == 5


@pytest.mark.parametrize(
    ("broken", "whole"), [("agree\x02\nment holds", "agreement holds"), ("Non\x02Competition", "Non-Competition")]
)
def test_a_hyphen_at_the_line_end(broken: str, whole: str) -> None:
    assert flowing([broken]).text == whole


def test_a_page_without_words_begins_where_the_next_does() -> None:
    flow = flowing([f"{FULL}", "", "assign."])
    assert flow.page_starts == (0, len(FULL) + 1, len(FULL) + 1)
    assert flow.page_of(len(FULL) + 1) == 3


def test_no_pages_are_no_text() -> None:
    assert flowing([]).text == ""
    assert flowing(["", " \n "]).page_starts == (0, 0)


def test_pages_that_say_nothing_but_what_is_alike_keep_it() -> None:
    pages = [f"Receipt {number} was paid in full by the tenant." for number in range(1, 30)]
    flow = flowing(pages)
    assert flow.text.count("was paid") == 29
    assert flow.page_of(flow.text.index("Receipt 7 ")) == 7
