"""The ledger and its daily sums, by statements on an open transaction.

A request counts once, however often it is told.
"""

from __future__ import annotations

import json
from itertools import chain
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from roadworthy.adapters.state.tables import daily, ledger
from roadworthy.adapters.state.upsert import add_up, insert
from roadworthy.route.govern.values import DAY_S
from roadworthy.route.ledger import UsageRow, day_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roadworthy.route.ledger import LedgerRow

COLUMNS = tuple(column.name for column in ledger.columns)
_DAILY = tuple(column.name for column in daily.columns)
_values = attrgetter(*COLUMNS)

_KNOWN = "SELECT request_id FROM ledger WHERE request_id IN (SELECT value FROM json_each(?))"
_ROW = f"({', '.join('?' * len(COLUMNS))})"
_INSERT = f"INSERT INTO ledger ({', '.join(COLUMNS)}) VALUES "
_TOGETHER = (256, 32, 4, 1)
"""Rows of one statement. Each statement lets go of the interpreter and takes it back, and where the relay is busy on
the same core each time is two switches between threads: more than the row itself costs."""


def write(connection: sa.Connection, rows: Sequence[LedgerRow]) -> int:
    """Insert those that are new, and add them to their day; how many were new."""
    told = {row.request_id: row for row in reversed(rows)}  # of two with one id the first counts
    if not told:
        return 0
    new = _new_in_sqlite(connection, told) if connection.dialect.name == "sqlite" else _new(connection, told)
    add_up(connection, daily, _sums(new))
    return len(new)


def write_new(connection: sa.Connection, rows: Sequence[LedgerRow]) -> int:
    """The same where no request was told before, as nearly always: nobody has to look. For SQLite.

    Raises:
        sqlalchemy.exc.IntegrityError: one was told before. The transaction is to be given up, and ``write`` used.
    """
    if rows:
        _insert(connection, rows)
        add_up(connection, daily, _sums(rows))
    return len(rows)


def _new(connection: sa.Connection, told: Mapping[str, LedgerRow]) -> list[LedgerRow]:
    statement = insert(connection, ledger).on_conflict_do_nothing().returning(ledger.c.request_id)
    values = [dict(zip(COLUMNS, _values(row), strict=True)) for row in told.values()]
    return [told[request_id] for (request_id,) in connection.execute(statement, values)]


def _new_in_sqlite(connection: sa.Connection, told: Mapping[str, LedgerRow]) -> list[LedgerRow]:
    """The same for a transaction that is alone with the file: 4 us a row in place of 26, in the process that relays."""
    known = {request_id for (request_id,) in connection.exec_driver_sql(_KNOWN, (json.dumps([*told]),))}
    new = [row for request_id, row in told.items() if request_id not in known]
    _insert(connection, new)
    return new


def _insert(connection: sa.Connection, new: Sequence[LedgerRow]) -> None:
    at = 0
    for together in _TOGETHER:
        statement = _INSERT + ", ".join([_ROW] * together)
        while len(new) - at >= together:
            connection.exec_driver_sql(statement, tuple(chain.from_iterable(map(_values, new[at : at + together]))))
            at += together


def usage(
    connection: sa.Connection, *, since_day: str, until_day: str, tenant: str | None, model: str | None
) -> tuple[UsageRow, ...]:
    """Sums by day, tenant and model, both days included."""
    query = sa.select(daily).where(daily.c.day.between(since_day, until_day))
    if tenant is not None:
        query = query.where(daily.c.tenant_id == tenant)
    if model is not None:
        query = query.where(daily.c.model == model)
    found = connection.execute(query.order_by(daily.c.day, daily.c.tenant_id, daily.c.model))
    return tuple(
        UsageRow(
            day=row.day, tenant=row.tenant_id, model=row.model, requests=row.requests, prompt_tokens=row.prompt_tokens,
            cached_tokens=row.cached_tokens, output_tokens=row.output_tokens,
        )
        for row in found
    )  # fmt: skip


def tokens_of_day(connection: sa.Connection, day: str) -> dict[str, int]:
    """Prompt and output tokens of a day by tenant."""
    total = sa.func.sum(daily.c.prompt_tokens + daily.c.output_tokens)
    query = sa.select(daily.c.tenant_id, total).where(daily.c.day == day).group_by(daily.c.tenant_id)
    return {tenant_id: int(tokens) for tenant_id, tokens in connection.execute(query)}


def page(
    connection: sa.Connection,
    *,
    since_s: float,
    until_s: float,
    tenant: str | None,
    model: str | None,
    limit: int,
    before: str | None,
) -> tuple[Mapping[str, Any], ...]:
    """Rows that began in [since, until), newest first, from the one after request ``before`` on."""
    query = sa.select(ledger).where(ledger.c.started_s >= since_s, ledger.c.started_s < until_s)
    if tenant is not None:
        query = query.where(ledger.c.tenant_id == tenant)
    if model is not None:
        query = query.where(ledger.c.model == model)
    if before is not None:
        started_s = connection.execute(sa.select(ledger.c.started_s).where(ledger.c.request_id == before)).scalar()
        if started_s is None:
            return ()
        place = sa.tuple_(ledger.c.started_s, ledger.c.request_id)
        query = query.where(place < sa.tuple_(sa.literal(started_s), sa.literal(before)))
    query = query.order_by(ledger.c.started_s.desc(), ledger.c.request_id.desc()).limit(limit)
    return tuple(dict(row._mapping) for row in connection.execute(query))


def _sums(rows: Iterable[LedgerRow]) -> list[dict[str, Any]]:
    sums: dict[tuple[int, str, str], list[int]] = {}
    for row in rows:
        key = (int(row.started_s // DAY_S), row.tenant_id, row.model)
        one = sums.get(key)
        if one is None:
            one = sums[key] = [0, 0, 0, 0]
        one[0] += 1
        one[1] += row.prompt_tokens
        one[2] += row.cached_tokens
        one[3] += row.output_tokens
    # in one order in every process, so that two that write the same sums never wait for each other in a ring
    return [
        dict(zip(_DAILY, (day_of(day * DAY_S), tenant_id, model, *sums[day, tenant_id, model]), strict=True))
        for day, tenant_id, model in sorted(sums)
    ]
