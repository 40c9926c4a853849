"""Alternatives to the chosen layout: each with the memory it frees or takes and the time it costs."""

from __future__ import annotations

import re
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.links import to_host
from roadworthy.catalog.models import model_by_id
from roadworthy.core.units import GIB
from roadworthy.plan.options import options_of
from roadworthy.plan.search import make_plan
from roadworthy.spec.values import ClusterSpec, Deployment, EngineSpec, ModelRef, RequestProfile

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan, PlanOption


def deployment_of(
    model: str, gpu: str, nodes: int, gpus: int, length: int = 32_768, expert_skew: float = 0.5, **settings: Any
) -> Deployment:
    return Deployment(
        name="case",
        model=ModelRef(config=model, max_model_len_tokens=length),
        cluster=ClusterSpec(nodes=nodes, gpus_per_node=gpus, gpu=gpu),
        engine=EngineSpec(settings=MappingProxyType(settings)),
        workload=RequestProfile(expert_skew=expert_skew),
    )


def options(
    model: str, gpu: str = "H100", *, nodes: int = 1, gpus: int = 8, label: str | None = None, **settings: Any
) -> tuple[dict[str, PlanOption], LayoutPlan, Plan]:
    deployment, spec, card = deployment_of(model, gpu, nodes, gpus, **settings), model_by_id(model), gpu_by_name(gpu)
    plan = make_plan(deployment, spec, card)
    judged = [entry for entry in plan.layouts if entry.ranks and label in (None, entry.layout.label)]
    return {option.name: option for option in options_of(deployment, spec, card, plan, judged[0])}, judged[0], plan


def test_an_fp8_cache_holds_twice_the_requests() -> None:
    found, chosen, _ = options("Llama-3.1-70B", label="TP8")
    option = found["fp8_kv_cache"]
    assert option.possible
    assert option.settings == {"kv_cache_dtype": "fp8"}
    assert option.device_bytes == 0
    assert option.resident_requests is not None
    assert option.resident_requests == pytest.approx(chosen.resident_requests, abs=1)
    assert option.tpot_s is not None
    assert chosen.predicted is not None
    assert option.tpot_s <= chosen.predicted.tpot_p50_s


def test_v4_has_an_fp8_cache_already() -> None:
    assert "fp8_kv_cache" not in options("DeepSeek-V4-Pro", "H200")[0]


def test_an_fp8_cache_that_the_gpu_cannot_read_says_why() -> None:
    option = options("DeepSeek-V3", "A100", nodes=4)[0]["fp8_kv_cache"]
    assert not option.possible
    assert "FP8 from SM89 on" in option.message


def test_weights_in_host_memory_free_what_they_say_and_cross_pcie_in_every_step() -> None:
    found, chosen, _ = options("Llama-3.1-70B", label="TP8")
    option = found["weights_in_host_memory"]
    hosted = option.settings["cpu_offload_gb"]
    assert hosted == round(chosen.ranks[0].weights_bytes / 8 / GIB) == 2
    assert option.device_bytes == -2 * GIB
    assert option.host_bytes == 8 * 2 * GIB
    assert option.resident_requests is not None
    assert option.resident_requests > 0
    assert option.tpot_s is not None
    assert chosen.predicted is not None
    crossing_s = 2 * GIB / to_host(gpu_by_name("H100")).achieved_bytes_per_s
    assert option.tpot_s > chosen.predicted.tpot_p50_s + crossing_s * 0.99


def test_the_document_may_ask_for_the_offload_itself() -> None:
    plain, offloaded = (
        make_plan(
            deployment_of("Llama-3.1-70B", "H100", 1, 8, **settings),
            model_by_id("Llama-3.1-70B"),
            gpu_by_name("H100"),
        )
        for settings in ({}, {"cpu_offload_gb": 4})
    )
    before, after = (
        next(judged for judged in plan.layouts if judged.layout.label == "TP8") for plan in (plain, offloaded)
    )
    assert before.ranks[0].weights_bytes - after.ranks[0].weights_bytes == 4 * GIB


def test_where_nothing_fits_the_offload_is_what_it_takes() -> None:
    found, chosen, plan = options("Llama-3.1-70B", gpus=1)
    assert plan.best is None
    option = found["weights_in_host_memory"]
    assert option.possible
    assert option.settings["cpu_offload_gb"] == -(-chosen.short_by_bytes // GIB)
    assert "kv_cache_in_host_memory" not in found


def test_a_host_tier_keeps_prefixes_and_no_more_requests() -> None:
    found, chosen, _ = options("Llama-3.1-70B", label="TP8")
    option = found["kv_cache_in_host_memory"]
    assert option.settings["kv_offloading_size"] == round(8 * chosen.ranks[0].kv_pool_bytes / GIB)
    assert option.resident_requests == 0
    assert option.tpot_s is None
    assert "not modelled" in option.message


def test_balancing_is_offered_with_a_redundancy_that_is_legal() -> None:
    found, _, _ = options("DeepSeek-V4-Pro", nodes=4, label="TP8 DP4 EP32")
    option = found["expert_balancing"]
    assert option.settings["eplb_config"] == '{"num_redundant_experts": 32}'
    assert option.device_bytes > 2 * GIB
    assert option.tpot_s is not None
    assert re.search(r"carries 1\.0\d times the mean instead of 1\.[6-9]\d at a skew of 0\.5", option.message)
    ignored = options("Kimi-K3", "H200", nodes=4, label="TP8 DP4 EP32")[0]["expert_balancing"]
    assert not ignored.possible


def test_units_inside_a_host_stand_against_a_layout_that_spans_hosts() -> None:
    found, _, plan = options("DeepSeek-V4-Pro", nodes=4, label="TP8 PP4")
    option = found["units_inside_a_host"]
    nearest = min(
        (judged for judged in plan.layouts if judged.ranks and judged.layout.world_size <= 8),
        key=lambda judged: judged.short_by_bytes,
    )
    assert not option.possible
    assert option.message.startswith(f"{nearest.layout.label} lacks")


def test_units_stand_against_tensor_parallelism_across_hosts_though_the_document_fixes_it() -> None:
    found, _, _ = options("DeepSeek-V4-Pro", "H200", nodes=2, label="TP16 EP16", tensor_parallel_size=16)
    beside = found["units_inside_a_host"]
    assert beside.possible
    assert beside.message.startswith("2 x TP")
    assert beside.tpot_s is not None


def test_a_cpu_has_no_options() -> None:
    assert options("tiny", "cpu", gpus=1, length=4096)[0] == {}


def test_balancing_shortens_the_step_of_a_prompt_and_even_routing_has_nothing_to_gain() -> None:
    found, _, _ = options("DeepSeek-V4-Pro", nodes=4, label="TP8 DP4 EP32")
    times = re.search(r"takes ([\d.]+) ms instead of ([\d.]+) ms", found["expert_balancing"].message)
    assert times is not None
    assert float(times[1]) < float(times[2])
    even = options("DeepSeek-V4-Pro", nodes=4, label="TP8 DP4 EP32", expert_skew=0.0)[0]["expert_balancing"]
    assert "nothing to gain" in even.message


def test_the_draft_layer_of_a_checkpoint_is_offered_with_what_it_costs_and_gains() -> None:
    found, chosen, _ = options("DeepSeek-V3", "H200", nodes=1, label="TP8")
    option = found["speculative_decoding"]
    assert option.settings["speculative_config"] == '{"method": "mtp", "num_speculative_tokens": 1}'
    assert chosen.predicted is not None
    assert option.tpot_s is not None
    assert option.tpot_s < chosen.predicted.tpot_p50_s
    assert option.device_bytes > GIB  # the layer, and its experts
    assert "1.8 tokens a step at 80% of the drafts accepted (assumed" in option.message
    assert re.search(r"worth it from \d+% on", option.message)
    assert "speculative_decoding" not in options("Llama-3.1-70B", label="TP8")[0]


def test_a_document_with_drafts_is_shown_what_goes_without() -> None:
    drafts = '{"method": "mtp", "num_speculative_tokens": 1}'
    found, chosen, _ = options("DeepSeek-V3", "H200", nodes=1, label="TP8", speculative_config=drafts)
    assert "speculative_decoding" not in found
    option = found["no_speculative_decoding"]
    assert chosen.predicted is not None
    assert option.tpot_s is not None
    assert option.tpot_s > chosen.predicted.tpot_p50_s
    assert option.device_bytes < -GIB
