"""config.json files that are wrong, unknown or strange: named, all at once, with the way on."""

from __future__ import annotations

from typing import Any

import pytest

from roadworthy.catalog.models import model_from_config
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.plan.weights import checkpoint_totals
from roadworthy.spec.model import GqaAttention

LLAMA: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"],
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "intermediate_size": 2048,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
V3: dict[str, Any] = {
    "architectures": ["DeepseekV3ForCausalLM"],
    "hidden_size": 1024,
    "num_hidden_layers": 4,
    "first_k_dense_replace": 1,
    "num_attention_heads": 16,
    "q_lora_rank": 256,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 64,
    "qk_rope_head_dim": 32,
    "v_head_dim": 64,
    "intermediate_size": 2048,
    "moe_intermediate_size": 256,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_shared_experts": 1,
    "vocab_size": 1000,
    "max_position_embeddings": 4096,
}
KIMI: dict[str, Any] = {
    **V3,
    "architectures": ["KimiLinearForCausalLM"],
    "num_experts": 8,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "linear_attn_config": {
        "kda_layers": [1, 2, 3],
        "full_attn_layers": [4],
        "num_heads": 16,
        "head_dim": 64,
        "short_conv_kernel_size": 4,
    },
}
LINEAR = KIMI["linear_attn_config"]
V4: dict[str, Any] = {
    **V3,
    "architectures": ["DeepseekV4ForCausalLM"],
    "head_dim": 128,
    "o_groups": 4,
    "o_lora_rank": 64,
    "sliding_window": 128,
    "index_n_heads": 4,
    "index_head_dim": 32,
    "index_topk": 64,
    "hc_mult": 4,
    "compress_ratios": [0, 4, 128, 4],
}


def problems(config: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(SpecError) as caught:
        model_from_config(config, model_id="odd")
    return {problem.path: problem.wanted for problem in caught.value.problems}


@pytest.mark.parametrize("config", [LLAMA, V3, KIMI, V4], ids=lambda config: config["architectures"][0])
def test_a_small_but_right_config_is_read(config: dict[str, Any]) -> None:
    model = model_from_config(config, model_id="small")
    assert model.num_layers == 4
    assert checkpoint_totals(model).parameters > 0


def test_an_unknown_architecture_is_refused_with_what_is_known_and_what_is_near() -> None:
    with pytest.raises(Unsupported, match="DeepseekV4ForCausalLM") as caught:
        model_from_config({**LLAMA, "architectures": ["Qwen3NextForCausalLM"]}, model_id="odd")
    assert "Qwen3NextForCausalLM" in str(caught.value)
    assert caught.value.hint == "did you mean Qwen3ForCausalLM?"


@pytest.mark.parametrize("architectures", [None, [], "LlamaForCausalLM", [7]])
def test_a_config_without_an_architecture_says_so(architectures: Any) -> None:
    assert "architectures" in problems({**LLAMA, "architectures": architectures})


def test_every_wrong_field_is_named_in_one_pass() -> None:
    config = {**LLAMA, "hidden_size": -1, "num_hidden_layers": "four", "vocab_size": None, "intermediate_size": 2**40}
    assert set(problems(config)) == {"hidden_size", "num_hidden_layers", "vocab_size", "intermediate_size"}


@pytest.mark.parametrize(
    ("base", "changes", "path"),
    [
        (LLAMA, {"num_key_value_heads": 5}, "num_key_value_heads"),
        (LLAMA, {"hidden_size": 1023}, "hidden_size"),
        (LLAMA, {"attention_bias": True}, "attention_bias"),
        (LLAMA, {"mlp_bias": True}, "mlp_bias"),
        (LLAMA, {"sliding_window": 4096}, "sliding_window"),
        (LLAMA, {"tie_word_embeddings": "no"}, "tie_word_embeddings"),
        (LLAMA, {"num_attention_heads": True}, "num_attention_heads"),
        (LLAMA, {"quantization_config": "fp8"}, "quantization_config"),
        (V3, {"num_experts_per_tok": 9}, "num_experts_per_tok"),
        (V3, {"first_k_dense_replace": 5}, "first_k_dense_replace"),
        (V3, {"moe_layer_freq": 2}, "moe_layer_freq"),
        (KIMI, {"linear_attn_config": LINEAR | {"kda_layers": [1, 2]}}, "linear_attn_config.kda_layers"),
        (KIMI, {"linear_attn_config": LINEAR | {"full_attn_layers": [5]}}, "linear_attn_config.full_attn_layers"),
        (V4, {"compress_ratios": [0, 4, 16, 4]}, "compress_ratios"),
        (V4, {"compress_ratios": [0, 4]}, "compress_ratios"),
        (V4, {"o_groups": 3}, "num_attention_heads"),
        (V4, {"num_key_value_heads": 2}, "num_key_value_heads"),
    ],
)  # fmt: skip
def test_contradictions_are_named_where_they_stand(base: dict[str, Any], changes: dict[str, Any], path: str) -> None:
    assert path in problems({**base, **changes})


@pytest.mark.parametrize(
    ("section", "word"),
    [
        ({"quant_method": "awq"}, "awq"),
        ({"quant_method": "fp8"}, "weight_block_size"),
        ({"quant_method": "compressed-tensors", "format": "int-quantized"}, "int-quantized"),
    ],
)
def test_an_unknown_quantisation_is_refused_by_name(section: dict[str, Any], word: str) -> None:
    with pytest.raises(Unsupported, match=word):
        model_from_config({**LLAMA, "quantization_config": section}, model_id="odd")


def test_fp8_blocks_are_read() -> None:
    section = {"quant_method": "fp8", "weight_block_size": [128, 128]}
    assert (
        model_from_config({**LLAMA, "quantization_config": section}, model_id="x").linear_format == "fp8_block128_f32"
    )


@pytest.mark.parametrize(
    ("architecture", "bias", "norm"), [("Qwen2ForCausalLM", True, False), ("Qwen3ForCausalLM", False, True)]
)
def test_dense_relatives_differ_by_bias_and_norms(architecture: str, bias: bool, norm: bool) -> None:
    model = model_from_config({**LLAMA, "architectures": [architecture]}, model_id="x")
    attention = model.layers[0].attention
    assert isinstance(attention, GqaAttention)
    assert (attention.bias, attention.qk_norm) == (bias, norm)


def test_a_window_that_is_switched_off_is_no_window() -> None:
    config = {**LLAMA, "architectures": ["Qwen2ForCausalLM"], "sliding_window": 4096, "use_sliding_window": False}
    attention = model_from_config(config, model_id="x").layers[0].attention
    assert isinstance(attention, GqaAttention)
    assert attention.window_tokens is None


@pytest.mark.parametrize("name", ["torch_dtype", "dtype"])
def test_a_number_format_that_no_engine_serves_is_named(name: str) -> None:
    with pytest.raises(SpecError) as caught:
        model_from_config({**LLAMA, name: "complex128"}, model_id="odd")
    assert [problem.path for problem in caught.value.problems] == [name]
    assert model_from_config({**LLAMA, name: "float16"}, model_id="fine").num_layers == 4


@pytest.mark.parametrize("head_dim", [999, 4, 520])
def test_a_head_that_no_kernel_takes_is_named(head_dim: int) -> None:
    with pytest.raises(SpecError) as caught:
        model_from_config({**LLAMA, "head_dim": head_dim}, model_id="odd")
    assert "multiple of 8 up to 512" in caught.value.problems[0].wanted
