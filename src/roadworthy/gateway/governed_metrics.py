"""Metrics of governance and billing, taken from a tenancy at one moment and written out beside the others.

Tenants label sums only: what each holds, waits for and was refused. Names are in docs/concepts/gateway.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from roadworthy.gateway.tenancy import Tenancy

TENANT_GAUGES = {
    "tenant_requests": "Requests that this tenant has let in and not over, waiting ones included.",
    "tenant_waiting": "Requests of this tenant that wait for room.",
    "tenant_borrowed": "Requests of this tenant that run beyond its KV quota, in what others leave free.",
    "tenant_kv_blocks": "KV blocks charged to this tenant now, by prediction.",
    "tenant_kv_blocks_quota": "KV blocks that this tenant may hold as its own; missing where it has no quota.",
    "tenant_tokens_today": "Tokens of today's budget (UTC), requests in progress by prediction.",
}
GAUGES = {
    "queue_oldest_seconds": "How long the request that waits longest has waited.",
    "governed_requests": "Requests with a permit to run; tenants that nothing bounds are not among them.",
    "governed_kv_blocks": "KV blocks that those are predicted to hold.",
    "limits_store_up": "0 while the store that limits are counted in cannot be reached.",
    "ledger_rows_waiting": "Rows that wait to be written.",
    "ledger_up": "0 while the ledger cannot be written.",
    "journal_requests": "Requests in the journal: in progress, or not in the ledger yet.",
}
COUNTERS = {
    "requests_unmetered": "Requests let in without a look at their limits, whose store could not be reached.",
    "leases_lost": "Leases that ran out while their requests went on.",
    "limits_store_failures": "Questions that the store of limits did not answer.",
    "ledger_rows": "Rows given to the ledger.",
    "ledger_rows_dropped": "Rows that were given up because the ledger could not be written.",
    "journal_left_out": "Requests that found no place in the journal.",
    "quota_alerts": "Alerts of quotas that are nearly used up.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Governed:
    """All of it at one moment."""

    tenants: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    refusals: Mapping[tuple[str, str], int] = field(default_factory=dict)
    waiting: Mapping[str, int] = field(default_factory=dict)
    gauges: Mapping[str, float] = field(default_factory=dict)
    counters: Mapping[str, int] = field(default_factory=dict)
    holding: tuple[tuple[str, str], ...] = ()


def governed(tenancy: Tenancy, seen: Iterable[str]) -> Governed:
    """What ``tenancy`` counts now.

    Args:
        seen: tenants that have asked for something; the others have nothing to show.
    """
    governance, billing, shared = tenancy.governance, tenancy.billing, tenancy.governance.shared
    governor, depth = governance.governor, governance.depth()
    gauges: dict[str, float] = {
        "queue_oldest_seconds": depth.oldest_s,
        "governed_requests": governor.running,
        "governed_kv_blocks": governor.blocks,
    }
    counters = {"quota_alerts": tenancy.alerts}
    if shared is not None:
        gauges["limits_store_up"] = int(not shared.failing)
        counters |= {
            "requests_unmetered": shared.unmetered, "leases_lost": shared.lost,
            "limits_store_failures": shared.failures,
        }  # fmt: skip
    if billing is not None:
        gauges |= {"ledger_rows_waiting": billing.ledger.waiting, "ledger_up": int(not billing.ledger.failing)}
        counters |= {"ledger_rows": billing.rows, "ledger_rows_dropped": billing.ledger.dropped}
        if billing.journal is not None:
            gauges["journal_requests"] = billing.journal.taken
            counters["journal_left_out"] = billing.journal.left_out
    return Governed(
        tenants=_tenants(tenancy, seen, depth.by_tenant),
        refusals=dict(governance.refusals),
        waiting={str(queue_class): count for queue_class, count in depth.by_class.items()},
        gauges=gauges,
        counters=counters,
        holding=governor.holding(),
    )


def _tenants(tenancy: Tenancy, seen: Iterable[str], waiting: Mapping[str, int]) -> dict[str, dict[str, float]]:
    governance = tenancy.governance
    found: dict[str, dict[str, float]] = {name: {} for name in TENANT_GAUGES}
    for tenant_id in seen:
        if tenancy.book.tenant(tenant_id) is None:
            continue
        found["tenant_requests"][tenant_id] = governance.in_flight(tenant_id)
        found["tenant_waiting"][tenant_id] = waiting.get(tenant_id, 0)
        found["tenant_borrowed"][tenant_id] = governance.borrowed.get(tenant_id, 0)
        quota = governance.governor.limits(tenant_id).kv_blocks
        if quota is not None:
            found["tenant_kv_blocks_quota"][tenant_id] = quota
        held = tenancy.held_here(tenant_id)
        if held is not None:  # what a shared meter holds is the same for all its gateways, and not asked for here
            found["tenant_kv_blocks"][tenant_id] = held.blocks
            found["tenant_tokens_today"][tenant_id] = held.tokens_today
    return found


def families(taken: Governed, prefix: str, names: list[str], values: list[str]) -> Iterator[Metric]:
    """The families, each sample labelled with ``names`` and ``values`` before its own labels."""
    for name, text in TENANT_GAUGES.items():
        gauge = GaugeMetricFamily(prefix + name, text, labels=[*names, "tenant"])
        for tenant_id, value in sorted(taken.tenants.get(name, {}).items()):
            gauge.add_metric([*values, tenant_id], value)
        yield gauge
    refused = CounterMetricFamily(
        prefix + "refusals", "Requests that governance refused, by its code.", labels=[*names, "tenant", "code"]
    )
    for (tenant_id, code), count in sorted(taken.refusals.items()):
        refused.add_metric([*values, tenant_id, code], count)
    yield refused
    waiting = GaugeMetricFamily(prefix + "queue_waiting", "Requests that wait for room.", labels=[*names, "class"])
    for queue_class, count in sorted(taken.waiting.items()):
        waiting.add_metric([*values, queue_class], count)
    yield waiting
    holding = GaugeMetricFamily(
        prefix + "rule_holding", "1 while a business rule holds a model down.", labels=[*names, "rule", "model"]
    )
    for rule, model in taken.holding:
        holding.add_metric([*values, rule, model], 1)
    yield holding
    for name, text in GAUGES.items():
        if name in taken.gauges:
            gauge = GaugeMetricFamily(prefix + name, text, labels=names)
            gauge.add_metric(values, taken.gauges[name])
            yield gauge
    for name, text in COUNTERS.items():
        if name in taken.counters:
            counter = CounterMetricFamily(prefix + name, text, labels=names)
            counter.add_metric(values, taken.counters[name])
            yield counter
