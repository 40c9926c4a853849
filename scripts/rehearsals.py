#!/usr/bin/env python3
"""Rehearsals in virtual time: a storm of long documents, hot experts, an engine that dies at the peak.

    rehearsals.py [storm] [experts] [outage] [--write]

Each plays the same load under several settings and prints what the users would have seen; without a name all are
played. ``--write`` renews the tables in docs/concepts/rehearsals.md. Needs neither a GPU nor the network; some two
minutes in all.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.deploy import twin_configs
from roadworthy.advise.objectives import meets_limits
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.latency import percentile
from roadworthy.plan.search import make_plan
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.loads import Mix, Phase, Phased
from roadworthy.simulate.outages import Outage
from roadworthy.simulate.run import routing_of, simulate
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Quantiles, RequestProfile

if TYPE_CHECKING:
    from roadworthy.core.records import RequestRecord
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.spec.values import Deployment
    from roadworthy.twin.config import TwinConfig

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "rehearsals.md"
Rows = list[tuple[str, ...]]

CHAT = RequestProfile(
    prompt_tokens=Quantiles(p50=800, p90=2000, p99=5000), output_tokens=Quantiles(p50=200, p90=500, p99=1000)
)
LONG = RequestProfile(
    prompt_tokens=Quantiles(p50=70_000, p90=100_000, p99=118_000), output_tokens=Quantiles(p50=300, p90=700, p99=1200)
)


def document(*more: str, settings: str = "", rate: str = "20/s") -> Deployment:
    """V4-Flash on 32 H200, 8 engines of 4 GPUs, and what ``more`` adds to the document."""
    urls = ", ".join(f"{{url: 'http://10.0.0.{at}:8000'}}" for at in range(8))
    text = "\n".join(
        (
            "model: {config: deepseek-ai/DeepSeek-V4-Flash, max_model_len: 128K}",
            "cluster: {nodes: 4, gpus_per_node: 8, gpu: H200-141GB}",
            f"engine: {{version: 0.33.0, endpoints: [{urls}], settings: {{tensor_parallel_size: 4,"
            f" pipeline_parallel_size: 1, max_num_seqs: 128, scheduling_policy: priority{settings}}}}}",
            "workload: {prompt_tokens: {p50: 800, p90: 2000, p99: 5000},",
            f"  output_tokens: {{p50: 200, p90: 500, p99: 1000}}, rate: {rate}}}",
            "sla: {ttft_p99: 2s, tpot_p99: 60ms, success: 99%}",
            "tenants: [{id: chat, key: sk-1}, {id: documents, key: sk-2}]",
            *more,
        )
    )
    return load_text(text, source="rehearsal")


def engines(deployment: Deployment) -> tuple[TwinConfig, ...]:
    plan = make_plan(deployment, model_by_id(deployment.model.config), gpu_by_name(deployment.cluster.gpu))
    return twin_configs(deployment, plan)


# -- a storm of long documents ---------------------------------------------------------------------------------------

STORM_FROM_S, STORM_S, STORM_ALL_S = 120.0, 180.0, 480.0
LANE = "gateway: {{lanes: {{long: {{above_tokens: 32K, {how}}}}}}}"
RULES = (
    "governance: {rules: [{name: huge, when: ['prompt_tokens > 96K'], action: refuse}, "
    "{name: long, when: ['prompt_tokens > 32K'], action: queue, queue: low}]}"
)


def storm() -> Rows:
    """Chat all the time, and for three minutes long documents, under lanes and rules."""
    lane = LANE.format(how="engines: ['http://10.0.0.0:8000', 'http://10.0.0.1:8000']")
    runs = [
        (name, _storm(document(*more)))
        for name, more in (
            ("nothing", ()),
            ("rules", (RULES,)),
            ("2 slots an engine", (LANE.format(how="slots: 2"),)),
            ("2 engines for long", (lane,)),
            ("2 engines and rules", (lane, RULES)),
        )
    ]
    chat = [[record for record in run.records if record.tenant == "chat"] for _, run in runs]
    long = [[record for record in run.records if record.tenant == "documents"] for _, run in runs]
    sla = document().sla
    during = [
        [record for record in records if STORM_FROM_S <= record.t_sched_s < STORM_FROM_S + STORM_S] for records in chat
    ]
    return [
        ("during the storm", *(name for name, _ in runs)),
        ("chat: TTFT P99", *(_seconds(_ttft_p99_s(records)) for records in during)),
        ("chat: TPOT P99", *(_seconds(_tpot_s(records, 99)) for records in during)),
        ("chat: SLA misses", *(_share(records, lambda one: not meets_limits(one, sla)) for records in during)),
        ("documents: answered", *(_share(records, lambda one: one.ok) for records in long)),
        ("documents: TTFT P50", *(_seconds(_ttft_s(records, 50)) for records in long)),
        ("documents: refused by a rule", *(_share(records, _by_rule) for records in long)),
    ]


def _by_rule(record: RequestRecord) -> bool:
    return record.error == "BUSINESS_OVERRUN"


def _storm(deployment: Deployment) -> SimulatedRun:
    configs = engines(deployment)
    phases = [
        Phase(lasts_s=STORM_FROM_S, factor=0.0), Phase(lasts_s=STORM_S, factor=1.0), Phase(lasts_s=1e6, factor=0.0)
    ]  # fmt: skip
    load = Mix(
        {
            "chat": Arrivals(replace(CHAT, rate_per_s=24.0), seed=1, duration_s=STORM_ALL_S),
            "documents": Phased(
                Arrivals(replace(LONG, rate_per_s=1.2), seed=2, duration_s=STORM_S, max_context_tokens=131_072), phases
            ),
        }
    )
    return simulate(
        configs,
        load,
        routing=routing_of(deployment, len(configs)),
        gate=Governance(deployment, configs),
        scrape_s=1.0,
        keep_gaps=False,
    )


# -- hot experts -----------------------------------------------------------------------------------------------------


EXPERTS_S = 240.0


def experts() -> Rows:
    """V3 with expert parallelism over 32 GPUs: even and skewed traffic, with and without the balancer."""
    cases = (
        ("even", 0.0, False), ("skewed", 0.8, False), ("skewed, EPLB", 0.8, True), ("hot", 1.1, False),
        ("hot, EPLB", 1.1, True),
    )  # fmt: skip
    runs = []
    for name, skew, balanced in cases:
        deployment = _expert_parallel(skew, balanced=balanced)
        configs = engines(deployment)
        load = Arrivals(deployment.workload, seed=3, duration_s=EXPERTS_S)
        runs.append((name, simulate(configs, load, scrape_s=1.0, keep_gaps=False)))
    sla = _expert_parallel(0.0, balanced=False).sla
    records = [run.records for _, run in runs]
    return [
        ("traffic over the experts", *(name for name, _ in runs)),
        ("TPOT P50", *(_seconds(_tpot_s(some, 50)) for some in records)),
        ("TPOT P99", *(_seconds(_tpot_s(some, 99)) for some in records)),
        ("TTFT P99", *(_seconds(_ttft_p99_s(some)) for some in records)),
        ("SLA misses", *(_share(some, lambda one: not meets_limits(one, sla)) for some in records)),
        ("engines busy", *(f"{run.utilisation_ratio:.0%}" for _, run in runs)),
    ]


def _expert_parallel(skew: float, *, balanced: bool) -> Deployment:
    eplb = ", enable_eplb: true, eplb_config: '{\"num_redundant_experts\": 32}'" if balanced else ""
    text = f"""
model: {{config: DeepSeek-V3, max_model_len: 32K}}
cluster: {{nodes: 4, gpus_per_node: 8, gpu: H200-141GB}}
engine: {{version: 0.33.0, settings: {{tensor_parallel_size: 1, pipeline_parallel_size: 1, data_parallel_size: 32,
  enable_expert_parallel: true, max_num_seqs: 64{eplb}}}}}
workload: {{prompt_tokens: {{p50: 800, p90: 2000, p99: 5000}}, output_tokens: {{p50: 200, p90: 500, p99: 1000}},
  rate: 12/s, expert_skew: {skew}}}
sla: {{ttft_p99: 10s, tpot_p99: 150ms, success: 99%}}
"""
    return load_text(text, source="experts")


# -- an engine that dies at the peak -----------------------------------------------------------------------------------

LOST_AT_S, DOWN_S, OUTAGE_ALL_S, BUCKET_S = 240.0, 180.0, 720.0, 10.0
RATES_PER_S = (40.0, 60.0, 70.0, 75.0)


def outage() -> Rows:
    """One of eight engines dies at the peak and is back three minutes later, at three levels of load."""
    rows: list[list[str]] = [
        [f"one of 8 engines gone for {DOWN_S:.0f} s at"],
        ["requests lost"],
        ["other SLA misses before it"],
        ["SLA misses while it was gone"],
        ["TTFT P99 before it"],
        ["worst TTFT P99 of 10 s"],
        ["within the SLA again after"],
    ]
    deployment = document()
    configs, sla = engines(deployment), deployment.sla
    for rate_per_s in RATES_PER_S:
        records = _outage(deployment, configs, rate_per_s)
        before = [one for one in records if LOST_AT_S / 4 <= one.t_sched_s < LOST_AT_S and one.error != "engine_lost"]
        gone = [one for one in records if LOST_AT_S <= one.t_sched_s < LOST_AT_S + DOWN_S]
        buckets = _buckets(records)
        ill = [
            at_s
            for at_s, p99_s in buckets
            if at_s >= LOST_AT_S and sla.ttft_p99_s is not None and p99_s > sla.ttft_p99_s
        ]
        cells = (
            f"{rate_per_s:g}/s",
            f"{sum(one.error == 'engine_lost' for one in records):,}",
            _share(before, lambda one: not meets_limits(one, sla)),
            _share(gone, lambda one: not meets_limits(one, sla)),
            _seconds(_ttft_p99_s(before)),
            _seconds(max(p99_s for at_s, p99_s in buckets if LOST_AT_S <= at_s < OUTAGE_ALL_S - 60)),
            f"{max(ill) + BUCKET_S - LOST_AT_S:.0f} s" if ill else "at once",
        )
        for row, cell in zip(rows, cells, strict=True):
            row.append(cell)
    return [tuple(row) for row in rows]


def _outage(deployment: Deployment, configs: Sequence[TwinConfig], rate_per_s: float) -> tuple[RequestRecord, ...]:
    load = Mix({"chat": Arrivals(replace(CHAT, rate_per_s=rate_per_s), seed=5, duration_s=OUTAGE_ALL_S)})
    return simulate(
        configs,
        load,
        gate=Governance(deployment, configs),
        outages=[Outage(engine=3, at_s=LOST_AT_S, lasts_s=DOWN_S)],
        scrape_s=1.0,
        keep_gaps=False,
    ).records


def _buckets(records: Iterable[RequestRecord]) -> list[tuple[float, float]]:
    """TTFT P99 of the requests that came in each ten seconds."""
    found: dict[float, list[float]] = {}
    for one in records:
        time_s = one.user_ttft_s if one.ok and one.user_ttft_s is not None else float("inf")
        if one.error != "engine_lost":  # counted by itself
            found.setdefault(one.t_sched_s // BUCKET_S * BUCKET_S, []).append(time_s)
    return [(at_s, percentile(sorted(times_s), 99)) for at_s, times_s in sorted(found.items())]


# -- what is common to all ---------------------------------------------------------------------------------------------


def _ttft_s(records: Iterable[RequestRecord], percent: float) -> float:
    return percentile(sorted(one.user_ttft_s for one in records if one.ok and one.user_ttft_s is not None), percent)


def _ttft_p99_s(records: Iterable[RequestRecord]) -> float:
    return _ttft_s(records, 99)


def _tpot_s(records: Iterable[RequestRecord], percent: float) -> float:
    return percentile(sorted(one.tpot_s for one in records if one.ok and one.tpot_s is not None), percent)


def _seconds(value_s: float) -> str:
    return f"{value_s * 1e3:,.0f} ms" if value_s < 10 else f"{value_s:,.1f} s"


def _share(records: Sequence[RequestRecord], of: Callable[[RequestRecord], bool]) -> str:
    count = sum(map(of, records))
    return f"{count:,} of {len(records):,} ({count / len(records):.1%})" if records else "none"


def write_table(name: str, rows: Sequence[tuple[str, ...]]) -> None:
    """Put ``rows`` between the marks of ``name`` in the page."""
    head, *body = rows
    lines = [head, ("---", *("---:" for _ in head[1:])), *body]
    text = "\n".join("| " + " | ".join(cells) + " |" for cells in lines)
    page = PAGE.read_text(encoding="utf-8")
    marked = re.compile(rf"(<!-- {name} -->\n)(?:(?!<!-- end -->).)*(<!-- end -->)", re.DOTALL)
    if not marked.search(page):
        raise SystemExit(f"{PAGE}: no marks of {name}")
    PAGE.write_text(marked.sub(lambda found: f"{found[1]}{text}\n{found[2]}", page), encoding="utf-8")


REHEARSALS = {"storm": storm, "experts": experts, "outage": outage}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*REHEARSALS, []], help="all when left out")
    parser.add_argument("--write", action="store_true", help="renew the tables in the docs")
    options = parser.parse_args()
    for name in options.names or REHEARSALS:
        rows = REHEARSALS[name]()
        for row in rows:
            print("  ".join(f"{cell:>26}" if at else f"{cell:<32}" for at, cell in enumerate(row)).rstrip())
        print(flush=True)
        if options.write:
            write_table(name, rows)
    return 0


if __name__ == "__main__":
    sys.exit(main())
