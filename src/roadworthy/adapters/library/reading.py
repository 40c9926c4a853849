"""Documents waiting to be read: tenants take turns, each document in a process of its own that can be ended."""

from __future__ import annotations

import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from roadworthy.adapters.library.records import DocumentRecord, JobRecord
    from roadworthy.adapters.library.shelf import Shelf

COMMAND = (sys.executable, "-P", "-m", "roadworthy.cli.documents_reader")

STALLED_S = 900.0
"""Without a step of progress, a reader is given up; one page of OCR has two minutes."""

_READ_FIELDS = ("kind", "pages", "units", "notes", "vectors")


@dataclass(slots=True)
class _Running:
    job: JobRecord
    process: subprocess.Popen[bytes] | None = None
    cancelled: bool = False
    over: threading.Event = field(default_factory=threading.Event)


class Reading:
    """``readers`` threads that each look after one process at a time.

    Args:
        memory_bytes: of each process.
        now_s: seconds of the epoch.
        command: starts a reader.
        say: words for the operator.
    """

    def __init__(
        self,
        readers: int,
        memory_bytes: int,
        *,
        now_s: Callable[[], float] = time.time,
        command: Sequence[str] = COMMAND,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._memory_bytes, self._now_s, self._command = memory_bytes, now_s, tuple(command)
        self._say = say
        self._waiting: dict[str, deque[tuple[Shelf, JobRecord]]] = {}  # by tenant, in the order of their turns
        self._running: dict[str, _Running] = {}  # by tenant: the store takes one writer
        self._changed = threading.Condition()
        self._closed = False
        self._threads = [threading.Thread(target=self._work, daemon=True) for _ in range(readers)]
        for thread in self._threads:
            thread.start()

    def add(self, shelf: Shelf, job: JobRecord) -> None:
        with self._changed:
            self._waiting.setdefault(shelf.tenant, deque()).append((shelf, job))
            self._changed.notify()

    def before(self, shelf: Shelf, job: JobRecord) -> int | None:
        """How many of the same tenant's are read before ``job``; None where it does not wait."""
        with self._changed:
            waiting = [one.id for _, one in self._waiting.get(shelf.tenant, ())]
        return waiting.index(job.id) if job.id in waiting else None

    def cancel(self, shelf: Shelf, job: JobRecord) -> None:
        """Return once it neither waits nor runs."""
        with self._changed:
            waiting = self._waiting.get(shelf.tenant)
            if waiting is not None and (shelf, job) in waiting:
                waiting.remove((shelf, job))
                if not waiting:
                    del self._waiting[shelf.tenant]
                self._ended(shelf, job, "cancelled")
                return
            running = self._running.get(shelf.tenant)
            if running is None or running.job is not job:
                return
            running.cancelled = True
            _kill(running.process)
        running.over.wait()

    def close(self) -> None:
        """End all readers; what they were at is read when the service starts again."""
        with self._changed:
            self._closed = True
            for running in self._running.values():
                _kill(running.process)
            self._changed.notify_all()
        for thread in self._threads:
            thread.join()

    # a reader's thread

    def _work(self) -> None:
        while (taken := self._next()) is not None:
            shelf, running = taken
            try:
                self._read(shelf, running)
            except Exception as error:  # the disk is full, or a fault of ours: the next document is read all the same
                self._say(f"documents of {shelf.tenant}, {running.job.id}: {type(error).__name__}: {error}")
                with suppress(RoadworthyError):
                    self._ended(shelf, running.job, "failed", "it could not be read here", "tell the operator")
            finally:
                with self._changed:
                    del self._running[shelf.tenant]
                    self._changed.notify_all()
                running.over.set()

    def _next(self) -> tuple[Shelf, _Running] | None:
        """Of the tenant whose turn it is; None at the end."""
        with self._changed:
            while not self._closed:
                for tenant in list(self._waiting):
                    if tenant in self._running:
                        continue
                    waiting = self._waiting.pop(tenant)
                    shelf, job = waiting.popleft()
                    if waiting:
                        self._waiting[tenant] = waiting  # behind the others
                    running = self._running[tenant] = _Running(job)
                    return shelf, running
                self._changed.wait()
        return None

    def _read(self, shelf: Shelf, running: _Running) -> None:
        job = running.job
        with shelf.lock:
            document = shelf.documents.get(job.document)
            if document is None or document.status == "deleting":
                return
            job.status, job.what, job.done, job.of = "running", None, 0, None
            job.started_s = job.since_s = self._now_s()
            document.status = "reading"
            shelf.keep_job(job)
            shelf.keep_document(document)
        work = shelf.work(job.id)
        work.mkdir(mode=0o700, exist_ok=True)
        with self._changed:
            if running.cancelled or self._closed:
                process = None
            else:
                process = running.process = self._started(shelf, document, str(work))
        last: dict[str, Any] = {}
        if process is not None:
            last = self._followed(process, job)
        self._told(shelf, document, running, last, process.returncode if process is not None else None)

    def _started(self, shelf: Shelf, document: DocumentRecord, work: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            start_new_session=True,
        )  # fmt: skip
        task = {
            "store": str(shelf.store), "source": str(shelf.source(document.id)), "name": document.stored_name,
            "vectors": document.vectors, "work": work, "memory_bytes": self._memory_bytes,
            "index": not self._waiting.get(shelf.tenant),
        }  # fmt: skip
        assert process.stdin is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write(json.dumps(task).encode())
        return process

    def _followed(self, process: subprocess.Popen[bytes], job: JobRecord) -> dict[str, Any]:
        """Progress into ``job`` until the process ends; its last line."""
        last: dict[str, Any] = {}
        for line in _lines(process):
            try:
                told = json.loads(line)
            except ValueError:
                continue
            if "what" in told:
                if job.what is not None and told["what"] != job.what:
                    job.since_s = self._now_s()
                job.what, job.done, job.of = told["what"], told["done"], told["of"]
            else:
                last = told
        process.wait()
        _kill(process)  # what it started and left
        return last

    def _told(
        self, shelf: Shelf, document: DocumentRecord, running: _Running, last: dict[str, Any], code: int | None
    ) -> None:
        job = running.job
        if running.cancelled:
            self._ended(shelf, job, "cancelled")
        elif self._closed and "read" not in last:
            job.status = "queued"  # taken up at the next start
            shelf.keep_job(job)
        elif "read" in last:
            found = last["read"]
            for name in _READ_FIELDS:
                if name in found:
                    setattr(document, name, found[name])
            document.ocr_pages, document.unread_pages = (
                len(found.get("ocr_pages", ())),
                len(found.get("unread_pages", ())),
            )
            self._ended(shelf, job, "done")
        elif "unreadable" in last:
            self._ended(shelf, job, "failed", last["unreadable"], last["hint"])
        else:
            how = "stalled" if code is None else f"signal {-code}" if code < 0 else f"exit code {code}"
            self._ended(shelf, job, "failed", f"the process that read it ended ({how})", "is the file damaged?")

    def _ended(
        self,
        shelf: Shelf,
        job: JobRecord,
        status: Literal["done", "failed", "cancelled"],
        error: str | None = None,
        hint: str | None = None,
    ) -> None:
        job.status, job.ended_s, job.error, job.hint = status, self._now_s(), error, hint or None
        job.since_s = None
        with shelf.lock:
            document = shelf.documents.get(job.document)
            if document is not None and document.status != "deleting":
                document.status = "ready" if status == "done" else status
                document.error, document.hint = error, hint or None
                shelf.keep_document(document)
            shelf.keep_job(job)
        shutil.rmtree(shelf.work(job.id), ignore_errors=True)


def _lines(process: subprocess.Popen[bytes]) -> Iterator[bytes]:
    """Lines of its stdout until it closes, or nothing comes for ``STALLED_S``: then it is ended."""
    assert process.stdout is not None
    rest = b""
    with process.stdout as out, selectors.DefaultSelector() as ready:
        ready.register(out, selectors.EVENT_READ)
        while True:
            if not ready.select(STALLED_S):
                _kill(process)
                return
            data = os.read(out.fileno(), 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            yield from lines


def _kill(process: subprocess.Popen[bytes] | None) -> None:
    if process is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
