"""One tenant's folder: its documents' records, its jobs, its files; nothing of it is reached by a name from outside.

::

    TENANT/  tenant.json
             documents/ID.json   what is known of each document
             jobs/ID.json        of each job; ID.result.json what a comparison found
             sources/ID          as it was uploaded
             work/...            uploads in progress, pages recognised by a job; goes with them
             store/...           units, vectors, indexes, results clause by clause (``longdoc_store`` and its like)
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.library import refusals
from roadworthy.adapters.library.records import ENDED, DocumentRecord, JobRecord, keep, kept

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.adapters.library.records import JobKind

MOST_JOBS = 1000
"""Kept of those that have ended."""

_FOLDERS = ("documents", "jobs", "sources", "work")


def folder_of(home: Path, tenant: str) -> Path:
    """A tenant's folder: readable where the id allows, and of its own whatever the id holds."""
    readable = re.sub(r"[^a-z0-9]+", "-", tenant.lower())[:40].strip("-")
    digest = hashlib.sha256(tenant.encode("utf-8", "surrogatepass")).hexdigest()[:20]
    return home / "tenants" / (f"{readable}-{digest}" if readable else digest)


class Shelf:
    """One tenant's documents and jobs. ``lock`` guards the records; hold it briefly."""

    def __init__(self, folder: Path, tenant: str) -> None:
        self.folder, self.tenant = folder, tenant
        self.lock = threading.RLock()
        for name in _FOLDERS:
            (folder / name).mkdir(mode=0o700, parents=True, exist_ok=True)
        if not (folder / "tenant.json").exists():
            write_atomically(folder / "tenant.json", json.dumps({"id": tenant}), mode=0o600)
        self.documents = kept(folder / "documents", DocumentRecord)
        self.jobs = kept(folder / "jobs", JobRecord)
        self.arriving_bytes = 0  # of uploads in progress

    @classmethod
    def at(cls, folder: Path) -> Shelf | None:
        """What lies in ``folder``; None where that is no tenant's."""
        try:
            return cls(folder, str(json.loads((folder / "tenant.json").read_text())["id"]))
        except (OSError, ValueError, KeyError, TypeError):
            return None

    @property
    def store(self) -> Path:
        return self.folder / "store"

    def source(self, document: str) -> Path:
        return self.folder / "sources" / document

    def work(self, name: str) -> Path:
        return self.folder / "work" / name

    def result(self, job: str) -> Path:
        return self.folder / "jobs" / f"{job}.result.json"

    @property
    def stored_bytes(self) -> int:
        """As the documents were uploaded. Any thread may ask, so that what is walked over is a copy."""
        return sum(one.size_bytes for one in tuple(self.documents.values()))

    # records

    def document(self, document: str) -> DocumentRecord:
        """Raises Refused for one that is not this tenant's, or is being deleted."""
        found = self.documents.get(document)
        if found is None or found.status == "deleting":
            raise refusals.no_document(document)
        return found

    def job(self, job: str) -> JobRecord:
        found = self.jobs.get(job)
        if found is None:
            raise refusals.no_job(job)
        return found

    def keep_document(self, record: DocumentRecord) -> None:
        with self.lock:
            keep(self.folder / "documents", record)
            self.documents[record.id] = record

    def keep_job(self, record: JobRecord) -> None:
        with self.lock:
            keep(self.folder / "jobs", record)
            self.jobs[record.id] = record

    def new_job(
        self, kind: JobKind, document: str, now_s: float, request: Mapping[str, object] | None = None
    ) -> JobRecord:
        job = JobRecord(
            id=f"job_{secrets.token_hex(12)}",
            kind=kind,
            document=document,
            created_s=now_s,
            request=dict(request or {}),
        )
        with self.lock:
            self.keep_job(job)
            ended = sorted((one for one in self.jobs.values() if one.status in ENDED), key=lambda one: one.created_s)
            for one in ended[: max(0, len(ended) - MOST_JOBS)]:
                self.drop_job(one.id)
        return job

    def drop_job(self, job: str) -> None:
        with self.lock:
            self.result(job).unlink(missing_ok=True)
            shutil.rmtree(self.work(job), ignore_errors=True)
            (self.folder / "jobs" / f"{job}.json").unlink(missing_ok=True)
            self.jobs.pop(job, None)

    def drop_document(self, document: str) -> None:
        """Its record, last of all."""
        with self.lock:
            (self.folder / "documents" / f"{document}.json").unlink(missing_ok=True)
            self.documents.pop(document, None)

    def jobs_of(self, document: str) -> Iterator[JobRecord]:
        return (one for one in tuple(self.jobs.values()) if one.document == document)

    # after a stop, however it came

    def sweep(self) -> None:
        """Remove what nobody owns: halves of files, uploads that broke off, sources without a record."""
        for half in self.folder.rglob(".*.part"):
            half.unlink(missing_ok=True)
        for half in self.store.glob(".index-*"):
            shutil.rmtree(half, ignore_errors=True)
        for place in (self.folder / "work").iterdir():
            job = self.jobs.get(place.name)
            if job is not None and job.status not in ENDED:
                continue
            shutil.rmtree(place, ignore_errors=True) if place.is_dir() else place.unlink(missing_ok=True)
        for source in (self.folder / "sources").iterdir():
            if source.name not in self.documents:
                source.unlink(missing_ok=True)
