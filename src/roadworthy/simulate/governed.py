"""The gateway's governance in virtual time: the same governor and the same meter, asked in the same order."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, cast

from roadworthy.core.errors import Refused
from roadworthy.plan.workload import demand_of
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.prefill import PrefillPace, backlog_s_of
from roadworthy.route.govern.settings import GovernSettings
from roadworthy.route.govern.values import Facts
from roadworthy.simulate.flight import TICK_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.values import Ending, Grant
    from roadworthy.simulate.fleet import SimulatedEngine
    from roadworthy.simulate.flight import Flight
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig

LOOKS_A_BACKLOG = 4
"""Looks at a queue in the time that engines may be busy with prompts: they must not run dry in between."""

_CHAT = Facts(operation="chat")


class Governance:
    """A :class:`~roadworthy.simulate.flight.Gate` made of the document's tenants, quotas and rules.

    Days begin with the run. Every request must be one of the document's tenants'. One that a rule sends to another
    model than these engines serve is turned away as ``degraded``: what answers it is not simulated.

    Args:
        shared_text: prompts may have beginnings in common, so that engines hold less than is predicted and there is
            more room than that; False saves the looking.
    """

    def __init__(self, deployment: Deployment, configs: Sequence[TwinConfig], *, shared_text: bool = True) -> None:
        spec, config = deployment.governance, configs[0]
        self._slots = spec.slots_per_engine or config.max_num_seqs
        self._models = frozenset(config.models)
        self._tenants = {tenant.id: tenant for tenant in deployment.tenants}
        self._governor = Governor(
            deployment.tenants, settings=GovernSettings.of(deployment), shape=BlockShape.planned(config.cache)
        )
        self._meter = LocalMeter()
        self.borrowed: Counter[str] = Counter()
        self._backlog_s = backlog_s_of(deployment)
        prompt_tokens = demand_of(
            deployment.workload, prefixes=None, max_model_len_tokens=config.max_model_len
        ).prompt_mean
        self._pace = PrefillPace.of(
            config.step_time, batch_tokens=config.max_num_batched_tokens, prompt_tokens=prompt_tokens
        )
        self.bounds_prompts = self._backlog_s is not None
        self.tick_s = TICK_S if self._backlog_s is None else min(TICK_S, self._backlog_s / LOOKS_A_BACKLOG)
        self.follows_streams = shared_text
        self.judges_gaps = any(condition.fact == "itl_p99_ms" for rule in spec.rules for condition in rule.when)

    @property
    def waiting(self) -> int:
        return self._governor.waiting

    def fleet_changed(self, engines: Sequence[SimulatedEngine]) -> None:
        up = [engine for engine in engines if engine.healthy]
        if up:
            self._governor.capacity(sum(engine.config.kv_blocks - 1 for engine in up), self._slots * len(up))
            if self._backlog_s is not None:
                pace = self._pace
                self._governor.backlogs.bound(up, pace.tokens_in(self._backlog_s), pace.tokens_per_s)
        else:  # as in the gateway: what comes is told so at once, and does not wait for what may not come back
            self._governor.capacity(None, None)
            self._governor.backlogs.bound((), 0, 0.0)

    def scraped(self, engines: Sequence[SimulatedEngine]) -> None:
        used = sum(engine.kv_usage_ratio * (engine.config.kv_blocks - 1) for engine in engines if engine.healthy)
        self._governor.measured(int(used))

    def arrive(self, flight: Flight, now_s: float) -> bool:
        governor, asked = self._governor, flight.asked
        tenant = self._tenants[asked.tenant_id]
        treatment, charge, limits = governor.size_up(tenant, asked, _CHAT, now_s)
        if treatment.degraded and treatment.model not in self._models:
            raise Refused(f"goes to {treatment.model}, which is not simulated", code="degraded", status=503)
        flight.grant = grant = self._meter.acquire(limits, charge, flight.id, now_s)
        if grant.borrowed:
            self.borrowed[tenant.id] += 1
        try:
            permit = governor.enter(grant, tenant, asked, flight, now_s, treatment=treatment)
        except Refused:
            self._give_back(grant, now_s)
            raise
        if permit is None:
            return False
        flight.permit = permit
        flight.priority = permit.priority
        return True

    @property
    def full_of_prompts(self) -> bool:
        return self._governor.full_of_prompts

    def awaits_first(self, flight: Flight) -> bool:
        permit: HeldPermit = flight.permit  # type: ignore[assignment]  # ours; a cast is a call
        return permit.backlog is not None

    def placed(self, flight: Flight, url: str, now_s: float) -> None:
        self._governor.backlogs.placed(flight.permit, url, now_s)  # type: ignore[arg-type]  # ours

    def began(self, flight: Flight) -> None:
        self._governor.began(cast("HeldPermit", flight.permit))

    def leave(
        self,
        flight: Flight,
        ending: Ending,
        now_s: float,
        *,
        output_tokens: int,
        cached_tokens: int = 0,
        ttft_s: float | None = None,
        itl_p99_s: float | None = None,
    ) -> None:
        permit: HeldPermit = flight.permit  # type: ignore[assignment]  # ours, and there since ``arrive``
        grant: Grant = flight.grant  # type: ignore[assignment]
        prompt_tokens = flight.planned.prompt_tokens if output_tokens else 0
        self._governor.leave(
            permit,
            prompt_tokens=prompt_tokens,
            output_tokens=output_tokens,
            now_s=now_s,
            cached_tokens=cached_tokens,
            itl_p99_s=itl_p99_s,
            ttft_s=ttft_s,
            ending=ending,
        )
        self._meter.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now_s=now_s)

    def ready(self, now_s: float) -> Sequence[Flight]:
        released = self._governor.ready(now_s)
        if not released:
            return ()
        flights = []
        for owner, permit in released:
            flight = cast("Flight", owner)
            flight.permit = permit
            flight.priority = permit.priority
            flights.append(flight)
        return flights

    def expired(self, now_s: float) -> list[tuple[Flight, Refused]]:
        away = []
        for turned in self._governor.expired(now_s):
            flight = cast("Flight", turned.owner)
            self._give_back(cast("Grant", flight.grant), now_s)
            away.append((flight, turned.refused))
        return away

    def _give_back(self, grant: Grant, now_s: float) -> None:
        self._meter.settle(grant, prompt_tokens=0, output_tokens=0, now_s=now_s)
