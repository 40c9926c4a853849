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
import contextlib
import time
from typing import TYPE_CHECKING, Literal, Protocol

from roadworthy.core.errors import Refused, Temporary
from roadworthy.route.govern.refusals import unknown_limits
from roadworthy.route.govern.values import Grant, Held

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable
    from typing import Any

    from roadworthy.gateway.data.record import RequestRecord
    from roadworthy.route.govern.governor import Governor
    from roadworthy.route.govern.meter import LocalMeter
    from roadworthy.route.govern.permit import HeldPermit
    from roadworthy.route.govern.values import (
        Alert,
        AsyncMeter,
        Charge,
        Facts,
        QueueDepth,
        Treatment,
        TurnedAway,
    )
    from roadworthy.route.values import RouteRequest
    from roadworthy.spec.governance_values import OnStateLoss
    from roadworthy.spec.values import Tenant

State = Literal["asking", "queued", "running", "closed"]

LAST_SETTLEMENTS_S = 5.0
"""How long a stopping gateway waits for the store to hear what is given back."""

_ENDINGS: dict[str, Literal["completed", "cancelled", "failed"]] = {
    "ok": "completed",
    "rejected": "completed",
    "client_left": "cancelled",
    "client_stalled": "cancelled",
}


class Owner(Protocol):
    """Whose ticket it is: hears when it may run, or that it will not."""

    def admitted(self) -> None: ...
    def turned_away(self, refused: Refused) -> None: ...


class Ticket:
    """What one request holds of its tenant's limits and of the engines' room."""

    __slots__ = ("charge", "grant", "opened_s", "owner", "permit", "request", "state", "tenant", "treatment")

    def __init__(
        self, tenant: Tenant, request: RouteRequest, treatment: Treatment, charge: Charge, opened_s: float
    ) -> None:
        self.tenant, self.request, self.treatment, self.charge = tenant, request, treatment, charge
        self.opened_s = opened_s
        self.state: State = "asking"
        self.grant: Grant | None = None
        self.permit: HeldPermit | None = None
        self.owner: Owner | None = None

    @property
    def may_run(self) -> bool:
        return self.permit is not None


class Governance:
    """One process's.

    Args:
        local: counts limits where there is no shared meter.
        now_s: seconds that only rise.
        on_loss: whether requests go on, unmetered, while the shared meter cannot be reached.
        alerted: hears of quotas that are nearly used up.
    """

    def __init__(
        self,
        governor: Governor,
        local: LocalMeter,
        *,
        now_s: Callable[[], float],
        on_loss: OnStateLoss = "closed",
        alerted: Callable[[Alert], None] = lambda _: None,
    ) -> None:
        self.governor, self._local = governor, local
        self._shared: AsyncMeter | None = None
        self._ttl_s = 0.0
        self._now_s, self._on_loss, self._alerted = now_s, on_loss, alerted
        self._leased: dict[str, Grant] = {}  # what the store has to be told of again and again
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing: asyncio.Task[None] | None = None
        self._waking = False
        self.unmetered = self.leases_lost = self.store_failures = 0
        self.borrowed: dict[str, int] = {}  # requests that run on others' room, by tenant
        self.refusals: dict[tuple[str, str], int] = {}

    def share(self, meter: AsyncMeter, ttl_s: float) -> None:
        """Count limits in ``meter`` from now on, whose leases live ``ttl_s`` seconds. Called before the first request,
        on a running loop."""
        self._shared, self._ttl_s = meter, ttl_s
        self._renewing = asyncio.get_running_loop().create_task(self._keep_renewing())

    # a request

    def open(self, tenant: Tenant, request: RouteRequest, facts: Facts, now_s: float) -> Ticket:
        """Let a request in, as far as can be told at once.

        Raises:
            Refused: by the model list, a business rule, a limit that is counted here, or a full queue.
        """
        governor = self.governor
        try:
            treatment = governor.check(tenant, request, facts, now_s)
            ticket = Ticket(tenant, request, treatment, governor.charge(tenant, request, treatment), now_s)
            if self._shared is None:
                ticket.grant = self._local.acquire(governor.limits(tenant.id), ticket.charge, request.request_id, now_s)
                self._enter(ticket, now_s)
        except Refused as refused:
            self._count(tenant.id, refused)
            raise
        return ticket

    def wait(self, ticket: Ticket, owner: Owner) -> None:
        """``ticket`` may not run yet: tell ``owner`` when it may, or that it will not."""
        ticket.owner = owner
        if ticket.state == "asking":
            self._spawn(self._ask(ticket))

    def close(self, ticket: Ticket, record: RequestRecord, ttft_s: float | None, now_s: float) -> None:
        """The request is over, in whatever way; a second call does nothing."""
        state = ticket.state
        if state == "closed":
            return
        ticket.state = "closed"
        ticket.owner = None
        prompt, output = record.prompt_tokens, record.output_tokens
        if record.tokens_estimated and output and not prompt:
            prompt = ticket.charge.prompt_tokens  # no engine said; something was delivered
        permit = ticket.permit
        if permit is not None:
            if permit.borrowed:
                self.borrowed[permit.tenant_id] -= 1
            self.governor.leave(
                permit, prompt_tokens=prompt, output_tokens=output, cached_tokens=record.cached_tokens,
                itl_p99_s=record.itl_p99_s, ttft_s=ttft_s, ending=_ENDINGS.get(record.ending, "failed"), now_s=now_s,
            )  # fmt: skip
        elif state == "queued" and not self.governor.withdraw(ticket):
            self._wake_soon()  # it had its turn, and nobody has told it yet
        self._settle(ticket, prompt, output, now_s)
        if self.governor.waiting:
            self._wake_soon()

    def _enter(self, ticket: Ticket, now_s: float) -> None:
        """Take ``ticket`` to the queue or past it. Raises Refused, and then nothing is held."""
        assert ticket.grant is not None
        try:
            permit = self.governor.enter(
                ticket.grant, ticket.tenant, ticket.request, ticket, now_s, treatment=ticket.treatment
            )
        except Refused:
            ticket.state = "closed"
            self._settle(ticket, 0, 0, now_s)
            raise
        ticket.permit = permit
        ticket.state = "queued" if permit is None else "running"
        if permit is not None and permit.borrowed:
            self._borrows(permit)
        if permit is None or self.governor.waiting:
            self._wake_soon()  # one that goes in line may let another go

    def _settle(self, ticket: Ticket, prompt_tokens: int, output_tokens: int, now_s: float) -> None:
        grant = ticket.grant
        if grant is None:
            return
        if self._shared is None:
            self._local.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now_s=now_s)
        elif self._leased.pop(grant.lease_id, None) is not None:
            self._spawn(self._give_back(grant, prompt_tokens, output_tokens))

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

    def tick(self, now_s: float) -> None:
        """Called several times a second."""
        self._local.wall_offset_s = time.time() - now_s
        if self.governor.waiting:
            self._turn_away(self.governor.expired(now_s), now_s)
            self._wake()

    # what may change

    def set_tenants(self, tenants: Iterable[Tenant]) -> None:
        """These are the tenants from now on. What runs goes on; what waits of a tenant that is gone is refused."""
        now_s = self._now_s()
        self._turn_away(self.governor.set_tenants(tenants, now_s), now_s)

    def capacity(self, blocks: int | None, slots: int | None) -> None:
        """The room of the engines that can be used now; None is no bound."""
        self.governor.capacity(blocks, slots)
        if self.governor.waiting:
            self._wake_soon()

    # what it tells

    async def held(self, tenant_id: str) -> Held:
        """What a tenant holds; of a store that cannot be reached, nothing."""
        if self._shared is None:
            return self._local.held(tenant_id, self._now_s())
        with contextlib.suppress(Temporary):
            return await self._shared.held(tenant_id)
        return Held()

    def held_here(self, tenant_id: str) -> Held | None:
        """The same where limits are counted here; None where they are not."""
        return self._local.held(tenant_id, self._now_s()) if self._shared is None else None

    def in_flight(self, tenant_id: str) -> int:
        """Requests of a tenant that this process has let in, waiting ones included."""
        if self._shared is None:
            return self._local.held(tenant_id, self._now_s()).requests
        return sum(grant.tenant_id == tenant_id for grant in self._leased.values())

    def depth(self) -> QueueDepth:
        return self.governor.depth(self._now_s())

    # the store

    async def _ask(self, ticket: Ticket) -> None:
        """Ask the shared meter for ``ticket``. It is asked to the end even if the request is over meanwhile: what it
        gave is then given back."""
        assert self._shared is not None
        try:
            try:
                grant = await self._shared.acquire(
                    self.governor.limits(ticket.tenant.id), ticket.charge, ticket.request.request_id
                )
            except Temporary as error:
                self.store_failures += 1
                if self._on_loss == "closed":
                    raise unknown_limits("their store does not answer") from error
                self.unmetered += 1
                grant = Grant(lease_id=ticket.request.request_id, tenant_id=ticket.tenant.id, charge=ticket.charge)
            else:
                self._leased[grant.lease_id] = grant
            ticket.grant = grant
            now_s = self._now_s()
            if ticket.state == "closed":
                self._settle(ticket, 0, 0, now_s)
                return
            self._enter(ticket, now_s)
        except Refused as refused:
            self._count(ticket.tenant.id, refused)
            owner, ticket.owner = ticket.owner, None
            ticket.state = "closed"
            if owner is not None:
                owner.turned_away(refused)
            return
        if ticket.permit is not None and ticket.owner is not None:
            ticket.owner.admitted()

    async def _give_back(self, grant: Grant, prompt_tokens: int, output_tokens: int) -> None:
        assert self._shared is not None
        with contextlib.suppress(Temporary):  # the meter keeps what it could not send
            await self._shared.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens)

    async def _keep_renewing(self) -> None:
        assert self._shared is not None
        while True:
            await asyncio.sleep(self._ttl_s / 3)
            if not self._leased:
                continue
            try:
                gone = await self._shared.renew(tuple(self._leased.values()))
            except Temporary:
                self.store_failures += 1
                continue
            self.leases_lost += len(gone)  # they run on: to cut a stream would lose more than a slot

    def _count(self, tenant_id: str, refused: Refused) -> None:
        key = (tenant_id, refused.code)
        self.refusals[key] = self.refusals.get(key, 0) + 1

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Let the store hear what is given back, for a moment."""
        if self._renewing is not None:
            self._renewing.cancel()
            await asyncio.gather(self._renewing, return_exceptions=True)
        if self._tasks:
            _, late = await asyncio.wait(tuple(self._tasks), timeout=LAST_SETTLEMENTS_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
