"""A consistent hash ring: which engine a session is at home on, whoever asks.

Points come from BLAKE2b, not from Python's ``hash``, which differs from process to process: every worker and every
gateway before the same engines sees the same ring. An engine that leaves gives up its own arcs and no others; one
that joins takes arcs from each of the others and moves nothing between them.
"""

from __future__ import annotations

from bisect import bisect_right
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def place(text: bytes) -> int:
    """Where ``text`` lies on the ring: 64 bits."""
    return int.from_bytes(blake2b(text, digest_size=8).digest(), "big")


class Ring:
    """``points`` points of each of ``names``; ``owners[at]`` is the index in ``names`` of the point ``at``."""

    __slots__ = ("_places", "names", "owners")

    def __init__(self, names: Sequence[str], *, points: int) -> None:
        self.names = tuple(names)
        ring = sorted(
            (place(f"{name}#{point}".encode()), name, index)
            for index, name in enumerate(self.names)
            for point in range(points)
        )
        self._places = [entry[0] for entry in ring]
        self.owners = [entry[2] for entry in ring]

    def start(self, key: int) -> int:
        """The point at which a key's walk begins; it goes on clockwise and wraps around."""
        at = bisect_right(self._places, key)
        return at if at < len(self._places) else 0
