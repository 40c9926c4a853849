"""All of one process that has to do with tenants: who they are, what they may, what they owe.

It owns the book of tenants and keys, governance with its meter, and billing; the gateway starts, ticks and stops it.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Refused, RoadworthyError, Temporary
from roadworthy.gateway.billing import Billing, bill_left_behind
from roadworthy.gateway.governance import Governance
from roadworthy.gateway.journal import Journal
from roadworthy.gateway.quota_watch import QuotaWatch
from roadworthy.gateway.room import Room, room_of
from roadworthy.gateway.shared_limits import SharedLimits
from roadworthy.gateway.tally import tenant_status
from roadworthy.gateway.told import Told
from roadworthy.route.govern.alerts import AlertWatch
from roadworthy.route.govern.footprint import BlockShape
from roadworthy.route.govern.governor import Governor
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.values import DAY_S, Held
from roadworthy.route.ledger import day_of
from roadworthy.route.tenants import ANONYMOUS, TenantBook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.gateway.status import TenantStatus
    from roadworthy.gateway.stores import Stores
    from roadworthy.gateway.tally import Tally
    from roadworthy.route.govern.values import Alert
    from roadworthy.route.keys import Change
    from roadworthy.spec.governance_values import Billing as Counts

LAST_ROWS_S = 10.0
"""How long a stopping gateway waits for the ledger to take its last rows."""

TOLD_AT_ONCE = 100
"""Tenants that are told of before the loop has another turn."""

_NOTHING = Held()

HELD_AT_ONCE = 64
"""Tenants that a shared meter is asked about at once."""


class Tenancy:
    """One process's.

    Args:
        worker: which of several processes this is; None for the only one.
        pepper: under which digests of keys are looked up.

    Raises:
        SpecError: a tenant's key cannot be used. ProbeError: the journal cannot be kept.
    """

    def __init__(self, config: GatewayConfig, stores: Stores, *, worker: str | None, pepper: bytes) -> None:
        self._config, self._stores, self._pepper = config, stores, pepper
        self.told = Told()
        self.book = TenantBook(config.tenants, pepper=pepper)
        self._local = LocalMeter(wall_offset_s=time.time() - time.monotonic())
        self._shared: SharedLimits | None = None
        self.governance = Governance(
            Governor(config.tenants or (ANONYMOUS,), settings=config.govern, shape=config.shape),
            self._local,
            now_s=time.monotonic,
        )
        self.billing = self._billed(worker or "") if config.governance.ledger else None
        self._room = Room()
        self._only, self._first = worker is None, worker == "0"  # what all share one of them watches
        self.alerts = 0
        self._pending: list[Alert] = []  # of a worker, until its supervisor asks
        watch = AlertWatch(
            config.governance.alert,
            replica=config.replica,
            block_bytes=config.shape.block_bytes if config.shape is not None else None,
        )
        self._watch = QuotaWatch(watch, self.governance, self._local, book=lambda: self.book, tell=self._alerted)

    def _billed(self, worker: str) -> Billing | None:
        """What writes down each request; None where there is no ledger."""
        stores = self._stores
        if stores.ledger is None:
            return None
        journal = Journal(stores.journal, worker=worker) if stores.journal is not None else None
        return Billing(stores.ledger(), journal, worker=worker)

    @property
    def counts(self) -> Counts | None:
        """How streams are counted for the tenants of now."""
        return self._config.counts(self.book)

    # life

    async def start(self) -> None:
        """Open what is shared; bill what dead processes left, where this is the only one of its gateway."""
        stores = self._stores
        if stores.meter is not None:
            self._shared = SharedLimits(await stores.meter(), on_loss=self._config.governance.on_state_loss)
            self.governance.share(self._shared)
        if self._only:
            await bill_the_dead(stores)
        if self._shared is None and stores.tokens_of_day is not None:
            await self._restore()

    async def _restore(self) -> None:
        """Daily budgets go on where the ledger says they were: this process's share of them."""
        assert self._stores.tokens_of_day is not None
        now_s = time.time()
        try:
            used = await asyncio.to_thread(self._stores.tokens_of_day, day_of(now_s))
        except Temporary as error:
            self._stores.say(f"warning: budgets of today begin anew, since the ledger cannot be read: {error}")
            return
        for tenant_id, tokens in used.items():
            self._local.restore_day(tenant_id, int(now_s // DAY_S), tokens // self._config.workers)

    def tick(self, now_s: float, engines: Sequence[Endpoint]) -> None:
        """Called several times a second."""
        self.governance.tick(now_s)
        if self.billing is not None:
            self.billing.tick()
        if self._shared is None or self._only or self._first:
            self._watch.tick(now_s)
        self._look_at_room([one for one in engines if one.healthy and not one.draining])

    def _alerted(self, alert: Alert) -> None:
        self.alerts += 1
        if self._only:
            self._stores.alert(alert, "0")
        else:
            self._pending.append(alert)

    def take_alerts(self) -> list[Alert]:
        """Alerts since the last look, of a worker."""
        pending, self._pending = self._pending, []
        return pending

    def _look_at_room(self, usable: Sequence[Endpoint]) -> None:
        """What room there is at the engines that can be used now: this process's share of it."""
        config, governor = self._config, self.governance.governor
        room = room_of(
            usable,
            count_blocks=config.shape is not None,
            slots_per_engine=config.governance.slots_per_engine,
            workers=config.workers,
            prefill=config.prefill,
            backlog_s=config.backlog_s,
        )
        if room != self._room:
            if replace(room, used_blocks=None) != replace(self._room, used_blocks=None):
                self.governance.capacity(room)
            self._room = room
            self.governance.measured(room.used_blocks)
        self.governance.look_at_prompts(usable, room)
        if config.shape is None:  # without a plan the engines say at least how long a block is
            block_tokens = max((one.block_tokens for one in usable), default=0)
            if block_tokens and block_tokens != governor.shape.block_tokens:
                governor.set_shape(BlockShape(block_tokens=block_tokens))

    async def stop(self) -> None:
        """After the last request: give back, write the last rows."""
        self._watch.stop()
        if self._shared is not None:
            await self._shared.stop()
        if self.billing is not None:
            await asyncio.to_thread(self.billing.close, LAST_ROWS_S)
        self._shared = self.billing = None

    # what may change

    def book_for(self, config: GatewayConfig) -> TenantBook:
        """The book of another document, with all that was told since the start. Raises SpecError."""
        book = TenantBook(config.tenants, pepper=self._pepper, managed=self.told.anything)
        book.apply(self.told.whole())
        return book

    def take_over(self, config: GatewayConfig, book: TenantBook) -> None:
        """Another document is in force; ``book`` is ``book_for`` it."""
        if config.shape is not None and config.shape != self._config.shape:
            self.governance.governor.set_shape(config.shape)
        if config.govern != self._config.govern:
            self.governance.set_settings(config.govern)
        self._config, self.book = config, book
        self.governance.set_tenants(book)

    def govern(self, change: Change) -> None:
        """Put ``change`` into force."""
        if not self.told.anything:  # from now on an empty book is closed to everybody
            self.book = TenantBook(self._config.tenants, pepper=self._pepper, managed=True)
        self.told.add(change)
        self.book.apply(change)
        if change.tenants or change.tenants_gone:
            self.governance.set_tenants(self.book)

    # what it tells

    async def statuses(self, tally: Tally) -> tuple[TenantStatus, ...]:
        """Each tenant's sums, a few at a time: streams go on while ten thousand are told of."""
        sums, found = tally.grouped(), []
        for at, tenant in enumerate(self.book):
            if at % TOLD_AT_ONCE == TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)
            in_flight = self.governance.in_flight(tenant.id)
            found.append(tenant_status(tenant.id, in_flight, sums.get(tenant.id, ())))
        return tuple(found)

    def held_here(self, tenant_id: str) -> Held | None:
        """What a tenant holds where limits are counted in this process; None where they are not."""
        return self._local.held(tenant_id, time.monotonic()) if self._shared is None else None

    async def view(self, tally: Tally, *, ask_shared: bool = True) -> list[dict[str, Any]]:
        """One tenant each, as ``tenants.finished`` reads it.

        Args:
            ask_shared: of what a shared meter holds, which is the same for every process.
        """
        now_s = time.monotonic()
        governor = self.governance.governor
        depth, minute = self.governance.depth(), tally.last_minute.of(now_s)
        tenants = tuple(self.book)
        sums = tally.grouped()
        held = await self._held([one.id for one in tenants], ask_shared=ask_shared)
        views = []
        for at, tenant in enumerate(tenants):
            if at % TOLD_AT_ONCE == TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)  # streams go on while ten thousand are told of
            one = tenant_status(tenant.id, self.governance.in_flight(tenant.id), sums.get(tenant.id, ()))
            holds = held.get(tenant.id, _NOTHING)
            tokens, ttft = minute.get(tenant.id, (0, {}))
            try:
                quota = governor.limits(tenant.id).kv_blocks
            except Refused:  # it went meanwhile
                continue
            views.append(
                {
                    "id": tenant.id, "in_flight": one.in_flight, "waiting": depth.by_tenant.get(tenant.id, 0),
                    "borrowed": self.governance.borrowed.get(tenant.id, 0), "blocks_held": holds.blocks,
                    "blocks_quota": quota, "requests": one.requests, "refused": one.refused, "failed": one.failed,
                    "prompt_tokens": one.prompt_tokens, "output_tokens": one.output_tokens, "tokens_per_min": tokens,
                    "tokens_today": holds.tokens_today, "ttft": {str(bucket): count for bucket, count in ttft.items()},
                }
            )  # fmt: skip
        return views

    async def _held(self, tenant_ids: Sequence[str], *, ask_shared: bool) -> dict[str, Held]:
        found: dict[str, Held] = {}
        if self._shared is None:
            now_s = time.monotonic()
            for start in range(0, len(tenant_ids), TOLD_AT_ONCE):
                found |= {one: self._local.held(one, now_s) for one in tenant_ids[start : start + TOLD_AT_ONCE]}
                await asyncio.sleep(0)
            return found
        if ask_shared:
            for start in range(0, len(tenant_ids), HELD_AT_ONCE):
                some = tenant_ids[start : start + HELD_AT_ONCE]
                found |= zip(some, await asyncio.gather(*map(self._shared.held, some)), strict=True)
        return found


async def bill_the_dead(stores: Stores) -> bool:
    """Bill what dead processes owe by their journals. False when it cannot be written now: it stays for the next
    try."""
    if stores.journal is None or stores.write_ledger is None:
        return True
    try:
        rows = await asyncio.to_thread(bill_left_behind, stores.journal, stores.write_ledger)
    except (RoadworthyError, OSError) as error:
        stores.say(f"warning: what ended processes owe cannot be billed yet: {error}")
        return False
    if rows:
        stores.say(f"billed {rows} requests of processes that had ended before they could")
    return True
