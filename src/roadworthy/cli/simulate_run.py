"""Simulated runs and what they say of the SLA: one, several seeds of it, and variants of the document beside it."""

from __future__ import annotations

import contextlib
import gc
import math
import sys
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.advise.arrivals import Arrivals
    from roadworthy.advise.traces import TraceSchedule
    from roadworthy.advise.verdict import SlaReport
    from roadworthy.bench.sections import RunSection
    from roadworthy.cli.wiring import Planned
    from roadworthy.route.settings import RoutingSettings
    from roadworthy.simulate.compare import PolicyResult
    from roadworthy.simulate.periods import Period
    from roadworthy.simulate.recording import Recording
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.simulate.standing import TenantStanding
    from roadworthy.simulate.trial import Trial
    from roadworthy.simulate.what_if import Variant

PROGRESS_EVERY = 500
PLOTTED_UP_TO = 50_000
"""Requests of a run whose report draws each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SeedResult:
    """What one of several seeds said."""

    seed: int
    report: SlaReport
    utilisation_ratio: float


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedRun:
    """A simulated run and what it says of the SLA.

    Args:
        asked_rate_per_s: None where the load has no rate of its own.
        cpu_s: CPU time that the simulation itself took, over all processes.
        policies: the same load under every routing policy, empty when that was not asked.
        standings: how each tenant fared.
        seeds: of several, each by itself; ``run`` and ``report`` are then of all of them together.
        periods: independent stretches, each starting with an empty service, that a long run is made of.
        recording: the trace that was replayed, of which ``too_long`` requests exceed the context.
        cost_per_hour: of the whole cluster, None when no price is known for the GPU.
    """

    planned: Planned
    seed: int
    run: SimulatedRun
    report: SlaReport
    asked_rate_per_s: float | None
    cpu_s: float
    routing: RoutingSettings
    policies: tuple[PolicyResult, ...] = ()
    standings: tuple[TenantStanding, ...] = ()
    seeds: tuple[SeedResult, ...] = ()
    periods: int = 1
    governed: bool = False
    cost_per_hour: float | None = None
    currency: str = ""
    variant: Variant | None = field(default=None)
    recording: Recording | None = None
    too_long: int = 0

    @property
    def requests_per_cpu_s(self) -> float:
        return len(self.run.log) / self.cpu_s if self.cpu_s > 0 else 0.0

    @property
    def cost(self) -> float | None:
        """Money that the cluster cost while the run lasted."""
        return None if self.cost_per_hour is None else self.cost_per_hour * self.report.duration_s / 3600

    def section(self, title: str) -> RunSection:
        """This run as part of a report."""
        from roadworthy.bench.sections import RunSection
        from roadworthy.cli.simulate_sections import governance_table, run_levels
        from roadworthy.cli.simulate_text import facts, notes

        return RunSection(
            title=title,
            report=self.report,
            records=self.run.records if len(self.run.log) <= PLOTTED_UP_TO else (),
            facts=facts(self),
            notes=notes(self),
            simulated=True,
            levels=run_levels(self),
            tables=governance_table(self),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """What of a document is to be simulated.

    Args:
        requests: how many; None is all of a recording.
        seeds: how many runs, with the seeds from ``seed`` on.
        jobs: processes at most; None is as many as there are cores.
        governed: quotas, queueing and rules apply.
    """

    requests: int | None
    seed: int = 0
    seeds: int = 1
    jobs: int | None = None
    governed: bool = True
    variant: Variant | None = None
    recording: Recording | None = None


def simulate_planned(
    planned: Planned,
    *,
    requests: int | None,
    seed: int,
    compare_routing: bool = False,
    governed: bool = True,
    recording: Recording | None = None,
) -> JudgedRun:
    """Simulate ``requests`` requests of the document's workload on the best layout, and judge them.

    Args:
        compare_routing: simulate the same load under every other routing policy too.
        governed: the document's quotas, queueing and rules apply; without, everybody may go at once.

    Raises:
        Infeasible: no layout fits.
        Unsupported: the plan has no timing for this model and hardware.
    """
    asked = Asked(requests=requests, seed=seed, governed=governed, jobs=1, recording=recording)
    judged = judged_runs([(planned, asked)])[0]
    if not compare_routing:
        return judged
    from roadworthy.simulate.compare import compare_policies
    from roadworthy.simulate.trial import arrivals_of

    trial = _trials(planned, asked)[0]
    policies = compare_policies(
        trial.configs,
        lambda: arrivals_of(trial),
        routing=judged.routing,
        priorities={tenant.id: tenant.priority for tenant in planned.deployment.tenants},
    )
    return replace(judged, policies=policies)


def judged_runs(asked: Sequence[tuple[Planned, Asked]]) -> list[JudgedRun]:
    """Simulate all of ``asked``, side by side on as many processes as they allow, and judge each.

    Raises:
        Infeasible, Unsupported, SpecError: before anything is simulated.
    """
    trials = [_trials(planned, one) for planned, one in asked]
    everything = [trial for some in trials for trial in some]
    results = []
    with _Progress(sum(trial.requests for trial in everything)) as progress:
        outcomes = _outcomes(everything, min([one.jobs or len(everything) for _, one in asked]), progress)
        for (planned, one), some in zip(asked, trials, strict=True):
            own = []
            for _ in some:
                own.append(next(outcomes))
                progress.done(len(own[-1][0].log))
            results.append(_judged(planned, one, some, own))
    return results


def _outcomes(trials: Sequence[Trial], jobs: int, progress: _Progress) -> Iterator[tuple[SimulatedRun, float]]:
    """The runs of ``trials`` in their order: here, or on as many processes as there are cores, ``jobs`` at most."""
    if min(jobs, len(trials)) > 1:
        from roadworthy.adapters.processes import cores, each  # a single run need not know how

        processes = min(jobs, cores())
        if processes > 1:
            return each(timed, trials, processes=processes)
    return (timed(trial, progress) for trial in trials)


def _trials(planned: Planned, asked: Asked) -> list[Trial]:
    """The runs of ``asked``: for each seed its periods."""
    from roadworthy.advise.deploy import twin_configs
    from roadworthy.simulate.trial import Trial, arrivals_of

    configs = twin_configs(planned.deployment, planned.plan)
    variant = asked.variant
    trials = [
        Trial(
            deployment=planned.deployment,
            configs=configs,
            requests=period.requests,
            seed=period.seed,
            traffic=variant.traffic if variant is not None else (),
            outages=variant.outages if variant is not None else (),
            faults=variant.faults if variant is not None else (),
            governed=asked.governed,
            recording=asked.recording,
        )
        for number in range(asked.seeds)
        for period in _periods(asked, asked.seed + number)
    ]
    arrivals_of(trials[0])  # raises for a tenant that does not exist
    return trials


def _periods(asked: Asked, seed: int) -> tuple[Period, ...]:
    """The stretches of one run; a recorded one is not cut."""
    from roadworthy.simulate.periods import Period, periods_of

    if asked.recording is None:
        return periods_of(asked.requests or 1, seed)
    most = max([1.0, *(factor for _, factor in asked.variant.traffic)]) if asked.variant is not None else 1.0
    return (Period(seed=seed, requests=asked.requests or math.ceil(asked.recording.requests * most**2)),)


def _judged(
    planned: Planned, asked: Asked, trials: Sequence[Trial], outcomes: Sequence[tuple[SimulatedRun, float]]
) -> JudgedRun:
    from roadworthy.cli.hourly_cost import cost_per_hour
    from roadworthy.simulate.periods import pooled
    from roadworthy.simulate.run import routing_of
    from roadworthy.simulate.standing import standings
    from roadworthy.simulate.trial import arrivals_of

    each = len(trials) // asked.seeds
    runs = [pooled([run for run, _ in outcomes[at : at + each]]) for at in range(0, len(trials), each)]
    load = arrivals_of(trials[0])
    rate, even = load.asked_rate_per_s, _is_even(planned, asked)
    seeds: tuple[SeedResult, ...] = ()
    if asked.seeds > 1:
        seeds = tuple(
            SeedResult(
                seed=asked.seed + number,
                report=_report(planned, run, rate, even=even),
                utilisation_ratio=run.utilisation_ratio,
            )
            for number, run in enumerate(runs)
        )
    run = pooled(runs)
    return JudgedRun(
        planned=planned,
        seed=asked.seed,
        run=run,
        report=_report(planned, run, rate, even=even),
        asked_rate_per_s=rate,
        cpu_s=sum(cpu_s for _, cpu_s in outcomes),
        routing=routing_of(planned.deployment, len(trials[0].configs)),
        standings=standings(
            run.log,
            weights={tenant.id: tenant.weight for tenant in planned.deployment.tenants},
            borrowed=run.borrowed,
        ),
        seeds=seeds,
        periods=each,
        governed=asked.governed and bool(planned.deployment.tenants),
        cost_per_hour=cost_per_hour(planned),
        currency=planned.deployment.cost.currency,
        variant=asked.variant,
        recording=asked.recording,
        too_long=_too_long(load) if asked.recording is not None else 0,
    )


def _is_even(planned: Planned, asked: Asked) -> bool:
    """Whether requests are meant to come at one rate all along, unlike in waves, bursts, ramps and traces."""
    return asked.recording is None and planned.deployment.workload.arrivals.pattern in ("poisson", "constant")


def _too_long(load: Arrivals | TraceSchedule) -> int:
    """Requests of a trace that exceed the context of an engine."""
    for _ in load.first_turns():
        pass
    return getattr(load, "too_long", 0)


def _report(planned: Planned, run: SimulatedRun, rate_per_s: float | None, *, even: bool) -> SlaReport:
    from roadworthy.advise.verdict import judge_columns
    from roadworthy.simulate.gaps import gap_summary

    report = judge_columns(run.log.columns(), planned.deployment.sla, asked_rate_per_s=rate_per_s, even_rate=even)
    return report if run.log.gaps_of is not None else replace(report, itl_s=gap_summary(run.log.gaps))


def timed(trial: Trial, progress: _Progress | None = None) -> tuple[SimulatedRun, float]:
    """The run of ``trial`` and the CPU time it took; what another process is asked for."""
    from roadworthy.simulate.trial import run_trial

    started_s = time.process_time()
    with seldom_collected():
        run = run_trial(trial, progress)
    return run, time.process_time() - started_s


@contextlib.contextmanager
def seldom_collected() -> Iterator[None]:
    """Look for cyclic garbage less often: a run makes many objects and next to no cycles, and looking takes a tenth of
    its time."""
    before = gc.get_threshold()
    gc.set_threshold(100_000, 20, 20)
    try:
        yield
    finally:
        gc.set_threshold(*before)


class _Progress:
    """A line on stderr that counts, on a terminal only, and leaves nothing behind."""

    def __init__(self, requests: int) -> None:
        self._shown = sys.stderr.isatty()
        self._total = requests
        self._before = 0

    def __call__(self, ended: int) -> None:
        """So many requests of the run under way have ended."""
        if ended % PROGRESS_EVERY == 0:
            self._say(self._before + ended)

    def done(self, requests: int) -> None:
        """A run of so many is over."""
        self._before += requests
        self._say(self._before)

    def _say(self, ended: int) -> None:
        if self._shown:
            click.echo(f"\r\x1b[Ksimulated {ended:,} of {self._total:,} requests", err=True, nl=False)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *_: object) -> None:
        if self._shown:
            click.echo("\r\x1b[K", err=True, nl=False)
