"""Sessions to engines: consistent hashing with bounded loads.

A session's home is the first engine clockwise of its place on the ring that is open to it and not at its bound. The
bound is ``load_factor`` times the mean load, so a popular session or an unlucky arc fills one engine only so far, and
the overflow of each session goes to the same next engine every time.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from roadworthy.route.ring import Ring, place

if TYPE_CHECKING:
    from collections.abc import Mapping


def load_bound(loads_total: int, engines: int, *, load_factor: float, load_floor: int) -> int:
    """Most requests on one engine, the new one included, that affinity may bring about.

    ``ceil(load_factor * mean)`` with the new request in the mean. Some engine is always below it, since not all can be
    above their mean.
    """
    return max(load_floor, math.ceil(load_factor * (loads_total + 1) / engines))


def home(ring: Ring, session: int, loads: Mapping[int, int], bound: int) -> tuple[int, int]:
    """The engine that ``session`` is at home on now, and the one it would be on if load did not matter.

    Args:
        session: its place on the ring.
        loads: load by index in the ring of every engine that may be taken; at least one of them.
        bound: see ``load_bound``.

    Returns:
        Two indices; they differ when the first choice is at its bound.
    """
    owners = ring.owners
    first = -1
    at = ring.start(session)
    for step in range(len(owners)):
        owner = owners[at + step - len(owners)]  # negative indices wrap around
        load = loads.get(owner)
        if load is None:
            continue
        if first < 0:
            first = owner
        if load < bound:
            return owner, first
    return first, first


def session_place(tenant_id: str, session_id: str) -> int:
    """A session's place. The tenant is part of it: two tenants' sessions of one name are strangers."""
    return place(f"{tenant_id}\0{session_id}".encode("utf-8", "surrogatepass"))
