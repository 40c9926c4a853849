"""Who has been near a limit for long: one alert each time, with what would help."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.route.govern.advice import advise
from roadworthy.route.govern.values import Alert

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.route.govern.advice import ReplicaSize
    from roadworthy.route.govern.values import Held, Limits, Quota
    from roadworthy.spec.governance_values import AlertSpec

REARM_RATIO = 0.9
"""Use has to fall below this share of the threshold before the same quota is told of again: a tenant that hovers about
the threshold is one incident, not many."""


class _Watch:
    """One quota of one tenant."""

    __slots__ = ("since_s", "told")

    def __init__(self) -> None:
        self.since_s: float | None = None
        self.told = False


class AlertWatch:
    """Looks at what tenants hold, and tells of each quota once that was above ``at`` for ``for`` without a break.

    Args:
        replica: what one more replica would add; None where there is no plan, and the advice then names no replicas.
        block_bytes: of one KV block, to speak of the quota in bytes; None where nobody knows.
    """

    def __init__(self, spec: AlertSpec, *, replica: ReplicaSize | None = None, block_bytes: int | None = None) -> None:
        self._spec, self._replica, self._block_bytes = spec, replica, block_bytes
        self._watches: dict[tuple[str, Quota], _Watch] = {}

    def look(self, tenant_id: str, limits: Limits, held: Held, now_s: float) -> tuple[Alert, ...]:
        """The alerts that are due now. To be called for each tenant every few seconds."""
        return tuple(self._look(tenant_id, limits, held, now_s))

    def forget(self, tenant_id: str) -> None:
        """The tenant is gone."""
        self._watches = {key: watch for key, watch in self._watches.items() if key[0] != tenant_id}

    def near(self) -> tuple[tuple[str, Quota], ...]:
        """Tenants and quotas that are above the threshold now, told of or not."""
        return tuple(key for key, watch in self._watches.items() if watch.since_s is not None)

    def _look(self, tenant_id: str, limits: Limits, held: Held, now_s: float) -> Iterator[Alert]:
        at_ratio = self._spec.at_ratio
        for quota, used, limit in _uses(limits, held):
            key = (tenant_id, quota)
            if limit is None:
                self._watches.pop(key, None)
                continue
            watch = self._watches.get(key)
            ratio = used / limit if limit else float(used > 0)
            if ratio < at_ratio:
                if watch is not None:
                    watch.since_s = None
                    if ratio < at_ratio * REARM_RATIO:
                        del self._watches[key]
                continue
            if watch is None:
                watch = self._watches[key] = _Watch()
            if watch.since_s is None:
                watch.since_s = now_s
            if watch.told or now_s - watch.since_s < self._spec.for_s:
                continue
            watch.told = True
            advice = advise(quota, used, limit, replica=self._replica, block_bytes=self._block_bytes)
            yield Alert(
                tenant_id=tenant_id,
                quota=quota,
                used=used,
                limit=limit,
                ratio=ratio,
                since_s=watch.since_s,
                advice=advice.sentences,
                assumptions=advice.assumptions,
                more_replicas=advice.more_replicas,
            )


def _uses(limits: Limits, held: Held) -> tuple[tuple[Quota, float, int | None], ...]:
    """Each quota with its use and its limit, None where it has none."""
    return (
        ("kv_quota", held.blocks, limits.kv_blocks),
        ("concurrency", held.requests, limits.concurrency),
        ("rpm", held.minute_requests, limits.requests_per_minute),
        ("tpm", held.minute_tokens, limits.tokens_per_minute),
        ("daily_tokens", held.tokens_today, limits.daily_tokens),
    )
