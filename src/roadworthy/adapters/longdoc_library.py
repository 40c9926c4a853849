"""One store of documents as who asks sees it: search, units by id, all units of a document."""

from __future__ import annotations

import os
import statistics
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_embedder import REEMBED, Served
from roadworthy.adapters.longdoc_index import open_index
from roadworthy.adapters.longdoc_model import KEY_VARIABLE, ModelClient
from roadworthy.adapters.longdoc_trust import RERANK_PROBES, RERANK_TEXTS, probe_of, sample, trust_in_reranker
from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.longdoc.converse import TooLong
from roadworthy.longdoc.search import Searcher

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from roadworthy.adapters.longdoc_embedder import Floats
    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.converse import Library
    from roadworthy.longdoc.search import Hit, StoredUnit

WIDER = 20
"""Times the limit that are looked at where only some documents are wanted."""

RERANKED = 48
"""Units that a reranker reads."""

RERANK_WEIGHT = 1.0
"""Of a trusted reranker's standardised score beside that of the search."""

FARTHEST = 2.5
"""Spreads that a reranker's score counts at most, up or down."""

MOST_READ, LEAST_READ = 6000, 200
"""Characters of each."""


def searcher_of(
    store: DocumentStore, home: Path, *, served: Served | None = None, say: Callable[[str], None] = lambda _: None
) -> Searcher:
    """Search over ``store`` with every embedding that its vectors are of.

    Args:
        served: asked for questions' vectors; None asks where the library's vectors came from.
        say: hears, once, when that endpoint is left out because it does not answer.

    Raises, also from its searches:
        SpecError: ``served`` is another embedding than the one that made the library's vectors.
    """
    known = store.served.model()
    if served is not None and (known is None or known.identity != served.model.identity):
        made = "has none of an endpoint" if known is None else f"are of {known.model}"
        raise SpecError(f"the library's vectors {made}, not of {served.model.model}", hint=REEMBED)
    ask = served
    if ask is None and known is not None and known.url:
        ask = Served(ModelClient(known.url, model=known.model, key=os.environ.get(KEY_VARIABLE)), known)
    return Searcher(
        open_index(store, home), store, embeddings.embed_question if embeddings.available() else None,
        _Leniently(ask, say) if ask is not None else None,
    )  # fmt: skip


class _Leniently:
    """A question's vector, or None from the first failure on: a search without it is better than none."""

    def __init__(self, served: Served, say: Callable[[str], None]) -> None:
        self._served: Served | None = served
        self._say = say

    def __call__(self, question: str) -> Floats | None:
        if self._served is None:
            return None
        try:
            return self._served.question(question)
        except SpecError:
            raise
        except RoadworthyError as error:
            self._say(f"searching without {self._served.model.model}: {error}")
            self._served = None
            return None


class StoreLibrary:
    """The documents of ``store``, or those of them that are named.

    Args:
        served: the embedding behind an endpoint; None takes the one that the library's vectors are of.
        say: hears when that one is left out.

    Raises:
        SpecError: nothing is stored, or not what is named.
    """

    def __init__(
        self,
        store: DocumentStore,
        home: Path,
        documents: Sequence[str] = (),
        *,
        served: Served | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        stored = [one.name for one in store.documents()]
        if not stored:
            raise SpecError("nothing is stored yet", hint="roadworthy doc ingest FILE")
        self._store = store
        self._only = {_named(one, stored) for one in documents}
        self._searcher = searcher_of(store, home, served=served, say=say)

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

    Units that the question names by number stay first. The reranker's scores are standardised, bounded and added to
    those of the search, as far as it is trusted: with the first question it is asked for units whose own sentences are
    known, and one that does not find them counts nothing. One that fails is told of once and left out.

    Args:
        scores: relevance of each text to a question, in order.
    """

    def __init__(
        self, library: Library, scores: Callable[[str, Sequence[str]], Sequence[float]], say: Callable[[str], None]
    ) -> None:
        self._library, self._say = library, say
        self._scores: Callable[[str, Sequence[str]], Sequence[float]] | None = scores
        self._trust: float | None = None
        self._most_read = MOST_READ
        self.by_ids, self.of_document = library.by_ids, library.of_document

    def search(self, question: str, *, limit: int) -> Sequence[Hit]:
        hits = list(self._library.search(question, limit=max(limit, RERANKED)))
        named = [hit for hit in hits if hit.named]
        rest = [hit for hit in hits if not hit.named]
        return [*named, *self._ordered(question, rest)][:limit]

    def _ordered(self, question: str, hits: Sequence[Hit]) -> Sequence[Hit]:
        if self._scores is None or len(hits) < 2:
            return hits
        read, rest = hits[:RERANKED], hits[RERANKED:]
        try:
            if self._trust is None:
                self._trust = self._judged(read)
            if self._trust == 0:
                return hits
            scores = self._fitting(question, [_read(hit.stored) for hit in read])
        except RoadworthyError as error:
            self._say(f"the reranker is left out: {error}")
            self._scores = None
            return hits
        theirs = _spread(scores)
        ours = _spread([hit.score for hit in read])
        weight = RERANK_WEIGHT * self._trust
        joined = [one + weight * max(-FARTHEST, min(FARTHEST, other)) for one, other in zip(ours, theirs, strict=True)]
        order = sorted(range(len(read)), key=lambda place: -joined[place])
        # scores go down the list, as everywhere: each place keeps the score that stood there
        return [*(replace(read[one], score=read[place].score) for place, one in enumerate(order)), *rest]

    def _fitting(self, question: str, texts: Sequence[str]) -> Sequence[float]:
        """Scores of as much of each text as the reranker takes in, which it only says by refusing more."""
        assert self._scores is not None
        while True:
            try:
                return self._scores(question, [text[: self._most_read] for text in texts])
            except TooLong:
                if self._most_read <= LEAST_READ:
                    raise
                self._most_read //= 2

    def _judged(self, hits: Sequence[Hit]) -> float:
        """How far the reranker is trusted, by what it says of units that were found."""
        probes: list[tuple[str, Sequence[str], int]] = []
        for place in sample(range(len(hits)), RERANK_PROBES):
            wanted = probe_of(hits[place].stored)
            others = [hits[(place + step) % len(hits)] for step in range(1, min(RERANK_TEXTS, len(hits)))]
            if wanted:
                answer = len(probes) % (len(others) + 1)
                texts = [_read(one.stored) for one in others]
                texts.insert(answer, _read(hits[place].stored))
                probes.append((wanted, texts, answer))
        trust = trust_in_reranker(probes, self._fitting)
        if trust < 1:
            counts = "does not count" if trust == 0 else f"counts {trust:.0%}"
            self._say(f"the reranker {counts}: it is not sure to find a unit by its own sentence")
        return trust


def _spread(scores: Sequence[float]) -> list[float]:
    """Zero mean and unit spread; zeros where all are alike."""
    mean, spread = statistics.fmean(scores), statistics.pstdev(scores)
    return [(one - mean) / spread if spread > 1e-9 else 0.0 for one in scores]


def _read(stored: StoredUnit) -> str:
    """A unit as a reranker reads it, with its headings, cut to what one can take in."""
    unit = stored.unit
    return "\n".join((" > ".join((*unit.path, unit.label, unit.title)), unit.text))


def _named(wanted: str, stored: Sequence[str]) -> str:
    """The stored name that is ``wanted``, or ends in it where only one does."""
    if wanted in stored:
        return wanted
    ending = [one for one in stored if one.endswith("/" + wanted.lstrip("./"))]
    if len(ending) == 1:
        return ending[0]
    what = "is not in the store" if not ending else f"is {len(ending)} documents of the store"
    raise SpecError(f"{wanted!r} {what}", hint="`roadworthy doc list` shows their names")
