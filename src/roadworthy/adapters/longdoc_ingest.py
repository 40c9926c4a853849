"""One document into the store: read, split, counted, embedded, stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_embedder import embedded_text
from roadworthy.adapters.longdoc_parse import parse_bytes, settings_of

if TYPE_CHECKING:
    import numpy
    from numpy.typing import NDArray

    from roadworthy.adapters.longdoc_read.pdf import PagesDone, Recognise
    from roadworthy.adapters.longdoc_store import DocumentStore
    from roadworthy.longdoc.values import Unit

Progress = Callable[[str, int, int], None]
"""Hears of ``pages`` and of ``units embedded``, how many are done of how many."""


def ingest(
    store: DocumentStore,
    name: str,
    data: bytes,
    *,
    vectors: bool,
    recognise: Recognise | None = None,
    progress: Progress | None = None,
) -> dict[str, object]:
    """Store ``data`` under ``name``, unless it is there already; what came of it, as `doc ingest --json` tells.

    Args:
        vectors: embed it, where the embedding is installed.
        recognise: OCR, where there is one.

    Raises:
        UnreadableError: nothing can be had out of it.
    """
    vectors = vectors and embeddings.available()
    parsed = parse_bytes(
        data, settings=settings_of(vectors=vectors), stored=store.digest(name), recognise=recognise,
        progress=_pages(progress),
    )  # fmt: skip
    if parsed.outcome == "unchanged":
        return {"document": name, "outcome": "unchanged"}
    # before the store is written to: embedding takes minutes, in which others would wait for it
    embedded = list(_vectors(parsed.units, progress)) if vectors else None
    store.put(
        name, parsed.digest, parsed.characters, parsed.units, parsed.terms, embedded,
        about=parsed.about,
    )  # fmt: skip
    return {
        "document": name, "outcome": "stored", "kind": parsed.kind, "pages": parsed.pages,
        "ocr_pages": parsed.ocr_pages, "unread_pages": parsed.unread_pages, "units": len(parsed.units),
        "vectors": vectors, "notes": list(parsed.notes),
    }  # fmt: skip


def _pages(progress: Progress | None) -> PagesDone | None:
    if progress is None:
        return None
    return lambda done, of: progress("pages", done, of)


def _vectors(units: Sequence[Unit], progress: Progress | None) -> Iterator[NDArray[numpy.float32]]:
    for number, vector in enumerate(embeddings.embed([embedded_text(unit) for unit in units]), 1):
        if progress is not None:
            progress("units embedded", number, len(units))
        yield vector
