"""One document into the store: read, split, counted, embedded, stored."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_read.read import read_document
from roadworthy.adapters.longdoc_store import digest_of
from roadworthy.longdoc.lexical import count_terms
from roadworthy.longdoc.pages import paged
from roadworthy.longdoc.split import split
from roadworthy.longdoc.tokens import count_tokens

__all__ = ["count_tokens", "ingest"]

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
    digest = digest_of(data, settings=f"2,{vectors}")
    if store.has(name, digest):
        return {"document": name, "outcome": "unchanged"}
    read = read_document(data, recognise=recognise, progress=_pages(progress))
    units, notes = split(read.text, count_tokens)
    units = paged(units, read.page_starts)
    if read.unread_pages:
        digest += ", in part"  # never taken for what is there already: with OCR installed, the rest can be had
    terms = count_terms(" ".join((*unit.path, unit.label, unit.title, unit.text)) for unit in units)
    # before the store is written to: embedding takes minutes, in which others would wait for it
    embedded = list(_vectors(units, progress)) if vectors else None
    store.put(name, digest, len(read.text), units, terms, embedded, page_starts=read.page_starts, about=read.text)
    return {
        "document": name, "outcome": "stored", "kind": read.kind, "pages": read.pages, "ocr_pages": read.ocr_pages,
        "unread_pages": read.unread_pages, "units": len(units), "vectors": vectors,
        "notes": [*read.notes, *(note.message for note in notes)],
    }  # fmt: skip


def _pages(progress: Progress | None) -> PagesDone | None:
    if progress is None:
        return None
    return lambda done, of: progress("pages", done, of)


def _vectors(units: Sequence[Unit], progress: Progress | None) -> Iterator[NDArray[numpy.float32]]:
    for number, vector in enumerate(embeddings.embed([f"{unit.title} {unit.text}".strip() for unit in units]), 1):
        if progress is not None:
            progress("units embedded", number, len(units))
        yield vector
