#!/usr/bin/env python3
"""The plan's operating point against the twin, over layouts, lengths and rates; exit 1 where TPOT is off by 20 %.

    plan_against_twin.py [--write]

``--write`` renews docs/reference/plan-against-twin.md. Takes about a minute; needs neither a GPU nor the network.
Both run on the same step times, so this says nothing of how right those are (`plan_accuracy.py` does). A case whose
twin builds up a queue is shown and not judged: the plan's numbers are those before queueing. Nor is one that the plan
itself calls near saturation, where it says that its figures may be off.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.layouts import stage_split
from roadworthy.plan.search import judge_layout
from roadworthy.plan.values import Layout, Plan
from roadworthy.simulate.rank import simulate_layout
from roadworthy.spec.values import (
    ClusterSpec,
    Deployment,
    EngineSpec,
    ModelRef,
    Quantiles,
    RequestProfile,
    Sessions,
)

PAGE = Path(__file__).resolve().parents[1] / "docs" / "reference" / "plan-against-twin.md"
LIMIT, QUEUED = 0.20, 2.5
"""TPOT may be off by this; a twin whose median TTFT is so many times the plan's has a queue."""

CHAT = (Quantiles(p50=213, p90=396, p99=634), Quantiles(p50=177, p90=325, p99=512))
MIDDLE = (Quantiles(p50=500, p90=1000, p99=2000), Quantiles(p50=200, p90=400, p99=600))
LONG = (Quantiles(p50=4000, p90=8000, p99=16_000), Quantiles(p50=300, p90=600, p99=900))
VERY_LONG = (Quantiles(p50=16_000, p90=32_000, p99=64_000), Quantiles(p50=400, p90=800, p99=1200))
NAMES = {CHAT: "chat", MIDDLE: "middle", LONG: "long", VERY_LONG: "very long"}
PRO, K3, LLAMA, V3 = "DeepSeek-V4-Pro", "Kimi-K3", "Llama-3.1-70B", "DeepSeek-V3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    model: str
    gpu: str
    tp: int
    pp: int
    lengths: tuple[Quantiles, Quantiles]
    rate: float
    dp: int = 1
    shared: float = 0.0
    turns: float = 1.0
    drafts: int = 0
    asynchronous: bool = True

    @property
    def layout(self) -> Layout:
        model = model_by_id(self.model)
        ep = self.tp * self.dp if self.dp > 1 else 1
        return Layout(tp=self.tp, pp=self.pp, dp=self.dp, ep=ep, stage_layers=stage_split(model.num_layers, self.pp))

    @property
    def deployment(self) -> Deployment:
        gpus, settings = self.tp * self.pp * self.dp, {}
        if self.drafts:
            settings = {"speculative_config": f'{{"method": "mtp", "num_speculative_tokens": {self.drafts}}}'}
        if not self.asynchronous:
            settings["async_scheduling"] = False
        return Deployment(
            name="case",
            model=ModelRef(config=self.model, max_model_len_tokens=131_072),
            cluster=ClusterSpec(nodes=max(1, gpus // 8), gpus_per_node=min(8, gpus), gpu=self.gpu),
            engine=EngineSpec(settings=MappingProxyType(settings)),
            workload=RequestProfile(
                prompt_tokens=self.lengths[0], output_tokens=self.lengths[1], rate_per_s=self.rate,
                shared_prefix_ratio=self.shared, sessions=Sessions(turns=self.turns),
            ),
        )  # fmt: skip

    @property
    def name(self) -> str:
        more = f", {self.shared:.0%} shared" if self.shared else ""
        more += f", {self.turns:g} turns" if self.turns > 1 else ""
        more += f", MTP {self.drafts}" if self.drafts else ""
        more += "" if self.asynchronous else ", not asynchronous"
        return f"{self.model} {self.layout.label}, {self.gpu}, {NAMES[self.lengths]} at {self.rate:g}/s{more}"


def cases() -> list[Case]:
    """One engine each: single hosts, pipelines of 2 to 8 stages, data-parallel attention, prefixes, drafts."""

    def each(model: str, gpu: str, tp: int, pp: int, lengths: tuple[Quantiles, Quantiles], *rates: float) -> list[Case]:
        return [Case(model=model, gpu=gpu, tp=tp, pp=pp, lengths=lengths, rate=rate) for rate in rates]

    return [
        *each(PRO, "H200", 8, 1, CHAT, 1, 4), *each(PRO, "H200", 8, 1, LONG, 0.25, 0.7),
        *each(PRO, "H200", 8, 1, VERY_LONG, 0.1, 0.2),
        *each(LLAMA, "H100", 8, 1, MIDDLE, 8, 16), *each(LLAMA, "H100", 8, 1, LONG, 1, 2),
        *each(PRO, "H100", 8, 4, CHAT, 4, 8, 16), *each(PRO, "H100", 8, 2, CHAT, 8),
        *each(PRO, "H200", 8, 4, LONG, 0.7, 1.4, 2, 3), *each(PRO, "H200", 8, 2, LONG, 1, 2),
        *each(PRO, "H200", 8, 4, VERY_LONG, 0.2, 0.4, 0.6), *each(PRO, "H100", 8, 8, LONG, 1, 2),
        *each(K3, "H100", 8, 4, CHAT, 4), *each(K3, "H200", 8, 4, LONG, 0.4, 0.8),
        *each(K3, "H200", 8, 4, VERY_LONG, 0.1, 0.2, 0.3), *each(K3, "H200", 8, 2, LONG, 0.4, 0.8),
        *each(K3, "H200", 8, 8, LONG, 0.2, 0.4),
        *each(LLAMA, "H100", 4, 2, MIDDLE, 8), *each(LLAMA, "H100", 2, 4, MIDDLE, 4, 8),
        *each(LLAMA, "H100", 1, 8, MIDDLE, 2, 4), *each(LLAMA, "H100", 2, 4, LONG, 0.5, 1, 1.5, 2),
        *each(LLAMA, "H100", 1, 8, LONG, 0.25, 0.5, 1), *each(LLAMA, "H100", 4, 2, LONG, 1, 2, 3),
        *each(LLAMA, "H100", 2, 4, VERY_LONG, 0.1, 0.2, 0.3, 0.4), *each(LLAMA, "H100", 4, 2, VERY_LONG, 0.2, 0.4),
        Case(model=PRO, gpu="H200", tp=8, pp=1, dp=4, lengths=LONG, rate=1.0),
        Case(model=V3, gpu="H200", tp=8, pp=1, lengths=MIDDLE, rate=4),
        Case(model=V3, gpu="H200", tp=8, pp=1, lengths=MIDDLE, rate=4, drafts=1),
        Case(model=PRO, gpu="H200", tp=8, pp=2, lengths=CHAT, rate=8, drafts=1),
        Case(model=LLAMA, gpu="H100", tp=8, pp=1, lengths=LONG, rate=2, shared=0.5),
        Case(model=LLAMA, gpu="H100", tp=8, pp=1, lengths=LONG, rate=2, shared=0.5, turns=4),
        Case(model=PRO, gpu="H200", tp=8, pp=2, lengths=LONG, rate=1, shared=0.4),
        Case(model=K3, gpu="H200", tp=8, pp=2, lengths=LONG, rate=0.4, shared=0.4, turns=6),
        Case(model=PRO, gpu="H200", tp=8, pp=1, lengths=CHAT, rate=4, asynchronous=False),
        *(replace(case, asynchronous=False) for case in (
            *each(PRO, "H100", 8, 4, CHAT, 4, 8), *each(PRO, "H100", 8, 2, CHAT, 8),
            *each(PRO, "H200", 8, 4, LONG, 1.4, 2), *each(K3, "H100", 8, 4, CHAT, 4),
            *each(LLAMA, "H100", 4, 2, MIDDLE, 8), *each(LLAMA, "H100", 1, 8, MIDDLE, 2),
            *each(LLAMA, "H100", 4, 2, LONG, 2), *each(LLAMA, "H100", 2, 4, VERY_LONG, 0.2),
        )),
    ]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    case: Case
    tpot: tuple[float, float]
    ttft: tuple[float, float]
    near_saturation: bool

    @property
    def queued(self) -> bool:
        return self.ttft[1] > QUEUED * self.ttft[0]

    @property
    def within(self) -> bool:
        return self.queued or self.near_saturation or abs(self.tpot[0] / self.tpot[1] - 1) <= LIMIT

    def cells(self) -> tuple[str, ...]:
        ratios = [pair[0] / pair[1] for pair in (self.tpot, self.ttft)]
        verdict = "queues" if self.queued else "near saturation" if self.near_saturation else ""
        verdict = verdict or ("ok" if self.within else "OUTSIDE")
        figures = (f"{value * 1e3:,.1f}" for value in (*self.tpot, *self.ttft))
        return (self.case.name, *figures, *(f"{ratio:.2f}" for ratio in ratios), verdict)


def compared(case: Case) -> Row | None:
    """The plan and the twin of ``case``; None where the layout does not fit or carries too little."""
    model, deployment = model_by_id(case.model), case.deployment
    judged = judge_layout(deployment, model, gpu_by_name(case.gpu), case.layout)
    if judged.predicted is None or judged.predicted.saturated:
        return None
    plan = Plan(model=model, weights_bytes_total=0, assumptions=(), layouts=(judged,))
    seen, foretold = simulate_layout(deployment, plan, judged), judged.predicted
    return Row(
        case=case, tpot=(foretold.tpot_p50_s, seen.tpot_p50_s), ttft=(foretold.ttft_p50_s, seen.ttft_p50_s),
        near_saturation=foretold.near_saturation,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="renew the page")
    options = parser.parse_args()
    rows = []
    for case in cases():
        row = compared(case)
        if row is None:
            print(f"{case.name}: does not fit, or does not carry the rate", file=sys.stderr)
            continue
        rows.append(row)
        print("  ".join(row.cells()), flush=True)
    judged = [row for row in rows if not (row.queued or row.near_saturation)]
    errors = [abs(row.tpot[0] / row.tpot[1] - 1) for row in judged]
    first = [abs(row.ttft[0] / row.ttft[1] - 1) for row in judged]
    summary = (
        f"{len(judged)} cases without a queue and not near saturation: median TPOT is off by "
        f"{statistics.median(errors):.0%} in the median, "
        f"{max(errors):.0%} at most; median TTFT by {statistics.median(first):.0%}, {max(first):.0%} at most"
    )
    print(summary)
    if options.write:
        names = ("case", "TPOT P50 plan, ms", "twin", "TTFT P50 plan, ms", "twin", "TPOT ratio", "TTFT ratio", "")
        table = [names, ("---",) * len(names), *(row.cells() for row in rows)]
        lines = ["# The plan against the twin", "", __doc__.splitlines()[0].split(";")[0] + ".",
            "Written by `scripts/plan_against_twin.py --write`; do not edit.", "", summary + ".", "",
            *("| " + " | ".join(cells) + " |" for cells in table), ""]  # fmt: skip
        PAGE.write_text("\n".join(lines), encoding="utf-8")
    return 0 if all(row.within for row in judged) else 1


if __name__ == "__main__":
    sys.exit(main())
