"""Many files into the store: parsed and embedded on every core, no more in memory than the slowest step can take, and
whatever was done when a run breaks off is not done again.

A file is stored when all of it is there. Until then its vectors lie in the store's ``pending`` table and its recognised
pages in the cache, so the next run goes on behind them.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.adapters import embeddings
from roadworthy.adapters.longdoc_embedder import TEXTS_AT_ONCE, embedded_text
from roadworthy.adapters.longdoc_parse import OCR_WANTED, Parsed, ParseTask, parse, parse_task, settings_of
from roadworthy.adapters.longdoc_read.values import UnreadableError
from roadworthy.adapters.longdoc_threads import begun
from roadworthy.adapters.processes import cores, spawned_pool
from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.longdoc.wall import Meter

if TYPE_CHECKING:
    from roadworthy.adapters.longdoc_embedder import Floats, Served
    from roadworthy.adapters.longdoc_read.pdf import Recognise
    from roadworthy.adapters.longdoc_store import DocumentStore

UNITS_WAITING = 4_000
"""Units that are parsed and not embedded yet: beyond it no further file is opened."""

ASKED_AT_ONCE = 4
"""Requests to the embedding's endpoint."""

FAILURES_IN_A_ROW = 3
"""Of the embedding's endpoint before the files that are left are not tried."""

Outcome = dict[str, object]


@dataclass(slots=True, kw_only=True)
class _Work:
    """One file on its way. ``missing`` and ``unserved`` are places of units whose vectors are still to come."""

    name: str
    parsed: Parsed
    vectors: dict[int, Floats] = field(default_factory=dict)
    served: dict[int, Floats] = field(default_factory=dict)
    missing: deque[list[int]] = field(default_factory=deque)
    unserved: deque[list[int]] = field(default_factory=deque)
    flying: int = 0
    error: RoadworthyError | None = None

    @property
    def whole(self) -> bool:
        return not (self.flying or self.missing or self.unserved)


class ManyFiles:
    """One run over ``paths``.

    Args:
        vectors: with those of the bundled embedding, where it is installed.
        served: with those of an embedding behind an endpoint too.
        recognise: OCR for pages that are pictures; None where there is none.
        workers: processes; None for one for each core.
        tokenizer: that units' sizes are counted with; empty to estimate them.
        heard: hears after every step.
    """

    def __init__(
        self,
        store: DocumentStore,
        *,
        vectors: bool,
        served: Served | None = None,
        recognise: Recognise | None = None,
        workers: int | None = None,
        tokenizer: str = "",
        heard: Callable[[Meter], None] = lambda _: None,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._served, self._recognise, self._heard = store, served, recognise, heard
        self._tokenizer = tokenizer
        self._vectors = vectors and embeddings.available()
        self._workers = workers or cores()
        self._pool: ProcessPoolExecutor | None = None
        self.meter = Meter(now_s)
        self._outcomes: dict[str, Outcome] = {}
        self._parsing: dict[Future[Parsed], ParseTask] = {}
        self._embedding: dict[Future[Any], tuple[_Work, list[int], bool]] = {}
        self._works: deque[_Work] = deque()
        self._suspects: deque[ParseTask] = deque()
        self._failed_in_a_row = 0

    def run(self, paths: Sequence[Path]) -> list[Outcome]:
        """What came of each of ``paths``, in their order. Files that fail do not keep the others."""
        tasks = deque(self._tasks(paths))
        self.meter.files = len(tasks)
        try:
            while tasks or self._suspects or self._parsing or self._works:
                self._open_more(tasks)
                self._embed_more()
                self._store_whole()
                flying = [*self._parsing, *self._embedding]
                if flying:
                    for future in wait(flying, return_when=FIRST_COMPLETED).done:
                        self._landed(future)
                self._heard(self.meter)
        finally:
            self._stop()
        return [self._outcomes[str(path)] for path in dict.fromkeys(paths)]

    def _tasks(self, paths: Sequence[Path]) -> Iterator[ParseTask]:
        identity = self._served.model.identity if self._served is not None else ""
        settings = settings_of(vectors=self._vectors, more=filter(None, (identity, self._tokenizer)))
        for path in dict.fromkeys(paths):
            name = str(path)
            yield ParseTask(
                path=path,
                name=name,
                settings=settings,
                stored=self._store.digest(name),
                ocr=self._recognise is not None,
                tokenizer=self._tokenizer,
            )

    # --- parsing -----------------------------------------------------------------------------------------------------

    def _open_more(self, tasks: deque[ParseTask]) -> None:
        if self._suspects:  # one at a time, so that the one on which the parser dies is known
            if not self._parsing and not self._embedding:
                self._submit(self._suspects.popleft())
            return
        waiting = sum(len(pieces) for work in self._works for pieces in work.missing)
        while tasks and len(self._parsing) < self._workers + 1 and waiting < UNITS_WAITING:
            if self._failed_in_a_row >= FAILURES_IN_A_ROW:
                self._give_up(tasks)
                return
            self._submit(tasks.popleft())

    def _submit(self, task: ParseTask) -> None:
        self._parsing[self._workers_pool().submit(parse, task)] = task

    def _workers_pool(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = spawned_pool(self._workers)
        return self._pool

    def _give_up(self, tasks: deque[ParseTask]) -> None:
        while tasks:
            self._end(tasks.popleft().name, {"error": "not tried: the embedding endpoint failed again and again"})

    def _parsed(self, task: ParseTask, future: Future[Parsed]) -> None:
        try:
            parsed = future.result()
        except BrokenProcessPool:
            self._broken(task)
            return
        except UnreadableError as error:
            self._end(task.name, {"error": str(error), "hint": error.hint})
            return
        except Exception as error:  # a parser that raises what nobody foresaw: this file's trouble, not the others'
            self._end(task.name, {"error": f"the parser failed: {type(error).__name__}: {error}"})
            return
        if parsed.outcome == OCR_WANTED:
            parsed = self._with_ocr(task)
        if parsed.outcome == "failed":
            self._end(task.name, {"error": parsed.error, "hint": parsed.hint})
        elif parsed.outcome == "unchanged":
            self._end(task.name, {"outcome": "unchanged"})
        else:
            self.meter.read(pages=max(1, parsed.pages), ocr_pages=len(parsed.ocr_pages), tokens=parsed.tokens)
            self._works.append(self._work(task.name, parsed))

    def _with_ocr(self, task: ParseTask) -> Parsed:
        """Here, since its pages go to processes of their own, one by one, and are kept one by one."""

        def pages(done: int, of: int) -> None:
            self.meter.page(task.name, done, of)
            self._heard(self.meter)

        try:
            return parse_task(task, task.path.read_bytes(), recognise=self._recognise, progress=pages)
        except RoadworthyError as error:
            return Parsed(outcome="failed", error=str(error), hint=error.hint)
        except OSError as error:
            return Parsed(outcome="failed", error=error.strerror or str(error))
        finally:
            self.meter.page("", 0, 0)

    def _broken(self, task: ParseTask) -> None:
        """The process died. Everything that was in it is tried again alone; what dies alone is at fault."""
        alone = not self._parsing and not self._embedding
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None
        if alone and task.alone:
            self._end(
                task.name,
                {"error": "the parser's process died over it", "hint": "open it elsewhere and save it again"},
            )
            return
        self._suspects.append(task.again_alone())

    # --- embedding ---------------------------------------------------------------------------------------------------

    def _work(self, name: str, parsed: Parsed) -> _Work:
        work = _Work(name=name, parsed=parsed)
        texts = [embedded_text(unit) for unit in parsed.units]
        pending = self._store.served.pending(name)
        if self._vectors:
            known = self._store.vectors_by_text(name)
            for place, text in enumerate(texts):
                found = known.get(text, pending.get(embeddings.key(text)))
                if found is not None:
                    work.vectors[place] = found
            work.missing = _pieces([at for at in range(len(texts)) if at not in work.vectors], embeddings.TEXTS_AT_ONCE)
        if self._served is not None:
            for place, text in enumerate(texts):
                if (found := pending.get(self._served.key(text))) is not None:
                    work.served[place] = found
            work.unserved = _pieces([at for at in range(len(texts)) if at not in work.served], TEXTS_AT_ONCE)
        return work

    def _embed_more(self) -> None:
        local = sum(not served for _, _, served in self._embedding.values())
        remote = len(self._embedding) - local
        for work in self._works:
            while work.missing and local < 2 * self._workers:
                self._embed(work, work.missing.popleft())
                local += 1
            while work.unserved and remote < ASKED_AT_ONCE:
                self._ask(work, work.unserved.popleft())
                remote += 1

    def _embed(self, work: _Work, places: list[int]) -> None:
        texts = [embedded_text(work.parsed.units[at]) for at in places]
        work.flying += 1
        self._embedding[self._workers_pool().submit(embeddings.embedded, texts)] = work, places, False

    def _ask(self, work: _Work, places: list[int]) -> None:
        texts = [embedded_text(work.parsed.units[at]) for at in places]
        served = self._served
        assert served is not None
        work.flying += 1
        self._embedding[begun(lambda: list(served.passages(texts)))] = work, places, True

    def _landed(self, future: Future[Any]) -> None:
        if future in self._parsing:
            self._parsed(self._parsing.pop(future), future)
            return
        if future not in self._embedding:
            return
        work, places, served = self._embedding.pop(future)
        work.flying -= 1
        try:
            vectors = future.result()
        except BrokenProcessPool:
            self._pool = None
            work.missing.append(places)
            return
        except RoadworthyError as error:
            if isinstance(error, SpecError):
                raise
            work.error = error
            work.missing.clear()
            work.unserved.clear()
            return
        texts = [embedded_text(work.parsed.units[at]) for at in places]
        key = self._served.key if served and self._served is not None else embeddings.key
        self._store.served.keep_pending(work.name, dict(zip(map(key, texts), vectors, strict=True)))
        (work.served if served else work.vectors).update(zip(places, vectors, strict=True))
        if served:
            self._failed_in_a_row = 0
        self.meter.embedded(len(places))

    # --- storing -----------------------------------------------------------------------------------------------------

    def _store_whole(self) -> None:
        for work in [one for one in self._works if one.whole]:
            self._works.remove(work)
            if work.error is not None:
                self._failed_in_a_row += 1
                hint = work.error.hint or "run it again"
                self._end(work.name, {"error": str(work.error), "hint": f"{hint}; vectors that were made are kept"})
                continue
            self._put(work)

    def _put(self, work: _Work) -> None:
        parsed = work.parsed
        count = len(parsed.units)
        self._store.put(
            work.name, parsed.digest, parsed.characters, parsed.units, parsed.terms,
            [work.vectors[at] for at in range(count)] if self._vectors else None,
            served=[work.served[at] for at in range(count)] if self._served is not None else None,
            about=parsed.about,
        )  # fmt: skip
        self._end(
            work.name,
            {
                "outcome": "stored", "kind": parsed.kind, "pages": parsed.pages, "ocr_pages": parsed.ocr_pages,
                "unread_pages": parsed.unread_pages, "units": count, "tokens": parsed.tokens,
                "vectors": self._vectors, "notes": list(parsed.notes),
            },
        )  # fmt: skip

    def _end(self, name: str, outcome: Mapping[str, object]) -> None:
        self._outcomes[name] = {"document": name, **{key: value for key, value in outcome.items() if value != ""}}
        self.meter.done += 1
        self.meter.failed += "error" in outcome

    def _stop(self) -> None:
        if self._pool is not None:
            processes = list((self._pool._processes or {}).values())
            self._pool.shutdown(wait=not self._parsing and not self._embedding, cancel_futures=True)
            if self._parsing or self._embedding:  # interrupted: what runs is not waited for
                for process in processes:
                    process.terminate()
            self._pool = None


def _pieces(places: Sequence[int], size: int) -> deque[list[int]]:
    return deque(list(places[at : at + size]) for at in range(0, len(places), size))
