"""`roadworthy bench sweep`: the highest rate that still meets the SLA, or latency at each of several levels."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.bench_options import (
    FILE,
    RATE,
    SHARE,
    load_options,
    sla_options,
    target_options,
)
from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.adapters.load_sweep import Step, Sweep
    from roadworthy.bench.sweep import Outcome
    from roadworthy.bench.sweep_report import SweepRow, SweepView

DEFAULT_REQUESTS = 400
"""Enough to be sure of a P99 when all requests keep the limit: 300 without a miss prove it at 95 %."""
_SHOWN_FACTS = ("prompt tokens", "output tokens", "mix, by requests", "sessions", "prompt sizing")
_COLOURS = {"met": "green", "missed": "red", "unsure": "yellow"}


@click.command("sweep")
@target_options
@load_options
@sla_options
@click.option(
    "--requests",
    type=click.IntRange(min=20),
    default=DEFAULT_REQUESTS,
    show_default=True,
    help="Of one load; one that cannot be decided is repeated twice.",
)
@click.option("--precision", type=SHARE, default=0.1, help="How near the rates met and missed come, such as 5% (10%).")
@click.option("--max-rate", type=RATE, help="Try no higher rate.")
@click.option("--rates", metavar="R,R,...", help="Instead of searching: these rates, in requests a second.")
@click.option("--concurrency", metavar="N,N,...", help="Instead of searching: so many users who wait for answers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--out", type=FILE, help="Also write the JSON document to a file.")
@click.option("--html", type=FILE, help="Also write a page with the rate-latency curves.")
def command(
    target: str | None, spec: str | None, ready_file: Path | None, key: str | None, requests: int, precision: float,
    max_rate: float | None, rates: str | None, concurrency: str | None, as_json: bool, out: Path | None,
    html: Path | None, **options: Any,
) -> int:  # fmt: skip
    """Find the highest rate that still meets the SLA, by loads at one rate after the other.

    With --rates or --concurrency it measures those levels instead. Exit code 0: a rate is met (levels: measured); 1:
    none is; 2: wrong input; 3: the target could not be reached. Ctrl-C keeps the loads that ended.
    """
    from roadworthy.cli.bench_aim import aim_at
    from roadworthy.cli.bench_load import bench_request
    from roadworthy.cli.bench_output import Places, json_text

    if rates is not None and concurrency is not None:
        raise SpecError("--rates and --concurrency: wanted one of them", hint="run the command twice")
    places = Places(out=out, html=html)
    places.require_writable()
    request = bench_request(aim_at(target, spec=spec, ready_file=ready_file, key=key), requests=requests, **options)
    if request.replay is not None:
        raise SpecError("a trace has its own times, so there is no rate to search", hint="use --speed, one run each")
    sweep = _swept(request, precision=precision, max_rate=max_rate, rates=rates, concurrency=concurrency)
    view = view_of(sweep, searched=rates is None and concurrency is None)
    document = sweep_document(sweep, view)
    _show(view, document, as_json=as_json)
    contents = [(out, json_text(document))] if out is not None else []
    if html is not None:
        from roadworthy.bench.sweep_report import sweep_page

        contents.append((html, sweep_page(view)))
    from roadworthy.adapters.report_files import write_or_rescue

    write_or_rescue(contents, say=_say)
    return 0 if view.met else 1


def _swept(
    request: BenchRequest, *, precision: float, max_rate: float | None, rates: str | None, concurrency: str | None
) -> Sweep:
    from roadworthy.adapters.load_sweep import find_rate, run_levels
    from roadworthy.advise.objectives import DEFAULT_ACCEPTANCE
    from roadworthy.bench.sweep import LEAST_REQUESTS, RateSearch
    from roadworthy.cli.bench_progress import watching
    from roadworthy.spec.values import Sla

    sla = DEFAULT_ACCEPTANCE if request.sla == Sla() else request.sla
    with watching(request) as watch:
        if rates is not None or concurrency is not None:
            return run_levels(request, sla, _levels(request, rates, concurrency), told=_told, watch=watch)
        if request.workload.arrivals.pattern in ("closed", "ramp"):
            raise SpecError("a closed loop or a ramp has no rate to search", hint="use --concurrency, or --rates")
        if (request.requests or 0) < LEAST_REQUESTS:
            raise SpecError(
                f"--requests {request.requests}: too few to prove a P99, wanted at least {LEAST_REQUESTS}",
                hint=f"{DEFAULT_REQUESTS} without the option",
            )
        infinite = float("inf")
        search = RateSearch(
            first_per_s=request.workload.rate_per_s,
            precision_ratio=precision,
            most_per_s=infinite if max_rate is None else max_rate,
        )
        return find_rate(request, sla, search, told=_told, watch=watch)


def _levels(request: BenchRequest, rates: str | None, concurrency: str | None) -> list[BenchRequest]:
    if rates is not None:
        wanted = [RATE.convert(part, None, None) for part in rates.split(",")]
        return [replace(request, workload=replace(request.workload, rate_per_s=rate)) for rate in wanted]
    try:
        users = [int(part) for part in (concurrency or "").split(",")]
    except ValueError:
        users = []
    if not users or min(users) < 1:
        raise SpecError(f"--concurrency {concurrency}: wanted whole numbers from 1", hint="such as 1,2,4,8,16")
    arrivals = replace(request.workload.arrivals, pattern="closed")
    return [
        replace(
            request,
            workload=replace(request.workload, arrivals=replace(arrivals, users=count)),
            requests=max(request.requests or 0, 4 * count),
        )
        for count in users
    ]


def view_of(sweep: Sweep, *, searched: bool) -> SweepView:
    """What to show of ``sweep``."""
    from roadworthy.bench.sweep_report import SweepView

    by_users = any(step.users is not None for step in sweep.steps)
    notes = list(dict.fromkeys(note for step in sweep.steps for note in step.run.notes() if "uncounted" in note))
    if sweep.partial:
        notes.append("The sweep was ended early; loads that had not ended are not in it.")
    if sweep.limited_by:
        notes.append(f"The search stopped before its end: {sweep.limited_by}.")
    facts = sweep.steps[0].run.facts() if sweep.steps else ()
    notes += [f"{name}: {value}" for name, value in facts if name in _SHOWN_FACTS]
    return SweepView(
        title=f"{sweep.model} at {sweep.target}",
        by="users" if by_users else "rate",
        rows=tuple(_row(step) for step in sweep.steps),
        sla=sweep.sla,
        conclusion=_conclusion(sweep) if searched else f"{len(sweep.steps)} levels measured",
        met=sweep.met_per_s is not None if searched else bool(sweep.steps),
        notes=tuple(notes),
    )


def _conclusion(sweep: Sweep) -> str:
    met, not_met = sweep.met_per_s, sweep.not_met_per_s
    if met is None:
        lowest = min((step.rate_per_s for step in sweep.steps if step.rate_per_s), default=0.0)
        return f"no rate met the SLA, down to {lowest:.3g}/s"
    if not_met is None:
        return f"the SLA is met at {met:.3g}/s, the highest rate tried"
    outcome = next(step.outcome for step in reversed(sweep.steps) if step.rate_per_s == not_met)
    above = "missed" if outcome == "missed" else "not shown to be met"
    return f"the SLA is met at {met:.3g}/s and {above} at {not_met:.3g}/s"


def _row(step: Step) -> SweepRow:
    from roadworthy.bench.sweep_report import SweepRow

    return SweepRow(
        level=step.users if step.users is not None else step.rate_per_s or 0.0,
        outcome=step.outcome,
        why=step.decision.why,
        report=step.run.report,
        requests=len(step.records),
        ended_early=step.ended_early,
    )


def sweep_document(sweep: Sweep, view: SweepView) -> dict[str, object]:
    """What ``--json`` prints."""
    from roadworthy.cli.output import plain

    return {
        "verdict": "met" if view.met else "missed",
        "reason": view.conclusion,
        "target": sweep.target,
        "model": sweep.model,
        "highest_rate_met_per_s": sweep.met_per_s,
        "lowest_rate_not_met_per_s": sweep.not_met_per_s,
        "limited_by": sweep.limited_by,
        "partial": sweep.partial,
        "sla": plain(sweep.sla),
        "steps": [
            {
                "rate_per_s": step.rate_per_s,
                "users": step.users,
                "outcome": step.outcome,
                "why": step.decision.why,
                "requests": len(step.records),
                "repeats": step.repeats,
                "ended_early": step.ended_early,
                "report": plain(step.run.report),
            }
            for step in sweep.steps
        ],
        "notes": list(view.notes),
    }


def _show(view: SweepView, document: dict[str, object], *, as_json: bool) -> None:
    from roadworthy.bench.sweep_report import render_sweep
    from roadworthy.cli.output import print_json

    if as_json:
        print_json(document)
    else:
        click.echo(render_sweep(view, paint=_paint), nl=False)


def _told(step: Step) -> None:
    from roadworthy.bench.sweep_report import step_line

    _say(step_line(_row(step), "users" if step.users is not None else "rate"))


def _say(text: str) -> None:
    click.echo(text, err=True)


def _paint(outcome: Outcome, text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLOURS[outcome], bold=True)
