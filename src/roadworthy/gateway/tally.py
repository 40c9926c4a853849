"""What the gateway counts: one set of numbers behind the metrics, the status page and the tenants' counts.

Records are kept as they come and counted in batches (``fold``), at the latest when somebody looks: a request's end
costs the relay one append.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from typing import TYPE_CHECKING

from roadworthy.gateway.last_minute import LastMinute
from roadworthy.gateway.status import TenantStatus

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from roadworthy.gateway.data.record import RequestRecord

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
TOKEN_BUCKETS_S = (0.005, 0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5)
WAIT_BUCKETS_S = (0.0002, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 5.0, 30.0, 120.0)

RATE_WINDOW_S = 5.0
FOLD_AT = 512
"""Records waiting to be counted; beyond it they are counted at once."""
RECENT = 256
"""Requests that the admin port can show one by one."""


TenantKey = tuple[str, str, str, int, bool]
"""What counters by tenant are labelled by: tenant, operation, ending, hundreds of the status, tokens estimated."""

EngineKey = tuple[str, str, str, str]
"""What histograms are labelled by: model, endpoint, operation, ending. Never the tenant, which would multiply their
buckets."""


class Histogram:
    """Counts by upper bound, the last without one."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def observe(self, value: float) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class TenantSums:
    """Sums of one ``TenantKey``."""

    __slots__ = ("cached_tokens", "output_tokens", "prompt_tokens", "request_bytes", "requests", "response_bytes")

    def __init__(self) -> None:
        self.requests = self.prompt_tokens = self.cached_tokens = self.output_tokens = 0
        self.request_bytes = self.response_bytes = 0


class EngineTimes:
    """Histograms of one ``EngineKey``."""

    __slots__ = ("duration", "per_token", "ttft", "waited")

    def __init__(self) -> None:
        self.duration = Histogram(DURATION_BUCKETS_S)
        self.ttft = Histogram(TTFT_BUCKETS_S)
        self.per_token = Histogram(TOKEN_BUCKETS_S)
        self.waited = Histogram(WAIT_BUCKETS_S)

    def add(self, record: RequestRecord) -> None:
        self.duration.observe(record.duration_s)
        self.waited.observe(record.waited_s)
        if record.ttft_s is not None:
            self.ttft.observe(record.ttft_s)
            if record.output_tokens > 1:
                self.per_token.observe((record.duration_s - record.ttft_s) / (record.output_tokens - 1))


class Tally:
    """Counts of everything, with its latest records.

    Args:
        model_label: the name of a model as a label: a client's text must not become one.
        sinks: get each batch of records too (the log, the traces); called before the batch is forgotten.
    """

    def __init__(
        self,
        model_label: Callable[[str], str],
        sinks: Iterable[Callable[[list[RequestRecord]], None]] = (),
    ) -> None:
        self._model_label = model_label
        self._sinks = tuple(sinks)
        self._waiting: list[RequestRecord] = []
        self.by_tenant: dict[TenantKey, TenantSums] = {}
        self.by_engine: dict[EngineKey, EngineTimes] = {}
        self.retries: dict[str, int] = {}
        self.routed: dict[str, int] = {}  # by what tipped the scales
        self.requests = 0
        self.output_tokens = 0
        self.recent: deque[RequestRecord] = deque(maxlen=RECENT)
        self.last_minute = LastMinute()

    def record(self, record: RequestRecord) -> None:
        """A request is over."""
        self._waiting.append(record)
        if len(self._waiting) >= FOLD_AT:
            self.fold()

    def retried(self, reason: str) -> None:
        self.retries[reason] = self.retries.get(reason, 0) + 1

    def fold(self) -> None:
        """Count what waits to be counted."""
        batch = self._waiting
        if not batch:
            return
        self._waiting = []
        self._count(batch)
        self.recent.extend(batch)
        for sink in self._sinks:
            sink(batch)

    def _count(self, batch: list[RequestRecord]) -> None:
        by_tenant, by_engine, routed = self.by_tenant, self.by_engine, self.routed
        labels: dict[str, str] = {}
        tokens: dict[str, int] = {}
        self.last_minute.turn(batch[-1].started_s + batch[-1].duration_s)
        for one in batch:
            self.output_tokens += one.output_tokens
            key = (one.tenant_id, one.operation, one.ending, one.status // 100, one.tokens_estimated)
            sums = by_tenant.get(key)
            if sums is None:
                sums = by_tenant[key] = TenantSums()
            sums.requests += 1
            sums.prompt_tokens += one.prompt_tokens
            sums.cached_tokens += one.cached_tokens
            sums.output_tokens += one.output_tokens
            sums.request_bytes += one.request_bytes
            sums.response_bytes += one.response_bytes
            if one.attempts:
                tokens[one.tenant_id] = tokens.get(one.tenant_id, 0) + one.prompt_tokens + one.output_tokens
                if one.ttft_s is not None:
                    self.last_minute.first_token(one.tenant_id, one.ttft_s)
                routed[one.by] = routed.get(one.by, 0) + 1
                model = labels.get(one.model)
                if model is None:
                    model = labels[one.model] = self._model_label(one.model)
                of_engine = (model, one.endpoint, one.operation, one.ending)
                times = by_engine.get(of_engine)
                if times is None:
                    times = by_engine[of_engine] = EngineTimes()
                times.add(one)
        self.last_minute.add(tokens)
        self.requests += len(batch)

    def tenants(self, tenant_ids: Iterable[str], in_flight: Callable[[str], int]) -> tuple[TenantStatus, ...]:
        """Each tenant's sums over all outcomes."""
        of_tenant = self.grouped()
        return tuple(tenant_status(one, in_flight(one), of_tenant.get(one, ())) for one in tenant_ids)

    def grouped(self) -> dict[str, list[tuple[TenantKey, TenantSums]]]:
        """All sums by tenant, for ``tenant_status``; tenants that never asked are not in it."""
        self.fold()
        of_tenant: dict[str, list[tuple[TenantKey, TenantSums]]] = {}
        for key, sums in self.by_tenant.items():
            of_tenant.setdefault(key[0], []).append((key, sums))
        return of_tenant


def tenant_status(tenant_id: str, in_flight: int, of_tenant: Sequence[tuple[TenantKey, TenantSums]]) -> TenantStatus:
    """One tenant's sums over all outcomes."""
    if not of_tenant:
        return TenantStatus(
            id=tenant_id, in_flight=in_flight, requests=0, refused=0, failed=0, prompt_tokens=0, output_tokens=0,
            output_tokens_estimated=0,
        )  # fmt: skip
    refused = failed = 0
    for (_, _, ending, _, _), sums in of_tenant:
        if ending in ("refused", "rejected"):
            refused += sums.requests
        elif ending not in ("ok", "client_left"):
            failed += sums.requests
    return TenantStatus(
        id=tenant_id,
        in_flight=in_flight,
        requests=sum(sums.requests for _, sums in of_tenant),
        refused=refused,
        failed=failed,
        prompt_tokens=sum(sums.prompt_tokens for _, sums in of_tenant),
        output_tokens=sum(sums.output_tokens for _, sums in of_tenant),
        output_tokens_estimated=sum(sums.output_tokens for (*_, estimated), sums in of_tenant if estimated),
    )


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
