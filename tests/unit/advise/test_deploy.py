"""Which engines a plan stands for."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from roadworthy.advise.deploy import twin_configs
from roadworthy.core.errors import Infeasible, Unsupported
from roadworthy.plan.values import Layout, LayoutPlan, Plan, Setting
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer, ModelSpec
from roadworthy.spec.values import Deployment, EngineSpec, ModelRef, Quantiles, RequestProfile
from support.twin import FULL_16, step_time

MODEL = ModelSpec(
    id="small", family="llama", architecture="LlamaForCausalLM", hidden_size=64, vocab_size=100,
    layers=(Layer(attention=GqaAttention(heads=4, kv_heads=2, head_dim=16), mlp=DenseMlp(intermediate=128)),),
    max_context_tokens=4096, linear_format="bf16", expert_format="bf16",
)  # fmt: skip
SETTINGS = {"max_num_seqs": 16, "max_num_batched_tokens": 512, "max_model_len": 1024, "enable_prefix_caching": True}


def layout_plan(layout: Layout | None = None, **changes: Any) -> LayoutPlan:
    settings = changes.pop("settings", SETTINGS)
    base = LayoutPlan(
        layout=layout or Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(1,)), feasible=True, reasons=(), short_by_bytes=0,
        ranks=(), tightest_rank=0, cache=FULL_16, kv_blocks=1001, kv_capacity_tokens=16000, max_concurrency=15.6,
        kv_resident_tokens=16000, resident_requests=15, predicted=None, step_time=step_time(),
        settings=MappingProxyType({name: Setting(value=value, why="test") for name, value in settings.items()}),
    )  # fmt: skip
    return replace(base, **changes)


def plan(*layouts: LayoutPlan) -> Plan:
    return Plan(model=MODEL, weights_bytes_total=1, assumptions=(), layouts=layouts)


def deployment(**settings: Any) -> Deployment:
    return Deployment(
        name="test",
        model=ModelRef(config="small", served_name="served"),
        engine=EngineSpec(version="0.32.0", settings=MappingProxyType(settings)),
        workload=RequestProfile(output_tokens=Quantiles(p50=77, p90=100, p99=200)),
    )


def test_the_plans_numbers_become_the_twins() -> None:
    (twin,) = twin_configs(deployment(), plan(layout_plan()))
    assert (twin.models, twin.kv_blocks, twin.cache) == (("served",), 1001, FULL_16)
    assert (twin.max_num_seqs, twin.max_num_batched_tokens, twin.max_model_len) == (16, 512, 1024)
    assert (twin.answer_tokens, twin.engine_version, twin.label) == (77, "0.32.0", "simulated")


def test_there_is_one_twin_for_each_data_parallel_rank_of_each_replica() -> None:
    layout = Layout(tp=2, pp=1, dp=4, ep=8, stage_layers=(1,), replicas=3)
    assert len(twin_configs(deployment(), plan(layout_plan(layout)))) == 12


def test_the_best_layout_is_taken() -> None:
    twins = twin_configs(deployment(), plan(layout_plan(feasible=False), layout_plan(kv_blocks=777)))
    assert twins[0].kv_blocks == 777


def test_what_the_plan_does_not_choose_comes_from_the_document() -> None:
    asked = deployment(
        max_num_queued_reqs=9, scheduling_policy="priority", async_scheduling=True, long_prefill_token_threshold=512
    )
    (twin,) = twin_configs(asked, plan(layout_plan()))
    assert (twin.max_num_queued_reqs, twin.policy) == (9, "priority")
    assert (twin.async_scheduling, twin.long_prefill_token_threshold) == (True, 512)
    (plain,) = twin_configs(deployment(), plan(layout_plan()))
    assert (plain.async_scheduling, plain.long_prefill_token_threshold) == (False, 0)


def test_what_the_engine_does_ahead_by_itself_is_left_to_the_document_where_it_says_so() -> None:
    ahead = plan(layout_plan(scheduled_ahead=True))
    (twin,) = twin_configs(deployment(), ahead)
    assert (twin.late_admission, twin.async_scheduling) == (True, False)
    (exact,) = twin_configs(deployment(async_scheduling=True), ahead)
    assert (exact.late_admission, exact.async_scheduling) == (False, True)
    (neither,) = twin_configs(deployment(async_scheduling=False), plan(layout_plan()))
    assert (neither.late_admission, neither.async_scheduling) == (False, False)


def test_prefix_caching_follows_the_plan() -> None:
    settings = SETTINGS | {"enable_prefix_caching": False}
    (twin,) = twin_configs(deployment(), plan(layout_plan(settings=settings)))
    assert not twin.enable_prefix_caching


def test_without_a_layout_that_fits_there_is_nothing_to_simulate() -> None:
    with pytest.raises(Infeasible, match="no layout fits"):
        twin_configs(deployment(), plan(layout_plan(feasible=False)))


def test_without_a_timing_it_is_not_modelled() -> None:
    with pytest.raises(Unsupported, match="the time of a step is not modelled for TP1"):
        twin_configs(deployment(), plan(layout_plan(step_time=None)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_blocks": 10}, "hold no request of max_model_len 1024"),
        ({"settings": SETTINGS | {"max_num_seqs": None}}, "max_num_seqs: the plan says None"),
    ],
)
def test_a_plan_that_no_engine_would_start_with_says_why(change: dict[str, Any], message: str) -> None:
    with pytest.raises(Infeasible, match=message):
        twin_configs(deployment(), plan(layout_plan(**change)))


def test_an_unknown_policy_is_refused() -> None:
    with pytest.raises(Infeasible, match="scheduling_policy: 'lottery'"):
        twin_configs(deployment(scheduling_policy="lottery"), plan(layout_plan()))
