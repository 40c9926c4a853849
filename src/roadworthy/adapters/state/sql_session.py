"""The two databases that limits may be kept on, each with its own clock.

SQLite is on this host, and so are all who share it: leases and rates go by the kernel's clock since boot, which nobody
can set. What an earlier boot left is void, its holders are gone. PostgreSQL's clock is the server's.
"""

from __future__ import annotations

import contextlib
import sqlite3
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.state.database import Database
from roadworthy.adapters.state.sql_steps import LEASES, TABLES, TENANTS
from roadworthy.adapters.state.wal import write_ahead

if TYPE_CHECKING:
    from roadworthy.adapters.state.sql_store import Session

LOCK_TIMEOUT_S = 0.4
"""Below the time after which a store counts as gone: who waits for a lock is told that it is a lock."""

ANSWER_TIMEOUT_S = 2.0
SUFFIX = ".limits"
_BOOT = Path("/proc/sys/kernel/random/boot_id")


def session_at(url: str, clock: Callable[[], int] | None) -> Session:
    """The session for ``url``; ``clock`` (microseconds) in place of the store's own. Raises SpecError, Unsupported."""
    database = Database(url)  # reads and checks the URL; connects nothing
    if database.file is not None:
        return SqliteSession(database.file.with_name(database.file.name + SUFFIX), clock)
    return PostgresSession(database.target, database.place, clock)


class SqliteSession:
    """One connection to ``file``, shared with the other workers of this host."""

    locking = ""  # BEGIN IMMEDIATE holds the whole file
    breaks = False

    def __init__(self, file: Path, clock: Callable[[], int] | None) -> None:
        self.place = f"sqlite:///{file}"
        self._file = file
        self._clock = clock
        self._offset_us = 0
        self._inode: int | None = None
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        connection = sqlite3.connect(
            self._file, timeout=LOCK_TIMEOUT_S, isolation_level=None, check_same_thread=False
        )  # fmt: skip
        self._connection = connection
        write_ahead(connection, within_s=LOCK_TIMEOUT_S)
        connection.execute("PRAGMA synchronous = NORMAL")
        self.begin()
        for statement in TABLES:
            self.execute(statement.format(unlogged=""))
        self.execute("CREATE TABLE IF NOT EXISTS roadworthy_meter_boot (id TEXT NOT NULL, offset_us BIGINT NOT NULL)")
        if self._clock is None:
            self._begin_boot()
        self.commit()
        self._inode = self._file.stat().st_ino

    def _begin_boot(self) -> None:
        """The first to come after a boot sweeps out, and says what the clock since boot is added to for days."""
        boot = _BOOT.read_text(encoding="ascii").strip() if _BOOT.exists() else ""
        rows = self.execute("SELECT offset_us FROM roadworthy_meter_boot WHERE id = ?", (boot,))
        if not rows:
            rows = [(time.time_ns() // 1000 - _since_boot_us(),)]
            self.execute(f"DELETE FROM {LEASES}")
            self.execute(f"DELETE FROM {TENANTS}")
            self.execute("DELETE FROM roadworthy_meter_boot")
            self.execute("INSERT INTO roadworthy_meter_boot VALUES (?, ?)", (boot, rows[0][0]))
        self._offset_us = rows[0][0]

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        assert self._connection is not None
        return self._connection.execute(statement, values).fetchall()

    def now_us(self) -> int:
        return self._clock() if self._clock is not None else self._offset_us + _since_boot_us()

    def begin(self) -> None:
        if self._inode is not None and not self._in_place():
            self.close()
            self.open()  # deleted or replaced: the others are on the new file, and renewals fill it
        self.execute("BEGIN IMMEDIATE")

    def _in_place(self) -> bool:
        try:
            return self._file.stat().st_ino == self._inode
        except OSError:
            return False

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def interrupt(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(sqlite3.Error):
                self._connection.interrupt()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
        self._inode = None


def _since_boot_us() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME) // 1000


class PostgresSession:
    """One connection to the server, shared with everybody who knows it."""

    locking = " FOR UPDATE"
    breaks = True

    def __init__(self, url: str, place: str, clock: Callable[[], int] | None) -> None:
        self.place = place
        self._url = url
        self._clock = clock
        self._connection: Any = None
        self._now_us: int | None = None

    def open(self) -> None:
        from roadworthy.adapters.state.patience import connect

        lock_ms = int(LOCK_TIMEOUT_S * 1000)
        self._connection = connect(
            self._url,
            answer_timeout_s=ANSWER_TIMEOUT_S,
            autocommit=True,
            connect_timeout=2,
            application_name="roadworthy limits",
            # a worker that is stopped in the middle of a transaction must not hold a tenant for the others
            options=f"-c lock_timeout={lock_ms} -c statement_timeout=1500 -c idle_in_transaction_session_timeout=1000",
            tcp_user_timeout=2000,
        )
        self.begin()
        self.execute("SELECT pg_advisory_xact_lock(1919905124)")  # "road": one at a time makes the tables
        for statement in TABLES:
            self.execute(statement.format(unlogged="UNLOGGED"))
        self.commit()

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
        cursor = self._connection.execute(statement.replace("?", "%s"), values)
        return cursor.fetchall() if cursor.description else []

    def now_us(self) -> int:
        """The same for a whole transaction."""
        if self._now_us is None:
            rows = self.execute("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint")
            self._now_us = int(rows[0][0])
        return self._now_us

    def begin(self) -> None:
        self._now_us = self._clock() if self._clock is not None else None
        self.execute("BEGIN")

    def commit(self) -> None:
        self.execute("COMMIT")

    def rollback(self) -> None:
        self.execute("ROLLBACK")

    def interrupt(self) -> None:
        """Shut the socket: a server that is frozen would be waited for without end."""
        from roadworthy.adapters.state.patience import shut

        if self._connection is not None:
            shut(self._connection)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
