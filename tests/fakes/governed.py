"""A gateway as the admin port sees it, without a gateway: it keeps what it was told, and can refuse."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import SpecError, Temporary
from roadworthy.gateway.admin.registry import MemoryRegistry

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.keys import ApiKey, Change
    from roadworthy.route.ledger import LedgerRow, UsageRow
    from roadworthy.route.registry import AuditRow, Registered, RegistryChange
    from roadworthy.spec.values import Tenant

ENGINE = "http://10.0.0.11:8000"


def live(tenant_id: str, **more: Any) -> dict[str, Any]:
    """What one idle tenant holds, but for ``more``."""
    counts = (
        "in_flight", "waiting", "borrowed", "blocks_held", "requests", "refused", "failed", "prompt_tokens",
        "output_tokens", "tokens_today",
    )  # fmt: skip
    idle = {"blocks_quota": None, "tokens_per_min": 0.0, "ttft_p50_s": None, "ttft_p99_s": None}
    return {"id": tenant_id, **dict.fromkeys(counts, 0), **idle, **more}


@dataclass
class FakeGoverned:
    """``tenants`` and ``keys`` are what is in force at the gateway, by what it was told alone."""

    document: tuple[Tenant, ...] = ()
    tenants: dict[str, Tenant] = field(default_factory=dict)
    keys: dict[str, ApiKey] = field(default_factory=dict)
    told: list[Change] = field(default_factory=list)
    refuses: str = ""
    problem: str | None = None
    draining: dict[str, bool] = field(default_factory=lambda: {ENGINE: False})
    shown: list[dict[str, Any]] = field(default_factory=list)
    ready: bool = True
    healthy: bool = True
    in_flight: int = 0

    def __post_init__(self) -> None:
        self.tenants = {one.id: one for one in self.document}

    async def govern(self, change: Change) -> None:
        if self.refuses:
            raise SpecError(self.refuses, hint="another value")
        self.told.append(change)
        self.tenants.update({one.id: one for one in change.tenants})
        for tenant_id in change.tenants_gone:
            self.tenants.pop(tenant_id, None)
        self.keys.update({one.id: one for one in change.keys})
        for key_id in change.keys_gone:
            self.keys.pop(key_id, None)

    async def document_tenants(self) -> tuple[Tenant, ...]:
        return self.document

    async def tenants_view(self) -> list[dict[str, Any]]:
        return self.shown or [live(one) for one in self.tenants]

    async def is_ready(self) -> bool:
        return self.ready

    async def status_view(self) -> dict[str, Any]:
        engines = [
            {
                "url": url, "draining": draining, "healthy": self.healthy, "reachable": self.healthy, "in_flight":
                self.in_flight, "running": 0, "waiting": 0, "kv_usage_ratio": 0.25, "models": ["m"], "note": "",
                "warning": "",
            }
            for url, draining in self.draining.items()
        ]  # fmt: skip
        return {"endpoints": engines, "document": {"reloads": 1}, "tenants": []}

    async def requests_view(self) -> list[dict[str, Any]]:
        return [{"request_id": "r1"}]

    async def metrics_text(self) -> bytes:
        return b"# TYPE up gauge\nup 1.0\n"

    async def drain_engine(self, url: str, draining: bool) -> None:
        if url not in self.draining:
            raise KeyError(url)
        self.draining[url] = draining

    async def reload(self) -> str | None:
        return self.problem


@dataclass
class FlakyRegistry:
    """A stored registry on top of one in memory, which can be out of reach, and has a ledger."""

    inner: MemoryRegistry = field(default_factory=MemoryRegistry)
    stored: bool = True
    down: str = ""
    used: Sequence[UsageRow] = ()
    rows: Sequence[LedgerRow] = ()
    asked: dict[str, Any] = field(default_factory=dict)

    def _check(self) -> None:
        if self.down:
            raise Temporary(self.down, hint="look at the database")

    def load(self) -> Registered:
        self._check()
        return self.inner.load()

    def revision(self) -> int:
        self._check()
        return self.inner.revision()

    def apply(self, change: RegistryChange, audit: AuditRow, expect: int | None = None) -> int:
        self._check()
        return self.inner.apply(change, audit, expect)

    def audit_rows(self, *, limit: int, before: int | None = None, subject: str | None = None) -> Sequence[AuditRow]:
        self._check()
        return self.inner.audit_rows(limit=limit, before=before, subject=subject)

    def usage(
        self, *, since_day: str, until_day: str, tenant: str | None = None, model: str | None = None
    ) -> Sequence[UsageRow]:
        self._check()
        self.asked = {"since": since_day, "until": until_day}
        return [
            one
            for one in self.used
            if since_day <= one.day <= until_day and tenant in (None, one.tenant) and model in (None, one.model)
        ]

    def ledger(
        self, *, since_s: float, until_s: float, tenant: str | None, model: str | None, limit: int, before: str | None
    ) -> Sequence[LedgerRow]:
        self._check()
        self.asked = {"since_s": since_s, "until_s": until_s, "before": before}
        found = [one for one in self.rows if since_s <= one.started_s < until_s and tenant in (None, one.tenant_id)]
        return found[:limit]
