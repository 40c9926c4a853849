"""What `simulate --json` prints: the keys of `bench`, and what only a simulation knows."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from roadworthy.cli.output import plain
from roadworthy.cli.simulate_text import fairness
from roadworthy.cli.simulate_trace import trace_json
from roadworthy.core.latency import LatencySummary
from roadworthy.simulate.timeline import levels_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.cli.simulate_run import JudgedRun, SeedResult
    from roadworthy.simulate.timeline import Levels, Points

TIMELINE_POINTS = 60
"""Stretches of a run in the JSON document."""


def simulate_document(judged: JudgedRun, variants: Sequence[JudgedRun] = ()) -> dict[str, object]:
    """One JSON document for a run and, under ``what_if``, its variants."""
    report = plain(judged.report)
    assert isinstance(report, dict)  # a dataclass becomes an object
    verdict, reason = report.pop("verdict"), report.pop("reason")
    best, deployment = judged.planned.best(), judged.planned.deployment
    document: dict[str, object] = {
        "verdict": verdict,
        "reason": reason,
        "simulated": True,
        "model": deployment.model.served_name,
        "layout": best.layout.label,
        "engines": len(judged.run.engines),
        "seed": judged.seed,
        "periods": judged.periods,
        **report,
        "tenants": _tenants(judged),
        "utilisation_ratio": judged.run.utilisation_ratio,
        "preemptions": judged.run.preemptions,
        "routing": _routing(judged),
        "governed": judged.governed,
        "queue": _queue(judged),
        "fairness": {"jain_index": fairness(judged), "of": "completed / requests of each tenant"}
        if judged.standings
        else None,
        "cost": _cost(judged),
        "timeline": _timeline(judged),
        "requests_per_cpu_s": judged.requests_per_cpu_s,
    }
    if judged.recording is not None:
        document["trace"] = trace_json(judged.recording, too_long=judged.too_long)
    if judged.seeds:
        document["seeds"] = [_seed(one) for one in judged.seeds]
    if variants:
        document["what_if"] = [
            {"changes": one.variant.name if one.variant is not None else "", **simulate_document(one)}
            for one in variants
        ]
    return document


def _tenants(judged: JudgedRun) -> list[dict[str, object]]:
    """The report's line of each tenant with its standing."""
    standings = {one.id: one for one in judged.standings}
    cost, tenants = judged.cost, []
    for one in judged.report.tenants:
        row = plain(one)
        assert isinstance(row, dict)  # a dataclass becomes an object
        standing = standings.get(one.id)
        if standing is not None:
            row |= {
                "weight_ratio": standing.weight_ratio,
                "work_ratio": standing.work_ratio,
                "admitted": standing.admitted,
                "borrowed": standing.borrowed,
                "refused": dict(standing.refused),
                "waited": standing.waited,
                "waited_p50_s": standing.waited_p50_s,
                "waited_p99_s": standing.waited_p99_s,
                "cost": cost * standing.work_ratio if cost is not None else None,
            }
        tenants.append(row)
    return tenants


def _routing(judged: JudgedRun) -> dict[str, object]:
    routing: dict[str, object] = {
        "policy": judged.routing.policy,
        "cached_ratio": judged.run.cached_ratio,
        "chosen_by": dict(judged.run.chosen_by),
    }
    if judged.policies:
        routing["policies"] = plain(judged.policies)
    return routing


def _timeline(judged: JudgedRun) -> dict[str, object] | None:
    """The run over time, in ``TIMELINE_POINTS`` stretches at most; None where nothing was looked at."""
    run = judged.run
    levels = levels_of(run.timeline, run.log, len(run.engines), points=TIMELINE_POINTS)
    if not levels.utilisation_ratio:
        return None
    columns = {name: [level for _, level in points] for name, points in plain_levels(levels)}
    return {"at_s": [at_s for at_s, _ in levels.utilisation_ratio], **columns}


def plain_levels(levels: Levels) -> Iterator[tuple[str, Points]]:
    """Each level with its name; one that never rose is all zeros."""
    nothing = tuple((at_s, 0.0) for at_s, _ in levels.utilisation_ratio)
    for one in fields(levels):
        yield one.name, getattr(levels, one.name) or nothing


def _queue(judged: JudgedRun) -> dict[str, object]:
    """Waits in the gateway's own queue, over the requests that had to."""
    waits_s = [waited_s for waited_s in judged.run.log.waited_s if waited_s > 0]
    return {"waited": len(waits_s), "waited_s": plain(LatencySummary.of(waits_s))}


def _cost(judged: JudgedRun) -> dict[str, object] | None:
    """Money while the run lasted; None when no price is known for the GPU."""
    if judged.cost is None:
        return None
    tokens = judged.report.output_tokens
    return {
        "currency": judged.currency,
        "per_hour": judged.cost_per_hour,
        "of_the_run": judged.cost,
        "per_output_mtok": judged.cost / tokens * 1e6 if tokens else None,
    }


def _seed(one: SeedResult) -> dict[str, object]:
    report = one.report
    return {
        "seed": one.seed,
        "verdict": report.verdict,
        "ttft_p99_s": report.user_ttft_s.p99 if report.user_ttft_s.count else None,
        "tpot_p99_s": report.tpot_s.p99 if report.tpot_s.count else None,
        "goodput_rps": report.goodput_rps,
        "failed": report.failed,
        "utilisation_ratio": one.utilisation_ratio,
    }
