"""A recorded load for a simulation: a trace with the pace it is replayed at, and with more or less of it.

``bench`` replays the same traces by the same schedule (``advise.traces``); what is added here is what only virtual time
can ask: the same days with twice the traffic of one tenant.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.advise.traces import DEFAULT_ANSWER_TOKENS, Replay, TraceSchedule

if TYPE_CHECKING:
    from roadworthy.advise.trace_formats import TraceLine
    from roadworthy.spec.values import RequestProfile, Tenant

COPIES_APART_S = 30.0
"""A copy of a recorded request comes at a random moment within this time of it: at the same moment the engines would
see pairs, which no growth of traffic makes."""

_HASHES_APART = 1 << 48
"""Added to the hashes of a copy's blocks, so that copies of a conversation are conversations of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording(Replay):
    """A trace to be replayed in virtual time."""

    @property
    def requests(self) -> int:
        """Requests of the trace that are worth sending."""
        return sum(max(1, len(line.turns)) for line in self.trace.lines)

    @property
    def shares_nothing(self) -> bool:
        """Whether no two prompts can have a beginning in common, as far as the trace tells."""
        return not any(line.hash_ids or len(line.turns) > 1 for line in self.trace.lines)

    @property
    def output_tokens_mean(self) -> float:
        """Tokens of an answer, about."""
        lines = self.trace.lines
        return sum((line.output_tokens or DEFAULT_ANSWER_TOKENS) for line in lines) / len(lines)

    def schedule(
        self,
        workload: RequestProfile,
        *,
        seed: int,
        requests: int | None,
        tenants: Sequence[Tenant],
        max_context_tokens: int,
        factor_of: Callable[[str], float] | None = None,
    ) -> TraceSchedule:
        """The load. ``factor_of`` says how many times each request of a tenant is sent, by the name in the trace.

        Raises:
            ValueError: nothing is left of the trace.
        """
        trace = self.trace
        if factor_of is not None:
            lines = tuple(_multiplied(trace.lines, factor_of, random.Random(f"{seed}:copies")))
            if not lines:
                raise ValueError("nobody asks for anything")
            trace = replace(trace, lines=lines)
        return TraceSchedule(
            trace,
            workload,
            seed=seed,
            requests=requests,
            speed=self.speed,
            max_gap_s=self.max_gap_s,
            tenants=tenants,
            max_context_tokens=max_context_tokens,
        )


def _multiplied(
    lines: Sequence[TraceLine], factor_of: Callable[[str], float], rng: random.Random
) -> Iterator[TraceLine]:
    """``lines`` with copies, by time where they have times; what a factor has beyond a whole number is chance."""
    found: list[TraceLine] = []
    last_s = lines[-1].at_s or 0.0
    for line in lines:
        whole, rest = divmod(factor_of(line.tenant), 1)
        for copy in range(int(whole) + (rng.random() < rest)):
            if not copy:
                found.append(line)
                continue
            at_s = line.at_s
            if at_s is not None:
                first_s = lines[0].at_s or 0.0
                at_s = min(last_s, max(first_s, at_s + rng.uniform(-COPIES_APART_S, COPIES_APART_S)))
            hash_ids = tuple(hashed + copy * _HASHES_APART for hashed in line.hash_ids)
            found.append(replace(line, at_s=at_s, hash_ids=hash_ids))
    found.sort(key=lambda line: line.at_s or 0.0)
    yield from found
