"""The best layouts of a plan, each under the document's own load in virtual time."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.deploy import twin_configs
from roadworthy.advise.queueing import BEST_LAYOUTS, REQUESTS_MIN, SEED, Queueing, Simulated, simulated, trial_of
from roadworthy.advise.ranking import distinct
from roadworthy.advise.verdict import judge_columns
from roadworthy.core.errors import Infeasible, Unsupported
from roadworthy.simulate.result import Preempted
from roadworthy.simulate.run import routing_of, simulate
from roadworthy.simulate.trial import shares_nothing, without_cache

if TYPE_CHECKING:
    from roadworthy.plan.values import Layout, LayoutPlan, Plan
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig

Progress = Callable[[str, int, int], None]
"""Hears the layout's name, how many of its requests have ended, and how many there are."""


def simulate_best(
    deployment: Deployment, plan: Plan, *, layouts: int = BEST_LAYOUTS, progress: Progress | None = None
) -> Queueing:
    """The first ``layouts`` distinct ones of ``plan`` that fit, simulated at the asked rate with a fixed seed.

    Layouts that only expert parallelism tells apart, to no effect, are simulated once and share the result. A layout
    whose time is not modelled, or that no engine would start with, is skipped with the reason.
    """
    results: dict[Layout, Simulated] = {}
    skipped: dict[Layout, str] = {}
    fitting = [judged for judged in plan.layouts if judged.feasible is not False]
    for group in distinct(fitting)[:layouts]:
        try:
            result = simulate_layout(deployment, plan, group[0], progress=progress)
        except (Infeasible, Unsupported) as error:
            skipped.update((judged.layout, str(error)) for judged in group)
        else:
            results.update((judged.layout, result) for judged in group)
    return Queueing(results=results, skipped=skipped)


def simulate_layout(
    deployment: Deployment, plan: Plan, judged: LayoutPlan, *, progress: Progress | None = None
) -> Simulated:
    """One layout at the asked rate, or a share of its engines at their share of the rate.

    Raises:
        Infeasible: no engine would start with these settings, or the queue is known to grow without end and to watch it
            would take long.
        Unsupported: the plan has no timing for this model and hardware.
    """
    trial = trial_of(judged, deployment.workload)
    if trial.requests < REQUESTS_MIN and judged.predicted is not None and judged.predicted.saturated:
        carried = judged.predicted.request_rate_per_s * judged.layout.replicas
        raise Infeasible(
            f"it carries {carried:.3g} of the {deployment.workload.rate_per_s:g} requests/s asked, so its queue grows "
            "without end"
        )
    configs = twin_configs(deployment, replace(plan, layouts=(judged,)))[: trial.engines]
    arrivals = Arrivals(
        trial.workload,
        seed=SEED,
        requests=trial.requests,
        tenants=deployment.tenants,
        max_context_tokens=configs[0].max_model_len,
    )
    heard: Callable[[int], None] | None = None
    if progress is not None:
        tell = progress

        def heard(ended: int) -> None:
            tell(judged.layout.label, ended, trial.requests)

    run: SimulatedRun | None = None
    shared_text = not shares_nothing(trial.workload)
    if not shared_text and all(config.enable_prefix_caching for config in configs):
        with contextlib.suppress(Preempted):  # the same run for a fifth less, as ``trial.run_trial`` says
            run = _run(deployment, without_cache(configs), arrivals, heard, until_preempted=True, shared_text=False)
    if run is None:
        run = _run(deployment, configs, arrivals, heard, until_preempted=False, shared_text=shared_text)
    report = judge_columns(run.log.columns(), deployment.sla, asked_rate_per_s=trial.workload.rate_per_s)
    return simulated(
        judged,
        trial,
        report,
        run.records,
        utilisation_ratio=run.utilisation_ratio,
        preemptions=sum(engine.preemptions for engine in run.engines),
    )


def _run(
    deployment: Deployment,
    configs: Sequence[TwinConfig],
    arrivals: Arrivals,
    heard: Callable[[int], None] | None,
    *,
    until_preempted: bool,
    shared_text: bool,
) -> SimulatedRun:
    return simulate(
        configs,
        arrivals,
        routing=routing_of(deployment, len(configs)),
        priorities={tenant.id: tenant.priority for tenant in deployment.tenants},
        keep_gaps=False,
        until_preempted=until_preempted,
        shared_text=shared_text,
        progress=heard,
    )
