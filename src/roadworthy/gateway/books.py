"""Counts per tenant and the token rate of the last seconds, for the status page; Prometheus has its own."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from roadworthy.gateway.status import TenantStatus

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.gateway.data.record import RequestRecord

RATE_WINDOW_S = 5.0


class TenantCounts:
    """What one tenant did since the start."""

    __slots__ = ("failed", "output_tokens", "output_tokens_estimated", "prompt_tokens", "refused", "requests")

    def __init__(self) -> None:
        self.requests = self.refused = self.failed = 0
        self.prompt_tokens = self.output_tokens = self.output_tokens_estimated = 0

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        self.prompt_tokens += record.prompt_tokens
        self.output_tokens += record.output_tokens
        if record.tokens_estimated:
            self.output_tokens_estimated += record.output_tokens
        if record.ending in ("refused", "rejected"):
            self.refused += 1
        elif record.ending not in ("ok", "client_left"):
            self.failed += 1

    def status(self, tenant_id: str, in_flight: int) -> TenantStatus:
        return TenantStatus(
            id=tenant_id,
            in_flight=in_flight,
            requests=self.requests,
            refused=self.refused,
            failed=self.failed,
            prompt_tokens=self.prompt_tokens,
            output_tokens=self.output_tokens,
            output_tokens_estimated=self.output_tokens_estimated,
        )


class Books:
    """Counts of all tenants. Requests of unknown keys are under no tenant, only in ``requests``."""

    def __init__(self, tenant_ids: Iterable[str]) -> None:
        self.requests = 0
        self.by_tenant = {tenant_id: TenantCounts() for tenant_id in tenant_ids}

    def add(self, record: RequestRecord) -> None:
        self.requests += 1
        counts = self.by_tenant.get(record.tenant_id)
        if counts is not None:
            counts.add(record)


class RecentRate:
    """Rate of a rising counter over the last ``RATE_WINDOW_S``, from samples taken now and then."""

    def __init__(self) -> None:
        self._samples: deque[tuple[float, int]] = deque()

    def sample(self, now_s: float, total: int) -> None:
        self._samples.append((now_s, total))
        while len(self._samples) > 2 and now_s - self._samples[1][0] >= RATE_WINDOW_S:
            self._samples.popleft()

    def per_s(self) -> float:
        """0 until there are two samples."""
        if len(self._samples) < 2:
            return 0.0
        (first_s, first), (last_s, last) = self._samples[0], self._samples[-1]
        return (last - first) / (last_s - first_s) if last_s > first_s else 0.0
