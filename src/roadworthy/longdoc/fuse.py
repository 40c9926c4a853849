"""Scores of different kinds made comparable and joined: each standardised over one question's candidates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, pstdev

LEXICAL_WEIGHT = 0.2
"""Measured best beside the bundled embedding (docs/concepts/longdoc.md): words are weak on everyday questions."""


def standardised(scores: Mapping[int, float], everyone: Sequence[int]) -> dict[int, float]:
    """Zero mean and unit spread over ``everyone``; who has no score counts as 0 before that."""
    values = [scores.get(one, 0.0) for one in everyone]
    mean, spread = (fmean(values), pstdev(values)) if values else (0.0, 0.0)
    return {one: (value - mean) / spread if spread else 0.0 for one, value in zip(everyone, values, strict=True)}


def fused(
    lexical: Mapping[int, float],
    dense: Mapping[int, float] | None,
    everyone: Sequence[int],
    *,
    named: Sequence[int] = (),
) -> list[tuple[int, float]]:
    """(unit, score), best first. ``named`` come before all, in their order; without ``dense`` words alone decide."""
    words = standardised(lexical, everyone)
    if dense is None:
        total = words
    else:
        meaning = standardised(dense, everyone)
        total = {one: LEXICAL_WEIGHT * words[one] + (1 - LEXICAL_WEIGHT) * meaning[one] for one in everyone}
    top = max(total.values(), default=0.0)
    first = [(one, top + 1.0 + len(named) - place) for place, one in enumerate(named)]
    rest = sorted((item for item in total.items() if item[0] not in set(named)), key=lambda item: (-item[1], item[0]))
    return first + rest
