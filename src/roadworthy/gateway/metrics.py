"""Prometheus metrics of the gateway, in a registry of its own.

Tenants label counters only; histograms have model, endpoint and outcome. Nothing is labelled by request, session or
text: a model name counts only if an engine serves it. What each metric tells is in docs/concepts/gateway.md.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from roadworthy.gateway.data.record import RequestRecord
    from roadworthy.gateway.endpoints import Endpoint

TTFT_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 20.0, 40.0, 80.0, 160.0)
DURATION_BUCKETS_S = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)

OTHER_MODEL = "other"


class GatewayMetrics:
    """Counts what the data plane reports.

    Args:
        endpoints: engines, read when the metrics are rendered.
        client_connections: how many are open now.
    """

    def __init__(self, endpoints: Iterable[Endpoint], *, client_connections: Callable[[], int]) -> None:
        self._endpoints = tuple(endpoints)
        self.registry = CollectorRegistry()
        self._requests = self._counter(
            "requests", "Requests that are over, by how they ended.", "tenant", "outcome", "status_class"
        )
        self._tokens = self._counter(
            "tokens",
            "Tokens, as usage says or (source=estimate) one for each stream event.",
            "tenant",
            "kind",
            "source",
        )
        self._bytes = self._counter(
            "body_bytes", "Bytes of request bodies in and of answers out.", "tenant", "direction"
        )
        self._retries = self._counter("retries", "Engines given up for another, unseen by the client.", "reason")
        self._ttft = self._histogram("ttft_seconds", "Whole request read to first event relayed.", TTFT_BUCKETS_S)
        self._duration = self._histogram(
            "request_duration_seconds", "Whole request read to its end.", DURATION_BUCKETS_S
        )
        self.registry.register(_Gauges(self._endpoints, client_connections))

        # label lookups take a lock and build a tuple each; children are few, so keep them
        self._request_child = lru_cache(4096)(self._requests.labels)
        self._token_child = lru_cache(4096)(self._tokens.labels)
        self._byte_child = lru_cache(4096)(self._bytes.labels)
        self._ttft_child = lru_cache(4096)(self._ttft.labels)
        self._duration_child = lru_cache(4096)(self._duration.labels)

    def add(self, record: RequestRecord) -> None:
        """Count one request that is over."""
        tenant = record.tenant_id
        self._request_child(tenant, record.ending, f"{record.status // 100}xx").inc()
        if record.prompt_tokens:
            self._token_child(tenant, "prompt", "usage").inc(record.prompt_tokens)
        if record.output_tokens:
            source = "estimate" if record.tokens_estimated else "usage"
            self._token_child(tenant, "output", source).inc(record.output_tokens)
        if record.request_bytes:
            self._byte_child(tenant, "in").inc(record.request_bytes)
        if record.response_bytes:
            self._byte_child(tenant, "out").inc(record.response_bytes)
        if record.attempts:
            labels = (self._model(record.model), record.endpoint, record.ending)
            self._duration_child(*labels).observe(record.duration_s)
            if record.ttft_s is not None:
                self._ttft_child(*labels).observe(record.ttft_s)

    def retried(self, reason: str) -> None:
        self._retries.labels(reason).inc()

    def render(self) -> bytes:
        """The text exposition. Takes milliseconds with many labels: call it off the event loop."""
        return generate_latest(self.registry)

    def _model(self, name: str) -> str:
        return name if any(name in endpoint.models for endpoint in self._endpoints) else OTHER_MODEL

    def _counter(self, name: str, help_text: str, *labels: str) -> Counter:
        return Counter(f"roadworthy_gateway_{name}", help_text, labels, registry=self.registry)

    def _histogram(self, name: str, help_text: str, buckets: tuple[float, ...]) -> Histogram:
        labels = ("model", "endpoint", "outcome")
        return Histogram(f"roadworthy_gateway_{name}", help_text, labels, buckets=buckets, registry=self.registry)


class _Gauges(Collector):
    """What is true now, read from the endpoints when asked instead of kept up to date on every request."""

    def __init__(self, endpoints: tuple[Endpoint, ...], client_connections: Callable[[], int]) -> None:
        self._endpoints = endpoints
        self._client_connections = client_connections

    def collect(self) -> Iterator[Metric]:
        connections = GaugeMetricFamily("roadworthy_gateway_client_connections", "Open client connections.")
        connections.add_metric([], self._client_connections())
        yield connections
        yield self._each("in_flight", "Requests sent to this engine and not over.", lambda one: one.in_flight)
        yield self._each("engine_up", "1 if routing takes the engine for healthy.", lambda one: int(one.healthy))
        yield self._each(
            "engine_kv_usage_ratio", "KV blocks in use at the last scrape.", lambda one: one.health.kv_usage_ratio
        )

    def _each(self, name: str, help_text: str, value: Callable[[Endpoint], float]) -> Metric:
        gauge = GaugeMetricFamily(f"roadworthy_gateway_{name}", help_text, labels=("endpoint",))
        for endpoint in self._endpoints:
            gauge.add_metric([endpoint.url], value(endpoint))
        return gauge
