"""Many literals searched for in one pass over a text, where Hyperscan is installed (extra ``logs``).

Python's own means are as quick for logs that repeat themselves, since each shape of a line is searched once. Where no
two lines are alike they are not.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Finder = Callable[[bytes], list[tuple[int, int]]]
"""Which literal, by its place in the list, ends where; in the order of the ends."""


def finder_of(literals: Sequence[bytes]) -> Finder | None:
    """A search for ``literals``, none of them empty; None where nothing is installed that does it in one pass."""
    try:
        import hyperscan
    except ImportError:
        return None
    database = hyperscan.Database(mode=hyperscan.HS_MODE_BLOCK)
    try:
        database.compile(
            expressions=list(literals),
            ids=list(range(len(literals))),
            elements=len(literals),
            flags=[0] * len(literals),
            literal=True,
        )
    except hyperscan.error:  # a processor that it was not built for
        return None

    def find(text: bytes) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        append = found.append

        def hit(literal: int, start: int, end: int, flags: int, context: object) -> None:  # noqa: ARG001 its signature
            append((literal, end))

        database.scan(text, match_event_handler=hit)
        return found

    return find
