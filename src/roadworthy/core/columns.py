"""Requests of a run in columns: what a verdict reads, without an object for each of a million requests.

`bench` makes them of its records, a simulation hands over the columns it has kept all along.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain, compress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

NOT_TOLD = -1
"""``cached`` of a request whose server does not say how much of its prompt it held."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """One entry of each column for each request, in any order; times are seconds since one origin.

    The words are those of :class:`~roadworthy.core.records.RequestRecord`. ``sent_s`` may be ``sched_s`` itself, where
    the client never waits.

    Args:
        first_s: means nothing for a request that failed.
        tenant: place in ``tenants``.
        error: place in ``errors``, of which the first is empty: 0 is a completed request.
        gaps_s: between stream events, of all completed requests together.
    """

    sched_s: Sequence[float]
    sent_s: Sequence[float]
    first_s: Sequence[float]
    last_s: Sequence[float]
    n_in: Sequence[int]
    n_out: Sequence[int]
    cached: Sequence[int]
    tenant: Sequence[int]
    error: Sequence[int]
    tenants: Sequence[str]
    errors: Sequence[str]
    gaps_s: Iterable[float] = ()

    def __len__(self) -> int:
        return len(self.sched_s)

    @classmethod
    def of(cls, records: Sequence[RequestRecord]) -> Columns:
        """The columns of ``records``."""
        tenants: dict[str, int] = {}
        errors: dict[str, int] = {"": 0}
        return cls(
            sched_s=[record.t_sched_s for record in records],
            sent_s=[record.t_send_s for record in records],
            first_s=[record.t_last_s if record.t_first_s is None else record.t_first_s for record in records],
            last_s=[record.t_last_s for record in records],
            n_in=[record.n_in for record in records],
            n_out=[record.n_out for record in records],
            cached=[NOT_TOLD if record.cached_tokens is None else record.cached_tokens for record in records],
            tenant=[tenants.setdefault(record.tenant, len(tenants)) for record in records],
            error=[0 if record.ok else errors.setdefault(record.error or "unknown", len(errors)) for record in records],
            tenants=tuple(tenants),
            errors=tuple(errors),
            gaps_s=chain.from_iterable(record.itl_s for record in records if record.ok),
        )

    def done(self) -> Columns:
        """The completed requests."""
        if not any(self.error):
            return self
        kept = [not error for error in self.error]
        return Columns(
            sched_s=list(compress(self.sched_s, kept)),
            sent_s=list(compress(self.sent_s, kept)),
            first_s=list(compress(self.first_s, kept)),
            last_s=list(compress(self.last_s, kept)),
            n_in=list(compress(self.n_in, kept)),
            n_out=list(compress(self.n_out, kept)),
            cached=list(compress(self.cached, kept)),
            tenant=list(compress(self.tenant, kept)),
            error=[0] * sum(kept),
            tenants=self.tenants,
            errors=self.errors,
            gaps_s=self.gaps_s,
        )
