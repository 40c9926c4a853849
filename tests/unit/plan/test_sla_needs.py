"""Where no layout meets the objectives: how many GPUs would, or the limit that could be met."""

from __future__ import annotations

import re
from dataclasses import replace

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.search import make_plan
from roadworthy.plan.sla_needs import what_would_meet
from roadworthy.spec.values import ClusterSpec, Deployment, ModelRef, RequestProfile, Sla


def words(*, rate_per_s: float = 1.0, gpus: int = 4, **limits: float) -> str:
    deployment = Deployment(
        name="case",
        model=ModelRef(config="llama-70b", max_model_len_tokens=8192),
        cluster=ClusterSpec(gpus_per_node=gpus, gpu="H100"),
        workload=replace(RequestProfile(), rate_per_s=rate_per_s),
        sla=Sla(**limits),
    )
    return what_would_meet(make_plan(deployment, model_by_id("llama-70b"), gpu_by_name("H100")), deployment)


def test_nothing_is_said_where_a_layout_meets_them_or_nothing_is_promised() -> None:
    assert words(tpot_p99_s=0.08) == ""
    assert words(rate_per_s=1e6) == ""


def test_a_limit_below_what_a_request_alone_takes_is_named_with_the_least_that_is_possible() -> None:
    said = words(tpot_p99_s=0.002)
    assert said.startswith("No layout meets TPOT P99 2 ms: TP4 comes nearest")
    least_ms = float(re.search(r"nearest, ([\d.]+) ms", said).group(1))  # type: ignore[union-attr]
    above = words(tpot_p99_s=least_ms / 1e3 * 1.02)  # a request alone meets it, and the rate becomes the matter
    assert "GPUs would be needed" in above


def test_a_rate_beyond_the_cluster_is_answered_in_gpus_that_would_carry_it() -> None:
    said = words(rate_per_s=500, tpot_p99_s=0.06, ttft_p99_s=0.5)
    clusters, carried = (
        int(re.search(r"so (\d+) x 4", said).group(1)),  # type: ignore[union-attr]
        float(re.search(r"carries ([\d.]+) requests", said).group(1)),  # type: ignore[union-attr]
    )
    assert abs(clusters - 500 / carried) <= 1 + clusters * 0.01
    assert f"{clusters * 4} GPUs" in said
