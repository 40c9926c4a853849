"""Where administrators' words on tenants and keys are kept, and the trail of who said them."""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Protocol

from roadworthy.route.registry import AuditRow, ChangedMeanwhile, Registered, RegistryChange, TenantRow

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.route.keys import ApiKey
    from roadworthy.route.ledger import LedgerRow, UsageRow

MOST_AUDIT_ROWS_IN_MEMORY = 10_000


class Registry(Protocol):
    """Keeps the registry. Methods block, and are called on a thread; each is one transaction.

    Raises:
        core.errors.Temporary: it cannot be reached or written now.
    """

    stored: bool
    """Whether it outlives this process."""

    def load(self) -> Registered: ...
    def revision(self) -> int:
        """Grows with every change, whoever made it."""

    def apply(self, change: RegistryChange, audit: AuditRow, expect: int | None = None) -> int:
        """Write change and audit row together, and return the new revision.

        Raises:
            ChangedMeanwhile: ``expect`` is given, and is not the revision any more; nothing was written.
        """

    def audit_rows(self, *, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[AuditRow]:
        """The latest rows with an id below ``before``, newest first."""

    def usage(
        self, *, since_day: str, until_day: str, tenant: str | None = None, model: str | None = None
    ) -> Sequence[UsageRow] | None:
        """Sums by day, tenant and model, both days included; None where no ledger is kept."""

    def ledger(
        self, *, since_s: float, until_s: float, tenant: str | None, model: str | None, limit: int, before: str | None
    ) -> Sequence[LedgerRow] | Sequence[Mapping[str, Any]] | None:
        """Rows, newest first, from the one after ``before`` (a request's id); None where no ledger is kept."""


@dataclass(slots=True)
class MemoryRegistry:
    """A registry that lives as long as the process: where the document names no ``gateway.state_url``."""

    stored: bool = False
    _tenants: dict[str, TenantRow] = field(default_factory=dict)
    _keys: dict[str, ApiKey] = field(default_factory=dict)
    _revision: int = 0
    _audit: deque[AuditRow] = field(default_factory=lambda: deque(maxlen=MOST_AUDIT_ROWS_IN_MEMORY))
    _ids: itertools.count[int] = field(default_factory=lambda: itertools.count(1))

    def load(self) -> Registered:
        return Registered(
            tenants=tuple(self._tenants.values()), keys=tuple(self._keys.values()), revision=self._revision
        )

    def revision(self) -> int:
        return self._revision

    def apply(self, change: RegistryChange, audit: AuditRow, expect: int | None = None) -> int:
        if expect is not None and expect != self._revision:
            raise ChangedMeanwhile
        self._tenants.update({one.id: one for one in change.tenants})
        for tenant_id in change.dropped:
            self._tenants.pop(tenant_id, None)
        self._keys.update({one.id: one for one in change.keys})
        self._audit.append(replace(audit, id=next(self._ids)))
        if change != RegistryChange():
            self._revision += 1
        return self._revision

    def audit_rows(self, *, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[AuditRow]:
        rows = (
            row
            for row in reversed(self._audit)
            if (before is None or row.id < before) and (subject is None or row.subject == subject)
        )
        return tuple(itertools.islice(rows, limit))

    def usage(
        self, *, since_day: str, until_day: str, tenant: str | None = None, model: str | None = None
    ) -> Sequence[UsageRow] | None:
        del since_day, until_day, tenant, model
        return None

    def ledger(
        self, *, since_s: float, until_s: float, tenant: str | None, model: str | None, limit: int, before: str | None
    ) -> Sequence[LedgerRow] | None:
        del since_s, until_s, tenant, model, limit, before
        return None
