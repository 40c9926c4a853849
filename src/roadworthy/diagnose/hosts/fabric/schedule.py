"""Who measures whom when: rounds of disjoint pairs, so that no host is measured twice at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Sequence

Item = TypeVar("Item")


def rounds(items: Sequence[Item]) -> tuple[tuple[tuple[Item, Item], ...], ...]:
    """Every pair of ``items`` once, in rounds in which each item is in one pair at most.

    The circle method: one item stays, the others turn. An even number N takes N - 1 rounds; an odd one takes N, with
    another item left out in each. Who comes first in a pair alternates, so that everyone is first about as often.
    """
    circle: list[int | None] = list(range(len(items)))
    if len(circle) % 2:
        circle.append(None)
    found: list[tuple[tuple[Item, Item], ...]] = []
    half = len(circle) // 2
    for _ in range(len(circle) - 1):
        pairs = []
        for one, two in zip(circle[:half], reversed(circle[half:]), strict=True):
            if one is not None and two is not None:
                first, second = sorted((one, two), reverse=(one + two) % 2 == 0)
                pairs.append((items[first], items[second]))
        if pairs:
            found.append(tuple(pairs))
        circle = [circle[0], circle[-1], *circle[1:-1]]
    return tuple(found)
