"""Search over many documents: number look-up, words, meaning; one ranking that says where each unit stands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy
from numpy.typing import NDArray

from roadworthy.longdoc.everyday import terms_of_art
from roadworthy.longdoc.fuse import best, fused, mixed
from roadworthy.longdoc.naming import NAMED_FIT, document_fit, is_chinese
from roadworthy.longdoc.references import references

if TYPE_CHECKING:
    from roadworthy.longdoc.dense import DenseIndex
    from roadworthy.longdoc.lexical import LexicalIndex
    from roadworthy.longdoc.values import Unit

Floats = NDArray[numpy.float32]

EmbedQuestion = Callable[[str], NDArray[numpy.float32]]
"""A question as a normalised vector, of the model that made the units' vectors."""

FEWEST_ALONE = 0.25
"""Trust that an endpoint's embedding needs to be searched with where there is no other; below it words decide."""

_CANDIDATES = 4
"""Times the limit that are fetched, since named units are taken out of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUnit:
    """A unit with the document that it is of; ``about`` is how that one's text begins."""

    id: int
    document: str
    unit: Unit
    about: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result, best first in its list; ``named`` says that the question named it by number."""

    stored: StoredUnit
    score: float
    named: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchIndex:
    """Everything that is scored, in the order of ``ids``.

    Args:
        ids: of units, ascending (int64).
        documents: which document each is of, counted from 0 and ascending (int64).
        beside: whether a unit and the next one stand under the same heading (one fewer than units).
        chinese: whether it is written in Chinese.
        dense: None where no unit has a vector of the bundled embedding.
        served: the same of an embedding behind an endpoint.
        trust: share of the served one beside the bundled one, for Chinese and for other questions; 0 leaves it out,
            alone or not.
    """

    ids: NDArray[numpy.int64]
    lexical: LexicalIndex
    documents: NDArray[numpy.int64]
    beside: NDArray[numpy.bool_]
    chinese: NDArray[numpy.bool_]
    dense: DenseIndex | None = None
    served: DenseIndex | None = None
    trust: tuple[float, float] = (0.0, 0.0)


class Units(Protocol):
    """Where units are fetched from."""

    def by_ids(self, ids: Sequence[int]) -> Sequence[StoredUnit]:
        """In the order of ``ids``; one that is gone meanwhile is left out."""
        ...

    def by_number(self, number: str) -> Sequence[StoredUnit]:
        """All with that canonical number."""
        ...


class Searcher:
    """Answers many questions over one index.

    Args:
        embed: the bundled embedding; None where it is not at hand.
        served: the one behind an endpoint, which gives None where it cannot be had just now; None where the library has
            no vectors of it.
    """

    def __init__(
        self,
        index: SearchIndex,
        units: Units,
        embed: EmbedQuestion | None = None,
        served: Callable[[str], Floats | None] | None = None,
    ) -> None:
        self._index, self._units, self._embed, self._served = index, units, embed, served

    def search(
        self, question: str, *, limit: int = 10, vector: NDArray[numpy.float32] | None = None
    ) -> tuple[Hit, ...]:
        """The best units for ``question``; empty when nothing is stored. ``vector`` is the question's, where the caller
        has it already."""
        index = self._index
        if not len(index.ids):
            return ()
        chinese = is_chinese(question)
        meant = terms_of_art(question)
        lexical = index.lexical.scores(question, meant)
        among = index.chinese == chinese
        if not among.any():
            among = ~among
        dense = self._near(question, meant, vector, among, trust=index.trust[0 if chinese else 1])
        scores = fused(lexical, dense, documents=index.documents, beside=index.beside, among=among)
        named = self._named(question, lexical)
        top = float(scores.max()) + 1.0 + len(named)
        hits = [Hit(stored=one, score=round(top - place, 4), named=True) for place, one in enumerate(named)]
        if len(hits) < limit:
            first = {one.id for one in named}
            places = best(scores, limit * _CANDIDATES if named else limit)
            score_of = {int(index.ids[place]): float(scores[place]) for place in places}
            rest = [one for one in score_of if one not in first][: limit - len(hits)]
            hits += [Hit(stored=one, score=round(score_of[one.id], 4), named=False) for one in self._units.by_ids(rest)]
        return tuple(hits[:limit])

    def _near(
        self,
        question: str,
        meant: Sequence[str],
        vector: Floats | None,
        among: NDArray[numpy.bool_],
        *,
        trust: float,
    ) -> Floats | None:
        """Nearness in meaning, of all embeddings at hand; None where there is none."""
        index, bundled, served = self._index, None, None
        if vector is None and self._embed is not None and index.dense is not None:
            vector = _drawn(self._embed, question, meant)
        if vector is not None and index.dense is not None:
            bundled = index.dense.scores(vector), index.dense.present
        least = FEWEST_ALONE if bundled is None else 0.0
        if index.served is not None and self._served is not None and trust > least:
            asked = _drawn(self._served, question, meant)
            served = (index.served.scores(asked), index.served.present) if asked is not None else None
        return mixed(bundled, served, trust=trust, among=among)

    def _named(self, question: str, lexical: NDArray[numpy.float32]) -> list[StoredUnit]:
        """Units that the question names; of several documents with the number the one whose words fit is first, and
        the only one where the question names it."""
        found: dict[int, StoredUnit] = {}
        for kind, number in references(question):
            same = [one for one in self._units.by_number(number) if _fits(one, kind)]
            fits = {one.id: document_fit(question, one.document, one.about, one.unit.text) for one in same}
            best_fit = max(fits.values(), default=0)
            if best_fit >= NAMED_FIT:
                same = [one for one in same if fits[one.id] == best_fit]
            same.sort(
                key=lambda one: (
                    -fits[one.id], one.unit.number != number, -self._words(one.id, lexical), one.id
                )
            )  # fmt: skip
            found |= {one.id: one for one in same if one.id not in found}
        return list(found.values())

    def _words(self, unit_id: int, lexical: NDArray[numpy.float32]) -> float:
        place = int(numpy.searchsorted(self._index.ids, unit_id))
        return float(lexical[place]) if place < len(lexical) and self._index.ids[place] == unit_id else 0.0


def _fits(one: StoredUnit, kind: str | None) -> bool:
    """Articles for articles; a section may be a clause, and the other way."""
    mine = one.unit.kind
    if kind is None or mine == kind:
        return True
    return {mine, kind} <= {"section", "clause", "article"}


def _drawn(embed: Callable[[str], Floats | None], question: str, meant: Sequence[str]) -> Floats | None:
    """The question's vector, drawn halfway to that of the question with the terms that it may mean."""
    vector = embed(question)
    if vector is None or not meant:
        return vector
    other = embed(f"{question} {('，' if is_chinese(question) else ', ').join(meant)}")
    if other is None:
        return vector
    drawn: Floats = (vector + other) / max(float(numpy.linalg.norm(vector + other)), 1e-9)
    return drawn
