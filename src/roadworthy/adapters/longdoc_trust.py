"""How far an embedding or a reranker behind an endpoint is trusted with a library: what it does with questions whose
answers are known.

A sentence out of the middle of a unit, in everyday words where the dictionary has some, has to find that unit again. An
endpoint that gives noise, the same vector for everything, or that of a model without this language fails at it; what it
says then counts nothing, so that a search with it is never below one without.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy
from numpy.typing import NDArray

from roadworthy.longdoc.everyday import in_everyday_words
from roadworthy.longdoc.naming import is_chinese

if TYPE_CHECKING:
    from roadworthy.longdoc.dense import DenseIndex
    from roadworthy.longdoc.search import StoredUnit

PROBES = 32
"""Questions a language."""

FEWEST_PROBES = 6
FULL_TRUST = 0.5
"""Share beside the bundled embedding of one that does as well at the probes, or better."""

WORSE = 0.9
USELESS = 0.6
"""Of what the bundled embedding does: from here on full trust, and down to here none."""

RERANK_PROBES = 8
RERANK_TEXTS = 8
RERANK_USELESS, RERANK_GOOD = 0.7, 0.95
"""Mean reciprocal rank among eight texts; chance gives 0.34."""

Floats = NDArray[numpy.float32]

_SENTENCE = re.compile(r"[^。；;.!?！？\n]{12,160}[。；;.!?！？]")


def probe_of(unit: StoredUnit) -> str:
    """A question that ``unit`` answers: a sentence of it that is not its first where there are several; empty where it
    has none."""
    sentences = [found.group().strip() for found in _SENTENCE.finditer(unit.unit.text)]
    if not sentences:
        return ""
    chosen = sentences[len(sentences) // 2]
    return in_everyday_words(chosen[:160])


def sample(places: Sequence[int], most: int) -> list[int]:
    """At even distances, the same ones every time."""
    if len(places) <= most:
        return list(places)
    return [places[int(at)] for at in numpy.linspace(0, len(places) - 1, most)]


def reciprocal_rank(index: DenseIndex, questions: Sequence[Floats], answers: Sequence[int]) -> float:
    """Mean of 1 over the place at which each question's unit comes."""
    found = [_reciprocal(index.scores(question), answer) for question, answer in zip(questions, answers, strict=True)]
    return float(numpy.mean(found)) if found else 0.0


def _reciprocal(scores: NDArray[numpy.floating[Any]], answer: int) -> float:
    """1 over the place of ``answer``, which is in the middle of those that score the same."""
    wanted = scores[answer]
    return 1 / (1 + int((scores > wanted).sum()) + (int((scores == wanted).sum()) - 1) / 2)


ALONE = 0.5
"""Mean reciprocal rank that stands for the bundled embedding's where the library has none of its vectors."""


def trust_in(
    served: DenseIndex,
    bundled: DenseIndex | None,
    places: Sequence[int],
    units: Sequence[StoredUnit],
    ask_served: Callable[[Sequence[str]], Sequence[Floats]],
    ask_bundled: Callable[[str], Floats],
) -> tuple[float, float]:
    """Shares for Chinese and for other questions; of a language with too few units to tell, none beside the bundled
    embedding, and all without it.

    Args:
        places: of ``units`` in both indexes, all with vectors of both.
    """
    shares = []
    for chinese in (True, False):
        probes = [
            (place, question)
            for place, unit in zip(places, units, strict=True)
            if is_chinese(unit.unit.text[:200]) == chinese and (question := probe_of(unit))
        ][:PROBES]
        if len(probes) < FEWEST_PROBES:
            shares.append(FULL_TRUST if bundled is None or not probes else 0.0)
            continue
        answers = [place for place, _ in probes]
        questions = [question for _, question in probes]
        theirs = reciprocal_rank(served, list(ask_served(questions)), answers)
        ours = ALONE
        if bundled is not None:
            ours = reciprocal_rank(bundled, [ask_bundled(one) for one in questions], answers)
        shares.append(FULL_TRUST * between(theirs / max(ours, 1e-9), USELESS, WORSE))
    return shares[0], shares[1]


def trust_in_reranker(
    probes: Sequence[tuple[str, Sequence[str], int]], scores: Callable[[str, Sequence[str]], Sequence[float]]
) -> float:
    """0 to 1, of (question, texts, which of them answers it)."""
    ranks = [_reciprocal(numpy.array(scores(question, texts)), answer) for question, texts, answer in probes]
    return between(sum(ranks) / len(ranks), RERANK_USELESS, RERANK_GOOD) if ranks else 0.0


def between(value: float, low: float, high: float) -> float:
    """0 up to ``low``, 1 from ``high`` on, straight between them."""
    return min(1.0, max(0.0, (value - low) / (high - low)))
