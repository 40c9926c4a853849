"""Budgets and pools: vLLM's start-up arithmetic, the feasibility table, and the worked scenarios."""

from __future__ import annotations

import math
from typing import Any

import pytest

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.units import GIB
from roadworthy.plan.cache_groups import CacheOptions, cache_layout, in_flight_tokens
from roadworthy.plan.layouts import Pins, stage_split, why_not_built
from roadworthy.plan.memory import Pool, pool_of
from roadworthy.plan.overhead import (
    NON_TORCH_GROWTH_BYTES,
    NON_TORCH_GROWTH_GROUP_BYTES,
    Overhead,
    capture_sizes,
    mla_scratch_bytes,
    overhead,
)
from roadworthy.plan.values import Layout
from roadworthy.plan.weights import StageWeights, split_of, stage_weights
from roadworthy.spec.values import ClusterSpec

GPUS = {"H100-80": "H100", "H200-141": "H200", "A100-80": "A100"}
POOL_TOLERANCE_GIB = 3.0


def _layout_of(row: dict[str, Any]) -> Layout:
    model = model_by_id(row["model"])
    tp, pp, dp = row["tp"], row["pp"], row["dp"]
    ep = tp * dp if row["expert_parallel"] else 1
    return Layout(tp=tp, pp=pp, dp=dp, ep=ep, stage_layers=stage_split(model.num_layers, pp))


def _extras(model_id: str, layout: Layout, gpu_name: str, *, tokens: int, batched: int) -> list[Overhead]:
    cache = cache_layout(model_by_id(model_id), tp=layout.tp, stage_layers=layout.stage_layers)
    return [
        overhead(
            model_by_id(model_id),
            layout,
            gpu_by_name(gpu_name),
            stage=stage,
            block_tokens=cache.block_tokens,
            max_model_len_tokens=tokens,
            max_num_seqs=256,
            max_num_batched_tokens=batched,
        )
        for stage in range(layout.pp)
    ]


def _as_assumed(layout: Layout) -> list[Overhead]:
    """The overhead that the tables of expected values were computed with, before any was measured."""
    total = (8 if layout.tp == 1 and layout.dp > 1 else 5) * GIB
    assumed = Overhead(
        activation_bytes=total,
        assumed_bytes=total,
        comm_bytes=0,
        cudagraph_bytes=0,
        runtime_bytes=0,
        band_bytes=3 * GIB,
    )
    return [assumed] * layout.pp


def _pool(
    model_id: str, layout: Layout, gpu_name: str, *, tokens: int, batched: int, utilisation: float,
    extras: list[Overhead] | None = None, pool_bytes: int | None = None,
) -> tuple[Pool, int]:  # fmt: skip
    """The pool and the blocks that the start-up check charges one request."""
    model, gpu = model_by_id(model_id), gpu_by_name(gpu_name)
    cache = cache_layout(model, tp=layout.tp, stage_layers=layout.stage_layers, options=CacheOptions())
    split, start, weights = split_of(tp=layout.tp, pp=layout.pp, dp=layout.dp, ep=layout.ep), 0, []
    for count in layout.stage_layers:
        weights.append(stage_weights(model, split=split, layers=range(start, start + count)))
        start += count
    need = cache.admission_blocks(tokens, in_flight_tokens(pp=layout.pp, max_num_batched_tokens=batched))
    pool = pool_of(
        layout,
        gpu,
        weights=weights,
        overheads=extras or _extras(model_id, layout, gpu_name, tokens=tokens, batched=batched),
        cache=cache,
        utilisation_ratio=utilisation,
        kv_pool_bytes=pool_bytes,
        request_blocks=need,
        request_tokens=tokens,
    )
    return pool, need


def test_feasibility_agrees_within_the_tolerance_of_the_assumed_overhead(feasibility_row: dict[str, Any]) -> None:
    row = feasibility_row
    gpu = gpu_by_name(GPUS[row["gpu"]])
    cluster = ClusterSpec(nodes=max(1, row["gpus"] // 8), gpus_per_node=8, gpu=gpu.id)
    if why_not_built(model_by_id(row["model"]), _layout_of(row), cluster, gpu, Pins(tp=row["tp"])):
        assert row["fits"] == "no"
        return
    pool, need = _pool(
        row["model"],
        _layout_of(row),
        GPUS[row["gpu"]],
        tokens=32_768,
        batched=8192,
        utilisation=row["gpu_memory_utilization"],
        extras=_as_assumed(_layout_of(row)),
    )
    tightest = max(pool.ranks, key=lambda rank: rank.weights_bytes)
    assert tightest.weights_bytes / GIB == pytest.approx(row["weights_gib_tightest_rank"], abs=0.02)
    assert abs(min(_left_gib(rank, row) for rank in pool.ranks) - row["kv_pool_gib"]) <= POOL_TOLERANCE_GIB
    if row["fits"] == "yes":
        assert pool.feasible in (True, "uncertain")
        assert pool.blocks == pytest.approx(row["num_blocks"], rel=0.25)
        assert pool.blocks / need >= 1
    elif row["fits"] == "no":
        assert pool.feasible is False
        assert pool.short_by_bytes > 0
    else:
        assert pool.feasible == "uncertain"


def _left_gib(rank: Any, row: dict[str, Any]) -> float:
    """The pool, negative where the rank overflows."""
    budget = math.ceil(rank.device_bytes * row["gpu_memory_utilization"])
    used = rank.weights_bytes + rank.activation_bytes + rank.comm_bytes + rank.cudagraph_bytes
    return (budget - used) / GIB


def test_worked_scenarios_come_out(scenario: dict[str, Any]) -> None:
    """V4-Pro TP8 PP4: 13 requests at start-up and 718 that can decode; three more from the same texts."""
    tp, pp, dp, ep = {
        "TP8·PP4": (8, 4, 1, 1),
        "TP8·PP2·DP2 +EP16": (8, 2, 2, 16),
        "TP8·PP2": (8, 2, 1, 1),
    }[scenario["layout"]]
    model = model_by_id(scenario["model"])
    layout = Layout(tp=tp, pp=pp, dp=dp, ep=ep, stage_layers=stage_split(model.num_layers, pp))
    tokens = scenario["max_model_len"]
    pool, need = _pool(
        scenario["model"],
        layout,
        GPUS[scenario["gpu"]],
        tokens=tokens,
        batched=scenario["max_num_batched_tokens"],
        utilisation=scenario["gpu_memory_utilization"],
        extras=_as_assumed(layout),
    )
    cache = cache_layout(model, tp=tp, stage_layers=layout.stage_layers)
    assert need == scenario["blocks_per_request_admission"]
    assert cache.held_blocks(tokens) == scenario["blocks_per_request_resident_max"]
    for rank, stage in zip(pool.ranks, scenario["stages"], strict=True):
        assert rank.weights_bytes / GIB == pytest.approx(stage["weights_gib"], abs=0.01)
        assert rank.kv_pool_bytes / GIB == pytest.approx(stage["kv_pool_gib"], abs=POOL_TOLERANCE_GIB)
    assert pool.blocks == pytest.approx(scenario["num_blocks"], rel=0.03)
    assert pool.blocks / need == pytest.approx(scenario["max_concurrency"], rel=0.03)
    assert (pool.blocks - 1) // cache.held_blocks(tokens) == pytest.approx(scenario["resident_requests"], rel=0.03)


def test_the_last_stage_of_k3_limits_the_pool_although_another_weighs_more() -> None:
    layout = Layout(tp=8, pp=4, dp=1, ep=1, stage_layers=(23, 23, 24, 23))
    pool, _ = _pool("Kimi-K3", layout, "H100", tokens=65_536, batched=8192, utilisation=0.92)
    assert pool.tightest_rank == 24
    assert max(pool.ranks, key=lambda rank: rank.weights_bytes).stage == 2


def test_a_loser_says_which_rank_lacks_how_much_and_of_what() -> None:
    layout = Layout(tp=8, pp=1, dp=1, ep=1, stage_layers=(61,))
    pool, _ = _pool("DeepSeek-V4-Pro", layout, "H100", tokens=32_768, batched=8192, utilisation=0.90)
    (reason,) = pool.reasons
    assert pool.feasible is False
    assert reason.startswith("rank 0 short by ")
    assert "weights 102.76 GiB + overhead " in reason
    assert "budget of 71.26 GiB (0.9 of 79.18 GiB)" in reason


def test_measured_start_up_on_h200_is_reproduced(measured: dict[str, Any]) -> None:
    """vLLM's own subtraction, with the parts it logged, gives the pool, blocks and capacity it logged."""
    case = next(case for case in measured["memory"] if "max_num_seqs 64" in case["case"])
    parts = Overhead(
        activation_bytes=round((case["peak_activation_gib"] + case["non_torch_gib"]) * GIB),
        assumed_bytes=0,
        comm_bytes=0,
        cudagraph_bytes=round(case["cudagraph_estimated_gib"] * GIB),
        runtime_bytes=0,
        band_bytes=0,
    )
    model = model_by_id("Kimi-Linear-48B-A3B")
    cache = cache_layout(
        model, tp=1, stage_layers=(27,), options=CacheOptions(alignment_tokens=16, prefix_caching=False)
    )
    need = cache.admission_blocks(131_072, 32_768)
    loaded = StageWeights(parameters={"logged": round(case["weights_gib"] * GIB)}, buffers={})
    pool = pool_of(
        Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(27,)),
        gpu_by_name("H200"),
        weights=[loaded],
        overheads=[parts],
        cache=cache,
        utilisation_ratio=0.90,
        kv_pool_bytes=None,
        request_blocks=need,
        request_tokens=131_072,
    )
    assert pool.ranks[0].kv_pool_bytes / GIB == pytest.approx(case["kv_pool_gib"], abs=0.01)
    assert need == 73
    assert pool.blocks == pytest.approx(2132, abs=1)
    assert pool.blocks / need == pytest.approx(case["max_concurrency"], abs=0.02)
    assert int(pool.blocks / need * 131_072) == pytest.approx(case["kv_tokens"], rel=0.001)


def test_what_was_assumed_before_measuring_was_within_its_tolerance(feasibility_row: dict[str, Any]) -> None:
    """Overhead by shapes and measurement against the 5 or 8 GiB of the tables of expected values."""
    row, layout = feasibility_row, _layout_of(feasibility_row)
    extras = _extras(row["model"], layout, GPUS[row["gpu"]], tokens=32_768, batched=8192)
    for ours, assumed in zip(extras, _as_assumed(layout), strict=True):
        if layout.dp == 1:
            assert (
                abs(ours.in_budget_bytes - assumed.in_budget_bytes) / GIB <= POOL_TOLERANCE_GIB + ours.band_bytes / GIB
            )
        else:  # experts that get the tokens of all ranks: more than was assumed, in a wide band
            assert ours.in_budget_bytes / GIB < 16
            assert ours.band_bytes == 3 * GIB


def test_peaks_at_16384_batched_tokens_come_within_half_a_gibibyte(measured: dict[str, Any]) -> None:
    """H200, vLLM 0.26: 1.78 GiB (Llama-3.1-8B) and 3.49 GiB (Kimi-Linear), beside the rows at 8,192 tokens."""
    cases = [
        ("Llama-3.1-8B", 32, 16, 32_768, 1024, measured["memory"][0]),
        ("Kimi-Linear-48B-A3B", 27, 1888, 131_072, 64, measured["memory"][2]),
    ]
    for name, layers, block, length, sequences, row in cases:
        ours = overhead(
            model_by_id(name),
            Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(layers,)),
            gpu_by_name("H200"),
            stage=0,
            block_tokens=block,
            max_model_len_tokens=length,
            max_num_seqs=sequences,
            max_num_batched_tokens=16_384,
            scratch_capped=False,
        )
        wanted = row["peak_activation_gib"] + row["non_torch_gib"]
        assert ours.activation_bytes / GIB == pytest.approx(wanted, abs=0.25)
        assert ours.cudagraph_bytes / GIB == pytest.approx(row["cudagraph_gib"], abs=0.2)


def test_graphs_of_a_dense_model_come_out_of_what_the_budget_leaves() -> None:
    layout = Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(32,))
    pool, _ = _pool("Llama-3.1-8B", layout, "H200", tokens=32_768, batched=8192, utilisation=0.9)
    (rank,) = pool.ranks
    assert rank.cudagraph_bytes > 0
    budget = math.ceil(rank.device_bytes * 0.9)
    assert rank.kv_pool_bytes == budget - rank.weights_bytes - rank.activation_bytes - rank.comm_bytes
    parts = (rank.weights_bytes, rank.activation_bytes, rank.cudagraph_bytes, rank.runtime_bytes, rank.kv_pool_bytes)
    assert sum(parts) + rank.comm_bytes + rank.free_bytes == rank.device_bytes


def test_only_what_was_measured_has_a_narrow_band() -> None:
    bands = {}
    for name, tp, pp, dp, stage in [
        ("DeepSeek-V3", 8, 1, 1, 61),
        ("DeepSeek-V4-Pro", 8, 1, 1, 61),
        ("DeepSeek-V4-Pro", 8, 2, 1, 31),
        ("DeepSeek-V4-Pro", 8, 1, 2, 61),
        ("Kimi-K3", 8, 1, 1, 93),
    ]:
        model = model_by_id(name)
        layers = (stage, model.num_layers - stage)[:pp] if pp > 1 else (stage,)
        layout = Layout(tp=tp, pp=pp, dp=dp, ep=1, stage_layers=layers)
        extra = _extras(name, layout, "H100", tokens=32_768, batched=8192)[0]
        bands[name, pp, dp] = extra.band_bytes / GIB
        whole = extra.in_budget_bytes / GIB
        assert whole >= 5 if name == "Kimi-K3" else extra.assumed_bytes == 0
    assert list(bands.values()) == [0.5, 1.0, 1.0, 3.0, 3.0]


def _whole(
    name: str, *, tp: int, dp: int = 1, graphs: bool = True, captured: tuple[int, ...] | None = None
) -> Overhead:
    model = model_by_id(name)
    return overhead(
        model, Layout(tp=tp, pp=1, dp=dp, ep=1, stage_layers=(model.num_layers,)), gpu_by_name("H200"), stage=0,
        block_tokens=16, max_model_len_tokens=65_536, max_num_seqs=1024, max_num_batched_tokens=8192,
        cuda_graphs=graphs, captured=captured,
    )  # fmt: skip


def test_communicators_are_there_before_the_engine_counts() -> None:
    """Measured on two H200: 0.95 GiB beside the context for a dense model, 1.42 where experts have a group."""
    dense, experts, alone = _whole("Llama-3.1-8B", tp=2), _whole("DeepSeek-V3", tp=2), _whole("Llama-3.1-8B", tp=1)
    assert alone.comm_bytes == 0
    assert dense.comm_bytes / GIB == pytest.approx(0.95, abs=0.15)
    assert experts.comm_bytes / GIB == pytest.approx(1.42, abs=0.15)
    assert dense.in_budget_bytes < alone.in_budget_bytes, "nothing of it is charged to the budget"
    assert dense.outside_bytes == dense.comm_bytes + dense.runtime_bytes


def test_a_fixed_pool_leaves_room_for_communicators() -> None:
    """``kv_cache_memory_bytes`` is taken off the device, not off the budget."""
    layout = Layout(tp=2, pp=1, dp=1, ep=1, stage_layers=(32,))
    pool, _ = _pool("Llama-3.1-8B", layout, "H200", tokens=32_768, batched=8192, utilisation=0.9, pool_bytes=10**12)
    (rank,) = pool.ranks
    assert rank.comm_bytes > 0
    assert rank.free_bytes == -rank.cudagraph_bytes, "graphs of a dense model are not charged"


def test_graphs_of_a_model_with_mla_in_every_layer_hold_the_up_projected_chunk_once_more() -> None:
    """DeepSeek-V3: 32 MiB for each head of a rank; Kimi-Linear, where few layers have it, is not charged for it."""
    sizes = (1, 8, 32, 64, 128, 256)
    one, two = (_whole("DeepSeek-V3", tp=tp, captured=sizes).cudagraph_bytes for tp in (1, 2))
    assert one - two == 64 * 32 * 2**20
    one, two = (_whole("Kimi-Linear-48B-A3B", tp=tp, captured=sizes).cudagraph_bytes for tp in (1, 2))
    assert one == two


def test_a_rank_of_v4_with_fewer_heads_than_the_kernel_takes_needs_no_less_room() -> None:
    """DeepSeek-V4-Flash has 64 heads: TP8 peaked where TP1 did, to 0.01 GiB; Pro has 128, so TP2 halves its part."""
    flash, pro = (
        [_whole(f"DeepSeek-V4-{size}", tp=tp).activation_bytes / GIB for tp in (1, 2, 8)] for size in ("Flash", "Pro")
    )
    group = (NON_TORCH_GROWTH_BYTES - NON_TORCH_GROWTH_GROUP_BYTES) / GIB
    assert flash[2] + group == pytest.approx(flash[0], abs=0.1)
    assert flash[1] > flash[0] - group, "half its heads, and a copy of them filled up"
    assert pro[0] - group - pro[1] == pytest.approx(1.0, abs=0.01)


def test_fewer_captured_sizes_take_less_and_none_take_nothing() -> None:
    few, many = (_whole("Kimi-Linear-48B-A3B", tp=1, captured=sizes) for sizes in ((1, 2), None))
    assert 0 < few.cudagraph_bytes < many.cudagraph_bytes
    assert 0.5 < _whole("DeepSeek-V4-Flash", tp=1, captured=(1, 2)).cudagraph_bytes / GIB < 0.6, "the indexer's logits"
    assert _whole("DeepSeek-V4-Flash", tp=1, graphs=False).cudagraph_bytes == 0
    assert _whole("DeepSeek-V4-Flash", tp=1, graphs=False).band_bytes == GIB // 2


def test_captured_sizes_end_at_512() -> None:
    assert capture_sizes(2) == (1, 2, 4)
    assert capture_sizes(256)[-1] == capture_sizes(1024)[-1] == 512


def test_the_prefill_workspace_that_failed_vllm_0_26_is_foretold() -> None:
    """One 29.50 GiB allocation at 1,024 sequences; capped near 1.1 GiB since."""
    model = model_by_id("Kimi-Linear-48B-A3B")
    sizes = {
        capped: mla_scratch_bytes(
            model, tp=1, block_tokens=1888, max_model_len_tokens=131_072, max_num_seqs=1024, capped=capped
        )
        for capped in (False, True)
    }
    latents = 1024 * 1888 * 576 * 2
    assert (sizes[False] - latents) / GIB == pytest.approx(29.5, abs=0.01)
    assert sizes[True] / GIB < 1.2


def test_the_cpu_pool_is_what_was_set_and_nothing_else_is_modelled() -> None:
    layout = Layout(tp=1, pp=1, dp=1, ep=1, stage_layers=(2,))
    extra = overhead(
        model_by_id("tiny"),
        layout,
        gpu_by_name("cpu"),
        stage=0,
        block_tokens=128,
        max_model_len_tokens=4096,
        max_num_seqs=64,
        max_num_batched_tokens=2048,
    )
    assert extra.in_budget_bytes == extra.runtime_bytes == 0
