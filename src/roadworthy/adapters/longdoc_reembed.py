"""Vectors of an endpoint's model for a whole library: made anew batch by batch, searched once all are there, and judged
by questions whose answers are known."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_embedder import TEXTS_AT_ONCE, embedded_text
from roadworthy.adapters.longdoc_index import build_index, drop_indexes
from roadworthy.adapters.longdoc_trust import PROBES, sample, trust_in

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.adapters.longdoc_embedder import Floats, Served
    from roadworthy.adapters.longdoc_store import DocumentStore


def reembed(store: DocumentStore, home: Path, served: Served, progress: Callable[[int, int], None]) -> int:
    """Give every unit a vector of ``served``; how many were made.

    What was made stays when the endpoint fails, and the next run goes on behind it. Search keeps to the vectors that
    were there until the last one is made.
    """
    embedding = store.served.begin(served.model)
    served.dimension = store.served.dimension(embedding)
    missing = store.served.missing(embedding)
    done = 0
    for at in range(0, len(missing), TEXTS_AT_ONCE):
        units = store.by_ids(missing[at : at + TEXTS_AT_ONCE])
        vectors = list(served.passages([embedded_text(one.unit) for one in units]))
        if units:
            store.served.keep(embedding, [one.id for one in units], vectors)
        done += len(units)
        progress(done, len(missing))
    store.served.activate(embedding)
    drop_indexes(home)
    judge(store, served)
    return done


def judge(store: DocumentStore, served: Served) -> tuple[float, float] | None:
    """Set how far the library trusts ``served`` beside the bundled embedding; None where it has no vectors of it."""
    index = build_index(store)
    if index.served is None:
        return None
    bundled = index.dense if embeddings.available() else None
    both = numpy.flatnonzero(index.served.present & (True if bundled is None else bundled.present))
    places: list[int] = []
    for language in (index.chinese[both], ~index.chinese[both]):
        places += sample([int(one) for one in both[language]], 2 * PROBES)
    units = store.by_ids([int(index.ids[place]) for place in places])

    def ask_served(questions: Sequence[str]) -> Sequence[Floats]:
        return list(served.questions(questions))

    trust = trust_in(index.served, bundled, places, units, ask_served, embeddings.embed_question)
    store.served.set_trust(*trust)
    return trust
