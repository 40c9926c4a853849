"""A database by its URL: SQLite in WAL mode, or PostgreSQL; transactions whose errors name the place.

A SQLite file that is deleted or replaced while it is open would be written to by nobody's name: it is looked at before
every transaction.

SQLite's transactions are opened as ``BEGIN IMMEDIATE`` where something will be written: a transaction that reads first
and writes later is turned away at once when another wrote in between, however long it is willing to wait.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy import event
from sqlalchemy.exc import DBAPIError, SQLAlchemyError
from sqlalchemy.exc import TimeoutError as PoolTimeout

from roadworthy.adapters.state.trouble import trouble
from roadworthy.adapters.state.wal import write_ahead
from roadworthy.core.errors import SpecError, Temporary, Unsupported

LOCK_TIMEOUT_S = 5.0
"""How long a statement waits for another's lock before it is ``Temporary``."""

ANSWER_TIMEOUT_S = 15.0
"""How long PostgreSQL may work on one statement; a second more and the connection is given up."""

KINDS = "sqlite:///FILE or postgresql://USER:PASSWORD@HOST/DATABASE"


class Database:
    """Connections to one database; safe to share between threads.

    Args:
        url: ``sqlite:///FILE`` (a relative path is one from the current folder) or ``postgresql://…``.

    Raises:
        SpecError: another kind of URL. Unsupported: its driver is not installed.
    """

    def __init__(
        self, url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
    ) -> None:
        parsed = _parsed(url)
        self.place = parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=True)
        self.target = parsed.set(drivername=parsed.get_backend_name()).render_as_string(hide_password=False)
        self.file = Path(parsed.database) if parsed.get_backend_name() == "sqlite" and parsed.database else None
        self._inode: int | None = None
        if self.file is not None:
            self.engine = _sqlite(self.file, lock_timeout_s, lambda: self._inode is None)
        else:
            self.engine = _postgresql(parsed, lock_timeout_s, answer_timeout_s)

    @property
    def sqlite(self) -> bool:
        return self.file is not None

    def keep_to_file(self) -> None:
        """From now on the file that is there is the one: when it goes, no empty one is made in its place."""
        if self.file is not None:
            self._inode = self.file.stat().st_ino

    @contextmanager
    def reading(self) -> Iterator[sa.Connection]:
        """A transaction that only reads, and sees one moment. Raises Temporary."""
        with self._told(), self.engine.connect() as connection, connection.begin():
            yield connection

    @contextmanager
    def writing(self) -> Iterator[sa.Connection]:
        """A transaction that writes: all of it or nothing. Raises Temporary."""
        with self._told(), self.engine.connect() as connection:
            connection = connection.execution_options(writes=True)
            with connection.begin():
                yield connection

    def close(self) -> None:
        self.engine.dispose()

    def _look_at_file(self) -> None:
        if self.file is None or self._inode is None:
            return
        try:
            inode = self.file.stat().st_ino
        except OSError as error:
            raise Temporary(f"{self.place}: the file is gone", hint="put it back, or start again") from error
        if inode != self._inode:
            self.engine.dispose()
            self._inode = inode

    @contextmanager
    def _told(self) -> Iterator[None]:
        self._look_at_file()
        try:
            yield
        except DBAPIError as error:
            if not _of_the_store(error):
                raise
            raise trouble(self.place, error) from error
        except PoolTimeout as error:
            raise trouble(self.place, error) from error


def _of_the_store(error: DBAPIError) -> bool:
    """Whether the store is in trouble, rather than what it was given wrong."""
    return not isinstance(error, (sa.exc.IntegrityError, sa.exc.DataError))


def _parsed(url: str) -> sa.URL:
    try:
        parsed = sa.make_url(url)
        kind = parsed.get_backend_name()
    except (SQLAlchemyError, ValueError) as error:
        raise SpecError("gateway.state_url: not a URL", hint=f"write {KINDS}") from error
    if kind == "postgres":
        parsed, kind = parsed.set(drivername="postgresql"), "postgresql"
    if kind not in ("sqlite", "postgresql"):
        raise SpecError(f"gateway.state_url: {kind}:// is not known, wanted {KINDS}", hint=f"write {KINDS}")
    if kind == "sqlite" and (not parsed.database or parsed.database == ":memory:" or parsed.host):
        raise SpecError(
            f"gateway.state_url: {url} names no file",
            hint="sqlite:///FILE is relative to the current folder, sqlite:////FILE absolute",
        )
    if kind == "postgresql":
        if importlib.util.find_spec("psycopg") is None:
            raise Unsupported(
                "gateway.state_url: PostgreSQL needs psycopg, which is not installed",
                hint="pip install 'roadworthy[postgres]'",
            )
        parsed = parsed.set(drivername="postgresql+psycopg")
    return parsed


def _sqlite(file: Path, lock_timeout_s: float, may_make: Callable[[], bool]) -> sa.Engine:
    def opened() -> sqlite3.Connection:
        mode = "rwc" if may_make() else "rw"
        return sqlite3.connect(
            f"file:{quote(str(file))}?mode={mode}", uri=True, timeout=lock_timeout_s, check_same_thread=False
        )

    engine = sa.create_engine("sqlite://", creator=opened, poolclass=sa.QueuePool)

    @event.listens_for(engine, "connect")
    def _opened(connection: Any, _record: Any) -> None:
        connection.isolation_level = None  # the driver opens no transaction of its own: `_begin` does
        write_ahead(connection, within_s=lock_timeout_s)
        connection.execute("PRAGMA synchronous = FULL")  # what was billed outlives a power cut

    @event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        writes = connection.get_execution_options().get("writes")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _postgresql(url: sa.URL, lock_timeout_s: float, answer_timeout_s: float) -> sa.Engine:
    from roadworthy.adapters.state.patience import connect

    ms = {"lock_timeout": lock_timeout_s, "statement_timeout": answer_timeout_s}
    arguments: dict[str, Any] = {
        "connect_timeout": max(2, min(5, int(answer_timeout_s))),  # libpq takes whole seconds, and 2 at least
        "application_name": "roadworthy",
        "options": " ".join(f"-c {name}={int(seconds * 1000)}" for name, seconds in ms.items()),
        "tcp_user_timeout": int(answer_timeout_s * 1000),
        "keepalives_idle": 15,
        "keepalives_interval": 5,
        "keepalives_count": 3,
    }
    ours = {name: value for name, value in arguments.items() if name not in url.query}
    target = url.set(drivername="postgresql").render_as_string(hide_password=False)
    return sa.create_engine(
        "postgresql+psycopg://", creator=lambda: connect(target, answer_timeout_s=answer_timeout_s + 1.0, **ours),
        pool_size=2, max_overflow=4, pool_pre_ping=True,
    )  # fmt: skip
