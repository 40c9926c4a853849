"""Cache groups, bytes per block, blocks and start-up concurrency against vLLM's own KV-cache planner, exactly."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from roadworthy.catalog.models import model_from_config
from roadworthy.plan.cache import CacheLayout
from roadworthy.plan.cache_groups import cache_layout, in_flight_tokens
from roadworthy.plan.layouts import stage_split
from support.programs import GEMMA_3_27B, ask, gpt_oss, published_configs

pytestmark = [
    pytest.mark.engine,
    pytest.mark.skipif(find_spec("vllm") is None, reason="vllm is not installed: its planner is asked directly"),
]

PUBLISHED = [
    "Meta-Llama-3.1-70B", "Qwen3-235B-A22B", "DeepSeek-V3", "Kimi-Linear-48B-A3B-Instruct", "DeepSeek-V4-Flash",
    "DeepSeek-V4-Pro", "Kimi-K3",
]  # fmt: skip
WINDOWED = {"gemma-3-27b": GEMMA_3_27B, "gpt-oss-120b": gpt_oss(36, 128), "gpt-oss-20b": gpt_oss(24, 32)}
SPLITS = [(8, 1), (8, 4), (4, 2), (1, 1)]
AVAILABLE_BYTES, CONTEXT_TOKENS, BATCHED_TOKENS = 40 * 2**30 + 12_345, 32_768, 4096

Judged = dict[tuple[str, int, int], tuple[CacheLayout, dict[str, Any], int]]


@pytest.fixture(scope="module")
def judged(test_data: Path) -> Judged:
    """Every model under every split: our layout, the planner's answer, and the tokens in flight."""
    configs = published_configs(test_data) | WINDOWED
    keys = [(name, tp, pp) for name in [*PUBLISHED, *WINDOWED] for tp, pp in SPLITS]
    layouts, cases = [], []
    for name, tp, pp in keys:
        model = model_from_config(configs[name], model_id=name)
        stages, in_flight = (
            stage_split(model.num_layers, pp),
            in_flight_tokens(pp=pp, max_num_batched_tokens=BATCHED_TOKENS),
        )
        layouts.append(cache_layout(model, tp=tp, stage_layers=stages))
        cases.append(
            {
                "config": configs[name], "tp": tp, "stage_layers": stages, "in_flight_tokens": in_flight,
                "max_model_len": CONTEXT_TOKENS, "available": AVAILABLE_BYTES,
            }
        )  # fmt: skip
    answers = ask("vllm_planner", cases)
    return {
        key: (layout, answer, case["in_flight_tokens"])
        for key, layout, answer, case in zip(keys, layouts, answers, cases, strict=True)
    }


@pytest.mark.parametrize("name", [*PUBLISHED, *WINDOWED])
@pytest.mark.parametrize(("tp", "pp"), SPLITS)
def test_blocks_are_those_of_vllms_planner(name: str, tp: int, pp: int, judged: Judged) -> None:
    ours, theirs, in_flight = judged[name, tp, pp]
    assert list(ours.bytes_per_block) == theirs["bytes_per_block"]
    assert len(ours.groups) == theirs["groups"]
    assert ours.block_tokens == theirs["block_tokens"]
    blocks = min(AVAILABLE_BYTES // size for size in ours.bytes_per_block)
    assert blocks == theirs["num_blocks"]
    assert blocks / ours.admission_blocks(CONTEXT_TOKENS, in_flight) == pytest.approx(theirs["concurrency"], rel=1e-12)
