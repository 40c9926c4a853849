"""Documents split by their own structure; the corpus, where it is at hand, to the last article and clause."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from roadworthy.longdoc.clauses import MOST_TOKENS, clauses
from roadworthy.longdoc.split import split
from roadworthy.longdoc.tokens import count_tokens

LAW = "# 某法\n\n## 第一编　总则\n\n#### 第一章　基本规定\n\n" + "\n\n".join(
    f"第{number}条　本条规定事项之{number}，依照第一条的规定办理。" for number in "一二三四五六七"
)


def test_a_chinese_law_is_its_articles_with_their_path() -> None:
    units, notes = split(LAW, count_tokens)
    assert [unit.number for unit in units] == list("1234567")
    assert units[0].path == ("第一编　总则", "第一章　基本规定")
    assert units[2].label == "第三条"
    assert notes == ()


def test_a_gap_and_a_repeat_in_the_numbers_are_told() -> None:
    _, notes = split(LAW.replace("第四条　", "第五条　"), count_tokens)
    assert [note.message for note in notes] == [
        "第五条 follows number 3: a gap", "第五条 follows number 5: a repeat",
    ]  # fmt: skip


def test_a_standard_is_its_numbered_sections_at_every_depth() -> None:
    parts = (
        "RFC", "1. Intro", "1.1. Purpose", "Text.", "1. a list item", "1.2. History", "Text.", "2. Terms",
        "2.1. http URIs", "Text.", "Appendix A. Changes", "None.",
    )  # fmt: skip
    text = "\n\n".join(parts)
    units, _ = split(text, count_tokens)
    assert [unit.label for unit in units] == [
        "Section 1", "Section 1.1", "Section 1.2", "Section 2", "Section 2.1", "Section A",
    ]  # fmt: skip
    assert units[1].path == ("1 Intro",)
    assert "a list item" in units[1].text


@given(st.lists(st.text(alphabet="ab .;\n(1)A", max_size=400), max_size=20))
def test_pieces_of_a_contract_lie_in_order_without_overlap_and_lose_no_word(paragraphs: list[str]) -> None:
    text = "\n\n".join(paragraphs)
    units = list(clauses(text, count_tokens))
    for one, after in pairwise(units):
        assert one.char_end <= after.char_start
    assert all(text[unit.char_start : unit.char_end] == unit.text for unit in units)
    assert "".join("".join(unit.text.split()) for unit in units) == "".join(text.split())


def test_a_paragraph_without_an_end_is_cut_below_the_limit() -> None:
    units = list(clauses("word " * 20_000, count_tokens))
    assert len(units) > 10
    assert all(count_tokens(unit.text) <= MOST_TOKENS * 1.05 for unit in units)


@pytest.mark.parametrize(
    ("document", "count"),
    [("zh/civil_code.md", 1260), ("en/gdpr.txt", 272), ("en/us_constitution.txt", 52), ("en/rfc9110.txt", 298)],
)
def test_every_section_of_the_corpus_is_one_unit(test_data: Path, document: str, count: int) -> None:
    folder = test_data / "corpus" / "longdoc"
    text = (folder / document).read_text()
    units, notes = split(text, count_tokens)
    gold = [json.loads(line) for line in (folder / document).with_suffix(".sections.jsonl").read_text().splitlines()]
    assert len(units) == len(gold) == count
    assert {unit.label for unit in units} == {entry["label"] for entry in gold}
    assert notes == ()
    found = {unit.label: unit for unit in units}
    for entry in gold:
        assert found[entry["label"]].char_end >= entry["char_end"]
        assert found[entry["label"]].char_start <= entry["char_start"]


def test_clauses_labelled_by_lawyers_lie_whole_in_one_piece(test_data: Path) -> None:
    folder = test_data / "corpus" / "longdoc" / "contracts"
    spans = [json.loads(line) for line in (folder / "clause_spans.jsonl").read_text().splitlines()]
    whole, sizes = 0, []
    for path in sorted(folder.glob("*.txt")):
        units, _ = split(path.read_text(), count_tokens)
        sizes += [count_tokens(unit.text) for unit in units]
        mine = [span for span in spans if span["contract"] == path.stem]
        whole += sum(any(u.char_start <= s["char_start"] and s["char_end"] <= u.char_end for u in units) for s in mine)
    assert whole / len(spans) >= 0.99
    assert sum(sizes) / len(sizes) <= 700
    assert max(sizes) <= 2000
