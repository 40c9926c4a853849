"""Questions that name an article or a section."""

from __future__ import annotations

import pytest

from roadworthy.longdoc.references import references


@pytest.mark.parametrize(
    ("question", "wanted"),
    [
        ("民法典第1024条", [("article", "1024")]),
        ("1024条说了什么", [("article", "1024")]),
        ("第一千零三十二条的定义", [("article", "1032")]),
        ("五百九十七条之前一百条，也就是第497条", [("article", "497")]),
        ("第12条至第14条", [("article", "12"), ("article", "13"), ("article", "14")]),
        ("签合同有哪三条件", []),
        ("What does Article 17(2) GDPR say?", [("article", "17")]),
        ("Art. 8 GDPR", [("article", "8")]),
        ("Articles 12 and 13", [("article", "12"), ("article", "13")]),
        ("section 9.2.2", [("section", "9.2.2")]),
        ("9.2.2", [(None, "9.2.2")]),
        ("§ 4.1 of the agreement", [("section", "4.1")]),
        ("Article I, Section 8", [("section", "1.8")]),
        ("section 8 of article 1", [("section", "1.8")]),
        ("the 22nd Amendment", [("amendment", "amendment.22")]),
        ("Amendment XIV", [("amendment", "amendment.14")]),
        ("the Fourteenth Amendment", [("amendment", "amendment.14")]),
        ("recital 65", [("recital", "recital.65")]),
        ("how long may data be kept?", []),
    ],
)
def test_what_a_question_names(question: str, wanted: list[tuple[str | None, str]]) -> None:
    assert list(references(question)) == wanted
