"""All tenants' collections: what the documents' process does, without the words of HTTP.

Every call names the tenant, and reaches that tenant's shelf and nothing else; ids are looked up on the shelf, never
made into paths. Calls block for the disk: whoever has a loop calls them on threads.
"""

from __future__ import annotations

import fcntl
import json
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.library import asking, refusals
from roadworthy.adapters.library.comparing import Comparing
from roadworthy.adapters.library.erase import erase
from roadworthy.adapters.library.reading import COMMAND, Reading
from roadworthy.adapters.library.records import ENDED, DocumentRecord, JobRecord
from roadworthy.adapters.library.shelf import Shelf, folder_of
from roadworthy.adapters.library.uploads import Upload
from roadworthy.core.errors import ProbeError, Refused, RoadworthyError, SpecError
from roadworthy.longdoc.playbook import parse_playbook

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.spec.gateway_values import DocumentsSpec


class Library:
    """The collections under ``spec.home``.

    Args:
        gateway_url: of the data port.
        say: words for the operator.
        now_s: seconds of the epoch.
        reader: starts the process that reads one document.

    Raises:
        ProbeError: the home cannot be used, or another process serves it.
    """

    def __init__(
        self,
        spec: DocumentsSpec,
        *,
        gateway_url: str,
        say: Callable[[str], None] = lambda _: None,
        now_s: Callable[[], float] = time.time,
        reader: Sequence[str] = COMMAND,
    ) -> None:
        assert spec.home is not None
        self._spec, self._url, self._say, self._now_s = spec, gateway_url, say, now_s
        self._home = Path(spec.home)
        self._shelves: dict[str, Shelf] = {}
        self._lock = threading.Lock()
        self._claim()
        self._reading = Reading(spec.readers, spec.reader_memory_bytes, now_s=now_s, command=reader, say=say)
        self._comparing = Comparing(gateway_url, now_s=now_s)
        self._take_up()

    def _claim(self) -> None:
        try:
            self._home.mkdir(mode=0o700, parents=True, exist_ok=True)
            (self._home / "tenants").mkdir(mode=0o700, exist_ok=True)
            self._claimed = (self._home / "lock").open("a")
            fcntl.flock(self._claimed, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._claimed.close()
            raise ProbeError(
                f"{self._home}: another process serves these documents", hint="give each gateway a home of its own"
            ) from None
        except OSError as error:
            raise ProbeError(f"{self._home}: {error.strerror or error}", hint="see gateway.documents.home") from None

    def _take_up(self) -> None:
        """Go on with what a process before this one left."""
        for folder in (self._home / "tenants").iterdir():
            shelf = Shelf.at(folder)
            if shelf is None:
                continue
            self._shelves[shelf.tenant] = shelf
            shelf.sweep()
            waiting: set[str] = set()  # kept here: a reader may be at the first before the last is looked at
            for job in sorted(shelf.jobs.values(), key=lambda one: one.created_s):
                if job.status not in ("queued", "running"):
                    continue
                if job.kind == "ingest":
                    job.status = "queued"
                    waiting.add(job.document)
                    self._reading.add(shelf, job)
                else:
                    job.status = "interrupted"
                    shelf.keep_job(job)
            for document in list(shelf.documents.values()):
                if document.status == "deleting":
                    try:
                        self._erase(shelf, document)
                    except Refused as refused:
                        self._say(f"documents of {shelf.tenant}: {document.id} is not deleted yet: {refused}")
                elif document.status in ("queued", "reading") and document.id not in waiting:
                    self._queue(shelf, document)

    def close(self) -> None:
        """Stop; unfinished work is taken up at the next start."""
        self._reading.close()
        self._comparing.close()
        self._claimed.close()

    # documents

    def upload(self, tenant: str) -> Upload:
        """Begin to take a document in. Raises Refused where there is no room for one."""
        return Upload(self._shelf(tenant), self._spec)

    def stored(self, tenant: str, upload: Upload, name: str, *, vectors: bool) -> dict[str, Any]:
        """The whole of ``upload`` as a document, and the job that reads it where that is still to be done."""
        shelf = self._shelf(tenant)
        record, new = upload.whole(name, vectors=vectors, now_s=self._now_s())
        job = self._queue(shelf, record) if new else None
        return {"document": shown_document(record), "job": self._shown_job(shelf, job) if job is not None else None}

    def documents(self, tenant: str, *, limit: int, after: str | None) -> dict[str, Any]:
        """The latest first, from the one behind ``after`` on."""
        shelf = self._shelf(tenant)
        records = sorted(
            (one for one in tuple(shelf.documents.values()) if one.status != "deleting"),
            key=lambda one: (-one.uploaded_s, one.id),
        )
        start = 0
        if after is not None:
            start = 1 + records.index(shelf.document(after))
        page = records[start : start + limit]
        return {
            "documents": [shown_document(one) for one in page], "has_more": start + limit < len(records),
            "stored_bytes": shelf.stored_bytes, "max_stored_bytes": self._spec.max_stored_bytes,
            "max_documents": self._spec.max_documents,
        }  # fmt: skip

    def document(self, tenant: str, document: str) -> dict[str, Any]:
        return shown_document(self._shelf(tenant).document(document))

    def source(self, tenant: str, document: str) -> tuple[Path, str]:
        """Where the file as it was uploaded lies, and its name."""
        shelf = self._shelf(tenant)
        record = shelf.document(document)
        return shelf.source(record.id), record.name

    def delete(self, tenant: str, document: str) -> dict[str, Any]:
        """Gone when this returns: file, text, vectors, index, jobs and their results."""
        shelf = self._shelf(tenant)
        with shelf.lock:
            record = shelf.documents.get(document)
            if record is None:
                raise refusals.no_document(document)
            record.status = "deleting"
            shelf.keep_document(record)
        self._erase(shelf, record)
        return {"id": record.id, "deleted": True}

    def _erase(self, shelf: Shelf, record: DocumentRecord) -> None:
        for job in shelf.jobs_of(record.id):
            if job.status not in ENDED:
                self._stop(shelf, job)
        try:
            erase(shelf, record)
        except (RoadworthyError, OSError, sqlite3.Error) as error:  # its status stays: whoever deletes it again, or the
            self._say(f"documents of {shelf.tenant}: {record.id}: {error}")  # next start, goes on where this stopped
            raise refusals.StoreError(str(error)) from None

    def _queue(self, shelf: Shelf, record: DocumentRecord) -> JobRecord:
        job = shelf.new_job("ingest", record.id, self._now_s())
        self._reading.add(shelf, job)
        return job

    # jobs

    def jobs(self, tenant: str) -> dict[str, Any]:
        shelf = self._shelf(tenant)
        with shelf.lock:
            jobs = sorted(shelf.jobs.values(), key=lambda one: (-one.created_s, one.id))
        return {"jobs": [self._shown_job(shelf, one) for one in jobs]}

    def job(self, tenant: str, job: str) -> dict[str, Any]:
        shelf = self._shelf(tenant)
        return self._shown_job(shelf, shelf.job(job))

    def cancel(self, tenant: str, job: str) -> dict[str, Any]:
        shelf = self._shelf(tenant)
        found = shelf.job(job)
        if found.status in ENDED:
            raise refusals.wrong_state(job, found.status, "one that has not ended")
        self._stop(shelf, found)
        return self._shown_job(shelf, found)

    def _stop(self, shelf: Shelf, job: JobRecord) -> None:
        if job.kind == "ingest":
            self._reading.cancel(shelf, job)
        else:
            self._comparing.cancel(shelf, job)

    def resume(self, tenant: str, job: str, key: str | None) -> dict[str, Any]:
        """Take up what was interrupted, was cancelled or failed."""
        shelf = self._shelf(tenant)
        found = shelf.job(job)
        if found.status in ("queued", "running", "done"):
            raise refusals.wrong_state(job, found.status, "one that was interrupted, cancelled or failed")
        record = shelf.document(found.document)
        if found.kind == "compare":
            self._comparing.start(shelf, found, key)
        else:
            found.status, found.error, found.hint, found.ended_s = "queued", None, None, None
            record.status, record.error, record.hint = "queued", None, None
            shelf.keep_job(found)
            shelf.keep_document(record)
            self._reading.add(shelf, found)
        return self._shown_job(shelf, found)

    # questions

    def search(self, tenant: str, queries: Sequence[str], *, limit: int, documents: Sequence[str]) -> list[Any]:
        return asking.search(self._shelf(tenant), queries, limit, documents)

    def ask(
        self, tenant: str, asked: Mapping[str, Any], *, key: str | None, stop: threading.Event, tell: asking.Tell
    ) -> dict[str, Any]:
        return asking.ask(self._shelf(tenant), asked, url=self._url, key=key, stop=stop, tell=tell)

    def compare(self, tenant: str, asked: Mapping[str, Any], *, key: str | None) -> dict[str, Any]:
        """Begin to compare a contract with a playbook; the same comparison that is under way is not begun twice."""
        shelf = self._shelf(tenant)
        record = shelf.document(asked["document"])
        if record.status != "ready":
            raise refusals.not_ready(record.name, record.status)
        try:
            parse_playbook(asked["playbook"], "playbook")
        except SpecError as error:
            problems = "; ".join(str(one) for one in error.problems[:5])
            raise Refused(
                f"{error}" + (f": {problems}" if problems else ""), code="invalid_playbook", status=400, hint=error.hint
            ) from None
        request = {name: asked[name] for name in asked if name != "document"}
        for one in shelf.jobs_of(record.id):
            if one.kind == "compare" and one.status in ("queued", "running") and one.request == request:
                return self._shown_job(shelf, one)
        if not self._comparing.room_for(tenant):
            raise refusals.busy("comparisons")
        job = shelf.new_job("compare", record.id, self._now_s(), request)
        try:
            self._comparing.start(shelf, job, key)
        except Refused:
            shelf.drop_job(job.id)
            raise
        return self._shown_job(shelf, job)

    def result(self, tenant: str, job: str) -> dict[str, Any]:
        """The risk table of a comparison that is done, or was as far as it came."""
        shelf = self._shelf(tenant)
        found = shelf.job(job)
        if found.kind != "compare":
            raise refusals.wrong_state(job, "no comparison", "one")
        try:
            table: dict[str, Any] = json.loads(shelf.result(job).read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise refusals.wrong_state(job, found.status, "done") from None
        return table

    # within

    def _shelf(self, tenant: str) -> Shelf:
        with self._lock:
            shelf = self._shelves.get(tenant)
            if shelf is None:
                try:
                    shelf = self._shelves[tenant] = Shelf(folder_of(self._home, tenant), tenant)
                except (OSError, RoadworthyError) as error:
                    self._say(f"documents of {tenant}: {error}")
                    raise refusals.no_room("its folder cannot be made") from None
            return shelf

    def _shown_job(self, shelf: Shelf, job: JobRecord) -> dict[str, Any]:
        document = shelf.documents.get(job.document)
        return {
            "id": job.id, "kind": job.kind, "document_id": job.document,
            "document": document.name if document is not None else None, "status": job.status,
            "before_it": self._reading.before(shelf, job) if job.kind == "ingest" else None,
            "created": shown_time(job.created_s), "started": shown_time(job.started_s),
            "ended": shown_time(job.ended_s),
            "progress": {"what": job.what, "done": job.done, "of": job.of, "per_s": self._per_s(job)},
            "error": job.error, "hint": job.hint,
        }  # fmt: skip

    def _per_s(self, job: JobRecord) -> float | None:
        if job.since_s is None or not job.done:
            return None
        return round(job.done / max(0.001, self._now_s() - job.since_s), 2)


def shown_document(record: DocumentRecord) -> dict[str, Any]:
    return {
        "id": record.id, "name": record.name, "status": record.status, "bytes": record.size_bytes,
        "uploaded": shown_time(record.uploaded_s), "kind": record.kind, "pages": record.pages,
        "ocr_pages": record.ocr_pages, "unread_pages": record.unread_pages, "units": record.units,
        "vectors": record.vectors, "notes": list(record.notes), "error": record.error, "hint": record.hint,
    }  # fmt: skip


def shown_time(at_s: float | None) -> str | None:
    """UTC, RFC 3339."""
    if at_s is None:
        return None
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
