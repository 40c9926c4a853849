"""What a layout does under queueing: how large a simulation must be to tell, and what one told.

The plan's own numbers take arrivals at their mean. Bursts, uneven pipeline batches, the limit on sequences and a pool
that fills up are the twin's, which runs the engine's scheduler on the plan's step times. ``simulate.rank`` runs it;
here is what is asked of it and what comes back.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.core.latency import MIN_SAMPLES
from roadworthy.plan.workload import demand_of

if TYPE_CHECKING:
    from roadworthy.advise.gates import Verdict
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.core.records import RequestRecord
    from roadworthy.plan.values import Layout, LayoutPlan
    from roadworthy.spec.values import RequestProfile

BEST_LAYOUTS = 3
"""Layouts that are simulated unless someone asks for more."""

ENGINES_MAX = 4
"""Engines of one simulation. Equal engines behind one router behave alike: a larger deployment is simulated as so many
of its engines at their share of the rate, which spreads load a little less evenly than the whole would."""

REQUESTS_MIN = MIN_SAMPLES[99] + 100
"""A verdict on a P99 wants 1,000 completed requests of two tokens or more; a few end early or have one."""

REQUESTS_MAX = 2000
TURNOVERS = 3
"""How often the conversations under way should be replaced during a run, so that filling up is not most of it."""

STEPS_MAX = 1_000_000
"""Engine steps of one simulation, some seconds of work. Long answers of few requests at once would take more: such
a run has fewer requests, and its P99 is then not judged."""

CONVERSATIONS_MIN = 40
"""Conversations and answers below which the time in which conversations start says nothing of the throughput."""

SEED = 0
"""The same document gives the same ranking."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """How one layout is simulated: ``requests`` of ``workload`` on ``engines`` of ``engines_total`` equal engines."""

    engines: int
    engines_total: int
    requests: int
    workload: RequestProfile


def trial_of(judged: LayoutPlan, workload: RequestProfile) -> Trial:
    """A simulation of ``judged`` at the asked rate that is long enough to judge and short enough to wait for."""
    total = judged.layout.dp * judged.layout.replicas
    engines = min(total, ENGINES_MAX)
    share = replace(workload, rate_per_s=workload.rate_per_s * engines / total) if engines < total else workload
    in_flight = judged.predicted.concurrency / judged.layout.dp * engines if judged.predicted is not None else 0.0
    sessions = workload.sessions
    # requests that arrive in the life of a conversation: by Little's law its answers, and the pauses between them
    life = sessions.turns * in_flight + (sessions.turns - 1) * sessions.think_time_s * share.rate_per_s
    requests = min(REQUESTS_MAX, max(REQUESTS_MIN, math.ceil(TURNOVERS * life)))
    together = max(1.0, in_flight / engines / judged.layout.pp)  # requests that decode in one step
    requests = max(1, min(requests, int(STEPS_MAX * together / demand_of(workload).output_mean)))
    return Trial(engines=engines, engines_total=total, requests=requests, workload=share)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    """One layout at the asked rate in virtual time. Latencies are those of a user: from the scheduled arrival.

    Args:
        verdict: on every objective together; ``reason`` says what decided it.
        attainment_ratio: share of all requests that kept every per-request limit.
        output_tokens_per_s: of one replica, all its data-parallel ranks, once the service has filled up: over the
            second half of the time in which conversations start (over the whole run where few end in it).
        offered_ratio: arrivals in that time against the asked rate; well below 1 while conversations build up.
        carried: the rate was served without a growing backlog, as far as the run could tell.
        utilisation_ratio: mean share of time in which a pipeline stage computed.
        engines: that were simulated, out of ``engines_total``.
    """

    verdict: Verdict
    reason: str
    requests: int
    failed: int
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    output_tokens_per_s: float
    attainment_ratio: float
    utilisation_ratio: float
    preemptions: int
    engines: int
    engines_total: int
    offered_ratio: float
    carried: bool


def simulated(
    judged: LayoutPlan,
    trial: Trial,
    report: SlaReport,
    records: Sequence[RequestRecord],
    *,
    utilisation_ratio: float,
    preemptions: int,
) -> Simulated:
    """What the run of ``trial``, of which these are the ``records`` and the ``report``, says of the layout."""
    opens_s, closes_s = _filled_up(records)
    length_s = closes_s - opens_s
    ended = sum(record.n_out for record in records if record.ok and opens_s < record.t_last_s <= closes_s)
    arrived = sum(opens_s < record.t_sched_s <= closes_s for record in records)
    rate_gate = next(gate for gate in report.gates if gate.name == "asked rate")
    return Simulated(
        verdict=report.verdict,
        reason=report.reason,
        requests=report.requests,
        failed=report.failed,
        ttft_p50_s=report.user_ttft_s.p50,
        ttft_p99_s=report.user_ttft_s.p99,
        tpot_p50_s=report.tpot_s.p50,
        tpot_p99_s=report.tpot_s.p99,
        output_tokens_per_s=ended / length_s * judged.layout.dp / trial.engines if length_s > 0 else 0.0,
        attainment_ratio=report.attainment_ratio or 0.0,
        utilisation_ratio=utilisation_ratio,
        preemptions=preemptions,
        engines=trial.engines,
        engines_total=trial.engines_total,
        offered_ratio=arrived / (trial.workload.rate_per_s * length_s) if length_s > 0 else 0.0,
        carried=rate_gate.passed is not False,
    )


def _filled_up(records: Sequence[RequestRecord]) -> tuple[float, float]:
    """The second half of the time in which conversations start; the whole run where few start or end in it."""
    starts_s = [record.t_sched_s for record in records if record.turn == 0]
    opens_s, closes_s = max(starts_s) / 2, max(starts_s)
    ended = sum(opens_s < record.t_last_s <= closes_s for record in records)
    if min(len(starts_s), ended) < CONVERSATIONS_MIN:
        return min(starts_s), max(record.t_last_s for record in records)
    return opens_s, closes_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Queueing:
    """The simulated layouts, and those that could not be, each with the reason."""

    results: Mapping[Layout, Simulated]
    skipped: Mapping[Layout, str]

    def of(self, judged: LayoutPlan) -> Simulated | None:
        """The result for a layout; one alike to a simulated layout shares it."""
        return self.results.get(judged.layout)


NOT_SIMULATED = Queueing(results={}, skipped={})
