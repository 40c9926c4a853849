"""Search over small libraries whose right answer can be worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy
import pytest

from roadworthy.longdoc.dense import CROWDING_WEIGHT, EXACT_UP_TO, build_dense
from roadworthy.longdoc.fuse import NEIGHBOUR_WEIGHT, best, fused, standardised
from roadworthy.longdoc.lexical import K1, B, build_lexical, count_terms
from roadworthy.longdoc.naming import is_chinese
from roadworthy.longdoc.search import Searcher, SearchIndex, StoredUnit
from roadworthy.longdoc.values import Unit


@dataclass
class Library:
    """Units in memory, as a store would give them."""

    units: Sequence[StoredUnit]

    def by_ids(self, ids: Sequence[int]) -> list[StoredUnit]:
        found = {one.id: one for one in self.units}
        return [found[one] for one in ids if one in found]

    def by_number(self, number: str) -> list[StoredUnit]:
        return [one for one in self.units if one.unit.number == number]


def library(*texts: str, numbers: Sequence[str] = (), document: str = "law.txt") -> Library:
    return Library(
        [
            StoredUnit(
                id=10 + place,
                document=document,
                unit=Unit(
                    kind="article", number=numbers[place] if numbers else str(place + 1), label=f"Article {place + 1}",
                    title="", path=(), text=text, char_start=0, char_end=len(text),
                ),
            )
            for place, text in enumerate(texts)
        ]
    )  # fmt: skip


def searcher(units: Library, vectors: Sequence[Sequence[float]] | None = None) -> Searcher:
    texts = [one.unit.text for one in units.units]
    dense = None
    if vectors is not None:
        matrix = numpy.array(vectors, dtype=numpy.float32)
        dense = build_dense(matrix, numpy.ones(len(matrix), dtype=numpy.bool_))
    index = SearchIndex(
        ids=numpy.array([one.id for one in units.units], dtype=numpy.int64),
        lexical=build_lexical([count_terms(texts)]),
        documents=numpy.zeros(len(texts), dtype=numpy.int64),
        beside=numpy.zeros(max(0, len(texts) - 1), dtype=numpy.bool_),
        chinese=numpy.array([is_chinese(text) for text in texts]),
        dense=dense,
    )
    return Searcher(index, units)


def found(results: Sequence[object]) -> list[int]:
    return [one.stored.id for one in results]  # type: ignore[attr-defined]


def test_the_words_of_the_question_find_the_unit() -> None:
    units = library("The lease ends in May.", "The tenant pays rent monthly.", "Notice is given in writing.")
    assert found(searcher(units).search("When does the tenant pay?", limit=1)) == [11]


def test_chinese_is_found_by_characters_and_pairs() -> None:
    units = library("自然人享有隐私权。", "民事主体享有名誉权。", "合同应当采用书面形式。")
    assert found(searcher(units).search("什么是隐私", limit=1)) == [10]


def test_a_number_in_the_question_goes_before_every_score() -> None:
    units = library("rent rent rent", "nothing alike", numbers=["7", "12"])
    results = searcher(units).search("What does Article 12 say about rent?", limit=2)
    assert found(results) == [11, 10]
    assert [one.named for one in results] == [True, False]
    assert results[0].score > results[1].score


def test_of_two_documents_with_the_number_the_one_that_the_question_names_is_first() -> None:
    one, two = (
        library("privacy", numbers=["5"], document="gdpr.txt"),
        library("privacy", numbers=["5"], document="code.txt"),
    )
    both = Library([*two.units, StoredUnit(id=99, document=one.units[0].document, unit=one.units[0].unit)])
    assert found(searcher(both).search("Article 5 of the GDPR"))[0] == 99


def test_nothing_stored_finds_nothing() -> None:
    assert searcher(library()).search("anything") == ()


def test_meaning_outweighs_words_where_there_are_vectors() -> None:
    units = library("the fee is due", "remuneration must be handed over", "the weather is fine")
    near = [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    asked = numpy.array([0.2, 0.97, 0.1], dtype=numpy.float32)
    assert found(searcher(units, near).search("fee", limit=3, vector=asked / numpy.linalg.norm(asked)))[0] == 11


def test_a_bm25_score_worked_out_by_hand() -> None:
    index = build_lexical([count_terms(["lamp lamp chair", "chair table"])])
    # "lamp": 1 of 2 units; it stands twice in 3 words, the mean length is 2.5
    rarity = numpy.log1p((2 - 1 + 0.5) / (1 + 0.5))
    expected = rarity * 2 * (K1 + 1) / (2 + K1 * (1 - B + B * 3 / 2.5))
    assert index.scores("lamp") == pytest.approx([expected, 0.0])
    assert index.scores("nothing of it") == pytest.approx([0.0, 0.0])


def test_an_index_over_two_documents_is_that_over_one_with_all_units() -> None:
    texts = ["lamp chair", "table lamp lamp", "窗户 和 门", "door"]
    together = build_lexical([count_terms(texts)])
    apart = build_lexical([count_terms(texts[:1]), count_terms(texts[1:])])
    for question in ("lamp", "窗户", "door table"):
        assert apart.scores(question) == pytest.approx(together.scores(question))


def test_a_unit_close_to_everything_loses_what_it_gets_from_everybody() -> None:
    matrix = numpy.eye(4, dtype=numpy.float32)
    hub = numpy.ones((1, 4), dtype=numpy.float32) / 2  # cosine 0.5 to each of the others, which share nothing
    index = build_dense(numpy.vstack([matrix, hub]), numpy.ones(5, dtype=numpy.bool_))
    assert index.crowding == pytest.approx([0.125, 0.125, 0.125, 0.125, 0.5])
    asked = numpy.array([0.6, 0.46, 0.46, 0.46], dtype=numpy.float32)
    plain = numpy.vstack([matrix, hub]) @ asked
    assert index.scores(asked) == pytest.approx(plain - CROWDING_WEIGHT * index.crowding)


def test_a_unit_without_a_vector_is_neither_near_nor_far() -> None:
    matrix = numpy.array([[1, 0], [0, 0], [0, 1]], dtype=numpy.float32)
    scores = build_dense(matrix, numpy.array([True, False, True])).scores(numpy.array([1, 0], dtype=numpy.float32))
    assert scores[1] == pytest.approx((scores[0] + scores[2]) / 2)


def test_a_large_library_finds_what_exact_search_finds() -> None:
    numbers = numpy.random.default_rng(3)
    centres = numbers.standard_normal((50, 96)).astype(numpy.float32)
    rows = centres[numbers.integers(0, 50, EXACT_UP_TO + 5_000)]
    rows = rows + 0.6 * numbers.standard_normal(rows.shape).astype(numpy.float32)
    rows /= numpy.linalg.norm(rows, axis=1, keepdims=True)
    index = build_dense(rows, numpy.ones(len(rows), dtype=numpy.bool_))
    assert index.reduced.shape[1] < rows.shape[1]
    for _ in range(20):
        asked = rows[numbers.integers(len(rows))] + 0.05 * numbers.standard_normal(96).astype(numpy.float32)
        exact = rows @ asked - CROWDING_WEIGHT * index.crowding
        assert set(best(exact, 10)) == set(best(index.scores(asked), 10))


def test_neighbours_under_the_same_heading_lift_a_unit() -> None:
    lexical = numpy.array([0, 0, 4, 0, 0], dtype=numpy.float32)
    everyone = numpy.ones(5, dtype=numpy.bool_)
    beside = numpy.array([False, True, False, False])
    scores = fused(lexical, None, documents=numpy.zeros(5, dtype=numpy.int64), beside=beside, among=everyone)
    plain = standardised(lexical, everyone)
    assert scores[1] == pytest.approx(plain[1] + NEIGHBOUR_WEIGHT * plain[2])
    assert scores[3] == plain[3]


def test_a_document_that_fits_as_a_whole_goes_before_a_stray_unit_of_another() -> None:
    # two units of the first document fit, one of the second fits a little better than each of them
    dense = numpy.array([2.0, 2.0, 0.0, 2.1, 0.0, 0.0], dtype=numpy.float32)
    scores = fused(
        numpy.zeros(6, dtype=numpy.float32), dense, documents=numpy.array([0, 0, 0, 1, 1, 1]),
        beside=numpy.zeros(5, dtype=numpy.bool_), among=numpy.ones(6, dtype=numpy.bool_),
    )  # fmt: skip
    assert best(scores, 3) == [0, 1, 3]


def test_another_language_does_not_set_the_scale() -> None:
    scores = numpy.array([0.9, 0.8, 0.1, 0.1, 0.1], dtype=numpy.float32)
    english = numpy.array([True, True, False, False, False])
    assert standardised(scores, english)[:2] == pytest.approx([1.0, -1.0])


@pytest.mark.parametrize("limit", [1, 3, 5, 9])
def test_equal_scores_come_in_the_order_of_the_text(limit: int) -> None:
    scores = numpy.array([1, 2, 2, 2, 1], dtype=numpy.float32)
    assert best(scores, limit) == [1, 2, 3, 0, 4][:limit]


def test_a_name_in_another_script_does_not_change_the_language() -> None:
    assert is_chinese("民法典第1024条")
    assert not is_chinese("What does the 民法典, the Civil Code of China, say about privacy and reputation?")
