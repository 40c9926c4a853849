"""BM25 over units as arrays: for each term the units that hold it and what it adds to their score.

Terms of a document are counted once, when it is read; an index over many documents is put together from those counts.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy

from roadworthy.longdoc.words import words

if TYPE_CHECKING:
    from numpy.typing import NDArray

K1, B = 1.2, 0.75
"""The usual constants of BM25 (Robertson and Zaragoza 2009, section 3.5)."""

MOST_TIMES_ASKED = 3
"""A word that a question repeats counts so often at most."""


ALSO_WEIGHT = 0.8
"""Of a term that stands for the question's own word."""

MOST_HOLDING = 0.04
"""Of all units: a term of art that more of them hold tells little, and takes the longest to look up."""


def term_key(term: str) -> int:
    """64 bits that stand for ``term``; two terms of one library share them about never."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class TermCounts:
    """How often each unit of one document holds each term; the arrays are parallel but for ``lengths``.

    Args:
        terms: keys of terms (uint64).
        units: place of the unit in its document (uint32).
        times: how often it holds the term (uint16, no more than 65,535).
        lengths: terms of each unit in all (uint32, one for each unit).
    """

    terms: NDArray[numpy.uint64]
    units: NDArray[numpy.uint32]
    times: NDArray[numpy.uint16]
    lengths: NDArray[numpy.uint32]


def count_terms(texts: Iterable[str]) -> TermCounts:
    """The counts of one document; ``texts`` are its units as they are to be found."""
    keys: dict[str, int] = {}
    terms: list[int] = []
    units: list[int] = []
    times: list[int] = []
    lengths: list[int] = []
    for place, text in enumerate(texts):
        counts = Counter(words(text))
        lengths.append(sum(counts.values()))
        for term, often in counts.items():
            key = keys.get(term)
            if key is None:
                key = keys[term] = term_key(term)
            terms.append(key)
            units.append(place)
            times.append(min(often, 65_535))
    return TermCounts(
        terms=numpy.array(terms, dtype=numpy.uint64), units=numpy.array(units, dtype=numpy.uint32),
        times=numpy.array(times, dtype=numpy.uint16), lengths=numpy.array(lengths, dtype=numpy.uint32),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class LexicalIndex:
    """Postings of every term, one after the other.

    Args:
        terms: keys in ascending order (uint64).
        offsets: where each term's postings start, and the end of the last (int64, one more than terms).
        units: places of units (uint32).
        weights: what the term adds to the unit's score (float32).
        size: number of units.
    """

    terms: NDArray[numpy.uint64]
    offsets: NDArray[numpy.int64]
    units: NDArray[numpy.uint32]
    weights: NDArray[numpy.float32]
    size: int

    def scores(self, question: str, also: Sequence[str] = ()) -> NDArray[numpy.float32]:
        """One score for each unit; 0 where it shares no term with ``question``, nor with what it ``also`` may mean."""
        found = numpy.zeros(self.size, dtype=numpy.float32)
        for term, asked in Counter(words(question)).items():
            if part := self._postings(term):
                found[self.units[part]] += self.weights[part] * min(asked, MOST_TIMES_ASKED)
        for term in dict.fromkeys(term for one in also for term in words(one)):
            part = None if len(term) == 1 and term >= "\u3400" else self._postings(term)
            if part and part.stop - part.start <= MOST_HOLDING * self.size + 1:
                found[self.units[part]] += self.weights[part] * ALSO_WEIGHT
        return found

    def _postings(self, term: str) -> slice | None:
        key = numpy.uint64(term_key(term))
        at = int(numpy.searchsorted(self.terms, key))
        if at == len(self.terms) or self.terms[at] != key:
            return None
        return slice(int(self.offsets[at]), int(self.offsets[at + 1]))


def build_lexical(documents: Sequence[TermCounts]) -> LexicalIndex:
    """One index over ``documents``: their units in that order, counted through."""
    starts = numpy.cumsum([0, *(len(one.lengths) for one in documents)])
    size = int(starts[-1])
    if not documents or not size:
        return LexicalIndex(
            terms=numpy.zeros(0, numpy.uint64), offsets=numpy.zeros(1, numpy.int64),
            units=numpy.zeros(0, numpy.uint32), weights=numpy.zeros(0, numpy.float32), size=size,
        )  # fmt: skip
    lengths = numpy.concatenate([one.lengths for one in documents]).astype(numpy.float32)
    terms = numpy.concatenate([one.terms for one in documents])
    units = numpy.concatenate(
        [one.units + numpy.uint32(start) for one, start in zip(documents, starts[:-1], strict=True)]
    )
    times = numpy.concatenate([one.times for one in documents]).astype(numpy.float32)
    order = numpy.argsort(terms, kind="stable")
    terms, units, times = terms[order], units[order], times[order]
    unique, first = numpy.unique(terms, return_index=True)
    offsets = numpy.append(first, len(terms)).astype(numpy.int64)
    holding = numpy.diff(offsets)
    rarity = numpy.log1p((size - holding + 0.5) / (holding + 0.5)).astype(numpy.float32)
    mean = float(lengths.mean()) or math.inf
    norms = times + K1 * (1 - B + B * lengths[units] / mean)
    weights = numpy.repeat(rarity, holding) * times * (K1 + 1) / norms
    return LexicalIndex(terms=unique, offsets=offsets, units=units, weights=weights.astype(numpy.float32), size=size)
