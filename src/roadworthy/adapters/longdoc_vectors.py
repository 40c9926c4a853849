"""Vectors of an embedding behind an endpoint, as the store keeps them: which model made them, how far it is trusted,
and those of documents that are not stored whole yet."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy

from roadworthy.adapters.longdoc_embedder import REEMBED, ServedModel
from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from roadworthy.adapters.longdoc_embedder import Floats

_MODEL = "id, model, url, dimension, query_prefix, passage_prefix"


@contextmanager
def transaction(database: sqlite3.Connection) -> Iterator[sqlite3.Cursor]:
    """All of the block's changes, or none."""
    cursor = database.cursor()
    cursor.execute("BEGIN IMMEDIATE")
    try:
        yield cursor
    except BaseException:
        cursor.execute("ROLLBACK")
        raise
    cursor.execute("COMMIT")


class ServedVectors:
    """What one store has of them. At most one model's are searched; another's are being made while it is not."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def model(self) -> ServedModel | None:
        """Whose vectors are searched; None where the library has none."""
        row = self._active()
        return _model(row) if row else None

    def trust(self) -> tuple[float, float]:
        """Share beside the bundled embedding, for Chinese and for other questions."""
        row = self._database.execute("SELECT trust_chinese, trust_other FROM embedding WHERE active = 1").fetchone()
        return (float(row[0]), float(row[1])) if row else (0.0, 0.0)

    def state(self) -> str:
        """Changes whenever a search could find otherwise."""
        row = self._database.execute(
            "SELECT id, trust_chinese, trust_other, (SELECT count(*) FROM served WHERE embedding = embedding.id) "
            "FROM embedding WHERE active = 1"
        ).fetchone()
        return repr(tuple(row)) if row else ""

    def use(self, model: ServedModel) -> None:
        """Vectors of ``model`` are to come with documents. Raises SpecError where the library has another's."""
        known = self.model()
        if known is None:
            self._add(model, active=True)
        elif known.identity != model.identity:
            raise SpecError(
                f"the library's vectors are of {_called(known)}, not of {_called(model)}",
                hint=f"{REEMBED}; or choose another library with --home",
            )
        elif model.url and model.url != known.url:
            self._database.execute("UPDATE embedding SET url = ? WHERE active = 1", (model.url,))

    def put(self, cursor: sqlite3.Cursor, ids: Sequence[int], vectors: Sequence[Floats]) -> None:
        """Vectors of new units, within the caller's transaction."""
        row = self._active()
        if row is None or not vectors:
            return
        self._set_dimension(cursor, int(row[0]), int(row[3]), len(vectors[0]))
        cursor.executemany(
            "INSERT OR REPLACE INTO served (unit, embedding, vector) VALUES (?, ?, ?)",
            ((unit, row[0], one.astype("<f4").tobytes()) for unit, one in zip(ids, vectors, strict=True)),
        )

    def begin(self, model: ServedModel) -> int:
        """The id under which ``model``'s vectors are made, of this run or of one that was broken off."""
        rows = self._database.execute(f"SELECT {_MODEL} FROM embedding ORDER BY active DESC").fetchall()
        for row in rows:
            if _model(row).identity == model.identity:
                self._database.execute("UPDATE embedding SET url = ? WHERE id = ?", (model.url, row[0]))
                return int(row[0])
        return self._add(model, active=False)

    def missing(self, embedding: int) -> list[int]:
        """Units without a vector of it, in their order."""
        return [
            int(row[0])
            for row in self._database.execute(
                "SELECT id FROM unit WHERE id NOT IN (SELECT unit FROM served WHERE embedding = ?) ORDER BY id",
                (embedding,),
            )
        ]

    def dimension(self, embedding: int) -> int:
        row = self._database.execute("SELECT dimension FROM embedding WHERE id = ?", (embedding,)).fetchone()
        return int(row[0]) if row else 0

    def keep(self, embedding: int, ids: Sequence[int], vectors: Sequence[Floats]) -> None:
        """Some vectors, on disk when this returns. A unit that was removed meanwhile is left out."""
        with transaction(self._database) as cursor:
            self._set_dimension(cursor, embedding, self.dimension(embedding), len(vectors[0]))
            cursor.executemany(
                "INSERT OR REPLACE INTO served (unit, embedding, vector) SELECT id, ?, ? FROM unit WHERE id = ?",
                ((embedding, one.astype("<f4").tobytes(), unit) for unit, one in zip(ids, vectors, strict=True)),
            )

    def activate(self, embedding: int) -> None:
        """From now on its vectors are searched; every other model's are deleted."""
        self._database.execute("DELETE FROM embedding WHERE id <> ?", (embedding,))
        self._database.execute("UPDATE embedding SET active = 1 WHERE id = ?", (embedding,))

    def drop(self) -> bool:
        """Delete all of them; False where there were none."""
        return self._database.execute("DELETE FROM embedding").rowcount > 0

    def set_trust(self, chinese: float, other: float) -> None:
        self._database.execute(
            "UPDATE embedding SET trust_chinese = ?, trust_other = ? WHERE active = 1", (chinese, other)
        )

    def rows(self) -> Iterator[tuple[int, bytes]]:
        """Unit and vector of all that are searched, by unit."""
        yield from self._database.execute(
            "SELECT unit, vector FROM served "
            "WHERE embedding = (SELECT id FROM embedding WHERE active = 1) ORDER BY unit"
        )

    def pending(self, document: str) -> Mapping[str, NDArray[numpy.float32]]:
        """Vectors by key that were made for ``document`` before a run was broken off."""
        rows = self._database.execute("SELECT key, vector FROM pending WHERE document = ?", (document,))
        return {key: numpy.frombuffer(blob, dtype="<f4") for key, blob in rows}

    def keep_pending(self, document: str, vectors: Mapping[str, NDArray[numpy.float32]]) -> None:
        """Keep some until the document is stored whole, which deletes them."""
        with transaction(self._database) as cursor:
            cursor.executemany(
                "INSERT OR REPLACE INTO pending (document, key, vector) VALUES (?, ?, ?)",
                ((document, key, one.astype("<f4").tobytes()) for key, one in vectors.items()),
            )

    def _active(self) -> tuple[int, str, str, int, str, str] | None:
        row: tuple[int, str, str, int, str, str] | None = self._database.execute(
            f"SELECT {_MODEL} FROM embedding WHERE active = 1"
        ).fetchone()
        return row

    def _add(self, model: ServedModel, *, active: bool) -> int:
        cursor = self._database.execute(
            "INSERT INTO embedding (model, url, dimension, query_prefix, passage_prefix, active) "
            "VALUES (?, ?, ?, ?, ?, ?)",
            (model.model, model.url, model.dimension, model.query_prefix, model.passage_prefix, int(active)),
        )
        return int(cursor.lastrowid or 0)

    def _set_dimension(self, cursor: sqlite3.Cursor, embedding: int, known: int, found: int) -> None:
        if known and known != found:
            raise SpecError(f"vectors of {found} numbers, the library's have {known}", hint=REEMBED)
        cursor.execute("UPDATE embedding SET dimension = ? WHERE id = ?", (found, embedding))


def _model(row: tuple[int, str, str, int, str, str]) -> ServedModel:
    return ServedModel(model=row[1], url=row[2], dimension=row[3], query_prefix=row[4], passage_prefix=row[5])


def _called(model: ServedModel) -> str:
    prefixes = ", ".join(f"{one!r}" for one in (model.query_prefix, model.passage_prefix) if one)
    size = f"{model.dimension} numbers" if model.dimension else ""
    about = "; ".join(filter(None, (size, f"prefixes {prefixes}" if prefixes else "")))
    return f"{model.model} ({about})" if about else model.model
