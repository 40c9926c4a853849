"""Drives the governor and a meter: each request's way from its admission to its end.

Where limits are counted in this process, admission is a few microseconds on the way in. Where they are counted in a
store that others share, it is a task, and the request waits for it as it would wait in the queue. Whatever happens, a
ticket is closed once, and closing it gives back all that was held::

    open --local meter, room----------------> running
      |                                          ^
      +--local meter, no room--> queued ---------+--> closed
      +--shared meter--> asking--^--room---------+

The governor decides; this module keeps time, talks to the store, and tells exchanges.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any, Literal, Protocol

from roadworthy.core.errors import Refused
from roadworthy.gateway.unlimited import Unlimited
from roadworthy.route.govern.values import Charge, Facts, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roadworthy.gateway.data.record import RequestRecord
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.gateway.room import Room
    from roadworthy.gateway.shared_limits import SharedLimits
    from roadworthy.route.govern.governor import Governor
    from roadworthy.route.govern.meter import LocalMeter
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.settings import GovernSettings
    from roadworthy.route.govern.values import Ending, Grant, QueueDepth, Treatment, TurnedAway
    from roadworthy.route.values import RouteRequest
    from roadworthy.spec.values import Tenant

State = Literal["asking", "queued", "running", "closed"]

_ENDINGS: dict[str, Ending] = {
    "ok": "completed",
    "rejected": "completed",
    "client_left": "cancelled",
    "client_stalled": "cancelled",
}
LOOK_LASTS_S = 0.25
"""An engine's metrics are this much older than its whole look, at most times; one that took longer is loaded."""

EXPIRED_AT_ONCE = 200
"""Requests that are turned away in one turn of the loop."""

_UNBOUNDED = Limits()
_UNKNOWN: Any = object()


class Owner(Protocol):
    """Whose ticket it is: hears when it may run, or that it will not."""

    def admitted(self) -> None: ...
    def turned_away(self, refused: Refused) -> None: ...


class Ticket:
    """What one request holds of its tenant's limits and of the engines' room."""

    __slots__ = ("charge", "grant", "owner", "permit", "request", "state", "tenant", "treatment")

    def __init__(self, tenant: Tenant, request: RouteRequest, treatment: Treatment, charge: Charge) -> None:
        self.tenant = tenant
        self.request = request
        self.treatment = treatment
        self.charge = charge
        self.state: State = "asking"
        self.grant: Grant | None = None
        self.permit: HeldPermit | None = None
        self.owner: Owner | None = None


class Governance:
    """One process's.

    Args:
        local: counts limits where there is no shared meter.
        now_s: seconds that only rise.
    """

    def __init__(self, governor: Governor, local: LocalMeter, *, now_s: Callable[[], float]) -> None:
        self.governor, self._local, self._now_s = governor, local, now_s
        self.shared: SharedLimits | None = None
        self._waking = False
        self._bounded = False  # the engines' room
        self._bounds_prompts = False
        self._unlimited: dict[str, Unlimited] = {}
        self._ways: dict[str, Unlimited | None] = {}  # of tenants as they are now; None is the long one
        self.borrowed: dict[str, int] = {}  # requests that run on others' room, by tenant
        self.refusals: dict[tuple[str, str], int] = {}  # by tenant and code

    def share(self, limits: SharedLimits) -> None:
        """Count limits there from now on. Called before the first request."""
        self.shared = limits
        self._ways.clear()

    # a request

    def open(
        self, tenant: Tenant, request: RouteRequest, operation: str, io_wait_ms: float | None, now_s: float
    ) -> Ticket | Unlimited:
        """Let a request in, as far as can be told at once.

        Args:
            io_wait_ms: what a trusted caller waited for its own input.

        Raises:
            Refused: by the model list, a business rule, a limit that is counted here, or a full queue.
        """
        tenant_id = tenant.id
        way = self._ways.get(tenant_id, _UNKNOWN)
        if way is _UNKNOWN:
            way = self._ways[tenant_id] = self._way(tenant)
        if way is not None and (not way.models or request.model in way.models):
            way.in_flight += 1
            return way  # type: ignore[no-any-return]  # of the two it is the second
        governor = self.governor
        try:
            facts = Facts(operation=operation, io_wait_ms=io_wait_ms) if governor.settings.rules else None
            treatment, charge, limits = governor.size_up(tenant, request, facts, now_s)
            ticket = Ticket(tenant, request, treatment, charge)
            if self.shared is None:
                ticket.grant = grant = self._local.acquire(limits, charge, request.request_id, now_s)
                self._enter(ticket, grant, now_s)
        except Refused as refused:
            self._count(tenant_id, refused)
            raise
        return ticket

    def _way(self, tenant: Tenant) -> Unlimited | None:
        """The short way of ``tenant``, where there is nothing to count for it."""
        governor = self.governor
        if self.shared is not None or self._bounded or governor.settings.rules:
            return None
        try:
            limits = governor.limits(tenant.id)
        except Refused:  # the tenant is gone, which the long way tells
            return None
        if limits != _UNBOUNDED:
            return None
        unlimited = self._unlimited.get(tenant.id)
        if unlimited is None:
            unlimited = self._unlimited[tenant.id] = Unlimited(tenant)
        unlimited.follow(tenant)
        return unlimited

    def wait(self, ticket: Ticket, owner: Owner) -> None:
        """``ticket`` may not run yet: tell ``owner`` when it may, or that it will not."""
        ticket.owner = owner
        if ticket.state == "asking":
            assert self.shared is not None
            self.shared.spawn(self._ask(ticket, self.shared))

    def placed(self, ticket: Ticket | Unlimited, url: str) -> None:
        """Routing sends it to the engine at ``url``."""
        if self._bounds_prompts and isinstance(ticket, Ticket) and ticket.permit is not None:
            self.governor.backlogs.placed(ticket.permit, url, self._now_s())

    def began(self, ticket: Ticket | Unlimited) -> None:
        """The first token of its answer has come: the engine has room for the next prompt."""
        if isinstance(ticket, Ticket) and ticket.permit is not None:
            self.governor.began(ticket.permit)
            if self.governor.waiting:
                self._wake_soon()

    def close(self, ticket: Ticket | Unlimited, record: RequestRecord, now_s: float) -> None:
        """The request is over, in whatever way."""
        if isinstance(ticket, Unlimited):
            self._close_unlimited(ticket, record, now_s)
            return
        state = ticket.state
        if state == "closed":
            return
        ticket.state = "closed"
        ticket.owner = None
        prompt, output = record.prompt_tokens, record.output_tokens
        if output and not prompt and record.tokens_estimated:
            prompt = ticket.charge.prompt_tokens  # no engine said; something was delivered
        permit, governor = ticket.permit, self.governor
        if permit is not None:
            if permit.borrowed:
                self.borrowed[permit.tenant_id] -= 1
            governor.leave(
                permit, prompt_tokens=prompt, output_tokens=output, cached_tokens=record.cached_tokens,
                itl_p99_s=record.itl_p99_s, ttft_s=record.ttft_s, now_s=now_s,
                ending=_ENDINGS.get(record.ending, "failed"),
            )  # fmt: skip
        elif state == "queued" and not governor.withdraw(ticket):
            self._wake_soon()  # it had its turn, and nobody has told it yet
        if self.shared is None and ticket.grant is not None:
            self._local.settle(ticket.grant, prompt_tokens=prompt, output_tokens=output, now_s=now_s)
        else:
            self._settle(ticket, prompt, output, now_s)
        if governor.waiting:
            self._wake_soon()

    def _close_unlimited(self, ticket: Unlimited, record: RequestRecord, now_s: float) -> None:
        ticket.in_flight -= 1
        if ticket.adopted:
            self._local.settle(
                ticket.adopted.pop(),
                prompt_tokens=record.prompt_tokens,
                output_tokens=record.output_tokens,
                now_s=now_s,
            )

    def _enter(self, ticket: Ticket, grant: Grant, now_s: float) -> None:
        """Take ``ticket`` to the queue or past it. Raises Refused, and then nothing is held."""
        governor = self.governor
        try:
            permit = governor.enter(grant, ticket.tenant, ticket.request, ticket, now_s, treatment=ticket.treatment)
        except Refused:
            ticket.state = "closed"
            self._settle(ticket, 0, 0, now_s)
            raise
        if permit is None:
            ticket.state = "queued"
            self._wake_soon()  # one that goes in line may let another go
            return
        ticket.permit = permit
        ticket.state = "running"
        if permit.borrowed:
            self._borrows(permit)
        if governor.waiting:
            self._wake_soon()

    def _settle(self, ticket: Ticket, prompt_tokens: int, output_tokens: int, now_s: float) -> None:
        grant = ticket.grant
        if grant is None:
            return
        if self.shared is None:
            self._local.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now_s=now_s)
        else:
            self.shared.settle(grant, prompt_tokens, output_tokens)

    async def _ask(self, ticket: Ticket, shared: SharedLimits) -> None:
        """Ask the store. It is asked to the end even if the request is over meanwhile: what it gave is given back."""
        try:
            grant = ticket.grant = await shared.acquire(
                self.governor.limits(ticket.tenant.id), ticket.charge, ticket.request.request_id
            )
            now_s = self._now_s()
            if ticket.state == "closed":
                self._settle(ticket, 0, 0, now_s)
                return
            self._enter(ticket, grant, now_s)
        except Refused as refused:
            self._count(ticket.tenant.id, refused)
            owner, ticket.owner = ticket.owner, None
            ticket.state = "closed"
            if owner is not None:
                owner.turned_away(refused)
            return
        if ticket.permit is not None and ticket.owner is not None:
            ticket.owner.admitted()

    # the queue

    def _wake_soon(self) -> None:
        """On a turn of the loop of its own: whoever is told to run may be over at once and make room for the next."""
        if not self._waking:
            self._waking = True
            asyncio.get_running_loop().call_soon(self._wake)

    def _wake(self) -> None:
        """Room may have come: tell those who have it now."""
        self._waking = False
        now_s = self._now_s()
        for ticket, permit in self.governor.ready(now_s):
            assert isinstance(ticket, Ticket)
            if ticket.state != "queued":  # its client left when its turn had come
                self.governor.leave(permit, prompt_tokens=0, output_tokens=0, ending="cancelled", now_s=now_s)
                continue
            ticket.permit = permit
            ticket.state = "running"
            if permit.borrowed:
                self._borrows(permit)
            if ticket.owner is not None:
                ticket.owner.admitted()

    def _borrows(self, permit: HeldPermit) -> None:
        self.borrowed[permit.tenant_id] = self.borrowed.get(permit.tenant_id, 0) + 1

    def _turn_away(self, those: Iterable[TurnedAway], now_s: float) -> None:
        for one in those:
            ticket = one.owner
            assert isinstance(ticket, Ticket)
            owner, ticket.owner = ticket.owner, None
            ticket.state = "closed"
            self._settle(ticket, 0, 0, now_s)
            self._count(ticket.tenant.id, one.refused)
            if owner is not None:
                owner.turned_away(one.refused)

    def _count(self, tenant_id: str, refused: Refused) -> None:
        key = (tenant_id, refused.code)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def tick(self, now_s: float) -> None:
        """Called several times a second."""
        self._local.wall_offset_s = time.time() - now_s
        if self.governor.waiting:
            self._give_up()
            self._wake()

    def _give_up(self) -> None:
        """Turn away who has waited too long, so many in one turn of the loop that streams go on."""
        now_s = self._now_s()
        away = self.governor.expired(now_s, most=EXPIRED_AT_ONCE)
        self._turn_away(away, now_s)
        if len(away) == EXPIRED_AT_ONCE:
            asyncio.get_running_loop().call_soon(self._give_up)

    # what may change

    def set_tenants(self, tenants: Iterable[Tenant]) -> None:
        """These are the tenants from now on. What runs goes on; what waits of a tenant that is gone is refused."""
        now_s = self._now_s()
        known = tuple(tenants)
        self._turn_away(self.governor.set_tenants(known, now_s), now_s)
        self._ways.clear()
        for tenant in known:
            unlimited = self._unlimited.get(tenant.id)
            if unlimited is not None and unlimited.in_flight and self._way(tenant) is None and self.shared is None:
                self._adopt(unlimited, tenant.id, now_s)

    def _adopt(self, unlimited: Unlimited, tenant_id: str, now_s: float) -> None:
        """The tenant has limits now, which were not counted while its requests came: those that run count as held."""
        for at in range(len(unlimited.adopted), unlimited.in_flight):
            nothing = Charge(tenant_id=tenant_id, model="", prompt_tokens=0, output_tokens=0, blocks=0)
            unlimited.adopted.append(self._local.acquire(_UNBOUNDED, nothing, f"adopted-{at}", now_s))

    def set_settings(self, settings: GovernSettings) -> None:
        """Queue, reserve and rules are these from now on."""
        self.governor.set_settings(settings)
        self._ways.clear()

    def capacity(self, room: Room) -> None:
        """The room of the engines that can be used now."""
        self.governor.capacity(room.blocks, room.slots)
        self._bounded = any(bound is not None for bound in (room.blocks, room.slots, room.prompt_tokens))
        self._ways.clear()
        if self.governor.waiting:
            self._wake_soon()

    def look_at_prompts(self, engines: Sequence[Endpoint], room: Room) -> None:
        """``engines`` can be used now and have been looked at a moment ago."""
        backlogs = self.governor.backlogs
        self._bounds_prompts = room.prompt_tokens is not None
        if room.prompt_tokens is None:
            backlogs.bound((), 0, 0.0)
            return
        backlogs.bound(engines, room.prompt_tokens, room.prompt_tokens_per_s)
        for engine in engines:
            if not engine.waiting and engine.health.checked_s is not None:
                backlogs.caught_up(engine.url, engine.health.checked_s - LOOK_LASTS_S)
        if self.governor.waiting:
            self._wake_soon()

    def measured(self, used_blocks: int | None) -> None:
        """KV blocks in use by the engines' own count, None where one does not say: what is below the sum of what was
        predicted is shared, and becomes room."""
        self.governor.measured(used_blocks)
        if self.governor.waiting:
            self._wake_soon()

    # what it tells

    def in_flight(self, tenant_id: str) -> int:
        """Requests of a tenant that this process has let in, waiting ones included."""
        unlimited = self._unlimited.get(tenant_id)
        free = unlimited.in_flight - len(unlimited.adopted) if unlimited is not None else 0
        if self.shared is not None:
            return free + self.shared.in_flight(tenant_id)
        return free + self._local.held(tenant_id, self._now_s()).requests

    def depth(self) -> QueueDepth:
        return self.governor.depth(self._now_s())
