#!/usr/bin/env python3
"""Seven tenants on 32 GPUs in virtual time: engines of their own, one pool for all, or one pool under quotas.

    seven_tenants.py [--minutes M] [--seed N] [--write]

The tenants are uneven and come in bursts at different times. They get the same requests each time:

- *static split*: each tenant has engines of its own, by weight;
- *free for all*: all share all engines, nothing is governed;
- *quotas*: all share all engines under the gateway's governance; quotas add up to the pool, what is over a quota is
  borrowed and goes last.

Prints what was served and whose objectives were missed; ``--write`` renews the table in docs/concepts/rehearsals.md.
Needs neither a GPU nor the network, and takes about a minute.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from rehearsals import write_table

from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.deploy import twin_configs
from roadworthy.advise.objectives import meets_limits
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.latency import percentile
from roadworthy.plan.search import make_plan
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.loads import Mix, Phase, Phased
from roadworthy.simulate.run import simulate
from roadworthy.simulate.standing import jain_index
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Quantiles, RequestProfile, Sessions, Tenant

if TYPE_CHECKING:
    from roadworthy.advise.arrivals import Schedule
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig

DOCUMENT = """
model: {config: deepseek-ai/DeepSeek-V4-Flash, max_model_len: 64K}
cluster: {nodes: 4, gpus_per_node: 8, gpu: H200-141GB}
engine:
  version: 0.33.0
  settings: {tensor_parallel_size: 4, pipeline_parallel_size: 1, data_parallel_size: 1, scheduling_policy: priority}
workload:
  prompt_tokens: {p50: 1800, p90: 7000, p99: 24000}
  output_tokens: {p50: 220, p90: 600, p99: 1200}
  rate: 30/s
sla: {ttft_p99: 2s, tpot_p99: 80ms, success: 99%}
tenants: [{id: placeholder, key: sk-none}]
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Customer:
    """A tenant and what it sends: (P50, P90, P99) of prompt and answer, a mean rate, and its busy phases."""

    id: str
    weight: float
    priority: int
    engines: int
    prompt: tuple[int, int, int]
    answer: tuple[int, int, int]
    rate_per_s: float
    phases: tuple[tuple[float, float], ...] = ((60.0, 1.0),)
    starts_s: float = 0.0
    turns: float = 1.0

    def schedule(self, seconds: float, seed: int) -> Schedule:
        profile = RequestProfile(
            prompt_tokens=_quantiles(self.prompt),
            output_tokens=_quantiles(self.answer),
            rate_per_s=self.rate_per_s,
            shared_prefix_ratio=0.2,
            sessions=Sessions(turns=self.turns, think_time_s=6.0),
        )
        phases = [Phase(lasts_s=lasts_s, factor=factor) for lasts_s, factor in self.phases]
        arrivals = Arrivals(profile, seed=seed, duration_s=seconds, max_context_tokens=65_536)
        return Phased(arrivals, phases, starts_s=self.starts_s)


CUSTOMERS = (
    Customer(
        id="web-chat", weight=4, priority=-2, engines=2, prompt=(700, 2000, 5000), answer=(220, 500, 1000),
        rate_per_s=7.0, phases=((90, 0.4), (60, 1.9)), turns=3,
    ),
    Customer(
        id="coding", weight=3, priority=-1, engines=1, prompt=(2500, 8000, 20_000), answer=(250, 700, 1500),
        rate_per_s=2.5, phases=((120, 0.3), (60, 2.4)), starts_s=40,
    ),
    Customer(
        id="agents", weight=2, priority=0, engines=1, prompt=(4000, 8000, 14_000), answer=(90, 300, 900),
        rate_per_s=2.0, phases=((100, 0.4), (40, 2.5)), starts_s=70, turns=6,
    ),
    Customer(
        id="search", weight=2, priority=0, engines=1, prompt=(1500, 3000, 6000), answer=(90, 200, 400),
        rate_per_s=4.0, phases=((80, 0.6), (40, 1.8)), starts_s=20,
    ),
    Customer(
        id="documents", weight=2, priority=1, engines=1, prompt=(14_000, 36_000, 60_000), answer=(250, 600, 1200),
        rate_per_s=0.25, phases=((150, 0.3), (30, 4.5)), starts_s=100,
    ),
    Customer(
        id="trial", weight=1, priority=2, engines=1, prompt=(500, 1500, 4000), answer=(200, 500, 1000),
        rate_per_s=0.6, phases=((170, 0.4), (20, 6.0)), starts_s=150,
    ),
    Customer(
        id="bulk", weight=1, priority=10, engines=1, prompt=(1200, 3000, 6000), answer=(400, 900, 1500), rate_per_s=45.0
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One way to share. ``misses`` counts requests that failed or broke a limit, by tenant, out of ``requests``."""

    name: str
    requests: dict[str, int]
    misses: dict[str, int]
    ttft_p99_s: dict[str, float]
    tokens_per_s: float
    busy_ratio: float

    @property
    def kept(self) -> dict[str, float]:
        return {name: 1 - self.misses[name] / self.requests[name] for name in self.requests}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="of traffic")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help="renew the table in the docs")
    options = parser.parse_args()
    outcomes = all_outcomes(options.minutes * 60, options.seed)
    rows = table(outcomes)
    for row in rows:
        print("  ".join(f"{cell:>22}" if at else f"{cell:<28}" for at, cell in enumerate(row)).rstrip())
    if options.write:
        write_table("seven-tenants", rows)
    return 0


def all_outcomes(seconds: float, seed: int) -> list[Outcome]:
    """The same requests under each way to share."""
    deployment, configs = planned()
    gate = Governance(governed(deployment, configs), configs)
    return [
        outcome("static split", _static(configs, seconds, seed), deployment, seconds),
        outcome("free for all", [_run(configs, mix(seconds, seed))], deployment, seconds),
        outcome("quotas", [_run(configs, mix(seconds, seed), gate)], deployment, seconds),
    ]


def _run(configs: Sequence[TwinConfig], load: Mix, gate: Governance | None = None) -> SimulatedRun:
    return simulate(configs, load, gate=gate, scrape_s=1.0, keep_gaps=False)


def planned() -> tuple[Deployment, tuple[TwinConfig, ...]]:
    """The document and the engines of its best layout: 8 of 4 GPUs."""
    deployment = load_text(DOCUMENT, source="seven-tenants")
    plan = make_plan(deployment, model_by_id(deployment.model.config), gpu_by_name(deployment.cluster.gpu))
    return deployment, twin_configs(deployment, plan)


def governed(deployment: Deployment, configs: Sequence[TwinConfig]) -> Deployment:
    """The document with its tenants; their quotas add up to all KV blocks."""
    config = configs[0]
    pool_bytes = (config.kv_blocks - 1) * len(configs) * sum(config.cache.bytes_per_block)
    weights = sum(customer.weight for customer in CUSTOMERS)
    tenants = [
        Tenant(
            id=one.id, weight=one.weight, priority=one.priority, kv_quota_bytes=int(pool_bytes * one.weight / weights)
        )
        for one in CUSTOMERS
    ]  # fmt: skip
    return replace(deployment, tenants=tuple(tenants))


def mix(seconds: float, seed: int, customers: Sequence[Customer] = CUSTOMERS) -> Mix:
    places = {one.id: place for place, one in enumerate(CUSTOMERS)}
    return Mix({one.id: one.schedule(seconds, seed * 100 + places[one.id]) for one in customers})


def _static(configs: Sequence[TwinConfig], seconds: float, seed: int) -> list[SimulatedRun]:
    """Every tenant alone on its engines."""
    assert sum(one.engines for one in CUSTOMERS) == len(configs)
    return [_run(configs[: one.engines], mix(seconds, seed, [one])) for one in CUSTOMERS]


def outcome(name: str, runs: Sequence[SimulatedRun], deployment: Deployment, seconds: float) -> Outcome:
    requests: dict[str, int] = {}
    misses: dict[str, int] = {}
    ttfts_s: dict[str, list[float]] = {}
    tokens = busy = 0.0
    for run in runs:
        for record in run.log.records():
            tenant = record.tenant
            requests[tenant] = requests.get(tenant, 0) + 1
            misses[tenant] = misses.get(tenant, 0) + (not meets_limits(record, deployment.sla))
            ttfts_s.setdefault(tenant, []).append(
                record.user_ttft_s if record.ok and record.user_ttft_s is not None else float("inf")
            )
            if record.ok and record.t_last_s <= seconds:
                tokens += record.n_in + record.n_out
        busy += run.utilisation_ratio * len(run.engines)
    return Outcome(
        name=name,
        requests=requests,
        misses=misses,
        ttft_p99_s={tenant: percentile(sorted(times_s), 99) for tenant, times_s in ttfts_s.items()},
        tokens_per_s=tokens / seconds,
        busy_ratio=busy / sum(len(run.engines) for run in runs),
    )


def table(outcomes: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Cells of the table: a line for each tenant, then what holds for all."""
    rows = [("", *(one.name for one in outcomes))]
    for customer in CUSTOMERS:
        cells = (
            f"{one.misses[customer.id]:,} of {one.requests[customer.id]:,} ({1 - one.kept[customer.id]:.1%})"
            for one in outcomes
        )
        rows.append((f"SLA misses of {customer.id}", *cells))
    paying = [customer.id for customer in CUSTOMERS if customer.id != "bulk"]
    rows.append(("SLA misses but for bulk", *(f"{sum(one.misses[name] for name in paying):,}" for one in outcomes)))
    rows.append(("tokens/s served", *(f"{one.tokens_per_s:,.0f}" for one in outcomes)))
    rows.append(("engines busy", *(f"{one.busy_ratio:.0%}" for one in outcomes)))
    rows.append(("fairness of kept requests", *(f"{jain_index(one.kept.values()):.3f}" for one in outcomes)))
    return rows


def _quantiles(tokens: tuple[int, int, int]) -> Quantiles:
    p50, p90, p99 = tokens
    return Quantiles(p50=p50, p90=p90, p99=p99)


if __name__ == "__main__":
    sys.exit(main())
