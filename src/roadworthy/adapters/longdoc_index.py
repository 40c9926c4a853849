"""The search index on disk: made once for what is stored, then mapped into memory by whoever asks.

It lies beside the store in a folder named after the store's state, so an index of another state is never read. Removing
a document removes every index that still holds it.
"""

from __future__ import annotations

import json
import shutil
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from roadworthy.core.errors import ProbeError
from roadworthy.longdoc.dense import DenseIndex, build_dense
from roadworthy.longdoc.lexical import LexicalIndex, build_lexical
from roadworthy.longdoc.naming import is_chinese
from roadworthy.longdoc.search import SearchIndex

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.adapters.longdoc_store import DocumentStore

PREFIX = "index-7-"
"""With the version of the format."""

_PLACES = ("ids", "documents", "beside", "chinese")
_LEXICAL = ("terms", "offsets", "units", "weights")
_DENSE = ("matrix", "present", "crowding", "projection", "reduced")


def open_index(store: DocumentStore, home: Path) -> SearchIndex:
    """The index of what is stored now; made first where there is none yet. Raises ProbeError where it cannot be."""
    folder = home / (PREFIX + store.state())
    try:
        if not folder.is_dir():
            _write(build_index(store), folder)
            drop_indexes(home, but=folder)
        return _read(folder)
    except (OSError, ValueError) as error:
        raise ProbeError(f"{folder}: {error}", hint="remove the folder; it is made again from the documents") from error


def drop_indexes(home: Path, *, but: Path | None = None) -> None:
    """Remove indexes; whoever has one mapped keeps it until it is closed."""
    for folder in home.glob("index-*"):
        if folder != but:
            shutil.rmtree(folder, ignore_errors=True)


def build_index(store: DocumentStore) -> SearchIndex:
    """The index of everything in ``store``, in memory."""
    ids: list[int] = []
    headings: list[tuple[int, str]] = []
    vectors: list[bytes | None] = []
    chinese: list[bool] = []
    for unit_id, document, path, start, vector in store.rows():
        ids.append(unit_id)
        chinese.append(is_chinese(start))
        headings.append((document, path))
        vectors.append(vector)
    served: list[bytes | None] = [None] * len(ids)
    place_of = {unit_id: place for place, unit_id in enumerate(ids)}
    for unit_id, vector in store.served.rows():
        served[place_of[unit_id]] = vector
    beside = [before == after for before, after in pairwise(headings)]
    return SearchIndex(
        ids=numpy.array(ids, dtype=numpy.int64), lexical=build_lexical(tuple(store.term_counts())),
        documents=numpy.unique([one[0] for one in headings], return_inverse=True)[1].astype(numpy.int64),
        beside=numpy.array(beside, dtype=numpy.bool_), chinese=numpy.array(chinese, dtype=numpy.bool_),
        dense=_dense(vectors), served=_dense(served),
        trust=store.served.trust(),
    )  # fmt: skip


def _dense(vectors: Sequence[bytes | None]) -> DenseIndex | None:
    """None where no unit has a vector."""
    numbers = max((len(one) // 4 for one in vectors if one), default=0)
    if not numbers:
        return None
    present = numpy.array([one is not None and len(one) == 4 * numbers for one in vectors])
    matrix = numpy.zeros((len(vectors), numbers), dtype=numpy.float32)
    for place, one in enumerate(vectors):
        if present[place] and one is not None:
            matrix[place] = numpy.frombuffer(one, dtype="<f4")
    return build_dense(matrix, present)


def _write(index: SearchIndex, folder: Path) -> None:
    """Whole or not at all: another process may be making the same one."""
    made = Path(tempfile.mkdtemp(prefix=".index-", dir=folder.parent))
    try:
        for name in _PLACES:
            numpy.save(made / f"{name}.npy", getattr(index, name))
        for name in _LEXICAL:
            numpy.save(made / f"{name}.npy", getattr(index.lexical, name))
        embeddings = {"bundled": index.dense, "served": index.served}
        for kind, dense in embeddings.items():
            for name in _DENSE if dense is not None else ():
                numpy.save(made / f"{kind}-{name}.npy", getattr(dense, name))
        about = {
            "units": len(index.ids), "trust": index.trust,
            "vectors": [kind for kind, dense in embeddings.items() if dense is not None],
        }  # fmt: skip
        (made / "about.json").write_text(json.dumps(about))
        with suppress(OSError):  # there already: the other process was quicker, and made the same
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _read(folder: Path) -> SearchIndex:
    about = json.loads((folder / "about.json").read_text())

    def mapped(name: str) -> numpy.ndarray[tuple[int, ...], numpy.dtype[numpy.generic]]:
        path = folder / f"{name}.npy"
        array = numpy.load(path, mmap_mode="r") if path.stat().st_size > 4096 else numpy.load(path)
        return numpy.asarray(array)

    def dense(kind: str) -> DenseIndex | None:
        if kind not in about["vectors"]:
            return None
        return DenseIndex(**{name: mapped(f"{kind}-{name}") for name in _DENSE})  # type: ignore[arg-type]

    return SearchIndex(
        **{name: mapped(name) for name in _PLACES},  # type: ignore[arg-type]
        lexical=LexicalIndex(**{name: mapped(name) for name in _LEXICAL}, size=about["units"]),  # type: ignore[arg-type]
        dense=dense("bundled"), served=dense("served"), trust=tuple(about["trust"]),
    )  # fmt: skip
