"""The limits of several workers or hosts, on a store that they share (``route.govern.values.AsyncMeter``).

Each step is atomic on the store, by the store's clock, and idempotent, so that a question whose answer was lost may be
asked again. Leases have a TTL: a holder that dies stops renewing, and its slot comes back when the TTL is over.

What this file adds to a store is the same for all of them:

- A store that fails or does not answer in time is ``Temporary``, and from then on at once, until it has answered a
  probe: no request waits for a dead store a second time.
- Settlements made meanwhile are kept and sent when it is back.
- A store that came back empty is filled again: leases by their renewal, a day's use from the ledger.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Protocol

from roadworthy.core.errors import Refused, Temporary
from roadworthy.route.govern import refusals
from roadworthy.route.govern.gcra import used_units
from roadworthy.route.govern.values import DAY_S, Grant, Held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roadworthy.route.govern.values import Charge, Limits

TTL_S = 30.0
ANSWER_TIMEOUT_S = 0.5
"""A store that answers nothing for so long while it is asked counts as gone."""

LOOKS = 5
"""It is looked at so often within that time, and each look has to find nothing: a process that was itself held up, on a
busy machine or by garbage, comes late to one of them and finds the answers there."""

PROBE_EVERY_S = 0.25
MOST_OWED = 100_000
"""Settlements that are kept while the store is away; of more, the oldest are left to their leases' TTL."""

MOST = 2**32
"""Tokens and blocks of one request: an engine whose count is absurd must not break what is counted."""

PAID_TOGETHER = 64

FRESH_S = 2.0
"""For so long the ledger's sums of a day are used for further tenants of a store that came back empty."""

Reply = list[int]
"""What a step answers: whole numbers, as ``lua/*.lua`` describe them. A refusal's second is an index into
:data:`REFUSED_BY`."""

REFUSED_BY = ("concurrency", "daily", "requests", "tokens")

LOST = 2
"""First number of a reply: the store knows nothing of this tenant, and asks for its day's use."""


class Store(Protocol):
    """Five atomic steps; times are whole microseconds. What a step answers, or Temporary when the store fails, comes
    with the future."""

    def acquire(
        self, lease_id: str, charge: Charge, limits: Limits, *, ttl_us: int, seed: int
    ) -> asyncio.Future[Reply]: ...
    def settle(self, tenant_id: str, lease_id: str, tokens: int) -> asyncio.Future[Reply]: ...
    def renew(self, tenant_id: str, grants: Sequence[Grant], *, ttl_us: int, seed: int) -> asyncio.Future[Reply]: ...
    def held(self, tenant_id: str, *, seed: int) -> asyncio.Future[Reply]: ...
    def probe(self) -> asyncio.Future[Reply]: ...
    async def give_up(self) -> None:
        """Abandon what is under way, and do none of it that has not begun; the next step begins anew."""

    async def close(self) -> None: ...


class SharedMeter:
    """A meter on ``store``.

    Args:
        ttl_s: how long a lease lives without being renewed; the same for every worker of a store.
        tokens_of_day: the ledger's sums of a day by tenant (blocking; called on a thread). None: a store that lost its
            memory gives every tenant a new day.
        say: hears one line when the store goes out of reach and one when it is back.
    """

    def __init__(
        self,
        store: Store,
        *,
        ttl_s: float = TTL_S,
        answer_timeout_s: float = ANSWER_TIMEOUT_S,
        tokens_of_day: Callable[[str], dict[str, int]] | None = None,
        say: Callable[[str], None] = lambda _line: None,
    ) -> None:
        self.ttl_s = ttl_s
        self.failing = ""
        self._store = store
        self._ttl_us = int(ttl_s * 1e6)
        self._answer_timeout_s = answer_timeout_s
        self._tokens_of_day = tokens_of_day
        self._say = say
        self._owed: deque[tuple[str, str, int]] = deque(maxlen=MOST_OWED)
        self._recovering: asyncio.Task[None] | None = None
        self._pending: set[asyncio.Future[Reply]] = set()
        self._answers = 0
        self._silent_looks = 0
        self._looking: asyncio.TimerHandle | None = None
        self._sums: tuple[float, int, dict[str, int]] = (-FRESH_S, 0, {})

    @property
    def owed(self) -> int:
        """Settlements that wait for the store to come back."""
        return len(self._owed)

    async def acquire(self, limits: Limits, charge: Charge, lease_id: str) -> Grant:
        """See :class:`route.govern.values.Meter`. Raises Refused, or Temporary where the store cannot be asked."""
        if self.failing:
            raise Temporary(self.failing)
        if max(charge.prompt_tokens, charge.output_tokens, charge.blocks) > MOST:
            charge = _sane(charge)
        try:
            reply = await self._ask(self._store.acquire, lease_id, charge, limits, ttl_us=self._ttl_us, seed=-1)
            if reply[0] == LOST:
                seed = await self._used_on(reply[1], charge.tenant_id)
                reply = await self._ask(self._store.acquire, lease_id, charge, limits, ttl_us=self._ttl_us, seed=seed)
        except (Temporary, asyncio.CancelledError):
            self._owe(charge.tenant_id, lease_id, 0)  # it may have been given all the same
            raise
        if reply[0] != 1:
            raise _refusal(limits, charge, REFUSED_BY[reply[1]], wait_us=reply[2], taken=reply[3])
        _, epoch, day, borrowed = reply
        return Grant(
            lease_id=lease_id, tenant_id=charge.tenant_id, charge=charge, borrowed=bool(borrowed), day=day, epoch=epoch
        )

    async def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int) -> None:
        """Give the lease back and correct what it was charged. Never fails: while the store is away it is owed."""
        if grant.settled:
            return
        grant.settled = True
        debt = (grant.tenant_id, grant.lease_id, min(prompt_tokens + output_tokens, MOST))
        try:
            await self._ask(self._store.settle, *debt)
        except Temporary:
            self._owe(*debt)
        except asyncio.CancelledError:
            self._owe(*debt)
            raise

    async def renew(self, grants: Iterable[Grant]) -> tuple[Grant, ...]:
        """Prolong leases; those that had run out already, and hold nothing any more. Raises Temporary."""
        over: list[Grant] = []
        for tenant_id, held in _by_tenant(grants).items():
            reply = await self._ask(self._store.renew, tenant_id, held, ttl_us=self._ttl_us, seed=-1)
            if reply[0] == LOST:
                seed = await self._used_on(reply[1], tenant_id)
                reply = await self._ask(self._store.renew, tenant_id, held, ttl_us=self._ttl_us, seed=seed)
            run_out = set(reply[2:])
            for at, grant in enumerate(held):
                if at in run_out:
                    over.append(grant)
                else:
                    grant.epoch = reply[1]
            # one that was settled while this was under way may just have been taken back by an empty store
            for grant in held:
                if grant.settled:
                    self._owed.append((grant.tenant_id, grant.lease_id, grant.charge.tokens))
        if self._owed and not self.failing:
            await self._pay()
        return tuple(over)

    async def held(self, tenant_id: str) -> Held:
        """What the tenant holds now. Raises Temporary."""
        reply = await self._ask(self._store.held, tenant_id, seed=-1)
        requests, blocks, borrowed, tokens, day, requests_tat, rpm, tokens_tat, tpm = reply
        if tokens < 0:
            tokens = await self._used_on(day, tenant_id)
        return Held(
            requests=requests, blocks=blocks, borrowed_blocks=borrowed, tokens_today=tokens, day=day,
            minute_requests=used_units(requests_tat, 0, rpm) if rpm else 0.0,
            minute_tokens=used_units(tokens_tat, 0, tpm) if tpm else 0.0,
        )  # fmt: skip

    async def look(self) -> None:
        """Find out whether the store answers; ``failing`` tells."""
        with contextlib.suppress(Temporary):
            await self._ask(self._store.probe)

    async def close(self) -> None:
        if self._recovering is not None:
            self._recovering.cancel()
            await asyncio.gather(self._recovering, return_exceptions=True)
        if self._looking is not None:
            self._looking.cancel()
        await self._store.close()

    async def _ask(self, step: Callable[..., asyncio.Future[Reply]], *arguments: object, **named: object) -> Reply:
        if self.failing:
            raise Temporary(self.failing)
        try:
            return await self._watched(step(*arguments, **named))
        except Temporary as error:
            self._lose(error)
            raise

    def _watched(self, answer: asyncio.Future[Reply]) -> asyncio.Future[Reply]:
        """``answer``, which becomes Temporary when the store falls silent."""
        self._pending.add(answer)
        answer.add_done_callback(self._answered)
        if self._looking is None:
            self._silent_looks = 0
            self._look_later()
        return answer

    def _answered(self, answer: asyncio.Future[Reply]) -> None:
        self._pending.discard(answer)
        self._answers += 1

    def _look_later(self) -> None:
        seen, loop = self._answers, asyncio.get_running_loop()
        self._looking = loop.call_later(self._answer_timeout_s / LOOKS, self._look, seen)

    def _look(self, seen: int) -> None:
        self._looking = None
        if not self._pending:
            return
        self._silent_looks = self._silent_looks + 1 if self._answers == seen else 0
        if self._silent_looks < LOOKS:
            self._look_later()
            return
        error = Temporary(f"the store of limits did not answer within {self._answer_timeout_s:g} s")
        for answer in tuple(self._pending):
            if not answer.done():
                answer.set_exception(error)

    def _lose(self, error: Temporary) -> None:
        if self.failing:
            return
        self.failing = str(error)
        self._say(f"limits: {error}")
        self._recover()

    def _owe(self, tenant_id: str, lease_id: str, tokens: int) -> None:
        self._owed.append((tenant_id, lease_id, tokens))
        self._recover()

    def _recover(self) -> None:
        if self._recovering is None or self._recovering.done():
            self._recovering = asyncio.create_task(self._until_well())

    async def _until_well(self) -> None:
        while self.failing or self._owed:
            if self.failing:
                await self._store.give_up()
            await asyncio.sleep(PROBE_EVERY_S)
            try:
                await self._watched(self._store.probe())
            except Temporary as error:
                self._lose(error)
                continue
            if self.failing:
                self.failing = ""
                self._say(f"limits: the store is back, {len(self._owed)} settlements waited")
            await self._pay()

    async def _pay(self) -> None:
        """Send what is owed, some at a time; what cannot be sent stays owed."""
        while self._owed and not self.failing:
            debts = [self._owed.popleft() for _ in range(min(PAID_TOGETHER, len(self._owed)))]
            try:
                told = await asyncio.gather(
                    *(self._ask(self._store.settle, *debt) for debt in debts), return_exceptions=True
                )
            except asyncio.CancelledError:
                self._owed.extend(debts)
                raise
            self._owed.extend(
                debt for debt, one in zip(debts, told, strict=True) if isinstance(one, BaseException)
            )  # fmt: skip

    async def _used_on(self, day: int, tenant_id: str) -> int:
        """What the ledger says that the tenant used on ``day``, 0 without a ledger. Raises Temporary."""
        if self._tokens_of_day is None:
            return 0
        now_s = asyncio.get_running_loop().time()
        read_s, of_day, sums = self._sums
        if of_day != day or now_s - read_s > FRESH_S:
            name = datetime.fromtimestamp(day * DAY_S, tz=UTC).strftime("%Y-%m-%d")
            sums = await asyncio.to_thread(self._tokens_of_day, name)
            self._sums = (now_s, day, sums)
        return sums.get(tenant_id, 0)


def _sane(charge: Charge) -> Charge:
    return replace(
        charge,
        prompt_tokens=min(charge.prompt_tokens, MOST),
        output_tokens=min(charge.output_tokens, MOST),
        blocks=min(charge.blocks, MOST),
    )


def _by_tenant(grants: Iterable[Grant]) -> dict[str, list[Grant]]:
    found: dict[str, list[Grant]] = {}
    for grant in grants:
        if not grant.settled:
            found.setdefault(grant.tenant_id, []).append(grant)
    return found


def _refusal(limits: Limits, charge: Charge, by: str, *, wait_us: int, taken: int) -> Refused:
    """The words are those of every meter."""
    tenant_id = charge.tenant_id
    if by == "concurrency":
        return refusals.concurrency(tenant_id, taken, limits.concurrency or 0)
    if by == "daily":
        return refusals.daily(tenant_id, taken, charge.tokens, limits.daily_tokens or 0, wait_us / 1e6)
    if by == "requests":
        return refusals.rate(tenant_id, limits.requests_per_minute or 0, wait_us)
    return refusals.token_rate(tenant_id, limits.tokens_per_minute or 0, charge.tokens, wait_us)
