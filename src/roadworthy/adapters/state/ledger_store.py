"""The ledger and its daily sums, by statements on an open transaction.

A request counts once, however often it is told.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from roadworthy.adapters.state.tables import daily, ledger
from roadworthy.adapters.state.upsert import add_up, insert
from roadworthy.route.ledger import UsageRow

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from roadworthy.route.ledger import LedgerRow

COLUMNS = tuple(column.name for column in ledger.columns)


def write(connection: sa.Connection, rows: Sequence[LedgerRow]) -> int:
    """Insert those that are new, and add them to their day; how many were new."""
    told = {row.request_id: row for row in reversed(rows)}  # of two with one id the first counts
    if not told:
        return 0
    statement = insert(connection, ledger).on_conflict_do_nothing().returning(ledger.c.request_id)
    new = [
        told[request_id]
        for (request_id,) in connection.execute(statement, [_values(row) for row in told.values()])
    ]  # fmt: skip
    add_up(connection, daily, _sums(new))
    return len(new)


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


def _values(row: LedgerRow) -> dict[str, Any]:
    return {name: getattr(row, name) for name in COLUMNS}


def _sums(rows: Iterable[LedgerRow]) -> list[dict[str, Any]]:
    sums: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in rows:
        key = (row.day, row.tenant_id, row.model)
        one = sums.get(key)
        if one is None:
            one = sums[key] = {
                "day": row.day, "tenant_id": row.tenant_id, "model": row.model,
                "requests": 0, "prompt_tokens": 0, "cached_tokens": 0, "output_tokens": 0,
            }  # fmt: skip
        one["requests"] += 1
        one["prompt_tokens"] += row.prompt_tokens
        one["cached_tokens"] += row.cached_tokens
        one["output_tokens"] += row.output_tokens
    # in one order in every process, so that two that write the same sums never wait for each other in a ring
    return [sums[key] for key in sorted(sums)]
