"""Which layouts are alike, and the order that a simulation gives."""

from __future__ import annotations

from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from roadworthy.advise.queueing import NOT_SIMULATED, Queueing, Simulated
from roadworthy.advise.ranking import alike, distinct, name_of, reranked, why_behind
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.plan.values import Layout, LayoutPlan, MemoryBudget, Plan, Predicted
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer, ModelSpec
from roadworthy.spec.values import Sla

MODEL = ModelSpec(
    id="small", family="llama", architecture="LlamaForCausalLM", hidden_size=64, vocab_size=100,
    layers=(Layer(attention=GqaAttention(heads=4, kv_heads=2, head_dim=16), mlp=DenseMlp(intermediate=128)),),
    max_context_tokens=4096, linear_format="bf16", expert_format="bf16",
)  # fmt: skip
CACHE = CacheLayout(groups=(CacheGroup(kind="full", block_tokens=16, layers=1),), bytes_per_block=(16,))
RANK = MemoryBudget(
    rank=0, count=1, stage=0, device_bytes=10, weights_bytes=4, activation_bytes=1, comm_bytes=0, runtime_bytes=1,
    cudagraph_bytes=0, kv_pool_bytes=4, free_bytes=0,
)  # fmt: skip
SLA = Sla(ttft_p99_s=1.0, tpot_p99_s=0.1)


def predicted(**changes: Any) -> Predicted:
    base = Predicted(
        ttft_p50_s=0.1, ttft_p99_s=0.5, tpot_p50_s=0.02, tpot_p99_s=0.05, output_tokens_per_s=1000.0, source="test",
        error_band=0.3, concurrency=10.0, capacity_tokens_per_s=2000.0, meets_sla=True,
    )  # fmt: skip
    return replace(base, **changes)


def judged(tp: int = 1, ep: int = 1, **changes: Any) -> LayoutPlan:
    base = LayoutPlan(
        layout=Layout(tp=tp, pp=1, dp=1, ep=ep, stage_layers=(1,)), feasible=True, reasons=(), short_by_bytes=0,
        ranks=(RANK,), tightest_rank=0, cache=CACHE, kv_blocks=1000, kv_capacity_tokens=16000, max_concurrency=4.0,
        kv_resident_tokens=16000, resident_requests=100, settings=MappingProxyType({}), predicted=predicted(),
        step_time=None,
    )  # fmt: skip
    return replace(base, **changes)


def plan(*layouts: LayoutPlan) -> Plan:
    return Plan(model=MODEL, weights_bytes_total=1, assumptions=(), layouts=layouts)


def result(**changes: Any) -> Simulated:
    base = Simulated(
        verdict="met", reason="", requests=1100, failed=0, ttft_p50_s=0.1, ttft_p99_s=0.5, tpot_p50_s=0.02,
        tpot_p99_s=0.05, output_tokens_per_s=1000.0, attainment_ratio=1.0, utilisation_ratio=0.5, preemptions=0,
        engines=1, engines_total=1, offered_ratio=1.0, carried=True,
    )  # fmt: skip
    return replace(base, **changes)


def order(layouts: list[LayoutPlan], results: dict[int, Simulated], sla: Sla = SLA) -> list[int]:
    """The tensor-parallel widths, best first, after the layouts of those widths had these results."""
    queueing = Queueing(
        results={one.layout: results[one.layout.tp] for one in layouts if one.layout.tp in results}, skipped={}
    )
    return [one.layout.tp for one in reranked(plan(*layouts), queueing, sla).layouts]


def test_expert_parallelism_without_effect_makes_one_group_and_one_name() -> None:
    groups = distinct([judged(tp=2), judged(tp=4), judged(tp=2, ep=2, kv_blocks=980)])
    assert [name_of(group) for group in groups] == ["TP2 (EP or not)", "TP4"]
    assert name_of([judged(tp=2, ep=2), judged(tp=2)]) == "TP2 (EP or not)"


@pytest.mark.parametrize(
    "changes",
    [
        {"kv_blocks": 1060},
        {"feasible": "uncertain"},
        {"predicted": predicted(tpot_p50_s=0.021)},
        {"predicted": None},
        {"short_by_bytes": 2**30},
    ],
)
def test_expert_parallelism_with_an_effect_is_a_layout_of_its_own(changes: dict[str, Any]) -> None:
    assert not alike(judged(tp=2), judged(tp=2, ep=2, **changes))


def test_layouts_that_are_not_built_are_alike_for_the_same_reason_only() -> None:
    def unbuilt(ep: int, why: str) -> LayoutPlan:
        return judged(tp=2, ep=ep, ranks=(), predicted=None, feasible=False, reasons=(why,))

    assert alike(unbuilt(1, "heads"), unbuilt(2, "heads"))
    assert not alike(unbuilt(1, "heads"), unbuilt(2, "experts"))


def test_what_meets_the_sla_in_simulation_goes_first() -> None:
    missed = result(verdict="missed", attainment_ratio=0.9, ttft_p99_s=3.0)
    assert order([judged(1), judged(2), judged(4)], {1: missed, 2: result(verdict="undecided"), 4: result()}) == [
        4,
        2,
        1,
    ]


def test_too_few_requests_for_a_verdict_excuse_no_latency_over_its_limit() -> None:
    few = result(verdict="undecided", attainment_ratio=0.3, ttft_p99_s=9.0)
    assert order(
        [judged(1), judged(2)], {1: few, 2: result(verdict="missed", attainment_ratio=0.8, ttft_p99_s=2.0)}
    ) == [2, 1]


def test_of_those_that_miss_more_requests_within_the_limits_win() -> None:
    worse, better = (result(verdict="missed", attainment_ratio=ratio, ttft_p99_s=2.0) for ratio in (0.5, 0.8))
    assert order([judged(1), judged(2)], {1: worse, 2: better}) == [2, 1]


def test_of_those_that_miss_alike_the_smaller_miss_wins() -> None:
    far, near = (result(verdict="missed", attainment_ratio=0.5, ttft_p99_s=ttft_s) for ttft_s in (5.0, 1.5))
    assert order([judged(1), judged(2)], {1: far, 2: near}) == [2, 1]


def test_what_the_simulation_cannot_tell_apart_keeps_the_plans_order() -> None:
    ratios = {1: 0.900, 2: 0.905, 4: 0.895}
    results = {tp: result(verdict="missed", attainment_ratio=ratio, ttft_p99_s=2.0) for tp, ratio in ratios.items()}
    assert order([judged(2), judged(1)], results) == [2, 1]
    assert order([judged(1), judged(2)], {1: result(ttft_p99_s=0.9), 2: result(ttft_p99_s=0.1)}) == [1, 2]


def test_without_an_objective_what_carries_the_rate_goes_first_then_what_serves_more() -> None:
    results = {1: result(carried=False), 2: result(output_tokens_per_s=500.0), 4: result()}
    assert order([judged(1), judged(2), judged(4)], results, Sla()) == [4, 2, 1]


def test_a_layout_that_may_not_fit_never_passes_one_that_does() -> None:
    layouts = [judged(1), judged(2, feasible="uncertain")]
    assert order(layouts, {1: result(verdict="missed", attainment_ratio=0.0, ttft_p99_s=9.0), 2: result()}) == [1, 2]


def test_layouts_that_were_not_simulated_stay_behind_in_their_order_and_none_is_lost() -> None:
    missed = result(verdict="missed", attainment_ratio=0.1, ttft_p99_s=9.0)
    assert order([judged(1), judged(2), judged(4), judged(8)], {1: missed, 2: result()}) == [2, 1, 4, 8]


def test_without_results_the_plan_is_as_it_was() -> None:
    before = plan(judged(1), judged(2))
    assert reranked(before, NOT_SIMULATED, SLA) is before


def test_why_a_layout_stands_where_it_does_is_in_numbers() -> None:
    slow = judged(2, predicted=predicted(tpot_p99_s=0.15, capacity_tokens_per_s=500.0), resident_requests=50)
    whole = plan(judged(1), slow)
    words = why_behind(slow, whole, NOT_SIMULATED, SLA)
    assert "TPOT P99 150 ms over 100 ms" in words
    assert "carries 500 output tokens/s at most within the limits, the first 2,000" in words
    assert "holds 50 requests of full length, the first 100" in words
    assert why_behind(whole.layouts[0], whole, NOT_SIMULATED, SLA).startswith("first choice")


def test_the_reason_of_a_layout_that_does_not_fit_is_its_own() -> None:
    lost = judged(2, feasible=False, reasons=("rank 0 short by 1 GiB", "and more"))
    assert why_behind(lost, plan(judged(1), lost), NOT_SIMULATED, SLA) == "rank 0 short by 1 GiB; and more"


def test_simulated_numbers_are_said_to_be() -> None:
    one, other = judged(1), judged(2)
    missed = result(verdict="missed", ttft_p99_s=2.0, attainment_ratio=0.4, carried=False)
    queueing = Queueing(results={one.layout: result(), other.layout: missed}, skipped={})
    words = why_behind(other, plan(one, other), queueing, SLA)
    assert "simulated TTFT P99 2.00 s over 1.00 s" in words
    assert "the backlog grows in simulation" in words
    assert "40% of requests within the limits, the first 100%" in words
