"""The least of an error, found by steps that get smaller."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

At = TypeVar("At")
FIRST_STEP, SMALLEST_STEP = 1.2, 1.02
"""Factors by which something is moved."""


def descend(start: At, error: Callable[[At], float], near: Callable[[At, float], Sequence[At]]) -> tuple[At, float]:
    """Where ``error`` is least around ``start``, and how much it is there.

    Args:
        near: the places to look at from one, a step away by the factor given.
    """
    best, least, step = start, error(start), FIRST_STEP
    while step > SMALLEST_STEP:
        places = near(best, step)
        found, at = min((error(one), at) for at, one in enumerate(places))
        if found < least:
            best, least = places[at], found
        else:
            step = math.sqrt(step)
    return best, least
