"""What tenants hold, counted in this process: all limits of a tenant in one step, all or nothing.

The process is the lease: whoever holds a grant gives it back or ends with the process, so nothing expires. Meters on
shared stores (``adapters.state``) keep the same contract and pass the same tests.

Accounts are rows of one buffer rather than objects: with ten thousand tenants an admission then touches one or two
lines of the cache instead of ten, which is most of what it costs.
"""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING

from roadworthy.route.govern import refusals
from roadworthy.route.govern.gcra import MINUTE_US, used_units
from roadworthy.route.govern.values import DAY_S, Grant, Held

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.route.govern.values import Charge, Limits

_DAYS_KEPT = 3

_ROW = Struct("<iiqqqqqiq4x")
"""requests, day, blocks, borrowed blocks, tokens of that day, TAT of requests and of tokens (us), requests and tokens a
minute that the two were reckoned with (0: none yet)."""

_LONG_AGO_US = -(2**60)
_MOST_TOKENS, _MOST_US = 2**32, 2**62
"""No request is longer, and no debt lasts longer: an engine whose count is absurd must not break what is counted."""
_EMPTY = _ROW.pack(0, 0, 0, 0, 0, _LONG_AGO_US, _LONG_AGO_US, 0, 0)
_read, _write = _ROW.unpack_from, _ROW.pack_into


class LocalMeter:
    """A meter without a store, for one process, for simulations and for tests (:class:`govern.values.Meter`).

    Args:
        wall_offset_s: what has to be added to ``now_s`` for seconds since the epoch: days are those of the wall clock.
            It may be set anew at any time, since wall clocks are; what is held does not change by it.
    """

    def __init__(self, *, wall_offset_s: float = 0.0) -> None:
        self.wall_offset_s = wall_offset_s
        self._rows = bytearray()
        self._at: dict[str, int] = {}  # by tenant, where its row begins
        self._free: list[int] = []
        self._other_days: dict[str, dict[int, int]] = {}

    def acquire(self, limits: Limits, charge: Charge, lease_id: str, now_s: float) -> Grant:
        """See :meth:`Meter.acquire`. Concurrency comes first: waiting for one's own requests uses up no rate."""
        tenant_id = charge.tenant_id
        at = self._at.get(tenant_id)
        if at is None:
            at = self._open(tenant_id)
        requests, account_day, held, borrowed_blocks, used, requests_us, tokens_us, per_minute, tokens_per_minute = (
            _read(self._rows, at)
        )
        if limits.concurrency is not None and requests >= limits.concurrency:
            raise refusals.concurrency(tenant_id, requests, limits.concurrency)
        wall_s = now_s + self.wall_offset_s
        day = int(wall_s // DAY_S)
        if day != account_day:
            used = self._use_of(tenant_id, at, day)
        tokens = charge.prompt_tokens + charge.output_tokens
        if limits.daily_tokens is not None and used + tokens > limits.daily_tokens:
            raise refusals.daily(tenant_id, used, tokens, limits.daily_tokens, (day + 1) * DAY_S - wall_s)
        now_us = int(now_s * 1e6)
        limit = limits.requests_per_minute
        if limit is not None:
            if limit != per_minute:
                per_minute, requests_us = limit, min(requests_us, now_us + MINUTE_US)
            requests_us = (requests_us if requests_us > now_us else now_us) + MINUTE_US // limit
            if requests_us - now_us > MINUTE_US:
                raise refusals.rate(tenant_id, limit, requests_us - now_us - MINUTE_US)
        limit = limits.tokens_per_minute
        if limit is not None:
            if limit != tokens_per_minute:
                tokens_per_minute, tokens_us = limit, min(tokens_us, now_us + MINUTE_US)
            tokens_us = (tokens_us if tokens_us > now_us else now_us) + tokens * MINUTE_US // limit
            if tokens_us - now_us > MINUTE_US:
                raise refusals.token_rate(tenant_id, limit, tokens, tokens_us - now_us - MINUTE_US)
        blocks = charge.blocks
        borrowed = limits.kv_blocks is not None and held + blocks > limits.kv_blocks
        if borrowed:
            borrowed_blocks += blocks
        _write(
            self._rows, at, requests + 1, day, held + blocks, borrowed_blocks, used + tokens, requests_us, tokens_us,
            per_minute, tokens_per_minute,
        )  # fmt: skip
        return Grant(lease_id, tenant_id, charge, borrowed, day)

    def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int, now_s: float) -> None:  # noqa: ARG002
        """See :meth:`Meter.settle`."""
        if grant.settled:
            return
        grant.settled = True
        tenant_id = grant.tenant_id
        at = self._at.get(tenant_id)
        if at is None:  # another meter's
            return
        requests, day, held, borrowed_blocks, used, requests_us, tokens_us, per_minute, tokens_per_minute = _read(
            self._rows, at
        )
        charge = grant.charge
        blocks = charge.blocks
        if grant.borrowed:
            borrowed_blocks -= blocks
        charged, tokens = charge.prompt_tokens + charge.output_tokens, prompt_tokens + output_tokens
        if tokens != charged:
            if tokens > _MOST_TOKENS:
                tokens = _MOST_TOKENS
            if grant.day == day:
                used += tokens - charged
            else:
                others = self._other_days.get(tenant_id, {})
                if grant.day in others:
                    others[grant.day] += tokens - charged
            if tokens_per_minute:
                # gcra.corrected, without its calls
                tokens_us += tokens * MINUTE_US // tokens_per_minute - charged * MINUTE_US // tokens_per_minute
                if tokens_us > _MOST_US:
                    tokens_us = _MOST_US
        _write(
            self._rows, at, requests - 1, day, held - blocks, borrowed_blocks, used, requests_us, tokens_us,
            per_minute, tokens_per_minute,
        )  # fmt: skip

    def renew(self, grants: Iterable[Grant], now_s: float) -> tuple[Grant, ...]:  # noqa: ARG002 the store's meters need it
        """Nothing: leases in process do not expire."""
        return ()

    def held(self, tenant_id: str, now_s: float) -> Held:
        """See :meth:`Meter.held`."""
        day = int((now_s + self.wall_offset_s) // DAY_S)
        at = self._at.get(tenant_id)
        if at is None:
            return Held(day=day)
        now_us = int(now_s * 1e6)
        requests, account_day, blocks, borrowed, used, requests_us, tokens_us, per_minute, tokens_per_minute = _read(
            self._rows, at
        )
        return Held(
            requests=requests,
            blocks=blocks,
            borrowed_blocks=borrowed,
            tokens_today=used if day == account_day else self._other_days.get(tenant_id, {}).get(day, 0),
            day=day,
            minute_requests=used_units(requests_us, now_us, per_minute) if per_minute else 0.0,
            minute_tokens=used_units(tokens_us, now_us, tokens_per_minute) if tokens_per_minute else 0.0,
        )

    def restore_day(self, tenant_id: str, day: int, tokens: int) -> None:
        """``tokens`` of ``day`` (days since the epoch, UTC) had been used before this meter was made: the ledger says
        so. Without this a restart would give everybody a new day's budget."""
        at = self._at.get(tenant_id)
        if at is None:
            at = self._open(tenant_id)
        row = list(_read(self._rows, at))
        if row[1] != day:
            row[1], row[4] = day, self._use_of(tenant_id, at, day)
        row[4] += tokens
        _write(self._rows, at, *row)

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone, and with it its rates and budgets. What runs of it is counted until it ends, so that a
        tenant that comes back by the same name finds its own requests under way."""
        at = self._at.get(tenant_id)
        self._other_days.pop(tenant_id, None)
        if at is None:
            return
        requests, day, blocks, borrowed, *_ = _read(self._rows, at)
        if requests:
            _write(self._rows, at, requests, day, blocks, borrowed, 0, _LONG_AGO_US, _LONG_AGO_US, 0, 0)
        else:
            del self._at[tenant_id]
            self._free.append(at)

    def _open(self, tenant_id: str) -> int:
        """A new row for the tenant."""
        if self._free:
            at = self._free.pop()
            self._rows[at : at + _ROW.size] = _EMPTY
        else:
            at = len(self._rows)
            self._rows += _EMPTY
        self._at[tenant_id] = at
        return at

    def _use_of(self, tenant_id: str, at: int, day: int) -> int:
        """What was used on ``day``, which becomes the row's. A wall clock that was set back finds its day as it was."""
        _, row_day, _, _, used, _, _, _, _ = _read(self._rows, at)
        others = self._other_days.setdefault(tenant_id, {})
        others[row_day] = used
        while len(others) > _DAYS_KEPT:
            del others[min(others)]
        return others.get(day, 0)
