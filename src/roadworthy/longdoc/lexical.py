"""BM25 over units, in memory: postings by term, scores of one question as a mapping from unit to score."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from roadworthy.longdoc.words import words

K1, B = 1.2, 0.75
"""The usual constants of BM25 (Robertson and Zaragoza 2009, section 3.5)."""


@dataclass(slots=True)
class LexicalIndex:
    """Terms of every unit. ``add`` before asking; ids are those of the caller, in any order."""

    _postings: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: defaultdict(list))
    _lengths: dict[int, int] = field(default_factory=dict)
    _total: int = 0

    def add(self, unit_id: int, text: str) -> None:
        counts = Counter(words(text))
        length = sum(counts.values())
        for term, times in counts.items():
            self._postings[term].append((unit_id, times))
        self._lengths[unit_id] = length
        self._total += length

    def scores(self, question: str) -> Mapping[int, float]:
        """Score of each unit that shares a term with ``question``; higher is better."""
        found: dict[int, float] = defaultdict(float)
        count = len(self._lengths)
        if not count:
            return found
        mean = self._total / count
        for term, asked in Counter(words(question)).items():
            postings: Sequence[tuple[int, int]] = self._postings.get(term, ())
            if not postings:
                continue
            weight = math.log(1 + (count - len(postings) + 0.5) / (len(postings) + 0.5)) * min(asked, 3)
            for unit_id, times in postings:
                norm = times + K1 * (1 - B + B * self._lengths[unit_id] / mean)
                found[unit_id] += weight * times * (K1 + 1) / norm
        return found
