"""The throughput that `cost` prices: from the plan, from a search with the twin, or from the JSON of a run."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import SpecError
from roadworthy.cost.throughput import Throughput, at_a_trickle, has_objectives, measured_throughput, planned_throughput

if TYPE_CHECKING:
    from roadworthy.cli.simulate import JudgedRun
    from roadworthy.cli.wiring import Planned

REQUESTS = 1000
"""Requests of each simulated run: as many as a verdict on a P99 wants."""

STEP, WIDENINGS, HALVINGS = 1.5, 8, 4
"""The search brackets the highest good rate within a factor of ``STEP`` and then halves that four times: to 3 %."""


def from_plan(planned: Planned) -> Throughput:
    """What the plan predicts within the SLA, before queueing. Raises Infeasible when nothing fits."""
    from roadworthy.plan.search import make_plan

    planned.best()
    trickle = make_plan(at_a_trickle(planned.deployment), planned.model, planned.gpu)
    return planned_throughput(planned.deployment, planned.plan, trickle)


def from_file(planned: Planned, path: Path) -> Throughput:
    """What a run measured. Raises SpecError when the file holds no run of this model."""
    from roadworthy.adapters.files import read_text

    text = read_text(path, what="the JSON that bench or simulate prints", limit_bytes=64 * 2**20)
    try:
        run = json.loads(text)
    except ValueError as error:
        raise SpecError(
            f"{path}: not JSON: {error}", hint="write it with `roadworthy bench SPEC … --json > FILE`"
        ) from error
    if not isinstance(run, dict):
        raise SpecError(f"{path}: a JSON {type(run).__name__}, wanted the object that bench or simulate prints")
    return measured_throughput(run, planned.deployment, source=str(path))


def from_simulation(planned: Planned, *, seed: int = 0) -> Throughput:
    """The highest rate that the twin of the best layout keeps within the SLA, queueing included.

    Raises:
        SpecError: the document promises no latency, so that there is nothing to search for.
    """
    deployment = planned.deployment
    if not has_objectives(deployment.sla):
        raise SpecError(
            f"{deployment.name}: --simulate searches the highest rate within the SLA, and no latency is promised",
            hint="set sla.ttft_p99 or sla.tpot_p99, or leave --simulate out",
        )
    asked_rate = deployment.workload.rate_per_s
    at_asked = _run(planned, asked_rate, seed)
    met, best = at_asked.report.verdict == "met", at_asked
    low, high = (asked_rate, None) if met else (None, asked_rate)
    rate = asked_rate
    for _ in range(WIDENINGS):
        if low is not None and high is not None:
            break
        rate = rate * STEP if high is None else rate / STEP
        run = _run(planned, rate, seed)
        if run.report.verdict == "met":
            low, best = rate, run
        else:
            high = rate
    if low is None:
        return _throughput(planned, at_asked, asked_rate, at_asked, meets=False)
    for _ in range(HALVINGS if high is not None else 0):
        assert high is not None
        rate = (low * high) ** 0.5
        run = _run(planned, rate, seed)
        if run.report.verdict == "met":
            low, best = rate, run
        else:
            high = rate
    return _throughput(planned, best, low, at_asked, meets=True)


def _run(planned: Planned, rate_per_s: float, seed: int) -> JudgedRun:
    from roadworthy.cli.simulate import simulate_planned

    click.echo(f"simulating {REQUESTS:,} requests at {rate_per_s:.3g}/s", err=True)
    deployment = planned.deployment
    # a goodput in requests a second belongs to the asked rate; at another one it would judge the rate itself
    changed = replace(
        deployment,
        workload=replace(deployment.workload, rate_per_s=rate_per_s),
        sla=replace(deployment.sla, goodput_per_s=None),
    )
    return simulate_planned(replace(planned, deployment=changed), requests=REQUESTS, seed=seed)


def _throughput(planned: Planned, run: JudgedRun, rate_per_s: float, asked: JudgedRun, *, meets: bool) -> Throughput:
    report, best = run.report, planned.best()
    predicted = best.predicted
    # a run of a thousand requests drains at its end: tokens of a request times the rate is the steady throughput
    steady = min(rate_per_s, report.request_rate_per_s) if not meets else rate_per_s
    each = report.output_tokens / max(1, report.completed)
    both = (report.output_tokens + report.input_tokens) / max(1, report.completed)
    at_asked = asked.report.verdict == "met"
    return Throughput(
        output_tokens_per_s=each * steady,
        total_tokens_per_s=both * steady,
        kind="simulated",
        source=f"the twin at {rate_per_s:.3g} requests/s, the highest rate found within the SLA"
        if meets
        else f"the twin at {rate_per_s:.3g} requests/s, outside the SLA",
        layout=best.layout.label,
        error_band=predicted.error_band if predicted is not None else 0.0,
        meets_sla=meets,
        meets_at_asked_rate=at_asked,
        why="" if at_asked else f"{best.layout.label}: {asked.report.reason}",
        in_flight=asked.report.e2e_s.mean * planned.deployment.workload.rate_per_s if at_asked else None,
    )
