"""What tenants hold, counted in this process: all limits of a tenant in one step, all or nothing.

The process is the lease: whoever holds a grant gives it back or ends with the process, so nothing expires. Meters on
shared stores (``adapters.state``) keep the same contract and pass the same tests.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.route.govern import refusals
from roadworthy.route.govern.gcra import MINUTE_US, cost_us, used_units
from roadworthy.route.govern.values import DAY_S, Grant, Held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.route.govern.values import Charge, Limits

_DAYS_KEPT = 3


class _Account:
    """One tenant's state. ``requests_tat_us`` and ``tokens_tat_us`` are GCRA's; ``tokens`` is the use of ``day``."""

    __slots__ = (
        "blocks", "borrowed_blocks", "day", "other_days", "requests", "requests_per_minute", "requests_tat_us",
        "tokens", "tokens_per_minute", "tokens_tat_us",
    )  # fmt: skip

    def __init__(self) -> None:
        self.requests = self.blocks = self.borrowed_blocks = 0
        self.day = self.tokens = 0
        self.requests_tat_us = self.tokens_tat_us = -MINUTE_US
        self.requests_per_minute: int | None = None
        self.tokens_per_minute: int | None = None
        self.other_days: dict[int, int] = {}

    def turn_to(self, day: int) -> None:
        """Make ``day`` the current one. A wall clock that was set back finds its day's use as it was."""
        self.other_days[self.day] = self.tokens
        self.day, self.tokens = day, self.other_days.pop(day, 0)
        while len(self.other_days) > _DAYS_KEPT:
            del self.other_days[min(self.other_days)]

    def add(self, day: int, tokens: int) -> None:
        """``tokens`` more were used on ``day``; less where negative."""
        if day == self.day:
            self.tokens += tokens
        elif day in self.other_days:
            self.other_days[day] += tokens


class LocalMeter:
    """A meter without a store, for one process, for simulations and for tests (:class:`govern.values.Meter`).

    Args:
        wall_offset_s: what has to be added to ``now_s`` for seconds since the epoch: days are those of the wall clock.
            It may be set anew at any time, since wall clocks are; what is held does not change by it.
    """

    def __init__(self, *, wall_offset_s: float = 0.0) -> None:
        self.wall_offset_s = wall_offset_s
        self._accounts: dict[str, _Account] = {}

    def acquire(self, limits: Limits, charge: Charge, lease_id: str, now_s: float) -> Grant:
        """See :meth:`Meter.acquire`. Concurrency comes first: waiting for one's own requests uses up no rate."""
        tenant_id = charge.tenant_id
        account = self._accounts.get(tenant_id)
        if account is None:
            account = self._accounts[tenant_id] = _Account()
        if limits.concurrency is not None and account.requests >= limits.concurrency:
            raise refusals.concurrency(tenant_id, account.requests, limits.concurrency)
        wall_s = now_s + self.wall_offset_s
        day = int(wall_s // DAY_S)
        if day != account.day:
            account.turn_to(day)
        tokens = charge.prompt_tokens + charge.output_tokens
        if limits.daily_tokens is not None and account.tokens + tokens > limits.daily_tokens:
            raise refusals.daily(tenant_id, account.tokens, tokens, limits.daily_tokens, (day + 1) * DAY_S - wall_s)
        requests_per_minute, tokens_per_minute = limits.requests_per_minute, limits.tokens_per_minute
        requests_tat_us = tokens_tat_us = 0
        if requests_per_minute is not None or tokens_per_minute is not None:
            requests_tat_us, tokens_tat_us = self._rates(account, limits, charge, tokens, int(now_s * 1e6))
        blocks = charge.blocks
        borrowed = limits.kv_blocks is not None and account.blocks + blocks > limits.kv_blocks
        if requests_per_minute is not None:
            account.requests_tat_us = requests_tat_us
        if tokens_per_minute is not None:
            account.tokens_tat_us = tokens_tat_us
        account.requests += 1
        account.blocks += blocks
        account.tokens += tokens
        if borrowed:
            account.borrowed_blocks += blocks
        return Grant(lease_id, tenant_id, charge, borrowed, day)

    def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int, now_s: float) -> None:  # noqa: ARG002
        """See :meth:`Meter.settle`."""
        if grant.settled:
            return
        grant.settled = True
        account = self._accounts.get(grant.tenant_id)
        if account is None:  # the tenant was forgotten while this ran
            return
        charge = grant.charge
        account.requests -= 1
        account.blocks -= charge.blocks
        if grant.borrowed:
            account.borrowed_blocks -= charge.blocks
        charged, used = charge.prompt_tokens + charge.output_tokens, prompt_tokens + output_tokens
        if used == charged:
            return
        if grant.day == account.day:
            account.tokens += used - charged
        else:
            account.add(grant.day, used - charged)
        per_minute = account.tokens_per_minute
        if per_minute is not None:
            account.tokens_tat_us += cost_us(used, per_minute) - cost_us(charged, per_minute)

    def renew(self, grants: Iterable[Grant], now_s: float) -> tuple[Grant, ...]:  # noqa: ARG002 the store's meters need it
        """Nothing: leases in process do not expire."""
        return ()

    def held(self, tenant_id: str, now_s: float) -> Held:
        """See :meth:`Meter.held`."""
        account = self._accounts.get(tenant_id)
        day = int((now_s + self.wall_offset_s) // DAY_S)
        if account is None:
            return Held(day=day)
        now_us = int(now_s * 1e6)
        requests, tokens = account.requests_per_minute, account.tokens_per_minute
        return Held(
            requests=account.requests,
            blocks=account.blocks,
            borrowed_blocks=account.borrowed_blocks,
            tokens_today=account.tokens if day == account.day else account.other_days.get(day, 0),
            day=day,
            minute_requests=used_units(account.requests_tat_us, now_us, requests) if requests is not None else 0.0,
            minute_tokens=used_units(account.tokens_tat_us, now_us, tokens) if tokens is not None else 0.0,
        )

    def restore_day(self, tenant_id: str, day: int, tokens: int) -> None:
        """``tokens`` of ``day`` (days since the epoch, UTC) had been used before this meter was made: the ledger says
        so. Without this a restart would give everybody a new day's budget."""
        account = self._accounts.setdefault(tenant_id, _Account())
        if day != account.day:
            account.turn_to(day)
        account.tokens += tokens

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone, and with it what it held."""
        self._accounts.pop(tenant_id, None)

    def _rates(self, account: _Account, limits: Limits, charge: Charge, tokens: int, now_us: int) -> tuple[int, int]:
        """The two theoretical arrival times after this request; Refused when one of them is too far ahead. A rate that
        was changed since keeps the time that the tenant still has to wait, at most a minute."""
        requests_us = tokens_us = 0
        per_minute = limits.requests_per_minute
        if per_minute is not None:
            if per_minute != account.requests_per_minute:
                account.requests_per_minute = per_minute
                account.requests_tat_us = min(account.requests_tat_us, now_us + MINUTE_US)
            tat_us = account.requests_tat_us
            requests_us = (tat_us if tat_us > now_us else now_us) + MINUTE_US // per_minute
            if requests_us - now_us > MINUTE_US:
                raise refusals.rate(charge.tenant_id, per_minute, requests_us - now_us - MINUTE_US)
        per_minute = limits.tokens_per_minute
        if per_minute is not None:
            if per_minute != account.tokens_per_minute:
                account.tokens_per_minute = per_minute
                account.tokens_tat_us = min(account.tokens_tat_us, now_us + MINUTE_US)
            tat_us = account.tokens_tat_us
            tokens_us = (tat_us if tat_us > now_us else now_us) + tokens * MINUTE_US // per_minute
            if tokens_us - now_us > MINUTE_US:
                raise refusals.token_rate(charge.tenant_id, per_minute, tokens, tokens_us - now_us - MINUTE_US)
        return requests_us, tokens_us
