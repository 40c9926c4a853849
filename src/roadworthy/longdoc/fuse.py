"""Scores of different kinds made comparable and joined."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

LEXICAL_WEIGHT = 0.14
"""Measured best beside the bundled embedding (docs/concepts/longdoc.md): words are weak on everyday questions."""

NEIGHBOUR_WEIGHT = 0.075
"""What a unit gets of the score of the one before and the one after it under the same heading."""

DOCUMENT_WEIGHT = 1.0
DOCUMENT_UNITS = 10
LEADING = 300
"""A document's standing in a question is the mean of its ten best units among the 300 best of all; what it lacks
against the best document's is taken off its units."""

SAMPLED_FROM = 10_000
SAMPLED_EVERY = 16

Floats = NDArray[numpy.float32]


def standardised(scores: Floats, among: NDArray[numpy.bool_]) -> Floats:
    """Zero mean and unit spread ``among`` some of them, the others on the same scale; zeros where all are alike."""
    those = scores[among]
    spread = float(those.std()) if len(those) else 0.0
    return (scores - those.mean()) / numpy.float32(spread) if spread > 1e-9 else numpy.zeros_like(scores)


def mixed(
    bundled: tuple[Floats, NDArray[numpy.bool_]] | None,
    served: tuple[Floats, NDArray[numpy.bool_]] | None,
    *,
    trust: float,
    among: NDArray[numpy.bool_],
) -> Floats | None:
    """Nearness by two embeddings, each standardised among the units that have its vectors; a unit that lacks one is
    judged by the other, and one that lacks both gets NaN.

    Args:
        trust: share of the served one where a unit has both, 0 to 1.
    """
    if served is None and bundled is not None and bundled[1].all():
        return bundled[0]
    total, weights = numpy.zeros(len(among), dtype=numpy.float32), numpy.zeros(len(among), dtype=numpy.float32)
    for part, share in ((bundled, 1 - trust), (served, trust if bundled is not None else 1.0)):
        if part is None:
            continue
        scores, present = part
        those = among & present
        if share == 0 or not those.any():
            continue
        alone = numpy.where(present, numpy.float32(share), numpy.float32(0))
        total += standardised(scores, those) * alone
        weights += alone
    if not weights.any():
        return None
    found: Floats = numpy.where(weights > 0, total / numpy.where(weights > 0, weights, 1), numpy.float32(numpy.nan))
    return found


def fused(
    lexical: Floats,
    dense: Floats | None,
    *,
    documents: NDArray[numpy.int64],
    beside: NDArray[numpy.bool_],
    among: NDArray[numpy.bool_],
) -> Floats:
    """One score a unit; without ``dense``, or where it is NaN, words alone decide.

    Args:
        documents: which document each unit is of, counted from 0.
        beside: unit i + 1 stands next to unit i, in the same document and under the same heading.
        among: units in the question's language. Those in others lie so far off that they would set the scale.
    """
    total = standardised(lexical, among)
    if dense is not None:
        unknown = numpy.isnan(dense)
        if unknown.any():
            dense = numpy.where(unknown, total, standardised(dense, among & ~unknown))
        total = LEXICAL_WEIGHT * total + (1 - LEXICAL_WEIGHT) * standardised(dense, among)
        total += DOCUMENT_WEIGHT * _standing(total, documents)
    if not len(beside):
        return total
    widened = total.copy()
    widened[1:] += NEIGHBOUR_WEIGHT * total[:-1] * beside
    widened[:-1] += NEIGHBOUR_WEIGHT * total[1:] * beside
    return widened


def _standing(scores: Floats, documents: NDArray[numpy.int64]) -> Floats:
    """What each unit's document lacks against the best document: 0 or less."""
    leading = numpy.array(best(scores, LEADING))
    floor = float(scores[leading[-1]])
    standing = numpy.full(int(documents[-1]) + 1, floor, dtype=numpy.float32)
    for document in numpy.unique(documents[leading]):
        top = scores[leading[documents[leading] == document]][:DOCUMENT_UNITS]
        standing[document] = (float(top.sum()) + floor * (DOCUMENT_UNITS - len(top))) / DOCUMENT_UNITS
    lacking: Floats = (standing - standing.max())[documents]
    return lacking


def best(scores: Floats, limit: int) -> list[int]:
    """Places of the highest scores, best first; of equals the earlier."""
    count = min(limit, len(scores))
    if count < len(scores):
        found = leading(scores, count)
        # equals at the edge: all of them compete, so that the earlier one wins whatever the partition did
        lowest = numpy.partition(scores[found], -count)[-count]
        found = found[scores[found] >= lowest]
    else:
        found = numpy.arange(len(scores))
    order = numpy.lexsort((found, -scores[found]))
    return [int(one) for one in found[order[:count]]]


def leading(scores: Floats, count: int) -> NDArray[numpy.int64]:
    """Places of the ``count`` highest scores, of all that equal the lowest of them, and perhaps of some more.

    Of many scores a sample tells about where those begin, which is quicker than to order all.
    """
    if len(scores) > SAMPLED_FROM:
        sample = scores[::SAMPLED_EVERY]
        among = 2 * count // SAMPLED_EVERY + 16
        if among < len(sample):
            found = numpy.flatnonzero(scores >= numpy.partition(sample, -among)[-among])
            if len(found) >= count:
                return found
    if count >= len(scores):
        return numpy.arange(len(scores))
    return numpy.flatnonzero(scores >= numpy.partition(scores, -count)[-count])
