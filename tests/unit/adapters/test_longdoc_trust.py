"""Two embeddings beside each other, and how far the second is believed."""

from __future__ import annotations

import numpy
import pytest

from roadworthy.adapters.longdoc_trust import between, reciprocal_rank, trust_in_reranker
from roadworthy.longdoc.dense import build_dense
from roadworthy.longdoc.everyday import in_everyday_words
from roadworthy.longdoc.fuse import best, fused, mixed

ALL = numpy.ones(4, dtype=numpy.bool_)


def scores(*values: float) -> numpy.ndarray[tuple[int], numpy.dtype[numpy.float32]]:
    return numpy.array(values, dtype=numpy.float32)


def test_without_trust_the_bundled_embedding_decides_alone() -> None:
    bundled, noise = scores(4, 3, 2, 1), scores(1, 9, 9, 9)
    found = mixed((bundled, ALL), (noise, ALL), trust=0.0, among=ALL)
    assert found is not None
    assert best(found, 4) == [0, 1, 2, 3]


def test_a_unit_that_lacks_one_vector_is_judged_by_the_other_and_without_any_by_words() -> None:
    bundled, served = scores(4, 3, 0, 0), scores(0, 1, 2, 0)
    with_bundled = numpy.array([True, True, False, False])
    with_served = numpy.array([False, True, True, False])
    found = mixed((bundled, with_bundled), (served, with_served), trust=0.5, among=ALL)
    assert found is not None
    assert found[:3] == pytest.approx([1.0, -1.0, 1.0])
    assert numpy.isnan(found[3])
    everything = fused(
        scores(0, 0, 0, 9), found, documents=numpy.zeros(4, dtype=numpy.int64),
        beside=numpy.zeros(3, dtype=numpy.bool_), among=ALL,
    )  # fmt: skip
    assert best(everything, 1) == [3]


def test_a_reciprocal_rank_counts_ties_as_chance() -> None:
    index = build_dense(numpy.eye(4, dtype=numpy.float32), ALL)
    assert reciprocal_rank(index, [scores(0, 1, 0, 0)], [1]) == 1.0
    assert reciprocal_rank(index, [scores(1, 1, 1, 1)], [2]) == pytest.approx(1 / 2.5)


@pytest.mark.parametrize(
    ("scored", "trust"), [([9.0, 1.0, 1.0, 1.0], 1.0), ([1.0, 1.0, 1.0, 1.0], 0.0), ([0.0, 1.0, 1.0, 1.0], 0.0)]
)
def test_a_reranker_that_does_not_find_a_known_text_counts_nothing(scored: list[float], trust: float) -> None:
    probes = [("q", ["a", "b", "c", "d"], 0)] * 3
    assert trust_in_reranker(probes, lambda question, texts: scored) == trust


def test_between_is_straight() -> None:
    assert [between(value, 0.6, 0.9) for value in (0.5, 0.75, 0.95)] == pytest.approx([0.0, 0.5, 1.0])


def test_a_sentence_in_everyday_words_is_another_one() -> None:
    assert in_everyday_words("出租人应当履行租赁物的维修义务") != "出租人应当履行租赁物的维修义务"
    assert "房东" in in_everyday_words("出租人应当维修")
