"""`roadworthy doc batch`: every clause of a contract against a playbook, as a job that can be taken up again."""

from __future__ import annotations

import os
import threading
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.doc_options import budget_of, client_of, home_option, model_options

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.adapters.longdoc_job import JobFile
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.core.errors import RoadworthyError
    from roadworthy.longdoc.playbook import Judgement, Playbook, Row
    from roadworthy.longdoc.search import StoredUnit

FAILURES_IN_A_ROW = 5
"""Before the rest is left for another day: the endpoint is down, not one clause odd."""


@click.command()
@click.argument("playbook", type=click.Path(path_type=Path))
@home_option
@model_options
@click.option("--document", required=True, help="The contract, as `doc list` names it.")
@click.option(
    "--job", "job_file", type=click.Path(path_type=Path), help="Where results are kept (in the store's folder)."
)
@click.option("--parallel", default=4, show_default=True, type=click.IntRange(1, 64), help="Requests at a time.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the risk table as a page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def batch(
    playbook: Path,
    home: Path | None,
    url: str,
    key: str | None,
    model: str | None,
    budget: int | None,
    spec: Path | None,
    answer_tokens: int | None,
    document: str,
    job_file: Path | None,
    parallel: int,
    html: Path | None,
    as_json: bool,
) -> int:
    """Compare every clause of a contract with a playbook; a risk table, each finding with its words in the text.

    Interrupted, the same command goes on where it stopped. Exit code 1 with a risk, 3 when clauses could not be read.
    """
    from roadworthy.adapters.longdoc_job import JobFile, job_path
    from roadworthy.adapters.longdoc_library import StoreLibrary
    from roadworthy.adapters.report_files import require_writable
    from roadworthy.cli.doc import _home, _store
    from roadworthy.cli.doc_risk import risk_json, risk_page, risk_text
    from roadworthy.cli.output import print_json, say

    book = _playbook(playbook)
    if html is not None:
        require_writable(html)
    client = client_of(url, key, model)
    with _store(home) as store:
        library = StoreLibrary(store, _home(home), [document])
        (name,) = library.documents
        clauses = library.of_document(name)
    tokens = budget_of(client, budget, spec, answer_tokens).answer_tokens
    with JobFile(job_file or job_path(_home(home), name, book.digest, client.model)) as job:
        say(f"job {job.path}")
        run = _Run(book=book, clauses=clauses, client=client, job=job, max_tokens=tokens)
        run.all(parallel)
    rows = run.rows()
    if html is not None:
        from roadworthy.adapters.files import write_atomically

        write_atomically(html, risk_page(book, name, rows, run.unread, len(clauses)))
    if as_json:
        print_json(risk_json(book, name, client.model, rows, run.unread, len(clauses), run.resumed))
    else:
        risk_text(book, name, rows, run.unread, len(clauses))
    if run.unread:
        say(f"{len(run.unread)} of {len(clauses)} clauses were not compared; the same command tries them again")
        return 3
    return 1 if any(row.risk for row in rows) else 0


def _playbook(path: Path) -> Playbook:
    import yaml

    from roadworthy.adapters.files import read_text
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.playbook import parse_playbook

    text = read_text(path, what="playbook")
    try:
        data = yaml.safe_load(text)  # JSON is YAML
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise SpecError(
            f"{path}: neither YAML nor JSON: {str(error)[:200]}", hint="see docs/guides/documents.md"
        ) from None
    return parse_playbook(data, str(path))


@dataclass(slots=True, kw_only=True)
class _Run:
    """One run over the clauses that are not done yet.

    Args:
        unread: clauses without a result, with the reason.
        resumed: how many results were there before.
    """

    book: Playbook
    clauses: Sequence[StoredUnit]
    client: ModelClient
    job: JobFile
    max_tokens: int
    unread: dict[str, str] = field(default_factory=dict)
    resumed: int = 0
    _failed_in_a_row: int = 0
    _left: int = 0

    def all(self, parallel: int) -> None:
        """Compare what is left. Raises the last error where nothing goes through."""
        from roadworthy.longdoc.compare import key_of

        keys = {key_of(self.book, self.client.model, one): one for one in self.clauses}
        left = [(key, one) for key, one in keys.items() if key not in self.job.done]
        self.resumed = len(keys) - len(left)
        self._left = len(left)
        waiting: dict[Future[tuple[Judgement, ...]], tuple[str, StoredUnit]] = {}
        while left or waiting:
            while left and len(waiting) < parallel:
                key, clause = left.pop(0)
                waiting[self._begun(clause)] = key, clause
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                self._keep(*waiting.pop(future), future)
            self._progress(end=not (left or waiting))
            if self._failed_in_a_row >= FAILURES_IN_A_ROW:
                self.unread |= {_where(clause): "not tried: nothing went through any more" for _, clause in left}
                left = []

    def _begun(self, clause: StoredUnit) -> Future[tuple[Judgement, ...]]:
        """One request on a thread that does not outlive an interrupted command, as a pool's threads would."""
        future: Future[tuple[Judgement, ...]] = Future()

        def work() -> None:
            try:
                future.set_result(self._compare(clause))
            except BaseException as error:
                future.set_exception(error)

        threading.Thread(target=work, daemon=True).start()
        return future

    def _compare(self, clause: StoredUnit) -> tuple[Judgement, ...]:
        from roadworthy.longdoc.compare import compare

        units = [one.unit for one in self.clauses]
        return compare(self.book, clause, units, self.client, max_tokens=self.max_tokens)

    def _keep(self, key: str, clause: StoredUnit, future: Future[tuple[Judgement, ...]]) -> None:
        from roadworthy.core.errors import RoadworthyError
        from roadworthy.longdoc.compare import Unanswered
        from roadworthy.longdoc.converse import TooLong

        self._left -= 1
        try:
            judged = future.result()
        except RoadworthyError as error:
            self.unread[_where(clause)] = _reason(error)
            # an odd clause or reply is no reason to give up on the others, which a later run would not reach either
            odd = isinstance(error, (Unanswered, TooLong))
            self._failed_in_a_row = 0 if odd else self._failed_in_a_row + 1
            return
        self._failed_in_a_row = 0
        self.job.add(key, {"section": clause.unit.label, "judgements": [_kept(one) for one in judged]})

    def _progress(self, *, end: bool) -> None:
        if os.isatty(2):
            done = max(0, len(self.clauses) - self._left - len(self.unread))
            click.echo(f"\r{done:,} of {len(self.clauses):,} clauses", err=True, nl=end)

    def rows(self) -> tuple[Row, ...]:
        """The risk table of all results, of this run and before; each citation held against the text once more."""
        from roadworthy.longdoc.compare import key_of
        from roadworthy.longdoc.playbook import risk_table

        judgements: list[Judgement] = []
        for clause in self.clauses:
            value = self.job.done.get(key_of(self.book, self.client.model, clause))
            if value is not None:
                judgements += _restored(value, clause)
        return risk_table(self.book, judgements, all_read=not self.unread)


def _where(clause: StoredUnit) -> str:
    label = clause.unit.label or "clause"
    return f"{label} at {clause.unit.char_start}"


def _reason(error: RoadworthyError) -> str:
    return f"{error}" + (f" ({error.hint})" if error.hint else "")


def _kept(one: Judgement) -> Mapping[str, Any]:
    return {
        "check": one.check, "verdict": one.verdict, "why": one.why,
        "spans": [[each.start, each.end] for each in one.citations],
    }  # fmt: skip


def _restored(value: Any, clause: StoredUnit) -> list[Judgement]:
    """Judgements of a line of the job; the words are taken from the text, not from the line."""
    from roadworthy.core.errors import SpecError
    from roadworthy.longdoc.cite import Citation
    from roadworthy.longdoc.playbook import Judgement

    unit = clause.unit
    try:
        return [
            Judgement(
                check=one["check"], verdict=one["verdict"], why=one["why"], section=unit.label,
                citations=tuple(
                    Citation(
                        document=clause.document, section=unit.label, path=unit.path, page=unit.page,
                        quote=unit.text[start - unit.char_start : end - unit.char_start], start=start, end=end,
                        unit=clause.id,
                    )
                    for start, end in one["spans"]
                    if unit.char_start <= start < end <= unit.char_end
                ),
            )
            for one in value["judgements"]
        ]  # fmt: skip
    except (KeyError, TypeError, ValueError):
        raise SpecError("the job's file holds results of another kind", hint="choose another file with --job") from None
