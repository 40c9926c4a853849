"""INSERT with ON CONFLICT, which SQLite and PostgreSQL spell alike and SQLAlchemy has apart."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from sqlalchemy.dialects import postgresql, sqlite

if TYPE_CHECKING:
    from collections.abc import Sequence

    import sqlalchemy as sa


def insert(connection: sa.Connection, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """The dialect's own INSERT, which knows ``on_conflict_do_nothing`` and ``on_conflict_do_update``."""
    return sqlite.insert(table) if connection.dialect.name == "sqlite" else postgresql.insert(table)


def upsert(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert ``rows``, each in place of the one with its primary key."""
    if not rows:
        return
    statement = insert(connection, table)
    keys = [column.name for column in table.primary_key]
    fresh = {column.name: statement.excluded[column.name] for column in table.columns if column.name not in keys}
    connection.execute(statement.on_conflict_do_update(index_elements=keys, set_=fresh), list(rows))


def add_up(connection: sa.Connection, table: sa.Table, rows: Sequence[dict[str, Any]]) -> None:
    """Insert ``rows``; where one with its primary key is there, the other columns are added to it."""
    if rows:
        connection.execute(_adding(connection.dialect.name, table), list(rows))


@functools.cache
def _adding(dialect: str, table: sa.Table) -> sqlite.Insert | postgresql.Insert:
    """Made once: to make it takes ten times as long as to run it."""
    statement = sqlite.insert(table) if dialect == "sqlite" else postgresql.insert(table)
    keys = [column.name for column in table.primary_key]
    sums = {
        column.name: column + statement.excluded[column.name] for column in table.columns if column.name not in keys
    }
    return statement.on_conflict_do_update(index_elements=keys, set_=sums)
