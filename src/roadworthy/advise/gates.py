"""The gates a run passes on the way to a verdict, and the verdict they make together.

The order is fixed, because a later number means nothing when an earlier gate failed (facts: economics_and_sla,
section 1). A gate that cannot tell is not a pass.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roadworthy.core.latency import LatencySummary, percentile
from roadworthy.core.records import CLIENT_ERROR
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from roadworthy.core.columns import Columns

Verdict = Literal["met", "missed", "undecided"]

CLIENT_GATE = "client healthy"
MAX_CLIENT_LAG_P99_S = 0.050
MAX_CLIENT_CPU_RATIO = 0.85
MIN_ACHIEVED_RATIO = 0.95
MIN_STEADY_ARRIVALS = 20
"""Completed requests scheduled inside the steady window below which an achieved rate is noise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gate:
    """One step on the way to a verdict; ``passed`` None means that this run cannot tell."""

    name: str
    passed: bool | None
    why: str
    otherwise: Verdict = "missed"


def complete_gate(partial: bool) -> Gate:
    why = "the run was ended early: what it shows may be a miss, never a pass" if partial else "the run went to its end"
    return Gate(name="complete", passed=None if partial else True, why=why)


def reachable_gate(reachable: bool, requests: int) -> Gate:
    passed = reachable and requests > 0
    why = "the target answered" if passed else "the target never answered" if requests else "no request was counted"
    return Gate(name="reachable", passed=passed, why=why, otherwise="undecided")


def completed_gate(completed: int, minimum: int) -> Gate:
    why = f"{completed:,} requests completed, at least {minimum:,} wanted"
    return Gate(name="completed", passed=completed >= minimum, why=why, otherwise="undecided")


def client_error_gates(errors: Sequence[tuple[str, int]]) -> tuple[Gate, ...]:
    """A gate that fails when requests died in the load generator itself, which says nothing of the service.

    Args:
        errors: each with how many requests failed of it, in the order in which they first did.
    """
    own = [(error, times) for error, times in errors if error.startswith(CLIENT_ERROR)]
    if not own:
        return ()
    failed = sum(times for _, times in own)
    why = f"{failed:,} requests failed in the load generator itself ({own[0][0]}): raise its limits and run again"
    return (Gate(name=CLIENT_GATE, passed=False, why=why, otherwise="undecided"),)


def client_gate(
    queue: LatencySummary,
    cpu_ratio: float | None,
    max_concurrency: int | None,
    *,
    lag: LatencySummary | None = None,
    stalls_s: Sequence[float] = (),
) -> Gate:
    """The load generator's own health; a slow client would be blamed on the service.

    Args:
        queue: from each request's time in the schedule to its send.
        lag: how late the loop got to what was due, which is how late answers may have been read.
        stalls_s: lengths of the times that nothing ran at all.
    """

    def gate(passed: bool, why: str) -> Gate:
        return Gate(name=CLIENT_GATE, passed=passed, why=why, otherwise="undecided")

    limit = format_duration(MAX_CLIENT_LAG_P99_S)
    if stalls_s:
        longest = format_duration(max(stalls_s))
        return gate(
            False, f"the load generator stood still {len(stalls_s)} times, for up to {longest}: was it suspended?"
        )
    if cpu_ratio is not None and cpu_ratio >= MAX_CLIENT_CPU_RATIO:
        return gate(False, f"the load generator used {cpu_ratio:.0%} of a core (limit {MAX_CLIENT_CPU_RATIO:.0%})")
    if lag is not None and lag.count and lag.p99 >= MAX_CLIENT_LAG_P99_S:
        return gate(False, f"the load generator's loop was {format_duration(lag.p99)} late (P99, limit {limit})")
    if max_concurrency is not None:
        return gate(True, f"at most {max_concurrency} in flight by request; the wait counts in the user's latency")
    if queue.p99 >= MAX_CLIENT_LAG_P99_S:
        return gate(False, f"requests left {format_duration(queue.p99)} after their time (P99, limit {limit})")
    late = format_duration(queue.p99) if queue.count else "unknown"
    read = f", reads P99 {format_duration(lag.p99)}" if lag is not None and lag.count and lag.p99 > 0 else ""
    return gate(True, f"schedule lag P99 {late}{read}" + ("" if cpu_ratio is None else f", {cpu_ratio:.0%} of a core"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SteadyWindow:
    """What went in and out between filling up and draining.

    Args:
        length_s: of the window.
        arrivals: requests scheduled inside it.
        arrivals_completed: those of them that completed, whenever that was.
        completions: requests whose last token came inside it.
        chance: difference of arrivals and completions that random arrivals alone explain.
    """

    length_s: float
    arrivals: int
    arrivals_completed: int
    completions: int
    chance: float

    @property
    def ratio(self) -> float:
        return self.completions / self.arrivals if self.arrivals else 1.0

    def offered(self, asked_rate_per_s: float) -> bool:
        """Whether as many requests arrived as asked for, or as few as a Poisson process may bring in that time."""
        expected = asked_rate_per_s * self.length_s
        return self.arrivals_completed >= min(MIN_ACHIEVED_RATIO * expected, expected - 3 * math.sqrt(expected))


def steady_window(counted: Columns, done: Columns, user_e2e_s: Sequence[float]) -> SteadyWindow | None:
    """Completions against arrivals once the pipe is full and before the drain; None without such a window.

    The window opens one P95 of end-to-end time after the first arrival and closes with the last. Arrivals minus
    completions is then the growth of the requests in flight. At each edge that number is about Poisson, so a
    difference below three times the square root of both is chance. Window and edges are taken over completed
    requests: a failure can only widen the gap.

    Args:
        user_e2e_s: of the requests ``done``, ascending.
    """
    if not len(done):
        return None
    times_s, ends_s = done.sched_s, done.last_s
    opens_s = min(times_s) + percentile(user_e2e_s, 95)
    closes_s = max(times_s)
    arrivals_completed = _within(times_s, opens_s, closes_s)
    if arrivals_completed < MIN_STEADY_ARRIVALS:
        return None
    edges = sum(
        [
            (time_s <= opens_s < end_s) + (time_s <= closes_s < end_s)
            for time_s, end_s in zip(times_s, ends_s, strict=True)
        ]
    )
    return SteadyWindow(
        length_s=closes_s - opens_s,
        arrivals=arrivals_completed if counted is done else _within(counted.sched_s, opens_s, closes_s),
        arrivals_completed=arrivals_completed,
        completions=_within(ends_s, opens_s, closes_s),
        chance=3 * math.sqrt(edges),
    )


def _within(times_s: Sequence[float], opens_s: float, closes_s: float) -> int:
    return sum([opens_s < time_s <= closes_s for time_s in times_s])


def rate_gate(steady: SteadyWindow | None, asked_rate_per_s: float | None, *, even: bool = True) -> Gate:
    """Whether the service kept up with the load, and whether the load was the one that was asked for.

    Args:
        even: the rate is meant to hold all along. In waves, bursts, ramps and traces the mean says nothing of the
            steady window, so that only the backlog is looked at.
    """

    def gate(passed: bool | None, why: str) -> Gate:
        return Gate(name="asked rate", passed=passed, why=why)

    if asked_rate_per_s is None:
        return gate(True, "the load asked for no rate")
    if steady is None:
        return gate(None, f"fewer than {MIN_STEADY_ARRIVALS} requests between filling up and draining: run it longer")
    seen = f"{steady.completions:,} completed while {steady.arrivals:,} arrived in the steady window"
    if steady.ratio < MIN_ACHIEVED_RATIO and steady.arrivals - steady.completions > steady.chance:
        return gate(False, f"{seen} ({steady.ratio:.0%}, at least {MIN_ACHIEVED_RATIO:.0%} wanted): the backlog grows")
    if even and not steady.offered(asked_rate_per_s):
        rate_per_s = steady.arrivals_completed / steady.length_s
        return gate(
            None,
            f"only {rate_per_s:.2f}/s arrived of {asked_rate_per_s:.2f}/s: conversations still build up, run longer",
        )
    return gate(True, seen)


def conclude(gates: Sequence[Gate]) -> tuple[Verdict, str]:
    """The first gate that failed decides; failing none, the first that cannot tell; failing that, the run is good."""
    for gate in gates:
        if gate.passed is False:
            return gate.otherwise, f"{gate.name}: {gate.why}"
    for gate in gates:
        if gate.passed is None:
            return "undecided", f"{gate.name}: {gate.why}"
    return "met", "every objective is met"
