"""Looks at tenants' quotas in turn, a few at each tick, so that ten thousand of them hold up nothing."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Refused
from roadworthy.route.govern.values import Alert, Limits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from roadworthy.gateway.governance import Governance
    from roadworthy.route.govern.alerts import AlertWatch
    from roadworthy.route.govern.meter import LocalMeter
    from roadworthy.route.tenants import TenantBook

AT_ONCE, SHARED_AT_ONCE = 256, 16
"""Tenants looked at in one tick: where limits are counted here, and where a store is asked."""

ROUND_S = 5.0
"""From the start of one round to the start of the next, at least."""

_UNBOUNDED = Limits()


class QuotaWatch:
    """One process's.

    Args:
        book: the tenants of now.
        tell: hears of each alert.
    """

    def __init__(
        self,
        watch: AlertWatch,
        governance: Governance,
        local: LocalMeter,
        *,
        book: Callable[[], TenantBook],
        tell: Callable[[Alert], None],
    ) -> None:
        self._watch, self._governance, self._local = watch, governance, local
        self._book, self._tell = book, tell
        self._left: list[str] = []
        self._next_round_s = 0.0
        self._asking: asyncio.Task[None] | None = None

    def tick(self, now_s: float) -> None:
        """Look at the next few."""
        if self._asking is not None and not self._asking.done():
            return
        if not self._left:
            if now_s < self._next_round_s:
                return
            self._next_round_s = now_s + ROUND_S
            self._left = [one.id for one in self._book()]
        shared = self._governance.shared
        most = AT_ONCE if shared is None else SHARED_AT_ONCE
        some, self._left = self._left[:most], self._left[most:]
        some = [one for one in some if self._limits(one) != _UNBOUNDED]
        if shared is None:
            for tenant_id in some:
                self._look(tenant_id, self._local.held(tenant_id, now_s), now_s)
        elif some and not shared.failing:
            self._asking = asyncio.get_running_loop().create_task(self._ask(some, now_s))

    async def _ask(self, tenant_ids: list[str], now_s: float) -> None:
        shared = self._governance.shared
        assert shared is not None
        for tenant_id in tenant_ids:
            self._look(tenant_id, await shared.held(tenant_id), now_s)

    def _look(self, tenant_id: str, held: Any, now_s: float) -> None:
        for alert in self._watch.look(tenant_id, self._limits(tenant_id), held, now_s):
            self._tell(alert)

    def _limits(self, tenant_id: str) -> Limits:
        try:
            return self._governance.governor.limits(tenant_id)
        except Refused:  # it went while its turn came
            return _UNBOUNDED

    def stop(self) -> None:
        if self._asking is not None:
            self._asking.cancel()


def alert_as_json(alert: Alert) -> dict[str, Any]:
    """``alert`` as it travels between processes; ``alert_from_json`` reads it back."""
    return asdict(alert)


def alert_from_json(value: Mapping[str, Any]) -> Alert:
    fields: dict[str, Any] = {name: tuple(one) if isinstance(one, list) else one for name, one in value.items()}
    return Alert(**fields)
