"""One store of documents as who asks sees it: search, units by id, all units of a document."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_index import open_index
from roadworthy.core.errors import SpecError
from roadworthy.longdoc.search import Searcher

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.search import Hit, StoredUnit

WIDER = 20
"""Times the limit that are looked at where only some documents are wanted."""


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


def _named(wanted: str, stored: Sequence[str]) -> str:
    """The stored name that is ``wanted``, or ends in it where only one does."""
    if wanted in stored:
        return wanted
    ending = [one for one in stored if one.endswith("/" + wanted.lstrip("./"))]
    if len(ending) == 1:
        return ending[0]
    what = "is not in the store" if not ending else f"is {len(ending)} documents of the store"
    raise SpecError(f"{wanted!r} {what}", hint="`roadworthy doc list` shows their names")
