"""Nearness in meaning, exact for the best: cosines, less what a unit gets from everybody.

Some units lie close to every question, because they lie close to everything; the bundled embedding's cosines differ
more by that than by meaning. What is taken off is a unit's own mean nearness to its nearest units (as in cross-domain
similarity local scaling, Conneau et al. 2018, section 2.3). scripts/longdoc_score.py measures what it brings.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

from roadworthy.longdoc.fuse import leading

CROWDING_WEIGHT = 0.55
NEAREST = 10
MOST_REFERENCES = 4_000
"""Units that crowding is measured against, in larger libraries a sample."""

EXACT_UP_TO = 20_000
"""Units; above it a question meets vectors of fewer numbers first, and only the best are looked at in full."""

REDUCED = 64
LOOKED_AT = 1_200
_ROWS = 1_000

Floats = NDArray[numpy.float32]


@dataclass(frozen=True, slots=True, kw_only=True)
class DenseIndex:
    """Vectors of all units.

    Args:
        matrix: one normalised row a unit; a row of zeros where a unit has no vector.
        present: which units have one.
        crowding: mean cosine to the nearest units.
        projection, reduced: to fewer numbers and the rows in them; of no columns in a small library.
    """

    matrix: Floats
    present: NDArray[numpy.bool_]
    crowding: Floats
    projection: Floats
    reduced: Floats

    def scores(self, question: Floats) -> Floats:
        """Nearness of each unit to a normalised ``question``; of units without a vector the mean of the others."""
        taken_off = CROWDING_WEIGHT * self.crowding
        if not self.reduced.shape[1]:
            found = self.matrix @ question - taken_off
        else:
            found = self.reduced @ (question @ self.projection) - taken_off
            best = leading(found, LOOKED_AT)
            exact = self.matrix[best] @ question - taken_off[best]
            # what the fewer numbers lose on average is lost by all, so that the two kinds can stand beside each other
            found += float(numpy.mean(exact - found[best]))
            found[best] = exact
        if not self.present.all():
            found[~self.present] = found[self.present].mean() if self.present.any() else 0.0
        return found


def build_dense(matrix: Floats, present: NDArray[numpy.bool_]) -> DenseIndex:
    """The index over ``matrix`` (units by numbers), each row normalised."""
    rows = matrix[present]
    crowding = numpy.zeros(len(matrix), dtype=numpy.float32)
    crowding[present] = _crowding(rows)
    numbers = matrix.shape[1]
    projection = numpy.zeros((numbers, 0), dtype=numpy.float32)
    if len(rows) > EXACT_UP_TO and numbers > REDUCED:
        projection = _projection(_sample(rows))
    return DenseIndex(
        matrix=matrix, present=present, crowding=crowding, projection=projection, reduced=matrix @ projection
    )


def _sample(rows: Floats) -> Floats:
    """Rows at even distances, the same ones every time."""
    if len(rows) <= MOST_REFERENCES:
        return rows
    return rows[numpy.linspace(0, len(rows) - 1, MOST_REFERENCES).astype(numpy.int64)]


def _crowding(rows: Floats) -> Floats:
    references = _sample(rows)
    nearest = min(NEAREST, len(references) - 1)
    if nearest < 1:
        return numpy.zeros(len(rows), dtype=numpy.float32)
    parts = []
    for at in range(0, len(rows), _ROWS):
        cosines = rows[at : at + _ROWS] @ references.T
        cosines[cosines > 1 - 1e-5] = -1.0  # itself, and copies of it
        parts.append(numpy.partition(cosines, -nearest, axis=1)[:, -nearest:].clip(min=0).mean(axis=1))
    crowding: Floats = numpy.concatenate(parts).astype(numpy.float32)
    return crowding


def _projection(sample: Floats) -> Floats:
    """The directions in which the vectors differ most."""
    _, directions = numpy.linalg.eigh(sample.T @ sample)
    largest: Floats = directions[:, -REDUCED:].astype(numpy.float32)
    return largest
