#!/usr/bin/env python3
"""How close the twin is to vLLM: its schedule step by step, and with ``--live`` its times against a running engine.

    twin_fidelity.py [--instances N] [--seed N] [--workload NAME]
    twin_fidelity.py --live [--short] [--minutes M] [--repeats N] [--requests N]

Without ``--live`` every workload is stepped through vLLM's own ``Scheduler`` class, without a model, and through the
twin; a step agrees when it schedules the same tokens of the same requests from the same places, after as many
preemptions (prefix hits show in where a request starts). Exit 1 when a workload agrees in fewer than 99 % of steps.

``--live`` starts vLLM's CPU build on a small model with random weights, fits the twin's constants on runs of one set of
loads and compares throughput and latencies on another, run by turns with it. Exit 1 when one is off by more than its
limit (10 % throughput, 15 % median, 25 % 99th percentile), or than twice the engine's own spread over the repeats if
that is larger. It waits for other work on the machine to end, two minutes at most, and writes
build/bench/twin-live.json. ``--short`` takes about nine minutes, the whole about fourteen. Needs `make vllm`.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from roadworthy.adapters.tiny_model import ensure_tiny_model  # noqa: E402
from support.scheduling import NO_STEPS, WORKLOADS, agreement, scenarios, twin_trace, vllm_traces  # noqa: E402

WANTED_RATIO = 0.99


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--instances", type=int, default=12, help="random instances of each workload")
    parser.add_argument("--seed", type=int, default=0, help="where the random instances begin")
    parser.add_argument("--workload", default="", help="only workloads whose name contains this")
    parser.add_argument("--live", action="store_true", help="times against a running vLLM instead")
    parser.add_argument("--short", action="store_true", help="three live runs of each load")
    parser.add_argument("--minutes", type=float, default=20.0, help="begin no live run that would end later than this")
    parser.add_argument("--repeats", type=int, default=5, help="runs of each live workload at most")
    parser.add_argument("--requests", type=int, default=100, help="requests of each live run")
    asked = parser.parse_args()
    if importlib.util.find_spec("vllm") is None:
        print("twin_fidelity: no vllm package here\nhint: make vllm", file=sys.stderr)
        return 3
    if asked.live:
        from twin_live import compare_live

        if asked.short:
            asked.repeats = min(asked.repeats, 3)
        try:
            return compare_live(repeats=asked.repeats, requests=asked.requests, minutes=asked.minutes)
        except KeyboardInterrupt:
            print("twin_fidelity: interrupted, nothing was compared", file=sys.stderr)
            return 130
    return compare_schedules(asked.instances, asked.seed, asked.workload)


def compare_schedules(instances: int, seed: int, only: str) -> int:
    """Print the table; 1 when a workload disagrees too often."""
    chosen = [workload for workload in WORKLOADS if only in workload.name]
    if not chosen:
        print(f"twin_fidelity: no workload is called {only!r}", file=sys.stderr)
        return 2
    drawn = {workload.name: scenarios(workload, instances, seed) for workload in chosen}
    flat = json.loads(json.dumps([scenario for group in drawn.values() for scenario in group]))
    with tempfile.TemporaryDirectory() as folder:
        print(f"vLLM {importlib.metadata.version('vllm')} steps through {len(flat)} scenarios ...", file=sys.stderr)
        traces = iter(vllm_traces(ensure_tiny_model(Path(folder) / "tiny"), flat, timeout_s=1800))
    print(
        f"{'workload':<28}{'steps':>8}{'equal':>10}{'with blocks':>13}{'chunks':>8}{'preempted':>11}{'hit tokens':>12}"
    )
    missed, total = [], NO_STEPS
    for name, group in drawn.items():
        one = NO_STEPS
        for scenario in group:
            one += agreement(twin_trace(scenario), next(traces))
        total += one
        blocks = one.equal_with_blocks / max(1, one.steps)
        print(
            f"{name:<28}{one.steps:>8,}{one.ratio:>10.2%}{blocks:>13.2%}{one.chunks:>8,}{one.preemptions:>11,}"
            f"{one.hit_tokens:>12,}"
        )
        if one.ratio < WANTED_RATIO:
            missed.append(name)
    print(f"{'all':<28}{total.steps:>8,}{total.ratio:>10.2%}")
    if missed:
        print(f"below {WANTED_RATIO:.0%}: {', '.join(missed)}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
