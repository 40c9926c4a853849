#!/usr/bin/env python3
"""Does one tenant's load hurt another's: the gateway's governance over simulated engines, in virtual time.

    fairness.py [--seeds N]

Three questions, each with the worst of several seeds: do two tenants of equal weight that always have work waiting get
the same tokens over a minute; do weights 1:3 give 1:3; and how much later does the first token come to a tenant within
its quota when its neighbour floods at ten times its own, beside a neighbour who brings the same utilisation within its
quota. Needs no network and no GPU. Exit 0 only when everything is within the limits; the last line is JSON.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from roadworthy.adapters.processes import cores, each
from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.deploy import twin_configs
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.latency import percentile
from roadworthy.plan.search import make_plan
from roadworthy.simulate.governed import Governance
from roadworthy.simulate.loads import Mix
from roadworthy.simulate.run import simulate
from roadworthy.simulate.standing import OUTPUT_WORK, PROMPT_WORK, served_tokens
from roadworthy.spec.load import load_text
from roadworthy.spec.values import Deployment, Quantiles, RequestProfile, Tenant

if TYPE_CHECKING:
    from roadworthy.simulate.result import SimulatedRun
    from roadworthy.twin.config import TwinConfig

DOCUMENT = """
model: {config: Llama-3.1-8B, max_model_len: 8K}
cluster: {nodes: 1, gpus_per_node: 2, gpu: H100-80GB}
engine: {version: 0.33.0, settings: {tensor_parallel_size: 1, max_num_seqs: 64, scheduling_policy: priority}}
tenants: [{id: placeholder, key: sk-none}]
"""
CHAT = RequestProfile(
    prompt_tokens=Quantiles(p50=300, p90=800, p99=1600), output_tokens=Quantiles(p50=180, p90=350, p99=600)
)
READER = replace(
    CHAT, prompt_tokens=Quantiles(p50=2000, p90=3000, p99=4000), output_tokens=Quantiles(p50=40, p90=80, p99=120)
)
"""Long prompts and short answers: as much work as a chat, in another shape."""

SHARE_LIMIT, TTFT_LIMIT = 0.05, 1.20
FROM_S, MINUTE_S = 30.0, 60.0
SETTLED_S = 90.0
"""A rate limit lets a minute's worth through at once after a quiet minute; the flood is looked at after that."""

QUOTA_RATE_PER_S, REQUEST_S, REQUEST_TOKENS = 20.0, 2.5, 620
"""The flooding neighbour's quota, in requests like the mean one and how long one takes."""

VICTIM_REQUESTS, VICTIM_RATE_PER_S = 2500, 10.0
SECONDS = VICTIM_REQUESTS / VICTIM_RATE_PER_S
FLOOD = 10
TRIES, ALIKE = 8, 0.01
"""The polite neighbour's rate is searched until both serve the same tokens, within this."""


@cache
def engines() -> tuple[TwinConfig, ...]:
    deployment = load_text(DOCUMENT, source="fairness")
    plan = make_plan(deployment, model_by_id(deployment.model.config), gpu_by_name(deployment.cluster.gpu))
    # no two prompts here share text, so there is nothing to find in a prefix cache
    return tuple(replace(config, enable_prefix_caching=False) for config in twin_configs(deployment, plan))


def deployment_of(tenants: Sequence[Tenant]) -> Deployment:
    return replace(load_text(DOCUMENT, source="fairness"), tenants=tuple(tenants))


def run(tenants: Sequence[Tenant], loads: Mapping[str, RequestProfile], seconds: float, seed: int) -> SimulatedRun:
    """Every tenant's own load for so long, through one gateway."""
    configs = engines()
    schedule = Mix(
        {
            name: Arrivals(
                profile, seed=seed * 100 + place, duration_s=seconds, max_context_tokens=configs[0].max_model_len
            )
            for place, (name, profile) in enumerate(loads.items())
        }
    )
    return simulate(configs, schedule, gate=Governance(deployment_of(tenants), configs), scrape_s=1.0, keep_gaps=False)


def shares(weight: float, other: RequestProfile, *, seed: int) -> tuple[float, float]:
    """Tokens, and work, that a tenant of ``weight`` got for each that one of weight 1 got over a minute, both with more
    to do than there is room for; the lighter one asks for far more."""
    tenants = [Tenant(id="one", weight=1.0), Tenant(id="other", weight=weight)]
    loads = {"one": replace(CHAT, rate_per_s=240.0), "other": replace(other, rate_per_s=120.0)}
    log = run(tenants, loads, FROM_S + MINUTE_S, seed).log
    served = served_tokens(log, from_s=FROM_S, to_s=FROM_S + MINUTE_S)
    tokens = {name: sum(pair) for name, pair in served.items()}
    work = {name: PROMPT_WORK * prompt + OUTPUT_WORK * output for name, (prompt, output) in served.items()}
    return tokens["other"] / tokens["one"], work["other"] / work["one"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Beside:
    """What a victim saw beside some neighbour. ``tokens_per_s`` is what the engines served in all."""

    ttft_p99_s: float
    tokens_per_s: float
    victim_requests: int
    neighbour_requests: int
    neighbour_served: int


def beside(neighbour: Tenant, rate_per_s: float, *, seed: int) -> Beside:
    """The victim's load for as long as its requests take, and its neighbour's at ``rate_per_s``."""
    loads = {"victim": replace(CHAT, rate_per_s=VICTIM_RATE_PER_S), "neighbour": replace(CHAT, rate_per_s=rate_per_s)}
    log = run([Tenant(id="victim"), neighbour], loads, SECONDS, seed).log
    records = [record for record in log.records() if record.t_sched_s >= SETTLED_S]
    ttfts_s = sorted(
        record.user_ttft_s if record.user_ttft_s is not None else float("inf")
        for record in records
        if record.tenant == "victim"
    )
    others = [record for record in records if record.tenant == "neighbour"]
    served = served_tokens(log, from_s=SETTLED_S, to_s=SECONDS)
    return Beside(
        ttft_p99_s=percentile(ttfts_s, 99),
        tokens_per_s=sum(map(sum, served.values())) / (SECONDS - SETTLED_S),
        victim_requests=len(ttfts_s),
        neighbour_requests=len(others),
        neighbour_served=sum(record.ok for record in others),
    )


def polite(tokens_per_s: float, rate_per_s: float, *, seed: int) -> Beside:
    """A neighbour without a quota to exceed, at the rate at which the engines serve ``tokens_per_s`` in all.

    Args:
        rate_per_s: a first guess.
    """
    best, low, high = None, 0.0, None
    for _ in range(TRIES):
        seen = beside(Tenant(id="neighbour"), rate_per_s, seed=seed)
        off = seen.tokens_per_s / tokens_per_s - 1
        if best is None or abs(off) < abs(best.tokens_per_s / tokens_per_s - 1):
            best = seen
        if abs(off) < ALIKE:
            break
        low, high = (rate_per_s, high) if off < 0 else (low, rate_per_s)
        rate_per_s = rate_per_s / (1 + off) if high is None else (low + high) / 2
    assert best is not None  # there was a try
    return best


def quotas() -> dict[str, Tenant]:
    """A neighbour with each kind of quota; all are used up by ``QUOTA_RATE_PER_S``, about a third of the room."""
    config = engines()[0]
    each = config.cache.held_blocks(REQUEST_TOKENS)
    at_once = QUOTA_RATE_PER_S * REQUEST_S
    quota_bytes = int(at_once * each * sum(config.cache.bytes_per_block))
    return {
        "kv_quota": Tenant(id="neighbour", kv_quota_bytes=quota_bytes),
        "concurrency": Tenant(id="neighbour", concurrency=round(at_once)),
        "tpm": Tenant(id="neighbour", tokens_per_minute=round(QUOTA_RATE_PER_S * 60 * REQUEST_TOKENS)),
        "rpm": Tenant(id="neighbour", requests_per_minute=round(QUOTA_RATE_PER_S * 60)),
    }


def flooded_and_calm(quota: str) -> tuple[Beside, Beside]:
    """The victim beside a flood of a neighbour with this kind of quota, and beside a polite one."""
    flooded = beside(quotas()[quota], FLOOD * QUOTA_RATE_PER_S, seed=1)
    return flooded, polite(flooded.tokens_per_s, flooded.neighbour_served / (SECONDS - SETTLED_S), seed=1)


def answer(question: tuple[str, float, RequestProfile, int] | str) -> tuple[float, float] | tuple[Beside, Beside]:
    """What one process is asked: a share, or the effect of a flood."""
    if isinstance(question, str):
        return flooded_and_calm(question)
    _, weight, other, seed = question
    return shares(weight, other, seed=seed)


def worst(values: Sequence[float], wanted: float) -> float:
    return max(values, key=lambda value: abs(value / wanted - 1))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3, help="of each question; the worst counts")
    seeds = range(parser.parse_args().seeds)

    kinds = (("equal", 1.0, CHAT), ("threefold", 3.0, CHAT), ("shaped", 1.0, READER))
    questions = [*quotas(), *((name, weight, other, seed) for name, weight, other in kinds for seed in seeds)]
    answers = dict(zip(map(str, questions), each(answer, questions, processes=cores()), strict=True))
    got = {name: [answers[str((name, weight, other, seed))] for seed in seeds] for name, weight, other in kinds}
    equal, threefold = [tokens for tokens, _ in got["equal"]], [tokens for tokens, _ in got["threefold"]]
    shaped = [work for _, work in got["shaped"]]
    print("tokens of two backlogged tenants over a minute, by seed")
    print("  equal weights             ", *(f"{ratio:8.3f}" for ratio in equal))
    print("  weights 1 to 3            ", *(f"{ratio:8.3f}" for ratio in threefold))
    print("  equal, other lengths: work", *(f"{ratio:8.3f}" for ratio in shaped))
    print(f"P99 of the time to first token within the quota, neighbour at {FLOOD} times its own")
    ratios = []
    for name in quotas():
        flooded, calm = answers[name]
        ratios.append(flooded.ttft_p99_s / calm.ttft_p99_s)
        print(
            f"  {name:<12}{flooded.ttft_p99_s * 1e3:8.1f} ms of {flooded.victim_requests:,} requests, "
            f"{flooded.neighbour_served:,} of {flooded.neighbour_requests:,} of the flood served; polite neighbour "
            f"{calm.ttft_p99_s * 1e3:8.1f} ms at {calm.tokens_per_s / flooded.tokens_per_s:.1%} of its tokens: "
            f"{ratios[-1]:.2f}"
        )
    result = {
        "served_ratio": round(worst(equal, 1.0), 4),
        "weighted_ratio": round(worst(threefold, 3.0), 4),
        "victim_ttft_p99_ratio": round(max(ratios), 4),
    }
    fine = (
        abs(worst(equal, 1.0) - 1) <= SHARE_LIMIT
        and abs(worst(threefold, 3.0) / 3 - 1) <= SHARE_LIMIT
        and abs(worst(shaped, 1.0) - 1) <= SHARE_LIMIT
        and max(ratios) <= TTFT_LIMIT
    )
    print(json.dumps(result))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
