"""The objectives of an SLA, each held against what a run measured."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from roadworthy.core.latency import MIN_SAMPLES, LatencySummary
from roadworthy.core.units import format_duration
from roadworthy.spec.values import Sla

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord

DEFAULT_ACCEPTANCE = Sla(ttft_p99_s=0.250, tpot_p99_s=0.040, success_ratio=1.0)
"""What a run is held to when nobody stated an objective."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """One promise and what became of it. ``met`` None means that this run cannot tell; ``why`` says so in words.

    ``limit`` and ``measured`` are in ``unit``: seconds (``s``), a share (``ratio``) or requests a second (``per_s``).
    ``low`` and ``high`` bound what was measured in 95 of 100 runs, None where that was not asked or cannot be told.
    """

    name: str
    unit: Literal["s", "ratio", "per_s"]
    limit: float
    measured: float | None
    met: bool | None
    why: str
    low: float | None = None
    high: float | None = None


def meets_limits(record: RequestRecord, sla: Sla) -> bool:
    """Whether a completed request keeps every per-request limit; one output token has no TPOT and keeps that one."""
    if not record.ok or record.user_ttft_s is None:
        return False
    if sla.ttft_p99_s is not None and record.user_ttft_s > sla.ttft_p99_s:
        return False
    return sla.tpot_p99_s is None or (record.tpot_s or 0.0) <= sla.tpot_p99_s


def latency_objectives(sla: Sla, user_ttft: LatencySummary, tpot: LatencySummary) -> tuple[Objective, ...]:
    asked = (
        ("ttft_p99", sla.ttft_p99_s, 99, user_ttft, "completed requests (from their scheduled arrival)"),
        ("tpot_p99", sla.tpot_p99_s, 99, tpot, "completed requests of two or more tokens"),
    )
    return tuple(
        _percentile_objective(name, limit_s, percent, summary, of)
        for name, limit_s, percent, summary, of in asked
        if limit_s is not None
    )


def _percentile_objective(name: str, limit_s: float, percent: int, summary: LatencySummary, of: str) -> Objective:
    measured: float = getattr(summary, f"p{percent}")
    needed = MIN_SAMPLES[percent]
    met: bool | None = measured <= limit_s
    if summary.count < needed:
        met = None
        why = f"P{percent} needs {needed:,} {of}, this run has {summary.count:,}"
    elif met:
        why = f"P{percent} of {summary.count:,} {of}"
    else:
        why = f"P{percent} is {format_duration(measured - limit_s)} over the limit ({measured / limit_s:.2f} times it)"
    shown = None if math.isnan(measured) else measured
    return Objective(name=name, unit="s", limit=limit_s, measured=shown, met=met, why=why)


def success_objective(completed: int, requests: int, sla: Sla) -> Objective:
    """Judged in every run: a document without a success objective still tolerates no failed request."""
    limit = 1.0 if sla.success_ratio is None else sla.success_ratio
    if requests == 0:
        return Objective(
            name="success", unit="ratio", limit=limit, measured=None, met=None, why="no request was counted"
        )
    ratio = completed / requests
    why = f"{requests - completed:,} of {requests:,} requests failed"
    if sla.success_ratio is None:
        why += " (no success objective is stated: none may fail)"
    return Objective(name="success", unit="ratio", limit=limit, measured=ratio, met=ratio >= limit, why=why)


def goodput_objectives(
    sla: Sla, goodput_rps: float, attainment: float | None, *, offered: bool = True
) -> tuple[Objective, ...]:
    """Goodput as a rate or as a share. A rate that was never ``offered`` cannot be missed, only not shown."""
    if sla.goodput_per_s is not None:
        why = f"{goodput_rps:.2f} requests a second kept every limit, drain included"
        met: bool | None = goodput_rps >= sla.goodput_per_s
        if not met and not offered:
            met, why = None, f"{why}; the asked load was not offered long enough to tell"
        return (
            Objective(
                name="goodput", unit="per_s", limit=sla.goodput_per_s, measured=goodput_rps,
                met=met, why=why,
            ),
        )  # fmt: skip
    if sla.goodput_ratio is not None:
        met = None if attainment is None else attainment >= sla.goodput_ratio
        why = "no request was counted" if attainment is None else f"{attainment:.1%} of all requests kept every limit"
        return (
            Objective(
                name="goodput", unit="ratio", limit=sla.goodput_ratio, measured=attainment, met=met, why=why
            ),
        )  # fmt: skip
    return ()
