"""Parameter counts against the same models built on the meta device by transformers, exactly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from roadworthy.catalog.models import model_from_config
from roadworthy.plan.weights import checkpoint_totals
from roadworthy.spec.model import MoeMlp
from support.programs import GEMMA_3_27B, ask, gpt_oss, published_configs

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("transformers") is None, reason="transformers is not installed"),
]

PUBLISHED = ["Meta-Llama-3.1-70B", "Qwen3-235B-A22B", "DeepSeek-V3", "DeepSeek-V4-Flash", "DeepSeek-V4-Pro"]
WINDOWED = {"gemma-3-27b": GEMMA_3_27B, "gpt-oss-120b": gpt_oss(36, 128), "gpt-oss-20b": gpt_oss(24, 32)}
BIASES = {"DeepSeek-V4-Pro": 22_272, "DeepSeek-V4-Flash": 10_240, "DeepSeek-V3": 14_848}
"""Router biases, which transformers keeps as buffers: one an expert in every layer that has them."""


@pytest.fixture(scope="module")
def configs(test_data: Path) -> dict[str, dict[str, Any]]:
    published = published_configs(test_data)
    return {name: published[name] for name in PUBLISHED} | WINDOWED


@pytest.fixture(scope="module")
def counted(configs: dict[str, dict[str, Any]]) -> dict[str, int]:
    return dict(zip(configs, ask("meta_parameters", list(configs.values())), strict=True))


@pytest.mark.parametrize("name", [*PUBLISHED, *WINDOWED])
def test_parameters_are_those_of_transformers_and_the_router_biases(
    name: str, configs: dict[str, dict[str, Any]], counted: dict[str, int]
) -> None:
    model = model_from_config(configs[name], model_id=name)
    mlps = [layer.mlp for layer in model.layers if isinstance(layer.mlp, MoeMlp)]
    kept_apart = model.family in ("deepseek_v3", "deepseek_v4")
    biases = sum(mlp.experts for mlp in mlps if kept_apart and mlp.router_bias and not mlp.hash_routed)
    assert biases == BIASES.get(name, 0)
    assert checkpoint_totals(model).parameters == counted[name] + biases
