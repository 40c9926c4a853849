"""Every clause against a playbook, some at a time; what was compared is on disk before the next is counted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.longdoc_threads import begun
from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.longdoc.cite import Citation
from roadworthy.longdoc.compare import Unanswered, compare, key_of
from roadworthy.longdoc.converse import TooLong
from roadworthy.longdoc.playbook import Judgement, Playbook, Row, risk_table

if TYPE_CHECKING:
    from roadworthy.adapters.longdoc_job import JobFile
    from roadworthy.adapters.longdoc_model import ModelClient
    from roadworthy.longdoc.search import StoredUnit

FAILURES_IN_A_ROW = 5
"""Before the rest is left for another day: the endpoint is down, not one clause odd."""


@dataclass(slots=True, kw_only=True)
class Comparison:
    """One run over the clauses that are not done yet.

    Args:
        progress: hears how many are done, of how many, and whether that is all.
        unread: clauses without a result, with the reason.
        resumed: how many results were there before.
    """

    book: Playbook
    clauses: Sequence[StoredUnit]
    client: ModelClient
    job: JobFile
    max_tokens: int
    progress: Callable[[int, int, bool], None] = lambda _done, _of, _end: None
    unread: dict[str, str] = field(default_factory=dict)
    resumed: int = 0
    _failed_in_a_row: int = 0
    _left: int = 0

    def all(self, parallel: int) -> None:
        """Compare what is left. Raises the last error where nothing goes through."""
        keys = {key_of(self.book, self.client.model, one): one for one in self.clauses}
        left = [(key, one) for key, one in keys.items() if key not in self.job.done]
        self.resumed = len(keys) - len(left)
        self._left = len(left)
        waiting: dict[Future[tuple[Judgement, ...]], tuple[str, StoredUnit]] = {}
        while left or waiting:
            while left and len(waiting) < parallel:
                key, clause = left.pop(0)
                waiting[begun(partial(self._compare, clause))] = key, clause
            for future in wait(waiting, return_when=FIRST_COMPLETED).done:
                self._keep(*waiting.pop(future), future)
            self._progress(end=not (left or waiting))
            if self._failed_in_a_row >= FAILURES_IN_A_ROW:
                self.unread |= {_where(clause): "not tried: nothing went through any more" for _, clause in left}
                left = []

    def _compare(self, clause: StoredUnit) -> tuple[Judgement, ...]:
        units = [one.unit for one in self.clauses]
        return compare(self.book, clause, units, self.client, max_tokens=self.max_tokens)

    def _keep(self, key: str, clause: StoredUnit, future: Future[tuple[Judgement, ...]]) -> None:
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
        self.progress(max(0, len(self.clauses) - self._left - len(self.unread)), len(self.clauses), end)

    def rows(self) -> tuple[Row, ...]:
        """The risk table of all results, of this run and before; each citation held against the text once more."""
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
