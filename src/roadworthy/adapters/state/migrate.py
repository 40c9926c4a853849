"""Brings a database to the tables of this version: forward only, one process at a time, all of it or nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import sqlalchemy as sa

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from roadworthy.adapters.state.database import Database

HEAD = "0001"
"""The latest of ``migrations/versions``: known here so that Alembic is imported only when there is something to do."""

_LOCK = 0x726F6164  # "road": PostgreSQL's advisory lock, so that of many workers one migrates


def migrate(database: Database) -> None:
    """Make ``database`` have the tables of :data:`HEAD`.

    Raises:
        SpecError: a later version of roadworthy wrote it.
        Temporary: it cannot be reached, read or written.
    """
    with database.reading() as connection:
        if _version(connection) == HEAD:
            return
    with database.writing() as connection:
        if not database.sqlite:
            connection.execute(sa.text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": _LOCK})
        version = _version(connection)
        if version == HEAD:
            return
        if version is not None and version > HEAD:
            raise SpecError(
                f"{database.place}: its tables are of version {version}, this roadworthy knows up to {HEAD}",
                hint="run the newer roadworthy that wrote it, or name another state_url",
            )
        _upgrade(connection)


def _version(connection: sa.Connection) -> str | None:
    if not sa.inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(sa.text("SELECT version_num FROM alembic_version")).scalar()


def _upgrade(connection: sa.Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", "roadworthy.adapters.state:migrations")
    config.attributes["connection"] = connection
    command.upgrade(config, HEAD)
