"""The highest rate that still meets the SLA: doubled until it does not, then halved into the gap.

A step of the search is one load at one rate. It is decided by how sure its sample makes it: a limit on a P99 is a
claim that at most one request in a hundred is above it, so the share above, with its exact interval, says ``met``,
``missed`` or that the sample is too small. Requests close in time share their luck; their number is divided by how
much more the shares of stretches vary than those of independent requests would. A step that cannot be decided is
prolonged a few times, and one that is missed for sure is ended early: it would only fill queues.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roadworthy.advise.intervals import Blocks, share_interval
from roadworthy.advise.objectives import meets_limits

if TYPE_CHECKING:
    from roadworthy.advise.steady import SteadyState
    from roadworthy.core.records import RequestRecord
    from roadworthy.spec.values import Sla

ONE_SIDED_95 = 0.90
"""Confidence of an interval whose each end is passed in 5 of 100 cases."""
EARLY_REQUESTS = 60
"""Requests below which no step is ended early."""
MOST_STEPS = 24
LEAST_REQUESTS = 100
"""Of one load: three of them prove a P99 when every request keeps the limit, fewer never could."""
MOST_HALVINGS = 6
"""Below a 64th of the first rate nobody looks: each halving takes twice as long."""

MOST_DRIFT_RATIO = 0.10
"""Rise of latencies from the first half of a load to its second above which it is not called sustained."""

Outcome = Literal["met", "missed", "unsure"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """One limit held against a sample: ``over`` of ``of`` requests are above it, at most ``allowed_ratio`` may be.

    ``low`` and ``high`` bound the share above with one-sided confidence of 95 %.
    """

    name: str
    over: int
    of: int
    allowed_ratio: float
    low: float
    high: float

    @property
    def outcome(self) -> Outcome:
        if self.high <= self.allowed_ratio:
            return "met"
        return "missed" if self.low > self.allowed_ratio else "unsure"

    @property
    def why(self) -> str:
        share = f"{self.over:,} of {self.of:,} requests over the limit"
        return f"{self.name}: {share}, {self.low:.1%} to {self.high:.1%} where {self.allowed_ratio:.0%} may be"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a step came to, and the claim that decided it."""

    outcome: Outcome
    why: str


def decide(records: Sequence[RequestRecord], sla: Sla) -> Decision:
    """Whether ``records`` show that their load meets ``sla``, misses it, or neither."""
    claims = claims_of(records, sla)
    if not claims:
        return Decision(outcome="unsure", why="no request ended")
    for outcome in ("missed", "unsure"):
        found = [claim for claim in claims if claim.outcome == outcome]
        if found:
            worst = max(found, key=lambda claim: claim.over / max(1, claim.of) - claim.allowed_ratio)
            return Decision(outcome=outcome, why=worst.why)
    closest = max(claims, key=lambda claim: claim.high - claim.allowed_ratio)
    return Decision(outcome="met", why=closest.why)


def settled(decision: Decision, steady: SteadyState) -> Decision:
    """``decision``, but that a load whose latencies still climb at its end is not shown to be met: its queue grows, and
    a longer load would miss."""
    drift = steady.drift_ratio or 0.0
    if decision.outcome != "met" or steady.steady is not False or drift < MOST_DRIFT_RATIO:
        return decision
    return Decision(
        outcome="unsure", why=f"within the limits, but latencies rose by {drift:.0%} from first to second half"
    )


def claims_of(records: Sequence[RequestRecord], sla: Sla) -> tuple[Claim, ...]:
    """Each limit of ``sla`` against ``records``; a failed request is over every limit."""
    ordered = sorted(records, key=lambda record: record.t_sched_s)
    if not ordered:
        return ()
    claims = []
    if sla.ttft_p99_s is not None:
        limit_s = sla.ttft_p99_s
        over = [record.user_ttft_s is None or not record.ok or record.user_ttft_s > limit_s for record in ordered]
        claims.append(_claim("TTFT P99", over, ordered, 0.01))
    if sla.tpot_p99_s is not None:
        limit_s = sla.tpot_p99_s
        over = [not record.ok or (record.tpot_s or 0.0) > limit_s for record in ordered]
        claims.append(_claim("TPOT P99", over, ordered, 0.01))
    if sla.goodput_ratio is not None:
        over = [not meets_limits(record, sla) for record in ordered]
        claims.append(_claim("goodput", over, ordered, 1 - sla.goodput_ratio))
    failed = [not record.ok for record in ordered]
    allowed = 1 - (1.0 if sla.success_ratio is None else sla.success_ratio)
    claims.append(_failures(failed, ordered, allowed))
    return tuple(claims)


def _claim(name: str, over: Sequence[bool], records: Sequence[RequestRecord], allowed_ratio: float) -> Claim:
    count, number = sum(over), len(over)
    effect = design_effect(over, Blocks.along(records) if all(record.ok for record in records) else _even(number))
    worth = max(1, round(number / effect))
    low, high = share_interval(min(worth, round(count / effect)), worth, confidence=ONE_SIDED_95)
    return Claim(name=name, over=count, of=number, allowed_ratio=allowed_ratio, low=low, high=high)


def _failures(failed: Sequence[bool], records: Sequence[RequestRecord], allowed_ratio: float) -> Claim:
    """Where none may fail, one failure is a miss and none, in any number, is a pass: no sample proves zero."""
    count = sum(failed)
    if allowed_ratio > 0:
        return _claim("failed", failed, records, allowed_ratio)
    share = count / len(failed)
    return Claim(name="failed", over=count, of=len(failed), allowed_ratio=0.0, low=share, high=share)


def _even(number: int) -> Blocks:
    count = min(number, max(1, round(number ** (2 / 3))))
    return Blocks(of=tuple(place * count // number for place in range(number)), count=count)


def design_effect(over: Sequence[bool], blocks: Blocks) -> float:
    """How many neighbours are worth one independent request: variance of stretches' shares over that of chance."""
    share = sum(over) / len(over)
    if share in (0.0, 1.0) or blocks.count < 4:
        return 1.0
    sums, sizes = [0] * blocks.count, [0] * blocks.count
    for hit, block in zip(over, blocks.of, strict=True):
        sums[block] += hit
        sizes[block] += 1
    seen = math.fsum((hits - share * size) ** 2 for hits, size in zip(sums, sizes, strict=True)) / len(over)
    return min(len(over) / 4, max(1.0, seen / (share * (1 - share))))


class RateSearch:
    """Which rate to try next. Ask ``next_rate``, then ``tell`` what came of it, until None is asked for.

    Invariant: every rate told ``met`` is at most ``met_per_s`` or was passed by a failure below it; ``met_per_s`` is
    below ``not_met_per_s``.

    Args:
        first_per_s: to begin with.
        precision_ratio: the search ends when the two are within this of each other.
        least_per_s, most_per_s: bounds of what is tried.
    """

    def __init__(
        self,
        *,
        first_per_s: float,
        precision_ratio: float = 0.1,
        least_per_s: float = 0.0,
        most_per_s: float = math.inf,
    ) -> None:
        if first_per_s <= 0 or precision_ratio <= 0:
            raise ValueError(f"rate {first_per_s}/s and precision {precision_ratio} must be positive")
        self._next: float | None = min(max(first_per_s, least_per_s), most_per_s)
        self._precision_ratio = precision_ratio
        self._least_per_s = max(least_per_s, first_per_s / 2**MOST_HALVINGS)
        self._most_per_s = min(most_per_s, first_per_s * 2**14)
        self.met_per_s: float | None = None
        self.not_met_per_s: float | None = None
        self.tried: list[tuple[float, Outcome]] = []

    def next_rate(self) -> float | None:
        """The rate to try, None when the search is over."""
        return self._next if len(self.tried) < MOST_STEPS else None

    def tell(self, rate_per_s: float, outcome: Outcome) -> None:
        """What came of ``rate_per_s``. A rate that could not be decided is not one that is met."""
        self.tried.append((rate_per_s, outcome))
        if outcome == "met":
            self.met_per_s = rate_per_s
        else:
            self.not_met_per_s = rate_per_s
        self._next = self._following()

    def _following(self) -> float | None:
        met, not_met = self.met_per_s, self.not_met_per_s
        if met is None:
            lower = (not_met or 0.0) / 2
            return lower if lower >= self._least_per_s else None
        if not_met is None:
            return met * 2 if met * 2 <= self._most_per_s else self._most_per_s if met < self._most_per_s else None
        return math.sqrt(met * not_met) if not_met / met > 1 + self._precision_ratio else None


def surely_missed(records: Sequence[RequestRecord], sla: Sla) -> bool:
    """Whether a step need not go on: its requests so far already show a miss. One failure does, where none may be."""
    if sla.success_ratio in (None, 1.0) and any(not record.ok for record in records):
        return True
    return len(records) >= EARLY_REQUESTS and decide(records, sla).outcome == "missed"
