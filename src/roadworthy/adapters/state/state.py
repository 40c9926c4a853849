"""The tables as one object: blocking, safe to share between threads, made from a URL.

Every method is one transaction and raises ``Temporary`` where the store is locked, full or gone.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from sqlalchemy.exc import IntegrityError

from roadworthy.adapters.state import ledger_store, registry_store
from roadworthy.adapters.state.database import ANSWER_TIMEOUT_S, LOCK_TIMEOUT_S, Database
from roadworthy.adapters.state.migrate import migrate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.route.ledger import LedgerRow, UsageRow
    from roadworthy.route.registry import AuditRow, Registered, RegistryChange


def open_state(
    url: str, *, lock_timeout_s: float = LOCK_TIMEOUT_S, answer_timeout_s: float = ANSWER_TIMEOUT_S
) -> State:
    """The state at ``url``, with the tables of this version.

    Args:
        url: ``sqlite:///FILE`` or ``postgresql://USER:PASSWORD@HOST/DATABASE``.
        lock_timeout_s: how long another's lock is waited for.
        answer_timeout_s: how long a server may work on one statement.

    Raises:
        SpecError: a URL of another kind, or tables of a later version.
        Unsupported: the driver is not installed.
        Temporary: it cannot be reached, made or written.
    """
    database = Database(url, lock_timeout_s=lock_timeout_s, answer_timeout_s=answer_timeout_s)
    try:
        migrate(database)
        database.keep_to_file()
    except BaseException:
        database.close()
        raise
    return State(database)


class State:
    """What administrators said, and what was used; it outlives the process (``stored``)."""

    stored = True

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def url(self) -> str:
        """Where it is, without the password."""
        return self._database.place

    def close(self) -> None:
        self._database.close()

    def load(self) -> Registered:
        with self._database.reading() as connection:
            return registry_store.load(connection)

    def revision(self) -> int:
        """Grows with every change of tenants or keys, whoever made it."""
        with self._database.reading() as connection:
            return registry_store.current(connection)

    def apply(self, change: RegistryChange, audit: AuditRow, expect: int | None = None) -> int:
        """Write change and audit row together; the new revision.

        Raises:
            ChangedMeanwhile: ``expect`` is given, and is not the revision any more; nothing was written.
        """
        with self._database.writing() as connection:
            return registry_store.apply(connection, change, audit, expect)

    def audit_rows(self, *, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[AuditRow]:
        """The latest rows with an id below ``before``, newest first."""
        with self._database.reading() as connection:
            return registry_store.audit_rows(connection, limit=limit, before=before, subject=subject)

    def secret(self, name: str) -> bytes:
        """32 random bytes, the same for everyone who asks by that name; made when first asked for."""
        with self._database.writing() as connection:
            return registry_store.secret(connection, name)

    def write_ledger(self, rows: Sequence[LedgerRow]) -> int:
        """Bill ``rows``, and add them to their days; how many were new."""
        if self._database.sqlite:
            with contextlib.suppress(IntegrityError), self._database.writing() as connection:
                return ledger_store.write_new(connection, rows)
        with self._database.writing() as connection:
            return ledger_store.write(connection, rows)

    def usage(
        self, *, since_day: str, until_day: str, tenant: str | None = None, model: str | None = None
    ) -> Sequence[UsageRow]:
        """Sums by day, tenant and model, both days (``YYYY-MM-DD``) included."""
        with self._database.reading() as connection:
            return ledger_store.usage(
                connection, since_day=since_day, until_day=until_day, tenant=tenant, model=model
            )  # fmt: skip

    def tokens_of_day(self, day: str) -> dict[str, int]:
        """Prompt and output tokens of a day by tenant; tenants without any are not in it."""
        with self._database.reading() as connection:
            return ledger_store.tokens_of_day(connection, day)

    def ledger(
        self,
        *,
        since_s: float,
        until_s: float,
        tenant: str | None = None,
        model: str | None = None,
        limit: int = 100,
        before: str | None = None,
    ) -> Sequence[Mapping[str, Any]]:
        """Rows that began in [since, until), newest first, from the one after request ``before`` on."""
        with self._database.reading() as connection:
            return ledger_store.page(
                connection, since_s=since_s, until_s=until_s, tenant=tenant, model=model, limit=limit, before=before
            )
