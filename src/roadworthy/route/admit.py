"""Whether a tenant's request may run now.

This step enforces the model list, the number of requests at once, and requests a minute. Token budgets, KV quotas and
queueing come in behind the same two calls: ``admit`` before dispatch and ``Lease.release`` on every way out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import Refused
from roadworthy.route.rate import MinuteRate

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.route.values import RouteRequest
    from roadworthy.spec.values import Tenant

BUSY_RETRY_AFTER_S = 1.0
"""What a tenant at its concurrency cap is told: when one of its own requests ends is not known."""


class _Standing:
    """What one tenant holds now."""

    __slots__ = ("in_flight", "per_minute", "rate")

    def __init__(self, tenant: Tenant) -> None:
        self.in_flight = 0
        self.per_minute: int | None = None
        self.rate: MinuteRate | None = None
        self.follow(tenant)

    def follow(self, tenant: Tenant) -> None:
        """The tenant's limits are these from now on; a rate that stays the same keeps its state."""
        if tenant.requests_per_minute != self.per_minute:
            self.per_minute = tenant.requests_per_minute
            self.rate = MinuteRate(self.per_minute) if self.per_minute else None


class Lease:
    """What an admitted request holds of its tenant; ``release`` gives it back, once, however often it is called."""

    __slots__ = ("_standing",)

    def __init__(self, standing: _Standing) -> None:
        standing.in_flight += 1
        self._standing: _Standing | None = standing

    def release(self) -> None:
        if self._standing is not None:
            self._standing.in_flight -= 1
            self._standing = None


class Admission:
    """Admits or refuses, and keeps count. One object for all tenants of one gateway."""

    def __init__(self, tenants: Iterable[Tenant]) -> None:
        self._standing = {tenant.id: _Standing(tenant) for tenant in tenants}

    def renewed(self, tenants: Iterable[Tenant]) -> Admission:
        """The same for ``tenants`` as they are now: what is held of those that stay is held on."""
        renewed = Admission(tenants)
        for tenant in tenants:
            before = self._standing.get(tenant.id)
            if before is not None:
                before.follow(tenant)
                renewed._standing[tenant.id] = before
        return renewed

    def in_flight(self, tenant_id: str) -> int:
        return self._standing[tenant_id].in_flight

    def admit(self, tenant: Tenant, request: RouteRequest, now_s: float) -> Lease:
        """A lease for ``request``.

        A refused request takes nothing out of the allowance; the concurrency cap is looked at before the rate, so
        that waiting for one's own requests does not use up the minute.

        Raises:
            Refused: ``model_not_allowed`` (403), ``concurrency_limited`` or ``rate_limited`` (429).
        """
        check_model(tenant, request.model)
        standing = self._standing[tenant.id]
        if tenant.concurrency is not None and standing.in_flight >= tenant.concurrency:
            raise Refused(
                f"tenant {tenant.id} has {standing.in_flight} requests running, its limit is {tenant.concurrency}",
                code="concurrency_limited",
                status=429,
                hint="wait for one of them to end, or ask for a higher concurrency",
                retry_after_s=BUSY_RETRY_AFTER_S,
            )
        wait_s = standing.rate.take(now_s) if standing.rate is not None else 0.0
        if wait_s:
            raise Refused(
                f"tenant {tenant.id} is over its limit of {tenant.requests_per_minute} requests a minute",
                code="rate_limited",
                status=429,
                hint="send again after the time in Retry-After",
                retry_after_s=wait_s,
            )
        return Lease(standing)


def check_model(tenant: Tenant, model: str) -> None:
    """Raise Refused when ``tenant`` may not use ``model``."""
    if tenant.models and model not in tenant.models:
        raise Refused(
            f"tenant {tenant.id} may not use model {model!r}",
            code="model_not_allowed",
            status=403,
            hint=f"models of this key: {', '.join(tenant.models)}",
        )
