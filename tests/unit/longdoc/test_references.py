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
        ("第1024條", [("article", "1024")]),
        ("第584、585条", [("article", "584"), ("article", "585")]),
        ("民法典一〇二四条", [("article", "1024")]),
        ("民法典第一千零二十四规定了什么", [("article", "1024")]),
        ("第三章第五条", [("article", "5")]),
        ("第一条街有几家店", []),
        ("第二是什么", []),
        ("GDPR Art17", [("article", "17")]),
        ("Art.17(2)(b)", [("article", "17")]),
        ("Arts. 12-14", [("article", "12"), ("article", "14")]),
        ("paragraph 3 of Article 17", [("article", "17")]),
        ("Art. I, § 8", [("section", "1.8")]),
        ("Article One Section Eight", [("section", "1.8")]),
        ("Section 8, Article I", [("section", "1.8")]),
        ("14th amendment section 1", [("amendment", "amendment.14")]),
        ("XIV Amendment", [("amendment", "amendment.14")]),
        ("rec. 65", [("recital", "recital.65")]),
        ("recitals 65 and 66", [("recital", "recital.65"), ("recital", "recital.66")]),
        ("section IV", [("section", "4")]),
        ("§§ 4.1 and 4.2", [("section", "4.1"), ("section", "4.2")]),
        ("RFC 9110, 9.2.2", [(None, "9.2.2")]),
        ("what does 15.5.9 say", [(None, "15.5.9")]),
        ("Appendix B.1", [(None, "appendix.b.1"), (None, "B.1")]),
        ("Schedule 3", [(None, "schedule.3")]),
        ("Schedule III", [(None, "schedule.3")]),
        ("Exhibit A", [(None, "exhibit.a")]),
        ("Does HTTP/1.1 pay 3.5% in 4.5 days?", []),
        ("Article 5 applies for 30 days", [("article", "5")]),
        ("Articles of association", []),
    ],
)
def test_what_a_question_names(question: str, wanted: list[tuple[str | None, str]]) -> None:
    assert list(references(question)) == wanted
