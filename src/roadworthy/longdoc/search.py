"""Search over many documents: number look-up, words, meaning; one ranking that says where each unit stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.longdoc.fuse import fused
from roadworthy.longdoc.lexical import LexicalIndex
from roadworthy.longdoc.references import references

if TYPE_CHECKING:
    from roadworthy.longdoc.values import Unit

DenseScores = Callable[[str], Mapping[int, float]]
"""Similarity of a question to every unit by its id, from whatever embedding is at hand."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredUnit:
    """A unit with the document that it is of."""

    id: int
    document: str
    unit: Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Hit:
    """One result, best first in its list; ``named`` says that the question named it by number."""

    stored: StoredUnit
    score: float
    named: bool


class Searcher:
    """Everything that one search needs, built once for many questions.

    Args:
        units: of all documents, ids unique.
        dense: None where no embedding is at hand; words alone then decide.
    """

    def __init__(self, units: Sequence[StoredUnit], dense: DenseScores | None = None) -> None:
        self._units = {stored.id: stored for stored in units}
        self._everyone = tuple(self._units)
        self._dense = dense
        self._lexical = LexicalIndex()
        self._by_number: dict[str, list[int]] = {}
        for stored in units:
            unit = stored.unit
            self._lexical.add(stored.id, f"{' '.join(unit.path)} {unit.label} {unit.title} {unit.text}")
            if unit.number:
                self._by_number.setdefault(unit.number, []).append(stored.id)

    def search(self, question: str, *, limit: int = 10) -> tuple[Hit, ...]:
        """The best units for ``question``; empty when nothing is stored."""
        lexical = self._lexical.scores(question)
        dense = self._dense(question) if self._dense is not None else None
        named = self._named(question, lexical)
        ranked = fused(lexical, dense, self._everyone, named=named)
        return tuple(
            Hit(stored=self._units[one], score=round(score, 4), named=one in named) for one, score in ranked[:limit]
        )

    def _named(self, question: str, lexical: Mapping[int, float]) -> tuple[int, ...]:
        """Units that the question names; of several documents with the number the one whose words fit is first."""
        found: list[int] = []
        for kind, number in references(question):
            same = [one for one in self._by_number.get(number, ()) if self._fits(one, kind)]
            same.sort(key=lambda one: (-self._document_fit(question, one), -lexical.get(one, 0.0), one))
            found += same
        return tuple(dict.fromkeys(found))

    def _fits(self, one: int, kind: str | None) -> bool:
        """Articles for articles; a section may be a clause, and the other way."""
        mine = self._units[one].unit.kind
        if kind is None or mine == kind:
            return True
        return {mine, kind} <= {"section", "clause", "article"} and "recital" not in (mine, kind)

    def _document_fit(self, question: str, one: int) -> int:
        """Whether the question names the document, or is at least of its language."""
        stored = self._units[one]
        name = stored.document.rsplit("/", 1)[-1].rsplit(".", 1)[0].lower()
        chinese = any("\u3400" <= letter <= "\u9fff" for letter in question)
        same_language = chinese == any("\u3400" <= letter <= "\u9fff" for letter in stored.unit.text[:200])
        named = any(part in question.lower() for part in name.replace("_", " ").split() if len(part) > 2)
        return 2 * named + same_language
