"""The latencies of completed requests in columns, worked out once for every table of a report."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from operator import sub
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.core.columns import Columns
    from roadworthy.spec.values import Sla


@dataclass(frozen=True, slots=True, kw_only=True)
class Latencies:
    """One entry of each for each completed request, as :class:`~roadworthy.core.records.RequestRecord` defines them.

    ``tpot_s`` is 0 for an answer of one token, which has none: ``tpots_s`` leaves those out.
    """

    ttft_s: Sequence[float]
    e2e_s: Sequence[float]
    user_ttft_s: Sequence[float]
    user_e2e_s: Sequence[float]
    tpot_s: Sequence[float]
    n_out: Sequence[int]

    @classmethod
    def of(cls, done: Columns) -> Latencies:
        """Those of ``done``, in which no request failed."""
        user_ttft_s = list(map(sub, done.first_s, done.sched_s))
        user_e2e_s = list(map(sub, done.last_s, done.sched_s))
        if done.sent_s is done.sched_s:
            ttft_s, e2e_s = user_ttft_s, user_e2e_s
        else:
            ttft_s = list(map(sub, done.first_s, done.sent_s))
            e2e_s = list(map(sub, done.last_s, done.sent_s))
        return cls(
            ttft_s=ttft_s,
            e2e_s=e2e_s,
            user_ttft_s=user_ttft_s,
            user_e2e_s=user_e2e_s,
            tpot_s=[
                (whole_s - first_s) / (tokens - 1) if tokens >= 2 else 0.0
                for whole_s, first_s, tokens in zip(e2e_s, ttft_s, done.n_out, strict=True)
            ],
            n_out=done.n_out,
        )

    @property
    def tpots_s(self) -> Sequence[float]:
        """Those of answers of two tokens or more."""
        if not self.n_out or min(self.n_out) >= 2:
            return self.tpot_s
        return list(compress(self.tpot_s, [tokens >= 2 for tokens in self.n_out]))

    def within(self, sla: Sla) -> list[bool]:
        """Whether each request keeps every per-request limit; one output token has no TPOT and keeps that one."""
        ttft_s = math.inf if sla.ttft_p99_s is None else sla.ttft_p99_s
        tpot_s = math.inf if sla.tpot_p99_s is None else sla.tpot_p99_s
        return [
            first_s <= ttft_s and each_s <= tpot_s
            for first_s, each_s in zip(self.user_ttft_s, self.tpot_s, strict=True)
        ]
