"""The analytic operating point against the twin, which schedules every step: pipelines most of all."""

from __future__ import annotations

import dataclasses
import statistics
from typing import TYPE_CHECKING

import pytest

from roadworthy.advise.arrivals import Arrivals
from roadworthy.advise.deploy import twin_configs
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.plan.search import make_plan
from roadworthy.plan.settings import sequences
from roadworthy.plan.speed import REQUEST_OVERHEAD_S
from roadworthy.route.pick import least_load
from roadworthy.simulate.run import simulate
from roadworthy.spec.values import ClusterSpec, Deployment, EngineSpec, ModelRef, Quantiles, RequestProfile, Sla

if TYPE_CHECKING:
    from roadworthy.plan.values import Predicted

CHAT = RequestProfile(
    prompt_tokens=Quantiles(p50=213, p90=396, p99=634), output_tokens=Quantiles(p50=177, p90=325, p99=512)
)
DOCUMENTS = RequestProfile(
    prompt_tokens=Quantiles(p50=1200, p90=4000, p99=12_000), output_tokens=Quantiles(p50=350, p90=800, p99=1500)
)
LONG = RequestProfile(
    prompt_tokens=Quantiles(p50=4000, p90=8000, p99=16_000), output_tokens=Quantiles(p50=300, p90=600, p99=900)
)
VERY_LONG = RequestProfile(
    prompt_tokens=Quantiles(p50=12_000, p90=20_000, p99=30_000), output_tokens=Quantiles(p50=400, p90=800, p99=1200)
)
PIPELINE_RATIO = 0.3
SETTLING = 300
"""Requests left out at the start, while batches grow."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    predicted: Predicted
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float


def _pair(model: str, gpu: str, hosts: int, profile: RequestProfile, rate: float, *, tp: int, pp: int) -> Pair:
    workload = dataclasses.replace(profile, rate_per_s=rate)
    settings = {"tensor_parallel_size": tp, "pipeline_parallel_size": pp, "enable_expert_parallel": False}
    deployment = Deployment(
        name="case",
        model=ModelRef(config=model, max_model_len_tokens=32_768),
        cluster=ClusterSpec(nodes=hosts, gpus_per_node=tp if hosts == 1 else 8, gpu=gpu),
        engine=EngineSpec(version="0.33.0", settings=settings),
        workload=workload,
        sla=Sla(ttft_p99_s=1.0, tpot_p99_s=0.1),
    )
    if hosts == 1:
        deployment = dataclasses.replace(deployment, cluster=ClusterSpec(gpus_per_node=tp * pp, gpu=gpu))
    plan = make_plan(deployment, model_by_id(model), gpu_by_name(gpu))
    assert plan.best is not None
    assert plan.best.predicted is not None
    arrivals = Arrivals(workload, seed=0, requests=1500, max_context_tokens=32_768)
    records = simulate(twin_configs(deployment, plan), arrivals, pick=least_load).records[SETTLING:]
    first = [record.t_first_s - record.t_sched_s for record in records if record.t_first_s is not None]
    each = [(record.t_last_s - (record.t_first_s or 0)) / (record.n_out - 1) for record in records if record.n_out > 1]
    return Pair(
        predicted=plan.best.predicted,
        ttft_p50_s=statistics.median(first),
        ttft_p99_s=statistics.quantiles(first, n=100)[-1],
        tpot_p50_s=statistics.median(each),
    )


PIPELINES = [
    ("DeepSeek-V4-Pro", "H100", 4, CHAT, 4, 8, 4),
    ("DeepSeek-V4-Pro", "H100", 4, CHAT, 8, 8, 4),
    ("DeepSeek-V4-Pro", "H100", 4, CHAT, 16, 8, 4),
    ("DeepSeek-V4-Pro", "H100", 2, CHAT, 8, 8, 2),
    ("DeepSeek-V4-Pro", "H100", 4, CHAT, 4, 4, 8),
    ("DeepSeek-V4-Pro", "H100", 4, CHAT, 12, 4, 8),
    ("Kimi-K3", "H100", 4, CHAT, 4, 8, 4),
    ("Llama-3.1-70B", "A100", 1, DOCUMENTS, 1, 4, 2),
    ("Llama-3.1-70B", "A100", 1, DOCUMENTS, 2, 4, 2),
    ("Llama-3.1-70B", "A100", 1, DOCUMENTS, 1, 2, 4),
    # prompts of several pieces, one or two of them always under way: 2.2 times the twin's time before
    ("Llama-3.1-70B", "H100", 1, LONG, 1.5, 2, 4),
    ("DeepSeek-V4-Pro", "H200", 4, LONG, 2, 8, 4),
    ("Kimi-K3", "H200", 4, LONG, 0.8, 8, 4),
    ("Kimi-K3", "H200", 4, VERY_LONG, 0.3, 8, 4),
]


@pytest.mark.parametrize(("model", "gpu", "hosts", "profile", "rate", "tp", "pp"), PIPELINES)
def test_a_pipeline_decodes_as_slowly_as_in_the_twin(
    model: str, gpu: str, hosts: int, profile: RequestProfile, rate: float, tp: int, pp: int
) -> None:
    """Prompts hold up the batches behind them and batches grow apart: 69 ms, not 42, for TP8 PP4 at 16/s."""
    pair = _pair(model, gpu, hosts, profile, rate, tp=tp, pp=pp)
    assert pair.predicted.tpot_p50_s == pytest.approx(pair.tpot_p50_s, rel=PIPELINE_RATIO)


@pytest.mark.parametrize(
    ("model", "gpu", "hosts", "profile", "rate", "tp"),
    [("DeepSeek-V4-Pro", "H200", 1, CHAT, 4, 8), ("Llama-3.1-70B", "A100", 1, DOCUMENTS, 2, 8)],
)
def test_one_stage_decodes_as_in_the_twin(
    model: str, gpu: str, hosts: int, profile: RequestProfile, rate: float, tp: int
) -> None:
    pair = _pair(model, gpu, hosts, profile, rate, tp=tp, pp=1)
    assert pair.predicted.tpot_p50_s == pytest.approx(pair.tpot_p50_s, rel=0.1)


def test_the_chosen_limit_leaves_no_queue_before_a_pipeline() -> None:
    """With three deviations of room the twin queued for 18 s."""
    pair = _pair("DeepSeek-V4-Pro", "H100", 4, CHAT, 16, tp=8, pp=4)
    assert pair.ttft_p99_s < 0.3
    assert pair.predicted.ttft_p50_s - REQUEST_OVERHEAD_S == pytest.approx(pair.ttft_p50_s, rel=0.2)


@pytest.mark.parametrize(
    ("concurrency", "holds", "stages", "chosen"),
    [
        (0.5, 999, 1, 8),
        (100, 999, 1, 152),
        (100, 999, 4, 200),
        (131, 999, 4, 272),  # above 256, graphs are captured for every 16
        (131, 150, 4, 150),
        (900, 5000, 2, 1024),
        (10, 0, 2, 1),
    ],
)
def test_room_above_the_requests_in_flight(concurrency: float, holds: int, stages: int, chosen: int) -> None:
    assert sequences(concurrency, holds, stages=stages) == chosen


@pytest.mark.parametrize(("rate", "near"), [(8.0, False), (16.0, True)])
def test_a_rate_above_half_of_all_that_a_layout_carries_is_called_near_saturation(rate: float, near: bool) -> None:
    """There the twin's TPOT and the analytic one part (docs/reference/plan-against-twin.md)."""
    middle = RequestProfile(
        prompt_tokens=Quantiles(p50=500, p90=1000, p99=2000), output_tokens=Quantiles(p50=200, p90=400, p99=600),
        rate_per_s=rate,
    )  # fmt: skip
    deployment = Deployment(
        name="case", model=ModelRef(config="Llama-3.1-70B", max_model_len_tokens=131_072), workload=middle,
        cluster=ClusterSpec(nodes=1, gpus_per_node=8, gpu="H100"),
        engine=EngineSpec(settings={"tensor_parallel_size": 8, "pipeline_parallel_size": 1, "data_parallel_size": 1}),
    )  # fmt: skip
    best = make_plan(deployment, model_by_id("Llama-3.1-70B"), gpu_by_name("H100")).best
    assert best is not None
    assert best.predicted is not None
    assert best.predicted.near_saturation is near


def test_a_prompt_waits_for_the_step_behind_the_one_under_way_where_that_is_formed_already() -> None:
    """On one stage of a GPU; not where the document turns asynchronous scheduling off."""
    ttft = {}
    for ahead in (None, False):
        settings = {} if ahead is None else {"async_scheduling": ahead}
        deployment = Deployment(
            name="case", model=ModelRef(config="Llama-3.1-8B", max_model_len_tokens=32_768),
            workload=dataclasses.replace(CHAT, rate_per_s=20.0), engine=EngineSpec(settings=settings),
            cluster=ClusterSpec(nodes=1, gpus_per_node=1, gpu="H200"),
        )  # fmt: skip
        best = make_plan(deployment, model_by_id("Llama-3.1-8B"), gpu_by_name("H200")).best
        assert best is not None
        assert best.predicted is not None
        assert best.scheduled_ahead is (ahead is None)
        ttft[ahead] = best.predicted
    one_step = ttft[False].tpot_p50_s
    assert ttft[None].ttft_p50_s - ttft[False].ttft_p50_s == pytest.approx(one_step, rel=0.05)
