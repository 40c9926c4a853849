"""What breaks at start-up is refused or warned of, with the right number and the setting that mends it."""

from __future__ import annotations

import json
import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.errors import SpecError
from roadworthy.core.units import GIB
from roadworthy.plan.eplb import Eplb
from roadworthy.plan.lora import LoraSlots
from roadworthy.plan.search import make_plan, what_would_fit
from roadworthy.plan.weights import Split, split_of, stage_weights
from roadworthy.spec.values import ClusterSpec, Deployment, EngineSpec, ModelRef, Quantiles, RequestProfile

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan, StartupWarning


def plan_of(
    model: str, gpu: str = "H100", *, nodes: int = 4, gpus: int = 8, length: int | None = 32_768,
    version: str = "0.33.0", **settings: Any,
) -> Plan:  # fmt: skip
    deployment = Deployment(
        name="case",
        model=ModelRef(config=model, max_model_len_tokens=length),
        cluster=ClusterSpec(nodes=nodes, gpus_per_node=gpus, gpu=gpu),
        engine=EngineSpec(version=version, settings=MappingProxyType(settings)),
    )
    return make_plan(deployment, model_by_id(model), gpu_by_name(gpu))


def find(plan: Plan, label: str) -> LayoutPlan:
    return next(judged for judged in plan.layouts if judged.layout.label == label)


def warned(judged: LayoutPlan, code: str) -> StartupWarning:
    return next(warning for warning in judged.warnings if warning.code == code)


def codes(judged: LayoutPlan) -> list[str]:
    return [warning.code for warning in judged.warnings]


def test_tp32_of_v4_pro_has_no_whole_output_group() -> None:
    judged = find(plan_of("DeepSeek-V4-Pro", tensor_parallel_size=32), "TP32")
    assert judged.feasible is False
    assert judged.reasons == ("tp 32 exceeds o_groups 16: no whole output group per rank",)


def eplb(redundant: int) -> dict[str, Any]:
    return {
        "enable_expert_parallel": True,
        "enable_eplb": True,
        "eplb_config": json.dumps({"num_redundant_experts": redundant}),
    }


def test_four_redundant_experts_at_ep32_are_refused_with_the_legal_numbers() -> None:
    judged = find(plan_of("DeepSeek-V4-Pro", **eplb(4)), "TP8 DP4 EP32")
    assert judged.feasible is False
    assert judged.reasons == (
        "EPLB: 384 experts + 4 redundant over EP32 leave 4, so vLLM fails while it builds the model; nearest legal "
        "num_redundant_experts: 0 or 32",
    )


@pytest.mark.parametrize(("ranks", "asked", "near"), [(32, 4, (0, 32)), (16, 15, (16, 0)), (8, 12, (8, 16))])
def test_the_nearest_legal_redundancy_comes_first(ranks: int, asked: int, near: tuple[int, ...]) -> None:
    balancer = Eplb(redundant=asked)
    assert not balancer.legal(384, ranks)
    assert balancer.legal_near(384, ranks) == near
    assert all(Eplb(redundant=value).legal(384, ranks) for value in near)


def test_legal_redundancy_costs_a_slot_in_every_layer_and_the_balancers_state() -> None:
    """32 over EP32: one more expert of 3 x 3072 x 7168 FP4 weights in each of 61 layers of every rank."""
    plain, balanced = plan_of("DeepSeek-V4-Pro", enable_expert_parallel=True), plan_of("DeepSeek-V4-Pro", **eplb(32))
    before, after = (find(plan, "TP8 DP4 EP32").ranks[0].weights_bytes for plan in (plain, balanced))
    expert = 3 * 3072 * 7168 * 17 // 32
    window, copies, buffer = 4 * 1000 * 61 * 416, 8 * 1024 * 384 * 61, 13 * expert
    maps = 61 * 4 * 32
    assert after - before == 61 * expert + window + copies + buffer + maps
    warning = warned(find(balanced, "TP8 DP4 EP32"), "eplb_memory")
    assert warning.size_bytes == 61 * expert + window + copies + buffer


def test_kimi_k3_ignores_the_balancer() -> None:
    judged = find(plan_of("Kimi-K3", "H200", **eplb(4)), "TP8 PP4 EP8")
    assert judged.feasible is True
    assert "eplb_ignored" in codes(judged)


def test_balancing_without_expert_parallelism_or_switch_is_refused() -> None:
    settings = eplb(0) | {"enable_expert_parallel": False}
    assert "needs expert parallelism" in find(plan_of("DeepSeek-V4-Pro", **settings), "TP8 PP4").reasons[0]
    with pytest.raises(SpecError) as caught:
        plan_of("DeepSeek-V4-Pro", eplb_config='{"num_redundant_experts": 32}')
    assert "enable_eplb" in caught.value.problems[0].wanted
    with pytest.raises(SpecError):
        plan_of("DeepSeek-V4-Pro", enable_eplb=True, eplb_config="[4]")


def test_the_default_sequences_of_a_hybrid_model_are_refused_under_0_26_with_29_5_gib() -> None:
    """Measured on one H200: start-up failed to allocate a workspace of 29.50 GiB."""
    plan = plan_of("Kimi-Linear-48B-A3B", "H200", nodes=1, gpus=1, length=131_072, version="0.26.0", max_num_seqs=1024)
    judged = find(plan, "TP1")
    assert judged.feasible is False
    assert "1,024 x 1,888 rows: 29.50 GiB of up-projected keys and values" in judged.reasons[0]
    assert "max_num_seqs 34 takes 1.08 GiB" in judged.reasons[0]
    assert "29.50 GiB" in what_would_fit(plan, gpu_by_name("H200"), 1)


LONG_ANSWERS = Quantiles(p50=177, p90=325, p99=512)


def test_a_load_that_fills_half_of_an_api_server_is_named_with_how_many_it_wants() -> None:
    """One process was full at 70 such requests a second on H200; data-parallel ranks bring one each."""

    def of(rate_per_s: float, answers: Quantiles = LONG_ANSWERS, **settings: Any) -> LayoutPlan:
        deployment = Deployment(
            name="case",
            model=ModelRef(config="Llama-3.1-8B", max_model_len_tokens=32_768),
            cluster=ClusterSpec(nodes=1, gpus_per_node=1, gpu="H200"),
            engine=EngineSpec(version="0.33.0", settings=MappingProxyType(settings)),
            workload=RequestProfile(
                prompt_tokens=Quantiles(p50=213, p90=396, p99=634),
                output_tokens=answers,
                rate_per_s=rate_per_s,
            ),
        )
        return find(make_plan(deployment, model_by_id("Llama-3.1-8B"), gpu_by_name("H200")), "TP1")

    warning = warned(of(45), "api_server")
    assert "45.0 requests/s and 8,9" in warning.message
    assert "busy for 78% of its time" in warning.message
    assert warning.mend == "api_server_count: 2"
    assert "api_server" not in codes(of(20))
    assert "api_server" not in codes(of(45, api_server_count=2))
    short = Quantiles(p50=4, p90=6, p99=8)
    assert warned(of(150, short), "api_server").mend == "api_server_count: 2"  # answers of a few tokens cost requests
    assert "api_server" not in codes(of(80, short))


def test_a_pipeline_without_asynchronous_scheduling_is_told_what_its_batches_cost() -> None:
    warning = warned(find(plan_of("DeepSeek-V4-Pro", async_scheduling=False), "TP8 PP4"), "pipeline_batches")
    slow_ms, fast_ms = (float(number) for number in re.findall(r"(\d+\.\d) (?:ms a token|with it)", warning.message))
    assert slow_ms > 1.05 * fast_ms
    assert "async_scheduling" in warning.mend
    assert "pipeline_batches" not in codes(find(plan_of("DeepSeek-V4-Pro"), "TP8 PP4"))
    assert "pipeline_batches" not in codes(find(plan_of("DeepSeek-V4-Pro", async_scheduling=False), "TP8 DP4 EP32"))


def test_left_alone_the_plan_sets_the_sequences_and_says_what_the_default_would_take() -> None:
    plan = plan_of("Kimi-Linear-48B-A3B", "H200", nodes=1, gpus=1, length=131_072, version="0.26.0")
    judged = find(plan, "TP1")
    assert judged.feasible is True
    warning = warned(judged, "mla_workspace")
    assert "29.50 GiB" in warning.message
    assert warning.mend == f"max_num_seqs: {judged.settings['max_num_seqs'].value}, as planned"


def test_0_33_caps_the_workspace() -> None:
    plan = plan_of("Kimi-Linear-48B-A3B", "H200", nodes=1, gpus=1, length=131_072, max_num_seqs=1024)
    judged = find(plan, "TP1")
    assert judged.feasible is True
    assert "mla_workspace" not in codes(judged)


def test_k3_without_expert_parallelism_pays_for_padding_at_tp16() -> None:
    """139.3 GB with padding, 109.2 GB with EP: 256 columns where 192 are used."""
    judged = find(plan_of("Kimi-K3", "H200", nodes=2, tensor_parallel_size=16), "TP16")
    warning = warned(judged, "expert_padding")
    model = model_by_id("Kimi-K3")
    padded, whole = (
        stage_weights(model, split=split_of(tp=16, pp=1, dp=1, ep=ep), layers=range(93)).parameters["routed_experts"]
        for ep in (1, 16)
    )
    assert warning.size_bytes == padded - whole
    assert "1.33 times" in warning.message
    assert warning.mend == "enable_expert_parallel: true"
    assert "expert_padding" not in codes(find(plan_of("Kimi-K3", "H200", nodes=2), "TP8 PP2"))


def test_tp_across_hosts_is_priced_when_asked() -> None:
    judged = find(plan_of("DeepSeek-V4-Pro", "H200", nodes=2, tensor_parallel_size=16), "TP16 EP16")
    assert judged.feasible is not False
    warning = warned(judged, "tp_across_hosts")
    assert "spans 2 hosts" in warning.message
    assert "ms of each decode step" in warning.message


def test_a_utilisation_that_leaves_no_room_for_the_context_is_refused() -> None:
    plan = plan_of("Llama-3.1-8B", nodes=1, gpus=1, gpu_memory_utilization=0.999)
    judged = find(plan, "TP1")
    assert judged.feasible is False
    assert judged.reasons[0].startswith("gpu_memory_utilization 0.999 leaves 0.08 GiB of 79.18 GiB")
    assert judged.reasons[0].endswith("set 0.99 or less")
    near = find(plan_of("Llama-3.1-8B", nodes=1, gpus=1, gpu_memory_utilization=0.99), "TP1")
    assert near.feasible is True
    assert "tight_outside" in codes(near)


@pytest.mark.parametrize(
    ("model", "gpu", "settings", "said"),
    [
        ("DeepSeek-V4-Pro", "H100", {"kv_cache_dtype": "bfloat16"}, "know only the FP8 cache"),
        ("DeepSeek-V4-Pro", "H100", {"block_size": 64}, "block_size 64: V4's sparse kernels know 256 only"),
        ("Llama-3.1-70B", "H100", {"block_size": 20}, "a multiple of 16, such as 16"),
        ("DeepSeek-V3", "A100", {"kv_cache_dtype": "fp8"}, "has FP8 from SM89 on"),
        ("Kimi-K3", "H200", {"quantization": "fp8"}, "does not match the checkpoint's mxfp4"),
        ("Llama-3.1-70B", "H100", {"quantization": "modelopt_fp4"}, "has no FP4 arithmetic"),
        ("Kimi-K3", "H200", {"enable_lora": True}, "takes no LoRA adapters"),
        ("DeepSeek-V4-Pro", "H100", {"enable_dbo": True}, "enable_dbo with all2all_backend allgather_reducescatter"),
    ],
)
def test_settings_that_the_engine_would_stumble_over_are_refused(
    model: str, gpu: str, settings: dict[str, Any], said: str
) -> None:
    plan = plan_of(model, gpu, **settings)
    assert plan.best is None
    built = [judged for judged in plan.layouts if any(said in reason for reason in judged.reasons)]
    assert len(built) == len(plan.layouts)


@pytest.mark.parametrize(
    ("model", "gpu", "settings", "code"),
    [
        ("DeepSeek-V4-Pro", "H200", {"quantization": "fp8"}, "quantization_ignored"),
        ("Llama-3.1-70B", "H100", {"quantization": "fp8"}, "quantised_at_load"),
        ("Llama-3.1-70B", "A100", {"kv_cache_dtype": "fp8"}, "fp8_cache"),
        ("DeepSeek-V3", "A100", {}, "weight_only"),
        ("DeepSeek-V4-Pro", "H200", {"all2all_backend": "deepep_low_latency"}, "deepep"),
        ("DeepSeek-V4-Pro", "H200", {"all2all_backend": "pplx"}, "retired_backend"),
        ("Llama-3.1-8B", "H100", {"enable_lora": True}, "lora_slots"),
        ("DeepSeek-V4-Pro", "H200", {"enable_lora": True}, "lora_slots"),
    ],
)
def test_settings_that_do_something_else_than_they_say_are_warned_of(
    model: str, gpu: str, settings: dict[str, Any], code: str
) -> None:
    best = plan_of(model, gpu, **settings).best
    assert best is not None
    assert code in codes(best)


def test_lora_slots_are_weights_from_the_start() -> None:
    """Llama-3.1-8B by hand: q, k, v, o, gate, up, down of 32 layers, embedding and head, 8 slots of rank 64."""
    slots = LoraSlots.of({"enable_lora": True, "max_loras": 8, "max_lora_rank": "64"})
    assert slots == LoraSlots(max_loras=8, max_lora_rank=64)
    hidden, inner, kv = 4096, 14336, 1024
    layer = (hidden + hidden) + 2 * (hidden + kv) + (hidden + hidden) + 3 * (hidden + inner)
    expected = 2 * 8 * 64 * (32 * layer + 2 * (128_256 + hidden))
    assert slots.bytes_on_rank(model_by_id("Llama-3.1-8B"), split=Split(), layers=range(32)) == expected
    plain, adapted = (
        find(plan_of("Llama-3.1-8B", nodes=1, gpus=1, **settings), "TP1").ranks[0].weights_bytes
        for settings in ({}, {"enable_lora": True, "max_loras": 8, "max_lora_rank": "64"})
    )
    assert adapted - plain == expected > GIB
    with pytest.raises(SpecError):
        LoraSlots.of({"enable_lora": True, "max_lora_rank": "48"})


@pytest.mark.parametrize(
    ("model", "version", "known"),
    [("DeepSeek-V4-Pro", "0.19.1", False), ("DeepSeek-V4-Pro", "0.20.0", True), ("Kimi-K3", "0.27.0", False)],
)
def test_an_engine_older_than_the_model_is_refused(model: str, version: str, known: bool) -> None:
    plan = plan_of(model, "H200", version=version)
    refused = [judged for judged in plan.layouts if any("does not know" in reason for reason in judged.reasons)]
    assert len(refused) == (0 if known else len(plan.layouts))


def test_graphs_of_many_sequences_beside_a_small_pool_are_named() -> None:
    plan = plan_of("Llama-3.1-70B", nodes=1, gpus=2, length=8192, max_num_seqs=512)
    judged = find(plan, "TP2")
    warning = warned(judged, "cuda_graphs")
    assert "captures 51 graph sizes" in warning.message
    assert warning.mend.startswith("max_cudagraph_capture_size: 64 captures 11")
