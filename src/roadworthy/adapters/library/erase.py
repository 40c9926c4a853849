"""Deletion that leaves nothing: not in the store's file, nor its log, nor an index, nor a temporary file."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from typing import TYPE_CHECKING

from roadworthy.adapters.longdoc_index import drop_indexes
from roadworthy.adapters.longdoc_job import drop_jobs
from roadworthy.adapters.longdoc_store import FILE, DocumentStore
from roadworthy.core.errors import Temporary

if TYPE_CHECKING:
    from pathlib import Path

    from roadworthy.adapters.library.records import DocumentRecord
    from roadworthy.adapters.library.shelf import Shelf

WITHIN_S = 60.0
"""How long readers of the store may keep its log from being cut."""


def erase(shelf: Shelf, record: DocumentRecord) -> None:
    """Everything of ``record``; its own file last, so that a stop in between is taken up again.

    Raises:
        Temporary: somebody reads the store for longer than ``WITHIN_S``. ProbeError: it cannot be written.
    """
    if (shelf.store / FILE).exists():
        with DocumentStore(shelf.store) as store:
            store.remove(record.stored_name)
        drop_indexes(shelf.store)
        drop_jobs(shelf.store, record.stored_name)
        scrub(shelf.store)
    shelf.source(record.id).unlink(missing_ok=True)
    for job in shelf.jobs_of(record.id):
        shelf.drop_job(job.id)
    shelf.drop_document(record.id)


def scrub(home: Path) -> None:
    """Write the store in ``home`` anew without what was deleted, and cut its log.

    ``secure_delete`` zeroes what is freed. Cells that moved between pages before leave copies behind in the pages that
    they left, which only a new file is rid of; and the log holds pages as they were until it is cut.
    """
    with closing(sqlite3.connect(home / FILE, isolation_level=None, timeout=WITHIN_S)) as database:
        database.execute("VACUUM")
        blocked = database.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]  # waits for readers, that long
    if blocked:
        raise Temporary("the store is being read all the time", hint="delete it again")
