"""The search as a whole: order, choices of settings, losers with reasons, and inputs that cannot be."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.errors import SpecError
from roadworthy.core.units import GIB
from roadworthy.plan.search import make_plan, what_would_fit
from roadworthy.spec.values import (
    ClusterSpec,
    Deployment,
    EngineSpec,
    ModelRef,
    Quantiles,
    RequestProfile,
    Sla,
)

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan

CHAT = RequestProfile(
    prompt_tokens=Quantiles(p50=192, p90=512, p99=1024),
    output_tokens=Quantiles(p50=160, p90=400, p99=800),
    rate_per_s=16,
)


def plan_of(
    model: str, gpu: str, *, nodes: int = 4, gpus: int = 8, length: int | None = 32_768, weights: Any = "native",
    workload: RequestProfile = CHAT, sla: Sla | None = None, version: str = "0.33.0", **settings: Any,
) -> Plan:  # fmt: skip
    deployment = Deployment(
        name="case",
        model=ModelRef(config=model, weights=weights, max_model_len_tokens=length),
        cluster=ClusterSpec(nodes=nodes, gpus_per_node=gpus, gpu=gpu),
        engine=EngineSpec(version=version, settings=MappingProxyType(settings)),
        workload=workload,
        sla=sla or Sla(ttft_p99_s=0.25, tpot_p99_s=0.04),
    )
    return make_plan(deployment, model_by_id(model, weights=weights), gpu_by_name(gpu))


def find(plan: Plan, label: str) -> LayoutPlan:
    return next(judged for judged in plan.layouts if judged.layout.label == label)


def test_v4_pro_on_four_hosts_of_h100_is_split_in_stages() -> None:
    plan = plan_of("DeepSeek-V4-Pro", "H100")
    assert plan.best is plan.layouts[0]
    assert plan.best is not None
    assert plan.best.layout.label == "2 x TP8 PP2"
    deep = find(plan, "TP8 PP4")
    assert deep.kv_blocks == pytest.approx(110_575, rel=0.05)
    assert int(deep.max_concurrency) == 13
    assert deep.resident_requests == pytest.approx(718, rel=0.05)
    assert deep.kv_capacity_tokens == pytest.approx(427_581, rel=0.05)
    assert deep.kv_resident_tokens == deep.resident_requests * 32_768


def test_fewer_stages_come_before_more_where_both_hold_the_load() -> None:
    """Each stage more is one more batch that a prompt holds up."""
    labels = [judged.layout.label for judged in plan_of("DeepSeek-V4-Pro", "H100").layouts]
    assert labels.index("2 x TP8 PP2") < labels.index("TP8 PP4") < labels.index("TP4 PP8")


def test_the_stages_of_v4_pro_come_before_wide_expert_parallelism() -> None:
    labels = [judged.layout.label for judged in plan_of("DeepSeek-V4-Pro", "H100").layouts]
    assert max(labels.index("TP8 PP4"), labels.index("2 x TP8 PP2")) < labels.index("TP8 DP4 EP32")
    assert labels.index("TP8 DP4 EP32") < labels.index("4 x TP8")


def test_kimi_k3_fits_32_h100_only_in_stages() -> None:
    plan = plan_of("Kimi-K3", "H100", length=65_536)
    assert plan.best is not None
    assert plan.best.layout.label == "TP8 PP4"
    assert find(plan, "TP8 DP4 EP32").feasible is False
    assert find(plan, "2 x TP8 PP2").feasible is False


def test_kimi_k3_in_fp8_cannot_fit_and_says_so_in_bytes() -> None:
    plan = plan_of("Kimi-K3", "H100", weights="fp8")
    assert plan.best is None
    needed = what_would_fit(plan, gpu_by_name("H100"), 32)
    assert f"{plan.weights_bytes_total:,} bytes" in needed
    assert f"{32 * gpu_by_name('H100').device_bytes:,} bytes" in needed
    nearest = plan.layouts[0]
    assert nearest.short_by_bytes > 0
    assert "short by" in nearest.reasons[0]


def test_v4_on_a100_names_the_missing_kernels_not_memory() -> None:
    plan = plan_of("DeepSeek-V4-Flash", "A100", nodes=1)
    assert plan.best is None
    assert "SM90" in what_would_fit(plan, gpu_by_name("A100"), 8)


def test_a_fit_inside_the_band_is_uncertain() -> None:
    """V4-Pro TP8 DP2 EP16 on 16 H100 lacks 2.4 GiB at 8,192 batched tokens, with 3 GiB either way."""
    plan = plan_of("DeepSeek-V4-Pro", "H100", nodes=2, max_num_batched_tokens=8192, gpu_memory_utilization=0.92)
    judged = find(plan, "TP8 DP2 EP16")
    assert judged.feasible == "uncertain"
    assert judged.predicted is not None


def test_a_smaller_token_budget_is_chosen_where_the_check_charges_tokens_in_flight() -> None:
    plan = plan_of("DeepSeek-V4-Pro", "H100", nodes=2)
    judged = find(plan, "TP8 DP2 EP16")
    assert judged.settings["max_num_batched_tokens"].value in (1024, 2048)
    assert (
        judged.max_concurrency
        > find(plan_of("DeepSeek-V4-Pro", "H100", nodes=2, max_num_batched_tokens=8192), "TP8 DP2 EP16").max_concurrency
    )


def test_every_rank_is_accounted_for() -> None:
    for judged in plan_of("Kimi-K3", "H200").layouts:
        if judged.ranks:
            assert sum(rank.count for rank in judged.ranks) == 32
            assert judged.tightest_rank in {rank.rank for rank in judged.ranks}


def test_every_loser_has_a_reason_and_every_winner_settings_and_speed() -> None:
    for judged in plan_of("DeepSeek-V4-Pro", "H100").layouts:
        if judged.feasible is False:
            assert judged.reasons
            assert judged.predicted is None
        else:
            assert judged.predicted is not None
            assert judged.step_time is not None
            assert all(setting.why for setting in judged.settings.values())


def test_what_the_document_fixes_is_kept_and_said() -> None:
    plan = plan_of(
        "DeepSeek-V4-Pro", "H100", gpu_memory_utilization=0.88, max_num_seqs=48, max_num_batched_tokens=2048,
        kv_cache_dtype="fp8", enable_prefix_caching=False, swap_space=0,
    )  # fmt: skip
    settings = plan.layouts[0].settings
    wanted = {
        "gpu_memory_utilization": 0.88,
        "max_num_seqs": 48,
        "max_num_batched_tokens": 2048,
        "enable_prefix_caching": False,
        "swap_space": 0,
    }
    assert {name: settings[name].value for name in wanted} == wanted
    assert settings["max_num_seqs"].why.startswith("fixed in the document")


def test_pinned_degrees_are_not_repeated_as_settings() -> None:
    plan = plan_of("DeepSeek-V4-Pro", "H100", tensor_parallel_size=8, pipeline_parallel_size=4)
    assert {judged.layout.label for judged in plan.layouts} == {"TP8 PP4", "TP8 PP4 EP8"}
    assert "tensor_parallel_size" not in plan.layouts[0].settings


def test_tp_32_of_v4_pro_is_refused_with_the_number_that_forbids_it() -> None:
    plan = plan_of("DeepSeek-V4-Pro", "H100", tensor_parallel_size=32)
    assert plan.best is None
    assert "tp 32 exceeds o_groups 16" in plan.layouts[0].reasons[0]


def test_the_engine_version_chooses_the_hybrid_block() -> None:
    blocks = {
        version: find(
            plan_of("Kimi-Linear-48B-A3B", "H200", nodes=1, gpus=1, version=version), "TP1"
        ).cache.block_tokens
        for version in ("0.26.0", "0.33.0")
    }
    assert blocks == {"0.26.0": 1888, "0.33.0": 1920}


def test_the_default_number_of_sequences_that_failed_vllm_0_26_is_foretold_and_mended() -> None:
    """Kimi-Linear on one H200: 1,024 sequences meant a 29.5 GiB workspace, 64 started; 0.33 caps it."""
    case = {"nodes": 1, "gpus": 1, "length": 131_072, "gpu_memory_utilization": 0.9, "max_num_batched_tokens": 16_384}
    failed = plan_of("Kimi-Linear-48B-A3B", "H200", version="0.26.0", max_num_seqs=1024, **case)
    assert failed.layouts[0].feasible is False
    assert failed.layouts[0].ranks[0].activation_bytes > 29.5 * GIB
    assert plan_of("Kimi-Linear-48B-A3B", "H200", version="0.26.0", max_num_seqs=64, **case).best is not None
    assert plan_of("Kimi-Linear-48B-A3B", "H200", version="0.33.0", max_num_seqs=1024, **case).best is not None
    chosen = plan_of("Kimi-Linear-48B-A3B", "H200", version="0.26.0", **case).best
    assert chosen is not None


def test_a_cpu_gives_one_engine_a_rank_and_the_pool_that_was_set() -> None:
    workload = RequestProfile(rate_per_s=1)
    plan = plan_of("tiny", "cpu", nodes=1, gpus=2, length=None, workload=workload)
    (judged,) = plan.layouts
    assert (judged.layout.replicas, judged.layout.world_size) == (2, 1)
    assert judged.cache.block_tokens == 128
    assert judged.kv_blocks == GIB // 131_072
    assert judged.settings["kv_cache_memory_bytes"].value == GIB
    assert judged.settings["gpu_memory_utilization"].value is None
    told = plan_of("tiny", "cpu", nodes=1, gpus=1, length=None, workload=workload, kv_cache_memory_bytes="64MiB")
    assert told.layouts[0].kv_blocks == 512


def test_the_chosen_context_holds_the_longest_request() -> None:
    workload = RequestProfile(
        prompt_tokens=Quantiles(p50=4000, p90=9000, p99=20_000), output_tokens=Quantiles(p50=100, p90=300, p99=900)
    )
    plan = plan_of("Llama-3.1-70B", "A100", nodes=1, length=None, workload=workload)
    assert plan.layouts[0].settings["max_model_len"].value == 21_504


def test_a_load_beyond_capacity_is_saturated_and_misses_the_sla() -> None:
    heavy = RequestProfile(rate_per_s=5000)
    best = plan_of("DeepSeek-V4-Pro", "H100", workload=heavy).best
    assert best is not None
    assert best.predicted is not None
    assert best.predicted.saturated
    assert best.predicted.meets_sla is False
    assert best.predicted.request_rate_per_s * best.layout.replicas < 5000


def test_without_objectives_no_verdict_is_given() -> None:
    best = plan_of("Llama-3.1-70B", "H100", nodes=1, sla=Sla(success_ratio=0.99)).best
    assert best is not None
    assert best.predicted is not None
    assert best.predicted.meets_sla is None


def test_the_same_inputs_give_the_same_plan() -> None:
    assert plan_of("Kimi-K3", "H200") == plan_of("Kimi-K3", "H200")


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        ({"gpu_memory_utilization": 1.5}, "engine.settings.gpu_memory_utilization"),
        ({"max_num_seqs": 0}, "engine.settings.max_num_seqs"),
        ({"max_num_batched_tokens": True}, "engine.settings.max_num_batched_tokens"),
        ({"kv_cache_dtype": "fp3"}, "engine.settings.kv_cache_dtype"),
        ({"enable_prefix_caching": "yes"}, "engine.settings.enable_prefix_caching"),
        ({"kv_cache_memory_bytes": "lots"}, "engine.settings.kv_cache_memory_bytes"),
        ({"max_model_len": 4096}, "engine.settings.max_model_len"),
    ],
)
def test_settings_that_cannot_be_are_named_with_their_place(settings: dict[str, Any], path: str) -> None:
    with pytest.raises(SpecError) as caught:
        plan_of("DeepSeek-V4-Pro", "H100", **settings)
    assert [problem.path for problem in caught.value.problems] == [path]


def test_more_context_than_the_model_knows_is_refused() -> None:
    with pytest.raises(SpecError) as caught:
        plan_of("Llama-3.1-70B", "A100", nodes=1, length=200_000)
    (problem,) = caught.value.problems
    assert problem.path == "model.max_model_len"
    assert "131,072" in problem.wanted


def test_a_workload_that_no_context_holds_is_wrong_input() -> None:
    long = RequestProfile(prompt_tokens=Quantiles(p50=200_000, p90=300_000, p99=400_000))
    with pytest.raises(SpecError) as caught:
        plan_of("Llama-3.1-70B", "H100", nodes=1, length=None, workload=long)
    (problem,) = caught.value.problems
    assert problem.path == "workload.prompt_tokens.p50"
    assert "131,072" in problem.hint


def test_requests_that_the_context_cuts_off_are_told() -> None:
    long = RequestProfile(prompt_tokens=Quantiles(p50=2000, p90=8000, p99=40_000))
    plan = plan_of("Llama-3.1-70B", "H100", nodes=1, length=32_768, workload=long)
    assert any("refused by the engine" in line for line in plan.assumptions)
    assert not any("refused by the engine" in line for line in plan_of("Llama-3.1-70B", "H100", nodes=1).assumptions)
