"""Scores of different kinds made comparable and joined."""

from __future__ import annotations

import numpy
from numpy.typing import NDArray

LEXICAL_WEIGHT = 0.2
"""Measured best beside the bundled embedding (docs/concepts/longdoc.md): words are weak on everyday questions."""

NEIGHBOUR_WEIGHT = 0.1
"""What a unit gets of the score of the one before and the one after it under the same heading."""

Floats = NDArray[numpy.float32]


def standardised(scores: Floats, among: NDArray[numpy.bool_]) -> Floats:
    """Zero mean and unit spread ``among`` some of them, the others on the same scale; zeros where all are alike."""
    those = scores[among]
    spread = float(those.std()) if len(those) else 0.0
    return (scores - those.mean()) / numpy.float32(spread) if spread > 1e-9 else numpy.zeros_like(scores)


def fused(lexical: Floats, dense: Floats | None, beside: NDArray[numpy.bool_], among: NDArray[numpy.bool_]) -> Floats:
    """One score a unit; without ``dense`` words alone decide.

    Args:
        beside: unit i + 1 stands next to unit i, in the same document and under the same heading.
        among: units in the question's language. Those in others lie so far off that they would set the scale.
    """
    total = standardised(lexical, among)
    if dense is not None:
        total = LEXICAL_WEIGHT * total + (1 - LEXICAL_WEIGHT) * standardised(dense, among)
    if not len(beside):
        return total
    widened = total.copy()
    widened[1:] += NEIGHBOUR_WEIGHT * total[:-1] * beside
    widened[:-1] += NEIGHBOUR_WEIGHT * total[1:] * beside
    return widened


def best(scores: Floats, limit: int) -> list[int]:
    """Places of the highest scores, best first; of equals the earlier."""
    count = min(limit, len(scores))
    if count < len(scores):
        found = numpy.argpartition(scores, -count)[-count:]
        # equals at the edge: all of them compete, so that the earlier one wins whatever the partition did
        found = numpy.flatnonzero(scores >= scores[found].min())
    else:
        found = numpy.arange(len(scores))
    order = numpy.lexsort((found, -scores[found]))
    return [int(one) for one in found[order[:count]]]
