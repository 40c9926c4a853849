"""Laws of the planner: budgets add up, more memory never lowers capacity, every layer sits in one stage."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.catalog.models import model_by_id
from roadworthy.core.units import GIB
from roadworthy.plan.cache_groups import CacheOptions, cache_layout
from roadworthy.plan.layouts import stage_split
from roadworthy.plan.search import make_plan
from roadworthy.plan.weights import Split, checkpoint_totals, split_of, stage_weights
from roadworthy.plan.workload import mean_tokens
from roadworthy.spec.values import ClusterSpec, Deployment, ModelRef, Quantiles

MODELS = (
    "DeepSeek-V4-Pro",
    "DeepSeek-V4-Flash",
    "Kimi-K3",
    "Kimi-Linear-48B-A3B",
    "DeepSeek-V3",
    "Qwen3-235B-A22B",
    "Llama-3.1-70B",
)
models = st.sampled_from(MODELS).map(model_by_id)
gpus = st.sampled_from(("H100", "H200", "A100")).map(gpu_by_name)


@given(layers=st.integers(1, 400), data=st.data())
def test_every_layer_sits_in_exactly_one_stage(layers: int, data: st.DataObject) -> None:
    stages = data.draw(st.integers(1, layers))
    split = stage_split(layers, stages)
    assert sum(split) == layers
    assert len(split) == stages
    assert max(split) - min(split) <= 1


@settings(deadline=None, max_examples=30)
@given(model=models, gpu=gpus, nodes=st.sampled_from((1, 2, 4)), length=st.sampled_from((2048, 8192, 40_960)))
def test_the_parts_of_every_rank_add_up_to_the_device(model, gpu, nodes, length) -> None:  # type: ignore[no-untyped-def]
    deployment = Deployment(
        name="law",
        model=ModelRef(config=model.id, max_model_len_tokens=length),
        cluster=ClusterSpec(nodes=nodes, gpus_per_node=8, gpu=gpu.id),
    )
    for judged in make_plan(deployment, model, gpu).layouts:
        assert sum(judged.layout.stage_layers) == model.num_layers
        for rank in judged.ranks:
            parts = (
                rank.weights_bytes, rank.activation_bytes, rank.comm_bytes, rank.runtime_bytes, rank.cudagraph_bytes,
                rank.kv_pool_bytes, rank.free_bytes,
            )  # fmt: skip
            assert sum(parts) == rank.device_bytes == gpu.device_bytes
            assert min(parts[:-1]) >= 0
        if judged.ranks:
            assert sum(rank.count for rank in judged.ranks) == nodes * 8


@settings(deadline=None, max_examples=25)
@given(model=models, more_gib=st.integers(1, 100))
def test_more_device_memory_never_lowers_capacity(model, more_gib: int) -> None:  # type: ignore[no-untyped-def]
    gpu = gpu_by_name("H100")
    bigger = replace(gpu, device_bytes=gpu.device_bytes + more_gib * GIB)
    deployment = Deployment(
        name="law",
        model=ModelRef(config=model.id, max_model_len_tokens=8192),
        cluster=ClusterSpec(nodes=4, gpus_per_node=8, gpu=gpu.id),
    )
    # settings are fixed so that the two differ by memory alone
    fixed = {"gpu_memory_utilization": 0.9, "max_num_seqs": 64, "max_num_batched_tokens": 2048}
    deployment = replace(deployment, engine=replace(deployment.engine, settings=fixed))
    small = {judged.layout: judged for judged in make_plan(deployment, model, gpu).layouts}
    large = {judged.layout: judged for judged in make_plan(deployment, model, bigger).layouts}
    order = {False: 0, "uncertain": 1, True: 2}
    for layout, judged in small.items():
        assert large[layout].kv_blocks >= judged.kv_blocks
        assert order[large[layout].feasible] >= order[judged.feasible]
        assert large[layout].short_by_bytes <= judged.short_by_bytes


@given(model=models, tp=st.sampled_from((1, 2, 4)))
def test_twice_the_tensor_parallelism_never_raises_the_weights_of_a_rank(model, tp: int) -> None:  # type: ignore[no-untyped-def]
    whole = range(model.num_layers)
    narrow = stage_weights(model, split=Split(tp=tp), layers=whole).parameter_bytes
    wide = stage_weights(model, split=Split(tp=2 * tp), layers=whole).parameter_bytes
    assert wide <= narrow


@given(model=models, tp=st.sampled_from((1, 2, 4, 8)), pp=st.sampled_from((2, 3, 4, 7)))
def test_stages_hold_the_model_and_what_is_repeated_on_each(model, tp: int, pp: int) -> None:  # type: ignore[no-untyped-def]
    split = Split(tp=tp)
    whole = stage_weights(model, split=split, layers=range(model.num_layers)).parameters
    start, parts = 0, dict.fromkeys(whole, 0)
    for count in stage_split(model.num_layers, pp):
        for name, size in stage_weights(model, split=split, layers=range(start, start + count)).parameters.items():
            parts[name] += size
        start += count
    repeated = {"mhc"} if model.family == "deepseek_v4" else set()
    repeated |= {"embedding", "lm_head", "norm"} if model.family == "qwen3_moe" else set()
    for name, size in whole.items():
        assert parts[name] >= size if name in repeated else parts[name] == size


@given(model=models, tp=st.sampled_from((1, 2, 4, 8)), dp=st.sampled_from((1, 2, 4)))
def test_all_ranks_together_hold_at_least_the_checkpoint_without_draft(model, tp: int, dp: int) -> None:  # type: ignore[no-untyped-def]
    split = split_of(tp=tp, pp=1, dp=dp, ep=tp * dp)
    rank = stage_weights(model, split=split, layers=range(model.num_layers)).parameter_bytes
    totals = checkpoint_totals(model)
    served = totals.bytes - (totals.components["mtp"].bytes if "mtp" in totals.components else 0)
    if "router_hash_table" in totals.components:  # stored as int64, loaded as int32
        served -= totals.components["router_hash_table"].bytes // 2
    assert rank * tp * dp >= served * 0.9999


@given(
    model=models,
    tp=st.sampled_from((1, 2, 4, 8)),
    kv_dtype=st.sampled_from(("auto", "fp8")),
    tokens=st.integers(1, 200_000),
    more=st.integers(0, 50_000),
)
def test_a_longer_request_never_holds_fewer_blocks(model, tp, kv_dtype, tokens, more) -> None:  # type: ignore[no-untyped-def]
    cache = cache_layout(model, tp=tp, stage_layers=(model.num_layers,), options=CacheOptions(kv_dtype=kv_dtype))
    assert cache.held_blocks(tokens + more) >= cache.held_blocks(tokens) > 0
    assert cache.admission_blocks(tokens, 8192) >= cache.held_blocks(tokens) - len(cache.groups)
    assert cache.admission_blocks(tokens, 16_384) >= cache.admission_blocks(tokens, 8192)


@given(model=models, pp=st.sampled_from((1, 2, 3, 4, 8)))
def test_no_stage_pays_more_for_a_block_than_the_whole_model(model, pp: int) -> None:  # type: ignore[no-untyped-def]
    whole = cache_layout(model, tp=8 if model.family != "qwen3_moe" else 4, stage_layers=(model.num_layers,))
    split = cache_layout(
        model, tp=8 if model.family != "qwen3_moe" else 4, stage_layers=stage_split(model.num_layers, pp)
    )
    assert max(split.bytes_per_block) <= whole.bytes_per_block[0]
    assert sum(split.bytes_per_block) >= whole.bytes_per_block[0]


@given(p50=st.integers(1, 10_000), spread=st.tuples(st.floats(1, 10), st.floats(1, 10)))
def test_the_mean_length_lies_between_median_and_tail(p50: int, spread: tuple[float, float]) -> None:
    p90 = round(p50 * spread[0])
    quantiles = Quantiles(p50=p50, p90=p90, p99=round(p90 * spread[1]))
    assert quantiles.p50 <= mean_tokens(quantiles) <= quantiles.p99


def test_padding_is_the_one_exception_to_more_tp_less_weight() -> None:
    """Kimi-K3 without expert parallelism from TP16 to TP32 keeps its expert bytes (vllm-project/vllm issue 51124)."""
    model = model_by_id("Kimi-K3")
    sizes = [stage_weights(model, split=Split(tp=tp), layers=range(93)).parameters["routed_experts"] for tp in (16, 32)]
    assert sizes[0] == sizes[1]
