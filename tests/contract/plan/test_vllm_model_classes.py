"""Bytes of one rank against vLLM's own classes of the window mixes, built on the meta device."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any

import pytest

from roadworthy.catalog.models import model_from_config
from roadworthy.plan.weights import Split, stage_weights
from support.programs import GEMMA_3_27B, ask, gpt_oss

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: its classes are built directly"),
]

ROPE = {"rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "rope_theta": 1e6, "rope_local_base_freq": 1e4}
TEXT_OF_GEMMA = GEMMA_3_27B["text_config"] | ROPE | {"architectures": ["Gemma3ForCausalLM"]}
CONFIGS: dict[str, dict[str, Any]] = {
    "gemma-3-27b text": TEXT_OF_GEMMA, "gpt-oss-120b": gpt_oss(36, 128), "gpt-oss-20b": gpt_oss(24, 32),
}  # fmt: skip


@pytest.fixture(scope="module")
def built() -> dict[str, dict[str, int]]:
    return dict(zip(CONFIGS, ask("vllm_weights", list(CONFIGS.values())), strict=True))


@pytest.mark.parametrize("name", list(CONFIGS))
def test_a_rank_holds_what_vllms_class_allocates(name: str, built: dict[str, dict[str, int]]) -> None:
    model = model_from_config(CONFIGS[name], model_id=name)
    ours = stage_weights(model, split=Split(), layers=range(model.num_layers))
    assert ours.parameter_bytes == built[name]["parameter_bytes"]
    assert ours.buffer_bytes == built[name]["buffer_bytes"]
