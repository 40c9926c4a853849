"""Limits that are counted in a store which other processes count in too: leases, kept while their requests run."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Temporary
from roadworthy.route.govern.refusals import unknown_limits
from roadworthy.route.govern.values import Grant, Held

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from roadworthy.gateway.stores import SharedMeter
    from roadworthy.route.govern.values import Charge, Limits
    from roadworthy.spec.governance_values import OnStateLoss

LAST_SETTLEMENTS_S = 5.0
"""How long a stopping gateway waits for the store to hear what is given back."""


class SharedLimits:
    """One process's dealings with the store. Made on a running loop.

    Args:
        on_loss: whether requests go on, unmetered, while it cannot be reached.
    """

    def __init__(self, meter: SharedMeter, *, on_loss: OnStateLoss) -> None:
        self._meter, self._on_loss = meter, on_loss
        self._leased: dict[str, Grant] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._renewing = asyncio.get_running_loop().create_task(self._keep_renewing())
        self.unmetered = self.lost = self.failures = 0

    @property
    def failing(self) -> str:
        """Why the store cannot be reached now, "" when it can."""
        return self._meter.failing

    def in_flight(self, tenant_id: str) -> int:
        """Leases of a tenant that this process holds."""
        return sum(grant.tenant_id == tenant_id for grant in self._leased.values())

    async def acquire(self, limits: Limits, charge: Charge, lease_id: str) -> Grant:
        """A lease. Raises Refused by a limit, or when the store cannot be reached and that means to refuse."""
        try:
            grant = await self._meter.acquire(limits, charge, lease_id)
        except Temporary as error:
            self.failures += 1
            if self._on_loss == "closed":
                raise unknown_limits("their store does not answer") from error
            self.unmetered += 1
            return Grant(lease_id=lease_id, tenant_id=charge.tenant_id, charge=charge)
        self._leased[lease_id] = grant
        return grant

    def settle(self, grant: Grant, prompt_tokens: int, output_tokens: int) -> None:
        """Give a lease back, some time soon; one that was never in the store is only forgotten."""
        if self._leased.pop(grant.lease_id, None) is not None:
            self.spawn(self._give_back(grant, prompt_tokens, output_tokens))

    async def held(self, tenant_id: str) -> Held:
        """What a tenant holds; nothing while the store cannot be reached."""
        with contextlib.suppress(Temporary):
            return await self._meter.held(tenant_id)
        return Held()

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Do ``work`` before the store is closed."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Let the store hear what is given back, for a moment; then close it."""
        self._renewing.cancel()
        await asyncio.gather(self._renewing, return_exceptions=True)
        if self._tasks:
            _, late = await asyncio.wait(tuple(self._tasks), timeout=LAST_SETTLEMENTS_S)
            for task in late:
                task.cancel()
            await asyncio.gather(*late, return_exceptions=True)
        await self._meter.close()

    async def _give_back(self, grant: Grant, prompt_tokens: int, output_tokens: int) -> None:
        with contextlib.suppress(Temporary):  # the meter keeps what it could not send
            await self._meter.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens)

    async def _keep_renewing(self) -> None:
        while True:
            await asyncio.sleep(self._meter.ttl_s / 3)
            if not self._leased:
                continue
            try:
                gone = await self._meter.renew(tuple(self._leased.values()))
            except Temporary:
                self.failures += 1
                continue
            self.lost += len(gone)  # their requests run on: to cut a stream would lose more than a slot
