"""Gemma-3 and gpt-oss: windows beside full attention, tied embedding, sinks, biases, MXFP4 experts, by hand."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import pytest

from roadworthy.catalog.models import model_by_id, model_from_config
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.plan.cache_groups import CacheOptions, cache_layout
from roadworthy.plan.weights import Split, checkpoint_totals, split_of, stage_weights
from support.programs import GEMMA_3_27B, gpt_oss


@pytest.mark.parametrize(
    ("name", "parameters", "size_bytes"),
    [
        ("Gemma-3-27B", 27_432_406_640, 54_864_813_280),
        ("gpt-oss-120b", 116_829_156_672, 65_248_815_744),
        ("gpt-oss-20b", 20_914_757_184, 13_761_264_768),
    ],
)
def test_checkpoints_weigh_what_their_makers_publish(name: str, parameters: int, size_bytes: int) -> None:
    totals = checkpoint_totals(model_by_id(name))
    assert totals.parameters == parameters
    assert totals.bytes == size_bytes


@pytest.mark.parametrize(
    ("name", "config"),
    [
        ("Gemma-3-27B", GEMMA_3_27B | {"text_config": GEMMA_3_27B["text_config"] | {"rope_scaling": {"factor": 8.0}}}),
        ("gpt-oss-120b", gpt_oss(36, 128)),
        ("gpt-oss-20b", gpt_oss(24, 32)),
    ],
)
def test_the_catalog_says_what_the_config_says(name: str, config: dict[str, Any]) -> None:
    assert replace(model_from_config(config, model_id=name), source="") == replace(model_by_id(name), source="")


def test_a_gemma_keeps_ten_full_layers_and_six_groups_of_windows() -> None:
    """52 layers of a 1,024-token window in groups of 10: five groups of 9 or 10, and a sixth."""
    cache = cache_layout(model_by_id("Gemma-3-27B"), tp=1, stage_layers=(62,))
    full = [group for group in cache.groups if group.kind == "full"]
    windows = [group for group in cache.groups if group.kind == "window"]
    assert [group.layers for group in full] == [10]
    assert sorted(group.layers for group in windows) == [8, 8, 9, 9, 9, 9]
    assert cache.bytes_per_block == (10 * 16 * 2 * 16 * 128 * 2,)
    assert cache.held_blocks(32_768) == 2048 + 6 * (64 + 1)


def test_gpt_oss_keeps_one_group_of_each_kind() -> None:
    cache = cache_layout(model_by_id("gpt-oss-120b"), tp=8, stage_layers=(36,), options=CacheOptions(kv_dtype="fp8"))
    assert [(group.kind, group.layers) for group in cache.groups] == [("window", 18), ("full", 18)]
    assert cache.bytes_per_block == (18 * 16 * 2 * 1 * 64,)
    assert cache.held_blocks(131_072) == 8192 + 9


def test_a_tied_embedding_is_loaded_once_unless_stages_part() -> None:
    model = model_by_id("Gemma-3-27B")
    embedding = 2 * 262_208 * 5376
    whole = stage_weights(model, split=Split(), layers=range(62))
    assert whole.parameters["embedding"] == embedding
    assert "lm_head" not in whole.parameters
    assert whole.parameter_bytes == checkpoint_totals(model).bytes
    last = stage_weights(model, split=Split(), layers=range(31, 62))
    assert last.parameters["lm_head"] == embedding
    # the local table, and the global one stretched eightfold
    assert whole.buffers["rope_cache"] == 2 * 128 * 131_072 * (1 + 8)


def test_gpt_oss_pads_an_experts_columns_over_tp_and_not_over_ep() -> None:
    """2,880 / 8 is 360, which Triton's kernels round to 384; whole experts keep their 2,880 columns."""
    model = model_by_id("gpt-oss-120b")
    spread = stage_weights(model, split=split_of(tp=8, pp=1, dp=1, ep=8), layers=range(36))
    cut = stage_weights(model, split=split_of(tp=8, pp=1, dp=1, ep=1), layers=range(36))
    one = 3 * 2880 * 2880 * 17 // 32 + 2 * (2 * 2880 + 2880)
    assert spread.parameters["routed_experts"] == 36 * 16 * one
    padded = 3 * 384 * 2880 * 17 // 32 + 2 * (2 * 384 + 2880)
    assert cut.parameters["routed_experts"] == 36 * 128 * padded
    assert stage_weights(model, split=Split(), layers=range(36)).parameter_bytes == checkpoint_totals(model).bytes


@pytest.mark.parametrize(
    ("change", "place"),
    [
        ({"layer_types": ["full_attention"] * 3}, "layer_types"),
        ({"layer_types": ["chunked_attention"] * 36}, "layer_types"),
        ({"sliding_window": 0}, "sliding_window"),
        ({"sliding_window": None}, "sliding_window"),
        ({"num_key_value_heads": 7}, "num_key_value_heads"),
        ({"num_experts_per_tok": 129}, "num_experts_per_tok"),
        ({"head_dim": -64}, "head_dim"),
    ],
)
def test_fields_that_cannot_be_are_named(change: dict[str, Any], place: str) -> None:
    with pytest.raises(SpecError) as caught:
        model_from_config(gpt_oss(36, 128) | change, model_id="broken")
    assert place in [problem.path for problem in caught.value.problems]


def test_gemmas_fields_are_named_with_their_section() -> None:
    config = copy.deepcopy(GEMMA_3_27B)
    config["text_config"]["hidden_size"] = "wide"
    config["text_config"]["rope_scaling"] = {"factor": -1}
    del config["vision_config"]["patch_size"]
    with pytest.raises(SpecError) as caught:
        model_from_config(config, model_id="broken")
    paths = [problem.path for problem in caught.value.problems]
    assert {"text_config.hidden_size", "text_config.rope_scaling", "vision_config.patch_size"} <= set(paths)


def test_an_mxfp4_that_converts_attention_is_not_known() -> None:
    with pytest.raises(Unsupported):
        model_from_config(gpt_oss(36, 128) | {"quantization_config": {"quant_method": "mxfp4"}}, model_id="other")
