"""Documents, their units and vectors in one SQLite file; a document goes in whole or not at all."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from array import array
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.errors import ProbeError
from roadworthy.longdoc.search import StoredUnit
from roadworthy.longdoc.values import Unit

SCHEMA = """
CREATE TABLE IF NOT EXISTS document (
    id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, characters INTEGER NOT NULL
);
CREATE TABLE IF NOT EXISTS unit (
    id INTEGER PRIMARY KEY, document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE, kind TEXT NOT NULL,
    number TEXT NOT NULL, label TEXT NOT NULL, title TEXT NOT NULL, path TEXT NOT NULL, text TEXT NOT NULL,
    char_start INTEGER NOT NULL, char_end INTEGER NOT NULL, page INTEGER, part INTEGER NOT NULL, vector BLOB
);
CREATE INDEX IF NOT EXISTS unit_document ON unit(document);
"""
FILE = "documents.sqlite"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocument:
    """A document as it is listed."""

    name: str
    digest: str
    characters: int
    units: int


def digest_of(data: bytes, *, settings: str) -> str:
    """Content address: bytes and the settings that shaped the units."""
    return hashlib.sha256(settings.encode() + b"\0" + data).hexdigest()


class DocumentStore:
    """The store in ``home``; made when it is not there. Raises ProbeError when the file cannot be used."""

    def __init__(self, home: Path) -> None:
        try:
            home.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(home / FILE, isolation_level=None)
            self._database.execute("PRAGMA foreign_keys = ON")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA secure_delete = ON")
            self._database.executescript(SCHEMA)
        except (OSError, sqlite3.Error) as error:
            raise ProbeError(f"{home / FILE}: {error}", hint="choose another folder with --home") from error

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> DocumentStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _whole(self) -> Iterator[sqlite3.Cursor]:
        cursor = self._database.cursor()
        cursor.execute("BEGIN IMMEDIATE")
        try:
            yield cursor
        except BaseException:
            cursor.execute("ROLLBACK")
            raise
        cursor.execute("COMMIT")

    def has(self, name: str, digest: str) -> bool:
        """Whether exactly this content is stored under ``name``."""
        row = self._database.execute("SELECT digest FROM document WHERE name = ?", (name,)).fetchone()
        return row is not None and row[0] == digest

    def put(
        self, name: str, digest: str, characters: int, units: Sequence[Unit], vectors: Iterable[Sequence[float]] | None
    ) -> None:
        """Store a document, in place of one of the same name."""
        with self._whole() as cursor:
            cursor.execute("DELETE FROM document WHERE name = ?", (name,))
            cursor.execute(
                "INSERT INTO document (name, digest, characters) VALUES (?, ?, ?)", (name, digest, characters)
            )
            document = cursor.lastrowid
            blobs: Iterator[bytes | None] = (
                iter([None] * len(units)) if vectors is None else (array("f", one).tobytes() for one in vectors)
            )
            for unit, blob in zip(units, blobs, strict=True):
                cursor.execute(
                    "INSERT INTO unit (document, kind, number, label, title, path, text, char_start, char_end, page, "
                    "part, vector) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                    (
                        document, unit.kind, unit.number, unit.label, unit.title,
                        json.dumps(unit.path, ensure_ascii=False),
                        unit.text, unit.char_start, unit.char_end, unit.page, unit.part, blob,
                    ),
                )  # fmt: skip

    def remove(self, name: str) -> bool:
        """Delete a document, its units and vectors; False when there is none of that name."""
        with self._whole() as cursor:
            return cursor.execute("DELETE FROM document WHERE name = ?", (name,)).rowcount > 0

    def documents(self) -> tuple[StoredDocument, ...]:
        rows = self._database.execute(
            "SELECT name, digest, characters, (SELECT count(*) FROM unit WHERE unit.document = document.id) "
            "FROM document ORDER BY name"
        )
        return tuple(
            StoredDocument(name=name, digest=digest, characters=size, units=units) for name, digest, size, units in rows
        )

    def units(self) -> tuple[StoredUnit, ...]:
        """Every unit of every document."""
        rows = self._database.execute(
            "SELECT unit.id, document.name, kind, number, label, title, path, text, char_start, char_end, page, part "
            "FROM unit JOIN document ON document.id = unit.document ORDER BY unit.id"
        )
        return tuple(
            StoredUnit(
                id=row[0], document=row[1],
                unit=Unit(
                    kind=row[2], number=row[3], label=row[4], title=row[5], path=tuple(json.loads(row[6])), text=row[7],
                    char_start=row[8], char_end=row[9], page=row[10], part=row[11],
                ),
            )
            for row in rows
        )  # fmt: skip

    def vectors(self) -> dict[int, array[float]]:
        """Vectors by unit, of those that have one."""
        found: dict[int, array[float]] = {}
        for unit, blob in self._database.execute("SELECT id, vector FROM unit WHERE vector IS NOT NULL"):
            vector: array[float] = array("f")
            vector.frombytes(blob)
            found[unit] = vector
        return found
