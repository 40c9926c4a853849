"""`roadworthy simulate`: the deployment of a document in virtual time, and a verdict for each objective."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.advise.gates import Verdict
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.bench.sections import RunSection
    from roadworthy.cli.wiring import Planned
    from roadworthy.route.settings import RoutingSettings
    from roadworthy.simulate.compare import PolicyResult
    from roadworthy.simulate.run import SimulatedRun

DEFAULT_REQUESTS = 1100
"""Enough for a verdict on a 99th percentile though some sessions end early at the context limit."""

PROGRESS_EVERY = 500
_COLOURS = {"met": "green", "missed": "red", "undecided": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A simulated run and what it says of the SLA. ``cpu_s`` is the CPU time the simulation itself took; ``policies``
    the same load under every routing policy, empty when that was not asked."""

    planned: Planned
    seed: int
    run: SimulatedRun
    report: SlaReport
    cpu_s: float
    routing: RoutingSettings
    policies: tuple[PolicyResult, ...] = ()

    @property
    def requests_per_cpu_s(self) -> float:
        return len(self.run.records) / self.cpu_s if self.cpu_s > 0 else 0.0

    def section(self, title: str) -> RunSection:
        """This run as part of a report."""
        from roadworthy.bench.sections import RunSection

        return RunSection(
            title=title,
            report=self.report,
            records=self.run.records,
            facts=self._facts(),
            notes=self._notes(),
            simulated=True,
        )

    def _facts(self) -> tuple[tuple[str, str], ...]:
        best, deployment = self.planned.best(), self.planned.deployment
        return (
            ("model", deployment.model.served_name),
            ("layout", best.layout.label),
            ("engines", str(len(self.run.engines))),
            ("rate", f"{deployment.workload.rate_per_s:g}/s"),
            ("seed", str(self.seed)),
            ("utilisation", f"{self.run.utilisation_ratio:.0%}"),
            ("routing", f"{self.routing.policy}, {self.run.cached_ratio:.0%} of prompt tokens from the prefix cache"),
        )

    def _notes(self) -> tuple[str, ...]:
        preemptions = sum(engine.preemptions for engine in self.run.engines)
        predicted = self.planned.best().predicted
        source = f" Step times: {predicted.source}, error {predicted.error_band:.0%}." if predicted is not None else ""
        notes: tuple[str, ...] = (
            f"Virtual time: every number comes from a model of the engine, none was measured.{source}",
            f"{len(self.run.engines)} engine(s), pipeline {self.run.utilisation_ratio:.0%} busy, {preemptions:,} "
            f"preemptions; simulated at {self.requests_per_cpu_s:,.0f} requests per CPU second.",
            f"Routing {self.routing.policy}: {self.run.cached_ratio:.0%} of prompt tokens came from the prefix cache.",
        )
        if self.planned.best().layout.pp > 1:
            notes += (
                "vLLM does not balance the batches of a pipeline: the largest one sets the pace of all, so decoding is "
                "slower than with even batches and the pipeline idles while requests wait.",
            )
        return notes


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    default=DEFAULT_REQUESTS,
    show_default=True,
    help="How many requests to send; a verdict on a P99 wants 1,000.",
)
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same run.")
@click.option(
    "--compare-routing",
    is_flag=True,
    help="Run the same load under every routing policy, round robin among them; takes that many times as long.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec: str, requests: int, seed: int, compare_routing: bool, as_json: bool) -> int:
    """Run the same deployment in virtual time: hours of traffic in seconds.

    The engines are twins of the layout that `plan` puts first, the routing is the gateway's, the load is the
    document's workload. Exit code 0: every objective met; 1: one missed, too few requests to tell, or no layout fits;
    2: wrong input.
    """
    from roadworthy.cli.plan_progress import PlanProgress
    from roadworthy.cli.wiring import load_best

    with PlanProgress() as progress:
        planned = load_best(spec, progress=progress)
    judged = simulate_planned(planned, requests=requests, seed=seed, compare_routing=compare_routing)
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(simulate_document(judged))
    else:
        _print_report(judged)
    return judged.report.exit_code


def simulate_planned(planned: Planned, *, requests: int, seed: int, compare_routing: bool = False) -> JudgedRun:
    """Simulate ``requests`` requests of the document's workload on the best layout, and judge them.

    Args:
        compare_routing: simulate the same load under every other routing policy too.

    Raises:
        Infeasible: no layout fits.
        Unsupported: the plan has no timing for this model and hardware.
    """
    from roadworthy.advise.arrivals import Arrivals
    from roadworthy.advise.deploy import twin_configs
    from roadworthy.advise.verdict import judge
    from roadworthy.simulate.compare import compare_policies
    from roadworthy.simulate.run import routing_of, simulate

    deployment = planned.deployment
    configs = twin_configs(deployment, planned.plan)
    routing = routing_of(deployment, len(configs))
    priorities = {tenant.id: tenant.priority for tenant in deployment.tenants}

    def arrivals() -> Arrivals:
        return Arrivals(
            deployment.workload,
            seed=seed,
            requests=requests,
            tenants=deployment.tenants,
            max_context_tokens=configs[0].max_model_len,
        )

    progress = _Progress(requests)
    started_s = time.process_time()
    run = simulate(configs, arrivals(), routing=routing, priorities=priorities, progress=progress)
    cpu_s = time.process_time() - started_s
    policies: tuple[PolicyResult, ...] = ()
    if compare_routing:
        policies = compare_policies(configs, arrivals, routing=routing, priorities=priorities, progress=progress)
    progress.clear()
    report = judge(run.records, deployment.sla, asked_rate_per_s=deployment.workload.rate_per_s)
    return JudgedRun(
        planned=planned, seed=seed, run=run, report=report, cpu_s=cpu_s, routing=routing, policies=policies
    )


def simulate_document(judged: JudgedRun) -> dict[str, object]:
    """What ``--json`` prints: the keys of ``bench``, and what only a simulation knows."""
    from roadworthy.cli.output import plain

    routing: dict[str, object] = {
        "policy": judged.routing.policy,
        "cached_ratio": judged.run.cached_ratio,
        "chosen_by": dict(judged.run.chosen_by),
    }
    if judged.policies:
        routing["policies"] = plain(judged.policies)
    report = plain(judged.report)
    assert isinstance(report, dict)  # a dataclass becomes an object
    verdict, reason = report.pop("verdict"), report.pop("reason")
    best, deployment = judged.planned.best(), judged.planned.deployment
    return {
        "verdict": verdict,
        "reason": reason,
        "simulated": True,
        "model": deployment.model.served_name,
        "layout": best.layout.label,
        "engines": len(judged.run.engines),
        "seed": judged.seed,
        **report,
        "utilisation_ratio": judged.run.utilisation_ratio,
        "preemptions": sum(engine.preemptions for engine in judged.run.engines),
        "routing": routing,
        "requests_per_cpu_s": judged.requests_per_cpu_s,
    }


def _print_report(judged: JudgedRun) -> None:
    from roadworthy.bench.report_text import render_text

    def paint(verdict: Verdict, text: str) -> str:
        return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLOURS[verdict], bold=True)

    title = f"{judged.planned.deployment.name} in virtual time"
    click.echo(render_text(judged.section(title), paint=paint), nl=False)
    for line in policy_lines(judged.policies):
        click.echo(line)


def policy_lines(policies: Sequence[PolicyResult]) -> tuple[str, ...]:
    """One line for each policy, under a heading; nothing for none."""
    from roadworthy.core.units import format_duration

    def time_of(value_s: float | None) -> str:
        return "-" if value_s is None else format_duration(value_s)

    if not policies:
        return ()
    return (
        "",
        f"{'routing':<13}{'cached':>7}{'TTFT P50':>11}{'TTFT P99':>11}{'busy':>6}{'busiest engine':>16}{'failed':>8}",
        *(
            f"{one.policy:<13}{one.cached_ratio:>7.0%}{time_of(one.ttft_p50_s):>11}{time_of(one.ttft_p99_s):>11}"
            f"{one.utilisation_ratio:>6.0%}{one.busiest_ratio:>9.2f} x mean{one.failed:>8}"
            for one in policies
        ),
    )


class _Progress:
    """A line on stderr that counts, on a terminal only, and leaves nothing behind."""

    def __init__(self, requests: int) -> None:
        self._requests = requests
        self._shown = sys.stderr.isatty()

    def __call__(self, ended: int) -> None:
        if self._shown and ended % PROGRESS_EVERY == 0:
            click.echo(f"\rsimulated {ended:,} of {self._requests:,} requests", err=True, nl=False)

    def clear(self) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
