"""Every request of a run, in columns: a million of them take some 80 MB, a million records six times as much.

``records`` makes of it what `bench` measures too. Names (tenants, engines, errors) are kept once, and columns hold
their numbers. Gaps between tokens are counted (``gaps``, by the engines) and kept request by request only for a run
that asks for it.
"""

from __future__ import annotations

from array import array
from itertools import chain
from typing import TYPE_CHECKING

from roadworthy.core.columns import Columns
from roadworthy.core.records import RequestRecord
from roadworthy.twin.times import GapHistogram

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.advise.arrivals import PlannedRequest

NO_TOKEN = -1.0
"""``t_first_s`` of a request without one; the times of a run start at 0."""


class Names(dict[str, int]):
    """Numbers for words, in the order in which they were first said: ask for ``names[word]``."""

    def __init__(self, words: Sequence[str] = ()) -> None:
        super().__init__((word, number) for number, word in enumerate(words))

    @property
    def words(self) -> list[str]:
        return list(self)

    def __missing__(self, word: str) -> int:
        number = self[word] = len(self)
        return number


class RunLog:
    """See the module. The columns are in the order of ends; ``error`` 0 is none, ``engine`` -1 is nowhere.

    ``waited_s`` is the time in the gateway's own queue, part of the time to first token.

    Args:
        keep_gaps: keep the gaps of every request, for plots of small runs.
    """

    def __init__(self, *, keep_gaps: bool = False) -> None:
        self.tenants = Names()
        self.errors = Names(("",))
        self.engines = Names()
        self.gaps = GapHistogram()
        self.gaps_of: list[tuple[float, ...]] | None = [] if keep_gaps else None
        self.t_sched_s, self.t_first_s, self.t_last_s = array("d"), array("d"), array("d")
        self.waited_s = array("f")
        self.n_in, self.n_out, self.cached = array("l"), array("l"), array("l")
        self.tenant, self.engine, self.error = array("l"), array("l"), array("l")
        self.session, self.turn = array("q"), array("l")

    def __len__(self) -> int:
        return len(self.t_sched_s)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RunLog) and list(self.records()) == list(other.records())

    __hash__ = None  # type: ignore[assignment]  # it grows

    def ended(
        self,
        planned: PlannedRequest,
        *,
        first_s: float,
        last_s: float,
        output_tokens: int,
        cached_tokens: int,
        engine: str,
        waited_s: float = 0.0,
        gaps_s: tuple[float, ...] = (),
    ) -> None:
        """A request that got its whole answer."""
        self._add(planned, first_s, last_s, output_tokens, cached_tokens, self.engines[engine], 0, waited_s)
        if self.gaps_of is not None:
            self.gaps_of.append(gaps_s)

    def failed(
        self,
        planned: PlannedRequest,
        error: str,
        at_s: float,
        *,
        first_s: float | None = None,
        output_tokens: int = 0,
        engine: str | None = None,
        waited_s: float = 0.0,
    ) -> None:
        """A request that did not, and what it had got until then."""
        self._add(
            planned,
            NO_TOKEN if first_s is None else first_s,
            at_s,
            output_tokens,
            0,
            -1 if engine is None else self.engines[engine],
            self.errors[error],
            waited_s,
        )
        if self.gaps_of is not None:
            self.gaps_of.append(())

    def _add(
        self,
        planned: PlannedRequest,
        first_s: float,
        last_s: float,
        output_tokens: int,
        cached_tokens: int,
        engine: int,
        error: int,
        waited_s: float,
    ) -> None:
        self.t_sched_s.append(planned.t_sched_s)
        self.t_first_s.append(first_s)
        self.t_last_s.append(last_s)
        self.waited_s.append(waited_s)
        self.n_in.append(planned.prompt_tokens)
        self.n_out.append(output_tokens)
        self.cached.append(cached_tokens)
        self.tenant.append(self.tenants[planned.tenant])
        self.engine.append(engine)
        self.error.append(error)
        self.session.append(planned.session)
        self.turn.append(planned.turn)

    @property
    def lasted_s(self) -> float:
        """From the first arrival to the last end; 0 without a request."""
        return max(self.t_last_s) - min(self.t_sched_s) if len(self) else 0.0

    def columns(self) -> Columns:
        """The requests as a verdict reads them, without an object for each."""
        return Columns(
            sched_s=self.t_sched_s,
            sent_s=self.t_sched_s,
            first_s=self.t_first_s,
            last_s=self.t_last_s,
            n_in=self.n_in,
            n_out=self.n_out,
            cached=self.cached,
            tenant=self.tenant,
            error=self.error,
            tenants=self.tenants.words,
            errors=self.errors.words,
            gaps_s=chain.from_iterable(self.gaps_of or ()),
        )

    def records(self) -> Iterator[RequestRecord]:
        """The records, in the order of ends."""
        tenants, engines, errors = self.tenants.words, [*self.engines.words, ""], self.errors.words
        gaps = self.gaps_of
        columns = zip(
            self.t_sched_s, self.t_first_s, self.t_last_s, self.n_in, self.n_out, self.cached,
            self.tenant, self.engine, self.error, self.session, self.turn, strict=True,
        )  # fmt: skip
        for at, (sched_s, first_s, last_s, n_in, n_out, cached, tenant, engine, error, session, turn) in enumerate(
            columns
        ):
            yield RequestRecord(
                t_sched_s=sched_s,
                t_send_s=sched_s,
                t_first_s=first_s if first_s >= 0 else None,
                t_last_s=last_s,
                n_in=n_in,
                n_out=n_out,
                ok=not error,
                itl_s=gaps[at] if gaps is not None else (),
                tenant=tenants[tenant],
                engine=engines[engine],
                session=session,
                turn=turn,
                cached_tokens=None if error else cached,
                error=errors[error],
            )

    def follow(self, other: RunLog, *, later_s: float) -> None:
        """Put the requests of ``other`` behind these, their times ``later_s`` later."""
        first_session = max(self.session, default=-1) + 1
        self.t_sched_s.extend([time_s + later_s for time_s in other.t_sched_s])
        self.t_last_s.extend([time_s + later_s for time_s in other.t_last_s])
        self.t_first_s.extend([time_s + later_s if time_s >= 0 else NO_TOKEN for time_s in other.t_first_s])
        self.waited_s.extend(other.waited_s)
        self.session.extend([session + first_session for session in other.session])
        for counts, more in (
            (self.n_in, other.n_in),
            (self.n_out, other.n_out),
            (self.cached, other.cached),
            (self.turn, other.turn),
        ):
            counts.extend(more)
        for column, names, more, theirs in (
            (self.tenant, self.tenants, other.tenant, other.tenants),
            (self.engine, self.engines, other.engine, other.engines),
            (self.error, self.errors, other.error, other.errors),
        ):
            numbers = [*(names[word] for word in theirs.words), -1]  # the last is found by -1: nowhere
            column.extend([numbers[number] for number in more])
        self.gaps.merge(other.gaps)
        if self.gaps_of is not None:
            self.gaps_of.extend(other.gaps_of if other.gaps_of is not None else [()] * len(other))
