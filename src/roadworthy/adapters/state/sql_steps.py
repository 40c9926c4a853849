"""The five steps of a shared meter as statements of SQL, the same for SQLite and PostgreSQL.

Each function is one transaction's work on an open connection, and answers what ``lua/*.lua`` answers: the two say the
same in two languages, and the same tests hold both to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from roadworthy.route.govern.gcra import MINUTE_US, corrected, cost_us, taken
from roadworthy.route.govern.values import DAY_S

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.adapters.state.meter import Reply
    from roadworthy.route.govern.values import Charge, Grant, Limits

DAY_US = DAY_S * 1_000_000
FORGET_AFTER_US = 3_600_000_000
"""For so long the charge of a lease that ran out is remembered, so that it can still be corrected."""

BACK_US = 1_000_000
"""A clock that is behind what was seen by less than this was not set back; it was read before another's commit."""

TENANTS, LEASES = "roadworthy_meter_tenant", "roadworthy_meter_lease"

_COLUMNS = (
    "epoch", "seen_us", "day", "tokens", "last_day", "last_tokens", "requests_tat_us", "requests_per_minute",
    "tokens_tat_us", "tokens_per_minute", "requests", "blocks", "borrowed_blocks",
)  # fmt: skip

TABLES = (
    f"CREATE {{unlogged}} TABLE IF NOT EXISTS {TENANTS} (tenant_id TEXT PRIMARY KEY, "
    + ", ".join(f"{name} BIGINT NOT NULL" for name in _COLUMNS)
    + ")",
    f"CREATE {{unlogged}} TABLE IF NOT EXISTS {LEASES} (lease_id TEXT PRIMARY KEY, tenant_id TEXT NOT NULL, "
    "until_us BIGINT NOT NULL, live SMALLINT NOT NULL, prompt BIGINT NOT NULL, output BIGINT NOT NULL, "
    "blocks BIGINT NOT NULL, borrowed SMALLINT NOT NULL, day BIGINT NOT NULL)",
    f"CREATE INDEX IF NOT EXISTS {LEASES}_until ON {LEASES} (tenant_id, until_us)",
)
"""``unlogged`` is PostgreSQL's word for a table that is empty after a crash: what is counted here is about now."""

_SELECT = f"SELECT {', '.join(_COLUMNS)} FROM {TENANTS} WHERE tenant_id = ?"
_INSERT = (
    f"INSERT INTO {TENANTS} (tenant_id, {', '.join(_COLUMNS)}) VALUES (?, {', '.join('?' * len(_COLUMNS))}) "
    "ON CONFLICT (tenant_id) DO NOTHING"
)
_UPDATE = f"UPDATE {TENANTS} SET {', '.join(f'{name} = ?' for name in _COLUMNS)} WHERE tenant_id = ?"
_KEEP = (
    f"INSERT INTO {LEASES} (lease_id, tenant_id, until_us, live, prompt, output, blocks, borrowed, day) "
    "VALUES (?, ?, ?, 1, ?, ?, ?, ?, ?) ON CONFLICT (lease_id) DO UPDATE SET until_us = excluded.until_us, live = 1, "
    "prompt = excluded.prompt, output = excluded.output, blocks = excluded.blocks, borrowed = excluded.borrowed, "
    "day = excluded.day"
)
_LEASE = "lease_id, until_us, live, prompt, output, blocks, borrowed, day"


class Connection(Protocol):
    """An open transaction. ``?`` stands for a value in both dialects; ``locking`` ends a SELECT that will be followed
    by an UPDATE."""

    locking: str

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]: ...
    def now_us(self) -> int: ...


class _Tenant:
    """One tenant's row, locked until the transaction ends, with what ran out given back."""

    __slots__ = (*_COLUMNS, "connection", "now_us", "tenant_id")

    if TYPE_CHECKING:
        epoch: int
        seen_us: int
        day: int
        tokens: int
        last_day: int
        last_tokens: int
        requests_tat_us: int
        requests_per_minute: int
        tokens_tat_us: int
        tokens_per_minute: int
        requests: int
        blocks: int
        borrowed_blocks: int

    def __init__(self, connection: Connection, tenant_id: str, row: Sequence[int], now_us: int) -> None:
        self.connection, self.tenant_id, self.now_us = connection, tenant_id, now_us
        for name, value in zip(_COLUMNS, row, strict=True):
            setattr(self, name, value)
        self._follow_clock()
        self._turn_to(self.now_us // DAY_US)
        self._run_out()

    def save(self) -> None:
        self.seen_us = self.now_us
        self.connection.execute(_UPDATE, (*(getattr(self, name) for name in _COLUMNS), self.tenant_id))

    def lease(self, lease_id: str) -> tuple[Any, ...] | None:
        rows = self.connection.execute(
            f"SELECT {_LEASE} FROM {LEASES} WHERE lease_id = ? AND tenant_id = ?", (lease_id, self.tenant_id)
        )
        return rows[0] if rows else None

    def hold(self, lease_id: str, until_us: int, charge: Charge, *, borrowed: bool, day: int) -> None:
        self.requests += 1
        self.blocks += charge.blocks
        self.borrowed_blocks += charge.blocks if borrowed else 0
        self.connection.execute(
            _KEEP,
            (
                lease_id, self.tenant_id, until_us, charge.prompt_tokens, charge.output_tokens, charge.blocks,
                int(borrowed), day,
            ),
        )  # fmt: skip

    def give_back(self, blocks: int, borrowed: int) -> None:
        self.requests -= 1
        self.blocks -= blocks
        self.borrowed_blocks -= blocks if borrowed else 0

    def correct(self, charged: int, used: int, day: int) -> None:
        """What was charged to a day and to the minute's allowance turned out to be another number."""
        if day == self.day:
            self.tokens += used - charged
        elif day == self.last_day:
            self.last_tokens += used - charged
        if self.tokens_per_minute:
            self.tokens_tat_us = corrected(self.tokens_tat_us, charged, used, self.tokens_per_minute)

    def _follow_clock(self) -> None:
        """A clock that was set back would keep slots and allowances for as long as it went: all moves with it."""
        back_us = self.seen_us - self.now_us
        if back_us <= 0:
            return
        if back_us <= BACK_US:
            self.now_us = self.seen_us
            return
        self.requests_tat_us -= back_us
        self.tokens_tat_us -= back_us
        self.connection.execute(
            f"UPDATE {LEASES} SET until_us = until_us - ? WHERE tenant_id = ?", (back_us, self.tenant_id)
        )
        self.save()

    def _turn_to(self, day: int) -> None:
        if day != self.day:
            tokens = self.last_tokens if day == self.last_day else 0
            self.last_day, self.last_tokens = self.day, self.tokens
            self.day, self.tokens = day, tokens

    def _run_out(self) -> None:
        """A lease that ran out gives back its slot, its blocks and the output that it had reserved; what was really
        used is corrected when it is settled after all."""
        over = self.connection.execute(
            f"SELECT {_LEASE} FROM {LEASES} WHERE tenant_id = ? AND until_us <= ?", (self.tenant_id, self.now_us)
        )
        for lease_id, _, live, prompt, output, blocks, borrowed, day in over:
            if not live:
                self.connection.execute(f"DELETE FROM {LEASES} WHERE lease_id = ?", (lease_id,))
                continue
            self.give_back(blocks, borrowed)
            self.correct(prompt + output, prompt, day)
            self.connection.execute(
                f"UPDATE {LEASES} SET live = 0, output = 0, until_us = ? WHERE lease_id = ?",
                (self.now_us + FORGET_AFTER_US, lease_id),
            )
        if over:
            self.save()


def acquire(connection: Connection, lease_id: str, charge: Charge, limits: Limits, *, ttl_us: int, seed: int) -> Reply:
    """[1, epoch, day, borrowed], [0, which limit, wait, what is taken], or [2, day] to be told the day's tokens."""
    tenant = _tenant(connection, charge.tenant_id, seed)
    if tenant is None:
        return [2, connection.now_us() // DAY_US]
    held = tenant.lease(lease_id)
    if held is not None and held[2]:  # the answer was lost and the question repeated
        return [1, tenant.epoch, held[7], held[6]]
    refused = _take(tenant, charge, limits)
    if refused is not None:
        return refused
    borrowed = limits.kv_blocks is not None and tenant.blocks + charge.blocks > limits.kv_blocks
    tenant.tokens += charge.tokens
    tenant.hold(lease_id, tenant.now_us + ttl_us, charge, borrowed=borrowed, day=tenant.day)
    tenant.save()
    return [1, tenant.epoch, tenant.day, int(borrowed)]


def _take(tenant: _Tenant, charge: Charge, limits: Limits) -> Reply | None:
    """The refusal by the first limit that is exceeded, and nothing is changed; or None, and the rates are taken. A
    rate that was edited keeps the time that there is still to wait, at most a minute."""
    tokens, now_us = charge.tokens, tenant.now_us
    if limits.concurrency is not None and tenant.requests >= limits.concurrency:
        return [0, 0, 0, tenant.requests]
    if limits.daily_tokens is not None and tenant.tokens + tokens > limits.daily_tokens:
        return [0, 1, (tenant.day + 1) * DAY_US - now_us, tenant.tokens]
    requests_tat_us, tokens_tat_us = tenant.requests_tat_us, tenant.tokens_tat_us
    if limits.requests_per_minute:
        if limits.requests_per_minute != tenant.requests_per_minute:
            requests_tat_us = min(requests_tat_us, now_us + MINUTE_US)
        requests_tat_us, early_us = taken(requests_tat_us, now_us, cost_us(1, limits.requests_per_minute))
        if early_us:
            return [0, 2, early_us, 0]
    if limits.tokens_per_minute:
        if limits.tokens_per_minute != tenant.tokens_per_minute:
            tokens_tat_us = min(tokens_tat_us, now_us + MINUTE_US)
        tokens_tat_us, early_us = taken(tokens_tat_us, now_us, cost_us(tokens, limits.tokens_per_minute))
        if early_us:
            return [0, 3, early_us, 0]
    tenant.requests_tat_us, tenant.tokens_tat_us = requests_tat_us, tokens_tat_us
    tenant.requests_per_minute = limits.requests_per_minute or tenant.requests_per_minute
    tenant.tokens_per_minute = limits.tokens_per_minute or tenant.tokens_per_minute
    return None


def settle(connection: Connection, tenant_id: str, lease_id: str, tokens: int) -> Reply:
    """[1], or [0] where there is nothing to settle: settled before, or forgotten."""
    tenant = _tenant(connection, tenant_id, -1)
    lease = tenant.lease(lease_id) if tenant is not None else None
    if tenant is None or lease is None:
        return [0]
    _, _, live, prompt, output, blocks, borrowed, day = lease
    if live:
        tenant.give_back(blocks, borrowed)
    tenant.correct(prompt + output, tokens, day)
    connection.execute(f"DELETE FROM {LEASES} WHERE lease_id = ?", (lease_id,))
    tenant.save()
    return [1]


def renew(connection: Connection, tenant_id: str, grants: Sequence[Grant], *, ttl_us: int, seed: int) -> Reply:
    """[1, epoch, index of each that had run out …], or [2, day] to be told the day's tokens. A lease of another epoch
    did not run out: the store lost it, and takes it back."""
    tenant = _tenant(connection, tenant_id, seed)
    if tenant is None:
        return [2, connection.now_us() // DAY_US]
    over: Reply = [1, tenant.epoch]
    until_us = tenant.now_us + ttl_us
    rows = connection.execute(f"SELECT lease_id, live FROM {LEASES} WHERE tenant_id = ?", (tenant_id,))
    known = dict(rows)
    for at, grant in enumerate(grants):
        if known.get(grant.lease_id):
            connection.execute(f"UPDATE {LEASES} SET until_us = ? WHERE lease_id = ?", (until_us, grant.lease_id))
        elif grant.lease_id in known or grant.epoch == tenant.epoch:
            over.append(at)
        else:
            tenant.hold(grant.lease_id, until_us, grant.charge, borrowed=grant.borrowed, day=grant.day)
            if grant.day == tenant.day:
                tenant.tokens += grant.charge.tokens
    tenant.save()
    return over


def held(connection: Connection, tenant_id: str, *, seed: int) -> Reply:
    """What ``lua/held.lua`` answers."""
    tenant = _tenant(connection, tenant_id, -1)
    if tenant is None:
        return [0, 0, 0, seed, connection.now_us() // DAY_US, 0, 0, 0, 0]
    return [
        tenant.requests, tenant.blocks, tenant.borrowed_blocks, tenant.tokens, tenant.day,
        max(0, tenant.requests_tat_us - tenant.now_us), tenant.requests_per_minute,
        max(0, tenant.tokens_tat_us - tenant.now_us), tenant.tokens_per_minute,
    ]  # fmt: skip


def _tenant(connection: Connection, tenant_id: str, seed: int) -> _Tenant | None:
    """The tenant's row, made with ``seed`` tokens of today where there is none; None when the seed is not known."""
    select = _SELECT + connection.locking
    rows = connection.execute(select, (tenant_id,))
    if not rows:
        if seed < 0:
            return None
        now_us = connection.now_us()
        fresh = dict.fromkeys(_COLUMNS, 0) | {
            "epoch": now_us, "seen_us": now_us, "day": now_us // DAY_US, "tokens": seed,
            "requests_tat_us": -MINUTE_US, "tokens_tat_us": -MINUTE_US,
        }  # fmt: skip
        connection.execute(_INSERT, (tenant_id, *fresh.values()))
        rows = connection.execute(select, (tenant_id,))
    return _Tenant(connection, tenant_id, rows[0], connection.now_us())
