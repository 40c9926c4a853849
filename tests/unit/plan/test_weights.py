"""Weights in closed form against vLLM's own model classes and the published checkpoints, to the byte."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from roadworthy.catalog.models import model_by_id
from roadworthy.plan.layouts import stage_split
from roadworthy.plan.weights import Split, checkpoint_totals, draft_layer_bytes, split_of, stage_weights
from roadworthy.plan.weights.formats import matrix_bytes, round_up

SINK_BYTES_UNPADDED = {"DeepSeek-V4-Pro": 61 * 4 * (64 - 16), "DeepSeek-V4-Flash": 43 * 4 * (64 - 8)}
"""At TP8 the SM100 backend keeps only a rank's own sinks; ours pads them to 64 as Hopper's does."""


def _split(row: dict[str, Any]) -> Split:
    tp, pp, dp = row["tp"], row.get("pp", 1), row.get("dp", 1)
    return split_of(tp=tp, pp=pp, dp=dp, ep=tp * dp if row.get("expert_parallel") else 1)


def test_every_stage_of_every_layout_weighs_what_vllm_allocates(layout_row: dict[str, Any]) -> None:
    model = model_by_id(layout_row["model"])
    start = 0
    for expected, count in zip(layout_row["stages"], stage_split(model.num_layers, layout_row["pp"]), strict=True):
        ours = stage_weights(
            model,
            split=_split(layout_row),
            layers=range(start, start + count),
            state_dtype=layout_row["mamba_ssm_cache_dtype"] or "auto",
        )
        start += count
        assert count == expected["layers"]
        assert ours.post_load_bytes == expected["post_load_bytes"]
        if layout_row["attention_backend"] != "default":
            assert ours.parameter_bytes - expected["param_bytes"] == SINK_BYTES_UNPADDED[layout_row["model"]]
            continue
        assert ours.parameter_bytes == expected["param_bytes"]
        assert ours.buffer_bytes == expected["buffer_bytes"]
        names = {*ours.parameters, *ours.buffers}
        by_name = {name: ours.parameters.get(name, 0) + ours.buffers.get(name, 0) for name in names}
        assert by_name == expected["components"]


def test_a_draft_layer_weighs_what_vllm_allocates(draft_row: dict[str, Any]) -> None:
    assert draft_layer_bytes(model_by_id(draft_row["model"]), _split(draft_row)) == draft_row["bytes"]


def test_a_model_without_draft_layers_has_no_draft_bytes() -> None:
    assert draft_layer_bytes(model_by_id("Llama-3.1-70B"), Split(tp=8)) == 0


def test_checkpoint_components_equal_the_published_index(component: tuple[str, str], memory: dict[str, Any]) -> None:
    model_name, part = component
    ours = checkpoint_totals(model_by_id(model_name)).components[part]
    assert {
        "params": ours.parameters,
        "weight_bytes": ours.weight_bytes,
        "scale_bytes": ours.scale_bytes,
    } == memory["models"][model_name]["components"][part]


def test_checkpoint_totals_equal_the_published_index(model_name: str, memory: dict[str, Any]) -> None:
    totals, expected = checkpoint_totals(model_by_id(model_name)), memory["models"][model_name]
    assert totals.parameters == expected["params_main"]
    assert totals.bytes == expected["checkpoint_bytes"]


def test_kimi_k3_in_fp8_weighs_2_82_terabytes() -> None:
    assert checkpoint_totals(model_by_id("Kimi-K3", weights="fp8")).bytes == pytest.approx(2.82e12, rel=0.002)


def test_v4_pro_repacked_to_fp8_weighs_about_1590_gigabytes() -> None:
    totals = checkpoint_totals(model_by_id("DeepSeek-V4-Pro", weights="fp8"))
    assert totals.bytes - totals.components["mtp"].bytes == pytest.approx(1590e9, rel=0.01)


def test_sharded_shared_experts_save_what_the_pull_request_reports(memory: dict[str, Any]) -> None:
    """vLLM pull request 50912: 16.98 GiB at TP4, shared experts split instead of copied."""
    model, row = model_by_id("Kimi-K3"), next(row for row in memory["measured"] if "shared-expert" in row["id"])
    copied = stage_weights(model, split=Split(tp=4, expert_ranks=8, sequence_parallel=True), layers=range(93))
    shared = stage_weights(model, split=Split(tp=4, expert_ranks=8), layers=range(93))
    saved_gib = (copied.parameters["shared_experts"] - shared.parameters["shared_experts"]) / 2**30
    assert saved_gib == pytest.approx(row["expected"]["saved_gib"], abs=row["tolerance"]["saved_gib"])


def test_experts_without_expert_parallelism_are_padded_beyond_tp_8() -> None:
    """Kimi-K3 pads 192 and 96 columns to 256: TP32 holds as many expert bytes as TP16."""
    model = model_by_id("Kimi-K3")
    by_tp = {tp: stage_weights(model, split=Split(tp=tp), layers=range(93)).parameters for tp in (8, 16, 32)}
    assert by_tp[16]["routed_experts"] == by_tp[32]["routed_experts"] > by_tp[8]["routed_experts"] / 2


@pytest.mark.parametrize("family_model", ["Llama-3.1-8B", "tiny"])
def test_tied_embeddings_are_stored_and_loaded_once(family_model: str) -> None:
    model = replace(model_by_id(family_model), tie_word_embeddings=True)
    embedding = 2 * model.vocab_size * model.hidden_size
    weights = stage_weights(model, split=Split(), layers=range(model.num_layers))
    assert "lm_head" not in weights.parameters
    assert weights.parameters["embedding"] == embedding
    assert "lm_head" not in checkpoint_totals(model).components


def test_the_last_stage_of_a_tied_model_needs_the_embedding_again() -> None:
    model = replace(model_by_id("Llama-3.1-8B"), tie_word_embeddings=True)
    last = stage_weights(model, split=Split(), layers=range(16, 32))
    assert last.parameters["lm_head"] == 2 * model.vocab_size * model.hidden_size


def test_matrix_bytes_worked_by_hand() -> None:
    assert matrix_bytes(128, 256, "bf16") == 65_536
    assert matrix_bytes(129, 256, "fp8_block128_e8m0") == 129 * 256 + 2 * 2
    assert matrix_bytes(129, 256, "fp8_block128_f32") == 129 * 256 + 4 * 2 * 2
    assert matrix_bytes(128, 256, "fp8_channel") == 128 * 256 + 4 * 128
    assert matrix_bytes(128, 256, "mxfp4_group32") == 128 * 128 + 128 * 8
    assert round_up(129, 64) == 192
