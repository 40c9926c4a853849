"""Does the service meet its SLA: records of requests in, percentiles and a verdict for each objective out.

``bench`` (measured) and ``simulate`` (computed) are judged by this one function. A run passes its gates in a fixed
order, each with its own reason, because a later number means nothing when an earlier gate failed (facts:
economics_and_sla, section 1)::

    complete -> reachable -> failed share -> completed >= minimum -> client healthy
             -> the asked rate was achieved -> each latency limit -> goodput

A sample that is missing or too small is never a pass: the objective is ``None`` and says how many are needed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import sub
from typing import TYPE_CHECKING, TypedDict, Unpack

from roadworthy.advise.breakdown import GroupReport, grouped
from roadworthy.advise.gates import (
    Gate,
    Verdict,
    client_error_gates,
    client_gate,
    complete_gate,
    completed_gate,
    conclude,
    rate_gate,
    reachable_gate,
    steady_window,
)
from roadworthy.advise.latencies import Latencies
from roadworthy.advise.objectives import (
    DEFAULT_ACCEPTANCE,
    Objective,
    goodput_objectives,
    latency_objectives,
    success_objective,
)
from roadworthy.core.columns import NOT_TOLD, Columns
from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE
from roadworthy.core.latency import LatencySummary
from roadworthy.spec.values import Sla

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class SlaReport:
    """What a run measured and what it proves.

    Latencies cover completed requests. ``ttft_s`` and ``e2e_s`` start at the send; the ``user_`` ones start at the
    scheduled arrival and are what objectives are judged on. ``duration_s`` runs from the first scheduled arrival to
    the last token, drain included, so ``request_rate_per_s`` is below the asked rate on every short run;
    ``achieved_ratio`` compares completions with arrivals inside the steady window instead (None: no such window).
    """

    verdict: Verdict
    reason: str
    objectives: tuple[Objective, ...]
    gates: tuple[Gate, ...]
    requests: int
    completed: int
    failed: int
    duration_s: float
    asked_rate_per_s: float | None
    scheduled_rate_per_s: float
    request_rate_per_s: float
    achieved_ratio: float | None
    input_tokens: int
    cached_tokens: int | None
    output_tokens: int
    output_tokens_per_s: float
    total_tokens_per_s: float
    goodput_rps: float
    attainment_ratio: float | None
    ttft_s: LatencySummary
    tpot_s: LatencySummary
    itl_s: LatencySummary
    e2e_s: LatencySummary
    client_queue_s: LatencySummary
    user_ttft_s: LatencySummary
    user_e2e_s: LatencySummary
    tenants: tuple[GroupReport, ...]
    errors: tuple[tuple[str, int], ...]
    warmup_requests: int
    default_limits: bool
    partial: bool
    client_lag_s: LatencySummary | None = None

    @property
    def exit_code(self) -> int:
        """0 when every objective is met; 1 when one is missed or when the run cannot tell."""
        return EXIT_FINE if self.verdict == "met" else EXIT_FINDINGS


class Circumstances(TypedDict, total=False):
    """What a verdict has to know beside the requests; each may be left out.

    Args:
        asked_rate_per_s: nominal arrival rate; None when the load had none, and the rate gate then does not apply.
        even_rate: the arrival rate is meant to be the same all along.
        client_cpu_ratio: share of one core that the load generator used; None in virtual time.
        client_lag: how late the load generator's loop got to what was due; None in virtual time.
        stalls_s: lengths of the times that the load generator stood still.
        max_concurrency: the caller's cap on requests in flight, whose wait is then no fault of the client.
        min_completed: completed requests below which nothing is judged.
        reachable: False when the target never answered anything.
        partial: the run ended early; it can show a miss, never prove a pass.
    """

    asked_rate_per_s: float | None
    even_rate: bool
    client_cpu_ratio: float | None
    client_lag: LatencySummary | None
    stalls_s: Sequence[float]
    max_concurrency: int | None
    min_completed: int
    reachable: bool
    partial: bool


def judge(
    records: Iterable[RequestRecord], sla: Sla, *, warmup_s: float = 0.0, **circumstances: Unpack[Circumstances]
) -> SlaReport:
    """The report on ``records``, in any order, against ``sla``.

    Args:
        sla: objectives; when it states none, ``objectives.DEFAULT_ACCEPTANCE`` applies and ``default_limits`` says so.
        warmup_s: requests scheduled within this time of the first are left out of every number.
    """
    everything = tuple(records)
    counted = after_warmup(everything, warmup_s)
    left_out = len(everything) - len(counted)
    return judge_columns(Columns.of(counted), sla, warmup_requests=left_out, **circumstances)


def judge_columns(
    counted: Columns,
    sla: Sla,
    *,
    asked_rate_per_s: float | None = None,
    even_rate: bool = True,
    client_cpu_ratio: float | None = None,
    client_lag: LatencySummary | None = None,
    stalls_s: Sequence[float] = (),
    max_concurrency: int | None = None,
    warmup_requests: int = 0,
    min_completed: int = 1,
    reachable: bool = True,
    partial: bool = False,
) -> SlaReport:
    """:func:`judge` of requests that are in columns already, in the same :class:`Circumstances`, ``warmup_requests``
    others left out of them."""
    default_limits = sla == Sla()
    sla = DEFAULT_ACCEPTANCE if default_limits else sla
    done = counted.done()
    failed = len(counted) - len(done)
    duration_s = _duration_s(counted)
    latencies = Latencies.of(done)
    good = sum(latencies.within(sla))
    user_e2e_s = sorted(latencies.user_e2e_s)
    steady = steady_window(counted, done, user_e2e_s)
    user_ttft = LatencySummary.of(latencies.user_ttft_s)
    user_e2e = LatencySummary.of(user_e2e_s)
    tpot = LatencySummary.of(latencies.tpots_s)
    at_once = done.sent_s is done.sched_s
    queue = LatencySummary.of(repeat(0.0, len(done)) if at_once else map(sub, done.sent_s, done.sched_s))
    tokens_in, tokens_out = sum(done.n_in), sum(done.n_out)
    errors = _errors(counted)
    attainment = good / len(counted) if counted else None

    success = success_objective(len(done), len(counted), sla)
    latency = latency_objectives(sla, user_ttft, tpot)
    kept_up = rate_gate(steady, asked_rate_per_s, even=even_rate)
    goodput = goodput_objectives(sla, _rate(good, duration_s), attainment, offered=kept_up.passed is not None)
    gates = (
        complete_gate(partial),
        reachable_gate(reachable, len(counted)),
        *client_error_gates(errors),
        Gate(name="failed share", passed=success.met, why=success.why),
        completed_gate(len(done), min_completed),
        client_gate(queue, client_cpu_ratio, max_concurrency, lag=client_lag, stalls_s=stalls_s),
        kept_up,
        *(Gate(name=item.name, passed=item.met, why=item.why) for item in (*latency, *goodput)),
    )
    verdict, reason = conclude(gates)
    return SlaReport(
        verdict=verdict,
        reason=reason,
        objectives=(*latency, success, *goodput),
        gates=gates,
        requests=len(counted),
        completed=len(done),
        failed=failed,
        duration_s=duration_s,
        asked_rate_per_s=asked_rate_per_s,
        scheduled_rate_per_s=_scheduled_rate_per_s(counted),
        request_rate_per_s=_rate(len(done), duration_s),
        achieved_ratio=steady.ratio if steady else None,
        input_tokens=tokens_in,
        cached_tokens=_cached(done),
        output_tokens=tokens_out,
        output_tokens_per_s=_rate(tokens_out, duration_s),
        total_tokens_per_s=_rate(tokens_in + tokens_out, duration_s),
        goodput_rps=_rate(good, duration_s),
        attainment_ratio=attainment,
        ttft_s=user_ttft if at_once else LatencySummary.of(latencies.ttft_s),
        tpot_s=tpot,
        itl_s=LatencySummary.of(done.gaps_s),
        e2e_s=user_e2e if at_once else LatencySummary.of(latencies.e2e_s),
        client_queue_s=queue,
        client_lag_s=client_lag,
        user_ttft_s=user_ttft,
        user_e2e_s=user_e2e,
        tenants=grouped(counted, counted.tenant, counted.tenants, sla, latencies),
        errors=tuple(Counter(dict(errors)).most_common()),
        warmup_requests=warmup_requests,
        default_limits=default_limits,
        partial=partial,
    )


def after_warmup(records: Sequence[RequestRecord], warmup_s: float) -> tuple[RequestRecord, ...]:
    """The records that count: those scheduled at least ``warmup_s`` after the first."""
    if not records or warmup_s <= 0:
        return tuple(records)
    start_s = min(record.t_sched_s for record in records) + warmup_s
    return tuple(record for record in records if record.t_sched_s >= start_s)


def _rate(count: float, duration_s: float) -> float:
    return count / duration_s if duration_s > 0 else 0.0


def _duration_s(columns: Columns) -> float:
    return max(columns.last_s) - min(columns.sched_s) if len(columns) else 0.0


def _scheduled_rate_per_s(columns: Columns) -> float:
    """Arrivals a second of the schedule as drawn: n - 1 gaps between the first and the last."""
    if len(columns) < 2:
        return 0.0
    return _rate(len(columns) - 1, max(columns.sched_s) - min(columns.sched_s))


def _cached(done: Columns) -> int | None:
    """Prompt tokens that servers held, of those requests whose server says so."""
    told = [cached for cached in done.cached if cached != NOT_TOLD]
    return sum(told) if told else None


def _errors(columns: Columns) -> list[tuple[str, int]]:
    """Each error, in the order of its first, and how many requests failed of it."""
    counts = Counter(columns.error)
    return [(columns.errors[error], times) for error, times in counts.items() if error]
