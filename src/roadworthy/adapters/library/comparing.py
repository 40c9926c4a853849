"""Contracts against playbooks: jobs that outlive the connection that asked for them, and go on where they stopped.

A job is done with its tenant's key, which is kept in memory alone: after a restart it is interrupted until the tenant
takes it up again.
"""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.library import refusals
from roadworthy.adapters.library.asking import budget_for, named
from roadworthy.adapters.library.caller import CallersModel
from roadworthy.adapters.longdoc_compare import Comparison
from roadworthy.adapters.longdoc_job import JobFile, job_path
from roadworthy.adapters.longdoc_store import DocumentStore
from roadworthy.core.errors import ProbeError, Refused, Temporary
from roadworthy.longdoc.playbook import parse_playbook
from roadworthy.longdoc.shown import risk_json

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.library.records import JobRecord
    from roadworthy.adapters.library.shelf import Shelf

AT_ONCE = 8
"""Comparisons over all tenants; the engine's share of each is the tenant's quota's to say."""

AT_ONCE_A_TENANT = 2


class Comparing:
    """Runs comparisons in the background.

    Args:
        url: of the data port.
        now_s: seconds of the epoch.
    """

    def __init__(self, url: str, *, now_s: Callable[[], float] = time.time) -> None:
        self._url, self._now_s = url, now_s
        self._pool = ThreadPoolExecutor(AT_ONCE, thread_name_prefix="compare")
        self._stops: dict[str, threading.Event] = {}
        self._ended: dict[str, threading.Event] = {}
        self._cancelled: set[str] = set()
        self._of_tenant: Counter[str] = Counter()
        self._lock = threading.Lock()

    def start(self, shelf: Shelf, job: JobRecord, key: str | None) -> None:
        """Begin ``job``, or take it up again. Raises Refused where too many of the tenant's run."""
        with self._lock:
            if job.id in self._stops:
                return
            if self._of_tenant[shelf.tenant] >= AT_ONCE_A_TENANT:
                raise refusals.busy("comparisons")
            self._of_tenant[shelf.tenant] += 1
            self._stops[job.id], self._ended[job.id] = threading.Event(), threading.Event()
        job.status, job.error, job.hint, job.ended_s = "queued", None, None, None
        shelf.keep_job(job)
        self._pool.submit(self._run, shelf, job, key)

    def room_for(self, tenant: str) -> bool:
        with self._lock:
            return self._of_tenant[tenant] < AT_ONCE_A_TENANT

    def cancel(self, shelf: Shelf, job: JobRecord) -> None:
        """Return once it has stopped."""
        with self._lock:
            stop, ended = self._stops.get(job.id), self._ended.get(job.id)
            if stop is not None:
                self._cancelled.add(job.id)
                stop.set()
        if ended is not None:
            ended.wait()
        else:
            job.status, job.ended_s = "cancelled", self._now_s()
            shelf.keep_job(job)

    def close(self) -> None:
        """Stop all; they are interrupted, and can be taken up again."""
        with self._lock:
            for stop in self._stops.values():
                stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _run(self, shelf: Shelf, job: JobRecord, key: str | None) -> None:
        stop = self._stops[job.id]
        try:
            if not stop.is_set():
                job.status = "running"
                job.started_s = job.since_s = self._now_s()
                shelf.keep_job(job)
                self._compare(shelf, job, key, stop)
            job.status = self._over(job, stop)
        except (Refused, ProbeError, Temporary) as error:
            job.status = self._over(job, stop) if stop.is_set() else "failed"
            if job.status == "failed":
                job.error, job.hint = str(error), error.hint or None
        except Exception as error:
            job.status, job.error = "failed", f"a fault of ours: {type(error).__name__}"
        finally:
            job.since_s = None
            if job.status != "interrupted":
                job.ended_s = self._now_s()
            shelf.keep_job(job)
            with self._lock:
                self._of_tenant[shelf.tenant] -= 1
                del self._stops[job.id]
                self._cancelled.discard(job.id)
                self._ended.pop(job.id).set()

    def _over(self, job: JobRecord, stop: threading.Event) -> Any:
        if job.id in self._cancelled:
            return "cancelled"
        return "interrupted" if stop.is_set() or job.error is not None else "done"

    def _compare(self, shelf: Shelf, job: JobRecord, key: str | None, stop: threading.Event) -> None:
        asked = job.request
        document = shelf.document(job.document)
        book = parse_playbook(asked["playbook"], "playbook")
        with DocumentStore(shelf.store) as store:
            clauses = store.of_document(document.stored_name)

        def progress(done: int, of: int, _end: bool) -> None:
            job.what, job.done, job.of = "clauses", done, of

        with ExitStack() as stack:
            model = stack.enter_context(
                CallersModel(self._url, key=key, model=asked["model"], session=job.id, stop=stop, patient=True)
            )
            tokens = budget_for(model, asked).answer_tokens
            results = job_path(shelf.store, document.stored_name, book.digest, model.model)
            kept = stack.enter_context(JobFile(results))
            run = Comparison(book=book, clauses=clauses, client=model, job=kept, max_tokens=tokens, progress=progress)
            run.all(asked["parallel"])
        if stop.is_set():
            return
        if run.unread:
            first = next(iter(run.unread.values()))
            job.error = f"{len(run.unread)} of {len(clauses)} clauses were not compared; the first: {first}"
            job.hint = "take it up again: what was compared is kept"
        rows = run.rows()
        table = named(risk_json(book, document.stored_name, model.model, rows, run.unread, len(clauses), run.resumed))
        write_atomically(shelf.result(job.id), json.dumps(table, ensure_ascii=False), mode=0o600)
