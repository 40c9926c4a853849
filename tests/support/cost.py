"""Deployments and throughputs for tests of the cost model: round numbers, nothing planned."""

from __future__ import annotations

from dataclasses import replace

from roadworthy.catalog.gpus import Gpu, gpu_by_name
from roadworthy.cost.report import CostReport, make_report
from roadworthy.cost.throughput import Throughput
from roadworthy.spec.values import ApiSpec, ClusterSpec, CostSpec, Deployment, ModelRef

API = ApiSpec(name="their-api", input_miss=2.5, output=2.5)
"""2.50 per million whatever the mix."""


def throughput(total: float = 6963.2, output: float = 3148.8, **more: object) -> Throughput:
    known = Throughput(
        output_tokens_per_s=output,
        total_tokens_per_s=total,
        kind="measured",
        source="a test",
        layout="TP8 PP4",
        error_band=0.0,
        meets_sla=True,
        meets_at_asked_rate=True,
    )
    return replace(known, **more)  # type: ignore[arg-type]


def deployment(cost: CostSpec, gpu: str = "H100-80GB") -> Deployment:
    return Deployment(
        name="chat",
        model=ModelRef(config="DeepSeek-V4-Pro"),
        cluster=ClusterSpec(nodes=4, gpus_per_node=8, gpu=gpu),
        cost=cost,
    )


def report(cost: CostSpec, served: Throughput | None = None, *, model: str = "DeepSeek-V4-Pro") -> CostReport:
    return make_report(deployment(cost), model, h100(), served or throughput())


def h100() -> Gpu:
    return gpu_by_name("H100-80GB")
