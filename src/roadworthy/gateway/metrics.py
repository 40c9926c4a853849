"""Prometheus metrics of the gateway, made of the tally when somebody asks.

Tenants label counters only; histograms have model, endpoint, operation and outcome. Nothing is labelled by request,
session or text: a model name counts only if an engine serves it. What each metric tells is in docs/concepts/gateway.md.
Taking the numbers (``snapshot``) is quick and happens on the relay's loop; writing them out does not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from roadworthy.gateway.governed_metrics import Governed, families
from roadworthy.gateway.tally import DURATION_BUCKETS_S, TOKEN_BUCKETS_S, TTFT_BUCKETS_S, WAIT_BUCKETS_S

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from roadworthy.gateway.tally import EngineKey, Tally, TenantKey

PREFIX = "roadworthy_gateway_"
OTHER_MODEL = "other"

ENGINE_GAUGES = {
    "in_flight": "Requests sent to this engine and not over.",
    "engine_up": "1 if routing takes the engine for healthy.",
    "engine_draining": "1 if the engine gets no new requests.",
    "engine_kv_usage_ratio": "KV blocks in use at the last scrape.",
    "idle_connections": "Open connections to this engine that wait for a request.",
    "engine_prefix_bytes": "Bytes of prompts that routing expects this engine to hold.",
    "engine_prefix_confirmed": "Beginnings of prompts that this engine's KV events have confirmed and not taken back.",
    "engine_kv_events_missed": "KV events of this engine that were lost since the start.",
}
GAUGES = {
    "client_connections": "Open client connections.",
    "requests_in_flight": "Requests that are not over.",
    "document_loaded_timestamp_seconds": "When the document in force was taken over, in seconds of the epoch.",
}
COUNTERS = {
    "stream_events": "Server-sent events relayed.",
    "reloads": "Documents taken over while running.",
    "reloads_refused": "Documents refused while running; the one before stays in force.",
    "spans_dropped": "Spans not exported because the exporter fell behind.",
    "log_lines_dropped": "Lines of the access log not written because the disk fell behind.",
    "worker_restarts": "Workers started again after they died.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """All numbers of one process at one moment. Sequences hold sums in the order of the families below."""

    tenants: Mapping[TenantKey, tuple[int, ...]]
    engines: Mapping[EngineKey, tuple[tuple[tuple[int, ...], float], ...]]
    retries: Mapping[str, int]
    routed: Mapping[str, int]
    engine_gauges: Mapping[str, Mapping[str, float]]
    gauges: Mapping[str, float]
    counters: Mapping[str, int]
    governed: Governed


def snapshot(
    tally: Tally,
    *,
    engine_gauges: Mapping[str, Mapping[str, float]],
    gauges: Mapping[str, float],
    counters: Mapping[str, int],
    governed: Governed | None = None,
) -> Snapshot:
    """The tally's numbers, copied."""
    tally.fold()
    return Snapshot(
        tenants={
            key: (
                one.requests, one.prompt_tokens, one.cached_tokens, one.output_tokens, one.request_bytes,
                one.response_bytes,
            )
            for key, one in tally.by_tenant.items()
        },
        engines={
            key: tuple((tuple(one.counts), one.total) for one in (it.duration, it.ttft, it.per_token, it.waited))
            for key, it in tally.by_engine.items()
        },
        retries=dict(tally.retries),
        routed=dict(tally.routed),
        engine_gauges=engine_gauges,
        gauges=gauges,
        counters=counters,
        governed=governed or Governed(),
    )  # fmt: skip


def render(taken: Snapshot, *, worker: str | None = None) -> bytes:
    """The text exposition; takes milliseconds with many labels, so call it off the relay's loop. ``worker`` labels
    every line with the process that counted it."""
    registry = CollectorRegistry()
    registry.register(_Families(taken, worker))
    return generate_latest(registry)


_TIMES = (
    ("request_duration_seconds", "Whole request read to its end.", DURATION_BUCKETS_S),
    ("ttft_seconds", "Whole request read to first event relayed.", TTFT_BUCKETS_S),
    ("time_per_output_token_seconds", "First event to the end, over the tokens after the first.", TOKEN_BUCKETS_S),
    ("wait_seconds", "Whole request read until the engine that answered got it.", WAIT_BUCKETS_S),
)
"""In the order of ``Snapshot.engines``."""


class _Families(Collector):
    def __init__(self, taken: Snapshot, worker: str | None) -> None:
        self._taken = taken
        self._names, self._values = ([], []) if worker is None else (["worker"], [worker])

    def collect(self) -> Iterator[Metric]:
        yield from self._tenant_counters()
        yield from self._histograms()
        retries = self._counter("retries", "Engines given up for another, unseen by the client.", "reason")
        for reason, count in sorted(self._taken.retries.items()):
            retries.add_metric([*self._values, reason], count)
        yield retries
        routed = self._counter("routed", "Requests sent to an engine, by what tipped the scales.", "by")
        for by, count in sorted(self._taken.routed.items()):
            routed.add_metric([*self._values, by], count)
        yield routed
        for name, text in COUNTERS.items():
            counter = self._counter(name, text)
            counter.add_metric(self._values, self._taken.counters.get(name, 0))
            yield counter
        for name, text in GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=self._names)
            gauge.add_metric(self._values, self._taken.gauges.get(name, 0))
            yield gauge
        for name, text in ENGINE_GAUGES.items():
            gauge = GaugeMetricFamily(PREFIX + name, text, labels=[*self._names, "endpoint"])
            for url, value in self._taken.engine_gauges[name].items():
                gauge.add_metric([*self._values, url], value)
            yield gauge
        yield from families(self._taken.governed, PREFIX, self._names, self._values)

    def _counter(self, name: str, text: str, *labels: str) -> CounterMetricFamily:
        return CounterMetricFamily(PREFIX + name, text, labels=[*self._names, *labels])

    def _tenant_counters(self) -> Iterator[Metric]:
        requests: dict[tuple[str, ...], int] = {}
        tokens: dict[tuple[str, ...], int] = {}
        sent: dict[tuple[str, ...], int] = {}
        for (tenant, operation, ending, hundreds, estimated), one in self._taken.tenants.items():
            count, prompt, cached, output, in_bytes, out_bytes = one
            _add(requests, (tenant, operation, ending, f"{hundreds}xx"), count)
            _add(tokens, (tenant, "prompt", "usage"), prompt)
            _add(tokens, (tenant, "cached", "usage"), cached)
            _add(tokens, (tenant, "output", "estimate" if estimated else "usage"), output)
            _add(sent, (tenant, "in"), in_bytes)
            _add(sent, (tenant, "out"), out_bytes)
        yield self._filled(
            self._counter("requests", "Requests that are over, by how they ended.", "tenant", "operation", "outcome",
                          "status_class"), requests,
        )  # fmt: skip
        yield self._filled(
            self._counter("tokens", "Tokens, as usage says or (source=estimate) one for each stream event.", "tenant",
                          "kind", "source"), tokens,
        )  # fmt: skip
        yield self._filled(
            self._counter("body_bytes", "Bytes of request bodies in and of answers out.", "tenant", "direction"), sent
        )

    def _filled(self, family: CounterMetricFamily, sums: Mapping[tuple[str, ...], int]) -> Metric:
        for labels, value in sorted(sums.items()):
            family.add_metric([*self._values, *labels], value)
        return family

    def _histograms(self) -> Iterator[Metric]:
        labels = [*self._names, "model", "endpoint", "operation", "outcome"]
        for at, (name, text, bounds) in enumerate(_TIMES):
            family = HistogramMetricFamily(PREFIX + name, text, labels=labels)
            for key, times in sorted(self._taken.engines.items()):
                counts, total = times[at]
                if any(counts):
                    family.add_metric([*self._values, *key], _buckets(bounds, counts), total)
            yield family


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    running, out = 0, []
    for bound, count in zip((*bounds, math.inf), counts, strict=True):
        running += count
        out.append(("+Inf" if bound == math.inf else str(bound), float(running)))
    return out


def _add(sums: dict[tuple[str, ...], int], labels: tuple[str, ...], value: int) -> None:
    if value:
        sums[labels] = sums.get(labels, 0) + value
