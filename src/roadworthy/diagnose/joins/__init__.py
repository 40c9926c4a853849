"""Clues that only several others together give."""

from __future__ import annotations

from roadworthy.diagnose.joins import (
    caches,
    engine,
    links,
    machines,
    memory,
    network,
    ranks,
    routing,
    scrapes,
    versions,
)

JOINS = (
    # what scrapes count comes first: the joins of links read it too
    *scrapes.JOINS, *links.JOINS, *network.JOINS, *memory.JOINS, *caches.JOINS, *engine.JOINS, *machines.JOINS,
    *versions.JOINS, *routing.JOINS, *ranks.JOINS,
)  # fmt: skip
