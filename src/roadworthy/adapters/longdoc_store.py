"""Documents, their units and vectors in one SQLite file; a document goes in whole or not at all."""

from __future__ import annotations

import hashlib
import io
import json
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy

from roadworthy.adapters.longdoc_vectors import ServedVectors, transaction
from roadworthy.core.errors import ProbeError
from roadworthy.longdoc.lexical import TermCounts
from roadworthy.longdoc.search import StoredUnit
from roadworthy.longdoc.values import Unit

if TYPE_CHECKING:
    from numpy.typing import NDArray

SCHEMA = """
CREATE TABLE IF NOT EXISTS document (
    id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, characters INTEGER NOT NULL,
    terms BLOB NOT NULL, about TEXT NOT NULL DEFAULT ''
);
CREATE TABLE IF NOT EXISTS unit (
    id INTEGER PRIMARY KEY, document INTEGER NOT NULL REFERENCES document(id) ON DELETE CASCADE, kind TEXT NOT NULL,
    number TEXT NOT NULL, label TEXT NOT NULL, title TEXT NOT NULL, path TEXT NOT NULL, text TEXT NOT NULL,
    char_start INTEGER NOT NULL, char_end INTEGER NOT NULL, page INTEGER, part INTEGER NOT NULL, vector BLOB
);
CREATE TABLE IF NOT EXISTS numbered (
    number TEXT NOT NULL, unit INTEGER NOT NULL REFERENCES unit(id) ON DELETE CASCADE, PRIMARY KEY (number, unit)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS numbered_unit ON numbered(unit);
CREATE TABLE IF NOT EXISTS embedding (
    id INTEGER PRIMARY KEY AUTOINCREMENT, model TEXT NOT NULL, url TEXT NOT NULL, dimension INTEGER NOT NULL,
    query_prefix TEXT NOT NULL, passage_prefix TEXT NOT NULL, active INTEGER NOT NULL,
    trust_chinese REAL NOT NULL DEFAULT 0, trust_other REAL NOT NULL DEFAULT 0
);
CREATE TABLE IF NOT EXISTS served (
    unit INTEGER NOT NULL REFERENCES unit(id) ON DELETE CASCADE,
    embedding INTEGER NOT NULL REFERENCES embedding(id) ON DELETE CASCADE, vector BLOB NOT NULL,
    PRIMARY KEY (unit, embedding)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS served_embedding ON served(embedding);
CREATE TABLE IF NOT EXISTS pending (
    document TEXT NOT NULL, key TEXT NOT NULL, vector BLOB NOT NULL, PRIMARY KEY (document, key)
) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS unit_document ON unit(document);
CREATE INDEX IF NOT EXISTS unit_number ON unit(number);
"""
FORMAT = 3
"""Of the tables; a file with another one is not touched, but for the one before, to which what is new is added."""

_FROM_2 = "ALTER TABLE document ADD COLUMN about TEXT NOT NULL DEFAULT ''"

FILE = "documents.sqlite"

MOST_ABOUT = 400
"""Characters of a document's beginning, in which its name stands."""

LOCK_WAIT_S = 60.0
"""Others may write at the same time: a document that goes in, a deletion that writes the file anew."""

_COLUMNS = (
    "unit.id, document.name, kind, number, label, title, path, text, char_start, char_end, page, part, document.about"
)
_MOST_VARIABLES = 500


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
            self._database = sqlite3.connect(home / FILE, isolation_level=None, timeout=LOCK_WAIT_S)
            self._database.execute("PRAGMA foreign_keys = ON")
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA secure_delete = ON")
            self._check_format(home)
            self._database.executescript(SCHEMA)
            if self._database.execute("PRAGMA user_version").fetchone()[0] != FORMAT:  # setting it waits for writers
                self._database.execute(f"PRAGMA user_version = {FORMAT}")
        except (OSError, sqlite3.Error) as error:
            raise ProbeError(f"{home / FILE}: {error}", hint="choose another folder with --home") from error

    def _check_format(self, home: Path) -> None:
        found = self._database.execute("PRAGMA user_version").fetchone()[0]
        filled = self._database.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        if filled and found == FORMAT - 1:
            self._database.execute(_FROM_2)
            self._database.execute(f"PRAGMA user_version = {FORMAT}")
        elif filled and found != FORMAT:
            raise ProbeError(
                f"{home / FILE}: format {found}, this version reads {FORMAT}",
                hint="remove the file and ingest the documents again, or choose another folder with --home",
            )

    @cached_property
    def served(self) -> ServedVectors:
        """Vectors of an embedding behind an endpoint, beside the bundled one's."""
        return ServedVectors(self._database)

    def close(self) -> None:
        self._database.close()

    def __enter__(self) -> DocumentStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def digest(self, name: str) -> str:
        """Of what is stored under ``name``; empty where nothing is."""
        row = self._database.execute("SELECT digest FROM document WHERE name = ?", (name,)).fetchone()
        return str(row[0]) if row else ""

    def vectors_by_text(self, name: str) -> dict[str, NDArray[numpy.float32]]:
        """Bundled vectors of what is stored under ``name``, by what was embedded: what a new version did not change."""
        rows = self._database.execute(
            "SELECT title, text, vector FROM unit JOIN document ON document.id = unit.document "
            "WHERE document.name = ? AND vector IS NOT NULL",
            (name,),
        )
        return {f"{title} {text}".strip(): numpy.frombuffer(blob, dtype="<f4") for title, text, blob in rows}

    def put(
        self,
        name: str,
        digest: str,
        characters: int,
        units: Sequence[Unit],
        terms: TermCounts,
        vectors: Iterable[NDArray[numpy.float32]] | None,
        *,
        served: Sequence[NDArray[numpy.float32]] | None = None,
        about: str = "",
    ) -> None:
        """Store a document, in place of one of the same name.

        Args:
            vectors: of the bundled embedding, one a unit.
            served: of the embedding that the library has behind an endpoint (``self.served.model()``).
            about: how the text begins, where a document says what it is called.
        """
        with transaction(self._database) as cursor:
            cursor.execute("DELETE FROM document WHERE name = ?", (name,))
            cursor.execute(
                "INSERT INTO document (name, digest, characters, terms, about) VALUES (?, ?, ?, ?, ?)",
                (name, digest, characters, _packed(terms), about[:MOST_ABOUT]),
            )
            document = cursor.lastrowid
            blobs: Iterator[bytes | None] = (
                iter([None] * len(units)) if vectors is None else (one.astype("<f4").tobytes() for one in vectors)
            )
            ids = []
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
                ids.append(int(cursor.lastrowid or 0))
                cursor.executemany(
                    "INSERT INTO numbered (number, unit) VALUES (?, ?)",
                    ((number, ids[-1]) for number in dict.fromkeys(unit.also) if number != unit.number),
                )
            if served is not None:
                self.served.put(cursor, ids, served)
            cursor.execute("DELETE FROM pending WHERE document = ?", (name,))

    def remove(self, name: str) -> bool:
        """Delete a document, its units and vectors; False when there is none of that name."""
        with transaction(self._database) as cursor:
            cursor.execute("DELETE FROM pending WHERE document = ?", (name,))
            return cursor.execute("DELETE FROM document WHERE name = ?", (name,)).rowcount > 0

    def documents(self) -> tuple[StoredDocument, ...]:
        rows = self._database.execute(
            "SELECT name, digest, characters, (SELECT count(*) FROM unit WHERE unit.document = document.id) "
            "FROM document ORDER BY name"
        )
        return tuple(
            StoredDocument(name=name, digest=digest, characters=size, units=units) for name, digest, size, units in rows
        )

    def state(self) -> str:
        """Names what is stored: the same again only while nothing was added, replaced or removed."""
        digest = hashlib.sha256()
        for row in self._database.execute("SELECT id, digest FROM document ORDER BY id"):
            digest.update(f"{row[0]} {row[1]}\n".encode())
        digest.update(self.served.state().encode())
        return digest.hexdigest()[:16]

    def by_ids(self, ids: Sequence[int]) -> list[StoredUnit]:
        """Units in the order of ``ids``; one that is gone is left out."""
        found: dict[int, StoredUnit] = {}
        for at in range(0, len(ids), _MOST_VARIABLES):
            some = ids[at : at + _MOST_VARIABLES]
            places = ", ".join("?" * len(some))
            found |= {one.id: one for one in self._units(f"unit.id IN ({places})", some)}
        return [found[one] for one in ids if one in found]

    def by_number(self, number: str) -> list[StoredUnit]:
        """Units of all documents with that canonical number."""
        if not number:
            return []
        return list(
            self._units("(number = ? OR unit.id IN (SELECT unit FROM numbered WHERE number = ?))", (number, number))
        )

    def of_document(self, name: str) -> list[StoredUnit]:
        """All units of a document, in the order of the text; empty when there is none of that name."""
        return sorted(self._units("document.name = ?", (name,)), key=lambda one: one.unit.char_start)

    def _units(self, where: str, values: Sequence[int | str]) -> Iterator[StoredUnit]:
        rows = self._database.execute(
            f"SELECT {_COLUMNS} FROM unit JOIN document ON document.id = unit.document WHERE {where} ORDER BY unit.id",
            tuple(values),
        )
        for row in rows:
            yield StoredUnit(
                id=row[0], document=row[1], about=row[12],
                unit=Unit(
                    kind=row[2], number=row[3], label=row[4], title=row[5], path=tuple(json.loads(row[6])), text=row[7],
                    char_start=row[8], char_end=row[9], page=row[10], part=row[11],
                ),
            )  # fmt: skip

    def term_counts(self) -> Iterator[TermCounts]:
        """Of every document, in the order of their ids, which is that of their units'."""
        for (blob,) in self._database.execute("SELECT terms FROM document ORDER BY id"):
            yield _unpacked(blob)

    def rows(self) -> Iterator[tuple[int, int, str, str, bytes | None]]:
        """Every unit as id, document, path, its text's start and vector, in the order of documents and within them."""
        yield from self._database.execute(
            "SELECT id, document, path, substr(text, 1, 200), vector FROM unit ORDER BY document, id"
        )


def _packed(terms: TermCounts) -> bytes:
    kept = io.BytesIO()
    numpy.savez_compressed(kept, terms=terms.terms, units=terms.units, times=terms.times, lengths=terms.lengths)
    return kept.getvalue()


def _unpacked(blob: bytes) -> TermCounts:
    with numpy.load(io.BytesIO(blob)) as kept:
        return TermCounts(terms=kept["terms"], units=kept["units"], times=kept["times"], lengths=kept["lengths"])
