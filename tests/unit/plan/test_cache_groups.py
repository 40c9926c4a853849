"""Cache groups, block counts and bytes per block against vLLM's own KV planner and allocator, exactly."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roadworthy.catalog.models import model_by_id
from roadworthy.core.errors import Unsupported
from roadworthy.plan.cache_groups import CacheOptions, cache_layout, in_flight_tokens
from roadworthy.plan.layouts import stage_split
from roadworthy.spec.model import DenseMlp, GqaAttention, Layer


def test_blocks_and_bytes_equal_vllms_planner(layout_row: dict[str, Any]) -> None:
    kv = layout_row["kv"]
    if layout_row["attention_backend"] != "default" and layout_row["kv_cache_dtype"] == "fp8":
        pytest.skip("plain FP8 pages of the SM100 backend are not modelled")
    model = model_by_id(layout_row["model"])
    cache = cache_layout(
        model,
        tp=layout_row["tp"],
        stage_layers=stage_split(model.num_layers, layout_row["pp"]),
        options=CacheOptions(
            kv_dtype=layout_row["kv_cache_dtype"],
            prefix_caching=layout_row["prefix_caching"],
            state_dtype=layout_row["mamba_ssm_cache_dtype"] or "auto",
        ),
    )
    in_flight = in_flight_tokens(pp=layout_row["pp"], max_num_batched_tokens=kv["max_num_batched_tokens"])
    assert list(cache.bytes_per_block) == kv["bytes_per_block"]
    assert cache.block_tokens == kv["block_tokens"]
    assert in_flight == kv["in_flight_tokens"]
    for tokens, expected in kv["blocks_per_request_max"].items():
        ours = [group.admitted(int(tokens), in_flight) for group in cache.groups]
        assert sorted(ours) == sorted(expected)
        assert cache.admission_blocks(int(tokens), in_flight) == sum(expected)


def _kv_dtype(row: dict[str, Any], family: str) -> Any:
    if row["kv_cache_dtype"].startswith("fp8"):
        return "fp8"
    return "bfloat16" if family == "deepseek_v4" else "auto"


def test_a_decoding_request_holds_the_upper_end_of_what_the_allocator_gives(sequence_row: dict[str, Any]) -> None:
    model = model_by_id(sequence_row["model"])
    options = CacheOptions(kv_dtype=_kv_dtype(sequence_row, model.family))
    cache = cache_layout(model, tp=8, stage_layers=(model.num_layers,), options=options)
    held = cache.held_blocks(sequence_row["tokens"])
    assert sequence_row["resident_blocks_min"] <= held == sequence_row["resident_blocks_max"]
    assert cache.bytes_per_block == (sequence_row["bytes_per_block"],)
    assert held * cache.bytes_per_block[0] == sequence_row["resident_bytes_per_rank_max"]
    assert cache.admission_blocks(sequence_row["tokens"], 16_384) == sequence_row["admission_blocks"]


def test_held_blocks_bracket_a_real_decode(allocator_row: dict[str, Any]) -> None:
    """While the context grows from the prompt to prompt + 1,600 tokens, the allocator stays at or below our count."""
    model = model_by_id(allocator_row["model"])
    options = CacheOptions(prefix_caching=allocator_row.get("prefix_caching", True))
    cache = cache_layout(model, tp=8, stage_layers=(model.num_layers,), options=options)
    end = allocator_row["prompt"] + allocator_row["decode_tokens"]
    assert cache.held_blocks(end) == allocator_row["decode_blocks_max"]
    assert cache.held_blocks(allocator_row["prompt"] + 1) >= allocator_row["decode_blocks_min"]


def test_vllm_0_26_rounded_the_hybrid_block_to_16_tokens() -> None:
    """Measured on H200: 1,888 tokens and 15,224,832 bytes at TP1, 944 tokens at TP2; 1,920 and 1,024 since."""
    model = model_by_id("Kimi-Linear-48B-A3B")
    old = CacheOptions(alignment_tokens=16, prefix_caching=False)
    one = cache_layout(model, tp=1, stage_layers=(27,), options=old)
    assert (one.block_tokens, one.bytes_per_block) == (1888, (15_224_832,))
    assert cache_layout(model, tp=2, stage_layers=(27,), options=old).block_tokens == 944


def test_recurrent_state_of_a_sequence_is_shared_by_the_ranks() -> None:
    """449.4 MB over all ranks for Kimi-K3, 56.2 MB on each of eight."""
    model = model_by_id("Kimi-K3")
    whole = cache_layout(model, tp=1, stage_layers=(93,)).state_bytes_per_sequence
    assert whole == 69 * (6_291_456 + 221_184)
    assert cache_layout(model, tp=8, stage_layers=(93,)).state_bytes_per_sequence == whole // 8


def test_a_cpu_uses_blocks_of_128_tokens_unless_told_otherwise() -> None:
    model = model_by_id("tiny")
    cache = cache_layout(model, tp=1, stage_layers=(2,), options=CacheOptions(on_cpu=True))
    assert (cache.block_tokens, cache.bytes_per_block) == (128, (128 * 2 * 2 * 2 * 64 * 2,))
    told = cache_layout(model, tp=1, stage_layers=(2,), options=CacheOptions(on_cpu=True, block_tokens=32))
    assert told.block_tokens == 32


def test_a_mix_of_attention_kinds_without_a_rule_is_refused_by_name() -> None:
    model = model_by_id("DeepSeek-V3")
    gqa = Layer(attention=GqaAttention(heads=8, kv_heads=8, head_dim=64), mlp=DenseMlp(intermediate=64))
    with pytest.raises(Unsupported, match="GqaAttention, MlaAttention"):
        cache_layout(replace(model, layers=(*model.layers, gqa)), tp=1, stage_layers=(62,))
