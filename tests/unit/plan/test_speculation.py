"""Speculative decoding: what is accepted as a setting, tokens a step, cost of a draft, memory, and when it pays."""

from __future__ import annotations

import json
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.errors import SpecError
from roadworthy.core.units import GIB
from roadworthy.plan.layouts import stage_split
from roadworthy.plan.search import judge_layout
from roadworthy.plan.speculation import Speculation, draft_cost
from roadworthy.plan.values import Layout, LayoutPlan
from roadworthy.plan.weights import draft_layer_bytes, split_of
from roadworthy.spec.values import ClusterSpec, Deployment, EngineSpec, ModelRef, RequestProfile


def speculation(layers: int = 1, acceptance: float | None = None, **config: Any) -> Speculation | None:
    return Speculation.of({"speculative_config": json.dumps(config)}, draft_layers=layers, acceptance_ratio=acceptance)


def judged(
    model: str, gpu: str = "H200", /, *, tp: int = 8, pp: int = 1, rate: float = 4.0, acceptance: float | None = None,
    **config: Any,
) -> LayoutPlan:  # fmt: skip
    spec = model_by_id(model)
    layout = Layout(tp=tp, pp=pp, dp=1, ep=1, stage_layers=stage_split(spec.num_layers, pp))
    settings = {"speculative_config": json.dumps(config)} if config else {}
    deployment = Deployment(
        name="case", model=ModelRef(config=model, max_model_len_tokens=32_768),
        cluster=ClusterSpec(nodes=max(1, tp * pp // 8), gpus_per_node=8, gpu=gpu),
        engine=EngineSpec(settings=MappingProxyType(settings)),
        workload=RequestProfile(rate_per_s=rate, draft_acceptance_ratio=acceptance),
    )  # fmt: skip
    return judge_layout(deployment, spec, gpu_by_name(gpu), layout)


@pytest.mark.parametrize(
    ("acceptance", "tokens", "yields"),
    [(0.8, 1, 1.8), (0.8, 3, 2.952), (0.0, 5, 1.0), (1.0, 4, 5.0), (0.7, 7, 3.141)],
)
def test_tokens_a_step_follow_the_run_of_accepted_drafts(acceptance: float, tokens: int, yields: float) -> None:
    """1 + p + p^2 + ...: at 0.7 seven drafts yield 3.14, what DeepSeek-V3's own layer was measured at (3.1 to 3.2)."""
    found = speculation(acceptance=acceptance, method="mtp", num_speculative_tokens=tokens)
    assert found is not None
    assert found.tokens_per_step == pytest.approx(yields, abs=0.001)
    assert not found.assumed


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"method": "mpt", "num_speculative_tokens": 1}, "speculative_config.method: mpt"),
        ({"method": "ngram"}, "num_speculative_tokens: nothing"),
        ({"method": "mtp", "num_speculative_tokens": 0}, "num_speculative_tokens: 0"),
        ({"method": "mtp", "num_speculative_tokens": True}, "num_speculative_tokens: True"),
        ({"method": "mtp", "num_speculative_tokens": 1, "tensor_parallel_size": 1}, "tensor_parallel_size: 1"),
    ],
)
def test_what_the_engine_rejects_is_named(config: dict[str, Any], message: str) -> None:
    with pytest.raises(SpecError) as caught:
        speculation(**config)
    assert message in str(caught.value.problems[0])


def test_drafts_beyond_the_layers_must_be_a_multiple_of_them() -> None:
    with pytest.raises(SpecError) as caught:
        speculation(layers=2, method="mtp", num_speculative_tokens=3)
    assert "multiple" in caught.value.problems[0].wanted
    found = speculation(layers=2, method="deepseek_mtp")
    assert found is not None
    assert (found.method, found.tokens) == ("mtp", 2)  # the engine's default: as many as the checkpoint has


@pytest.mark.parametrize("text", ["", "[1]", "mtp", "{"])
def test_what_is_not_a_json_object_is_refused(text: str) -> None:
    with pytest.raises(SpecError):
        Speculation.of({"speculative_config": text}, draft_layers=1)


def test_without_the_setting_there_is_none() -> None:
    assert Speculation.of({}, draft_layers=1) is None
    assert Speculation.of({"speculative_config": None}, draft_layers=1) is None


def test_a_model_without_mtp_layers_cannot_draft_with_them() -> None:
    refused = judged("Llama-3.1-70B", method="mtp", num_speculative_tokens=1)
    assert refused.feasible is False
    assert "ships no MTP layers" in refused.reasons[0]
    assert judged("Llama-3.1-70B", method="ngram", num_speculative_tokens=3).feasible is True


def test_the_draft_layer_and_its_cache_lie_on_the_last_stage() -> None:
    plain = judged("DeepSeek-V3", pp=2)
    drafted = judged("DeepSeek-V3", pp=2, method="mtp", num_speculative_tokens=1)
    layer = draft_layer_bytes(model_by_id("DeepSeek-V3"), split_of(tp=8, pp=2, dp=1, ep=1))
    assert drafted.ranks[0].weights_bytes == plain.ranks[0].weights_bytes
    assert drafted.ranks[1].weights_bytes - plain.ranks[1].weights_bytes == layer
    per_layer = plain.cache.bytes_per_block[1] / plain.layout.stage_layers[1]
    assert drafted.cache.bytes_per_block[1] - plain.cache.bytes_per_block[1] == per_layer
    assert drafted.cache.bytes_per_block[0] == plain.cache.bytes_per_block[0]


def test_a_draft_layer_of_v4_keeps_one_more_window() -> None:
    plain = judged("DeepSeek-V4-Flash", tp=4)
    drafted = judged("DeepSeek-V4-Flash", tp=4, method="mtp", num_speculative_tokens=1)
    windows = [
        sum(g.layers for g in one.cache.groups if g.window_tokens == 127 and g.block_tokens == 64)
        for one in (plain, drafted)
    ]
    assert windows == [43, 44]


def test_lookups_weigh_nothing_and_an_eagle_head_what_one_layer_does() -> None:
    model, split = model_by_id("Llama-3.1-8B"), split_of(tp=1, pp=1, dp=1, ep=1)
    ngram = speculation(method="ngram", num_speculative_tokens=3)
    eagle = speculation(method="eagle3", num_speculative_tokens=3)
    assert ngram is not None
    assert eagle is not None
    assert draft_cost(ngram, model, split).resident_bytes == 0
    # one layer, a 3H x H projection and a head of 32,000 words: published heads take 0.8 to 0.9 GB
    assert draft_cost(eagle, model, split).resident_bytes == pytest.approx(0.80e9, rel=0.05)


def test_a_step_with_drafts_is_told_as_the_time_of_one_token() -> None:
    step = judged("DeepSeek-V3", method="mtp", num_speculative_tokens=1, acceptance=0.8).step_time
    assert step is not None
    assert step.tokens_per_step == pytest.approx(1.8)
    real = step.real_step()
    assert step.seconds(0, 0, 8, 8000) == pytest.approx(real(0, 0, 8, 8000) / 1.8)
    alone = replace(step, draft_tokens=0)
    assert real(0, 0, 8, 8000) > alone.seconds(0, 0, 8, 8000)
    # what a prompt adds to the real step it adds to a token's time too
    added = real(512, 131_072, 8, 8000) - real(0, 0, 8, 8000)
    assert step.seconds(512, 131_072, 8, 8000) - step.seconds(0, 0, 8, 8000) == pytest.approx(added)


def test_drafts_help_most_when_few_are_served_and_can_cost_when_many_are() -> None:
    """One user gains nearly all accepted tokens; a batch that fills the matrix units pays for each verified one."""
    step = judged("Llama-3.1-8B", tp=1, method="ngram", num_speculative_tokens=4, acceptance=0.5).step_time
    assert step is not None
    plain = replace(step, draft_tokens=0)
    gains = [
        plain.seconds(0, 0, batch, batch * 500) / step.seconds(0, 0, batch, batch * 500) for batch in (1, 64, 1024)
    ]
    assert gains == sorted(gains, reverse=True)
    assert gains[0] > 1.8
    assert gains[-1] < 1


def test_a_drafter_that_slows_the_workload_is_warned_of_with_the_yield_it_would_need() -> None:
    slow = judged("Llama-3.1-8B", tp=1, rate=30, method="ngram", num_speculative_tokens=8, acceptance=0.05)
    assert [warning.code for warning in slow.warnings] == ["speculation_slower"]
    assert "yields 1.05 at 5% accepted" in slow.warnings[0].message
    assert not judged("DeepSeek-V3", method="mtp", num_speculative_tokens=1).warnings


def test_a_drafter_that_is_not_known_is_planned_without_and_says_so() -> None:
    plan = judged("Llama-3.1-70B", method="draft_model", model="meta-llama/Llama-3.2-1B", num_speculative_tokens=4)
    assert plan.step_time is not None
    assert plan.step_time.draft_tokens == 0
    assert [warning.code for warning in plan.warnings] == ["speculation_not_modelled"]


def test_more_accepted_drafts_are_never_slower() -> None:
    times = []
    for acceptance in (0.0, 0.3, 0.6, 0.9):
        predicted = judged("DeepSeek-V3", method="mtp", num_speculative_tokens=1, acceptance=acceptance).predicted
        assert predicted is not None
        times.append(predicted.tpot_p50_s)
    assert times == sorted(times, reverse=True)
    assert judged("DeepSeek-V3").ranks[0].kv_pool_bytes > GIB
