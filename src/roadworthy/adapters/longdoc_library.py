"""One store of documents as who asks sees it: search, units by id, all units of a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_index import open_index
from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.longdoc.search import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.converse import Library
    from roadworthy.longdoc.search import Hit, StoredUnit

WIDER = 20
"""Times the limit that are looked at where only some documents are wanted."""


RERANKED = 48
"""Units that a reranker reads."""

RANK_CONSTANT = 10
MOST_READ = 6000
"""Characters of each."""


class StoreLibrary:
    """The documents of ``store``, or those of them that are named.

    Raises:
        SpecError: nothing is stored, or not what is named.
    """

    def __init__(self, store: DocumentStore, home: Path, documents: Sequence[str] = ()) -> None:
        stored = [one.name for one in store.documents()]
        if not stored:
            raise SpecError("nothing is stored yet", hint="roadworthy doc ingest FILE")
        self._store = store
        self._only = {_named(one, stored) for one in documents}
        self._searcher = Searcher(
            open_index(store, home), store, embeddings.embed_question if embeddings.available() else None
        )

    @property
    def documents(self) -> frozenset[str]:
        """Those that were named; empty for all."""
        return frozenset(self._only)

    def search(self, question: str, *, limit: int) -> Sequence[Hit]:
        if not self._only:
            return self._searcher.search(question, limit=limit)
        wider = self._searcher.search(question, limit=limit * WIDER)
        return [hit for hit in wider if hit.stored.document in self._only][:limit]

    def by_ids(self, ids: Sequence[int]) -> Sequence[StoredUnit]:
        found = self._store.by_ids(ids)
        return [one for one in found if one.document in self._only] if self._only else found

    def of_document(self, name: str) -> Sequence[StoredUnit]:
        return self._store.of_document(name)


class Reranked:
    """``library`` with its best units read by a reranker beside the question.

    Units that the question names by number stay first. The two orders are fused, the reranker's counting five times
    the other's, so that a weak one cannot throw out what was found. One that fails is told of once and left out.

    Args:
        scores: relevance of each text to a question, in order.
    """

    def __init__(
        self, library: Library, scores: Callable[[str, Sequence[str]], Sequence[float]], say: Callable[[str], None]
    ) -> None:
        self._library, self._say = library, say
        self._scores: Callable[[str, Sequence[str]], Sequence[float]] | None = scores
        self.by_ids, self.of_document = library.by_ids, library.of_document

    def search(self, question: str, *, limit: int) -> Sequence[Hit]:
        hits = list(self._library.search(question, limit=max(limit, RERANKED)))
        named = [hit for hit in hits if hit.named]
        rest = [hit for hit in hits if not hit.named]
        return [*named, *self._ordered(question, rest)][:limit]

    def _ordered(self, question: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        if self._scores is None or len(hits) < 2:
            return hits
        try:
            scores = self._scores(question, [_read(hit.stored) for hit in hits])
        except RoadworthyError as error:
            self._say(f"the reranker is left out: {error}")
            self._scores = None
            return hits
        places = sorted(range(len(hits)), key=lambda place: -scores[place])
        fused = {place: 5 / (RANK_CONSTANT + rank) + 1 / (RANK_CONSTANT + place) for rank, place in enumerate(places)}
        return [hits[place] for place in sorted(fused, key=lambda place: -fused[place])]


def _read(stored: StoredUnit) -> str:
    """A unit as a reranker reads it, with its headings, cut to what one can take in."""
    unit = stored.unit
    return "\n".join((" > ".join((*unit.path, unit.label, unit.title)), unit.text))[:MOST_READ]


def _named(wanted: str, stored: Sequence[str]) -> str:
    """The stored name that is ``wanted``, or ends in it where only one does."""
    if wanted in stored:
        return wanted
    ending = [one for one in stored if one.endswith("/" + wanted.lstrip("./"))]
    if len(ending) == 1:
        return ending[0]
    what = "is not in the store" if not ending else f"is {len(ending)} documents of the store"
    raise SpecError(f"{wanted!r} {what}", hint="`roadworthy doc list` shows their names")
