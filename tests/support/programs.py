"""Programs that import vLLM or transformers, run once for many cases; and the configs of models that mix windows."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


def ask(program: str, cases: list[Any]) -> list[Any]:
    """What ``tests/support/<program>.py`` answers to ``cases``."""
    result = subprocess.run(
        [sys.executable, str(HERE / f"{program}.py")], input=json.dumps(cases), capture_output=True, text=True,
        timeout=110, check=False,
    )  # fmt: skip
    lines = [line for line in result.stdout.splitlines() if line.startswith("ANSWERS ")]
    assert lines, f"{program} gave no answer:\n{result.stderr[-3000:]}"
    answers: list[Any] = json.loads(lines[0].removeprefix("ANSWERS "))
    return answers


def published_configs(root: Path) -> dict[str, dict[str, Any]]:
    """The published config.json files below ``root``, by the model's name."""
    return {
        path.name.split("--")[1].removesuffix("_config.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in sorted((root / "facts" / "configs").glob("*_config.json"))
    }


GEMMA_3_27B: dict[str, Any] = {
    "architectures": ["Gemma3ForConditionalGeneration"],
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text", "head_dim": 128, "hidden_size": 5376, "intermediate_size": 21504,
        "num_attention_heads": 32, "num_hidden_layers": 62, "num_key_value_heads": 16, "query_pre_attn_scalar": 168,
        "sliding_window": 1024, "sliding_window_pattern": 6, "vocab_size": 262208, "max_position_embeddings": 131072,
    },
    "vision_config": {
        "model_type": "siglip_vision_model", "hidden_size": 1152, "image_size": 896, "intermediate_size": 4304,
        "num_attention_heads": 16, "num_hidden_layers": 27, "patch_size": 14, "vision_use_head": False,
    },
}  # fmt: skip
"""Fields of google/gemma-3-27b-it as `NVIDIA/TensorRT-LLM` transcribes them in its Gemma-3 tests, full depth."""


def gpt_oss(layers: int, experts: int) -> dict[str, Any]:
    """Fields of openai/gpt-oss-120b (36 layers, 128 experts) and gpt-oss-20b (24, 32): `openai/gpt-oss` model.py."""
    return {
        "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "num_hidden_layers": layers,
        "num_local_experts": experts, "num_experts_per_tok": 4, "hidden_size": 2880, "intermediate_size": 2880,
        "head_dim": 64, "num_attention_heads": 64, "num_key_value_heads": 8, "sliding_window": 128,
        "vocab_size": 201088, "max_position_embeddings": 131072, "attention_bias": True, "tie_word_embeddings": False,
        "layer_types": ["sliding_attention", "full_attention"] * (layers // 2),
        "quantization_config": {
            "quant_method": "mxfp4",
            "modules_to_not_convert": [
                "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
            ],
        },
    }  # fmt: skip
