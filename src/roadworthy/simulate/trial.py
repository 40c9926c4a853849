"""One run as a value that another process can be handed: the deployment, its engines, the load, what goes wrong."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.mixes import session_kinds
from roadworthy.core.errors import SpecError
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.result import Preempted
from roadworthy.simulate.run import routing_of, simulate
from roadworthy.simulate.what_if import ALL

if TYPE_CHECKING:
    from roadworthy.advise.traces import TraceSchedule
    from roadworthy.route.settings import RoutingSettings
    from roadworthy.simulate.outages import EngineFault, Outage
    from roadworthy.simulate.recording import Recording
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.spec.values import Deployment, RequestProfile, Tenant
    from roadworthy.twin.config import TwinConfig

SCRAPE_S = 1.0
"""The gateway's own (``gateway.poller.PollPolicy``)."""

KEEP_GAPS_UP_TO = 500_000
"""Tokens whose gaps are kept one by one, for exact percentiles and plots; more are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """``requests`` requests of ``deployment``'s workload on engines of ``configs``.

    Args:
        recording: a trace instead of the workload, which then only paces what the trace does not time.
        traffic: factor by tenant on what it asks for (``what_if.ALL``: on everybody's).
        routing: None is the document's.
        governed: quotas, queueing and rules of the document apply; without, everybody may go at once.
    """

    deployment: Deployment
    configs: tuple[TwinConfig, ...]
    requests: int
    seed: int
    traffic: tuple[tuple[str, float], ...] = ()
    outages: tuple[Outage, ...] = ()
    faults: tuple[EngineFault, ...] = ()
    routing: RoutingSettings | None = None
    governed: bool = True
    recording: Recording | None = None

    def __post_init__(self) -> None:
        for at in [*(outage.engine for outage in self.outages), *(fault.engine for fault in self.faults)]:
            if at >= len(self.configs):
                raise SpecError(
                    f"engine {at} cannot fail: there are {len(self.configs)}, the first is 0",
                    hint=f"name one of 0 to {len(self.configs) - 1}",
                )
        for one in self.faults:
            stages = self.configs[one.engine].step_time.pipeline_stages
            if one.fault.stage is not None and one.fault.stage >= stages:
                raise SpecError(
                    f"stage {one.fault.stage} of engine {one.engine} cannot be slow: it has {stages}, the first is 0",
                    hint=f"name one of 0 to {stages - 1}" if stages > 1 else "leave the stage out",
                )


def run_trial(trial: Trial, progress: Callable[[int], None] | None = None) -> SimulatedRun:
    """Simulate it. ``progress`` hears how many requests have ended.

    Where no two prompts share text, a prefix cache can only give a request back what it had itself computed before it
    was preempted. Engines are then simulated without one, which takes a fifth less time and gives the same run, and
    anew with it should one preempt.
    """
    if _shares_nothing(trial):
        with contextlib.suppress(Preempted):
            caching = any(config.enable_prefix_caching for config in trial.configs)
            return _run(trial, without_cache(trial.configs), progress, until_preempted=caching)
    return _run(trial, trial.configs, progress, until_preempted=False)


def without_cache(configs: Sequence[TwinConfig]) -> tuple[TwinConfig, ...]:
    """The same engines without a prefix cache."""
    return tuple(replace(config, enable_prefix_caching=False) for config in configs)


def shares_nothing(workload: RequestProfile) -> bool:
    """Whether no two prompts of it have a beginning in common."""
    return all(kind.turns <= 1 and kind.shared_prefix_ratio == 0 for kind in session_kinds(workload))


def _shares_nothing(trial: Trial) -> bool:
    if trial.recording is not None:
        return trial.recording.shares_nothing
    return shares_nothing(trial.deployment.workload)


def _run(
    trial: Trial, configs: tuple[TwinConfig, ...], progress: Callable[[int], None] | None, *, until_preempted: bool
) -> SimulatedRun:
    deployment = trial.deployment
    gate = None
    if trial.governed and deployment.tenants:
        gate = Governance(deployment, configs, shared_text=not _shares_nothing(trial))
    return simulate(
        configs,
        arrivals_of(trial),
        routing=trial.routing or routing_of(deployment, len(configs)),
        priorities={tenant.id: tenant.priority for tenant in deployment.tenants},
        gate=gate,
        outages=trial.outages,
        faults=trial.faults,
        scrape_s=SCRAPE_S,
        keep_gaps=trial.requests * _answer_tokens(trial) <= KEEP_GAPS_UP_TO,
        until_preempted=until_preempted,
        shared_text=not _shares_nothing(trial),
        progress=progress,
    )


def _answer_tokens(trial: Trial) -> float:
    """Tokens of a long answer."""
    if trial.recording is not None:
        return trial.recording.output_tokens_mean
    return trial.deployment.workload.output_tokens.p90


def arrivals_of(trial: Trial) -> Arrivals | TraceSchedule:
    """The load of ``trial``. Tenants share it by weight, times what ``traffic`` says of each.

    Raises:
        SpecError: ``traffic`` names a tenant that is not in the document, or nobody asks for anything.
    """
    workload, senders = _scaled(trial)
    if trial.recording is not None:
        return _replayed(trial, trial.recording, workload, senders)
    return Arrivals(
        workload,
        seed=trial.seed,
        requests=trial.requests,
        tenants=senders,
        max_context_tokens=trial.configs[0].max_model_len,
    )


def _replayed(
    trial: Trial, recording: Recording, workload: RequestProfile, senders: tuple[Tenant, ...]
) -> TraceSchedule:
    """The recorded load: requests of a tenant of the document as often as ``traffic`` says of it, those of others, whom
    the document's tenants share, as often as all of them together."""
    factors, everybody = dict(trial.traffic), 1.0
    if factors:
        everybody = workload.rate_per_s / trial.deployment.workload.rate_per_s
    known = {tenant.id: factors.get(ALL, 1.0) * factors.get(tenant.id, 1.0) for tenant in trial.deployment.tenants}
    try:
        return recording.schedule(
            workload,
            seed=trial.seed,
            requests=trial.requests,
            tenants=senders,
            max_context_tokens=trial.configs[0].max_model_len,
            factor_of=(lambda tenant: known.get(tenant, everybody)) if factors else None,
        )
    except ValueError as error:
        raise SpecError(f"traffic: {error}", hint="leave one tenant of the trace a factor above 0") from error


def _scaled(trial: Trial) -> tuple[RequestProfile, tuple[Tenant, ...]]:
    """The workload and its senders after ``traffic``: a sender's weight is its part of what is sent."""
    workload, tenants, factors = trial.deployment.workload, trial.deployment.tenants, dict(trial.traffic)
    if not factors:
        return workload, tenants
    everybody = factors.pop(ALL, 1.0)
    unknown = sorted(factors.keys() - {tenant.id for tenant in tenants})
    if unknown:
        names = ", ".join(tenant.id for tenant in tenants) or "none"
        raise SpecError(f"traffic.{unknown[0]}: no such tenant", hint=f"the document has: {names}")

    def grown(ids: Collection[str]) -> float:
        """How much more those of ``ids`` ask for together."""
        weights = {tenant.id: tenant.weight for tenant in tenants if not ids or tenant.id in ids}
        after = sum(weight * factors.get(name, 1.0) for name, weight in weights.items())
        return after / sum(weights.values()) if weights else 1.0

    shares = [part.share_ratio * grown(part.tenants) for part in workload.mix]
    more = sum(shares) / sum(part.share_ratio for part in workload.mix) if workload.mix else grown(())
    if not everybody * more > 0:
        raise SpecError("traffic: nobody asks for anything", hint="leave one tenant a factor above 0")
    senders = tuple(
        replace(tenant, weight=tenant.weight * factor)
        for tenant in tenants
        if (factor := factors.get(tenant.id, 1.0)) > 0
    )
    ids = {tenant.id for tenant in senders}
    mix = tuple(
        replace(part, share_ratio=share, tenants=tuple(name for name in part.tenants if name in ids))
        for part, share in zip(workload.mix, shares, strict=True)
        if share > 0
    )
    return replace(workload, rate_per_s=workload.rate_per_s * everybody * more, mix=mix), senders
