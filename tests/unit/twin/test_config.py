from __future__ import annotations

import json
from dataclasses import replace

import pytest

from roadworthy.core.errors import SpecError
from roadworthy.plan.cache import CacheGroup, CacheLayout
from roadworthy.twin.config import TwinConfig
from support.twin import config

HYBRID = CacheLayout(
    groups=(
        CacheGroup(kind="full", block_tokens=64, layers=3),
        CacheGroup(kind="window", block_tokens=64, layers=2, window_tokens=127),
        CacheGroup(kind="state", block_tokens=64, layers=9, resident_blocks=2, admission_blocks=3),
    ),
    bytes_per_block=(4096, 2048),
    state_bytes_per_sequence=77,
)


@pytest.mark.parametrize(
    "value",
    [
        config(),
        config(cache=HYBRID, max_num_queued_reqs=7, policy="priority", models=("a", "b"), enable_prefix_caching=False),
    ],
)
def test_it_comes_back_from_its_json(value: TwinConfig) -> None:
    assert TwinConfig.from_json(value.to_json()) == value


def test_it_says_that_it_is_simulated() -> None:
    assert json.loads(config().to_json())["label"] == "simulated"
    with pytest.raises(ValueError, match="always labelled simulated"):
        replace(config(), label="vllm")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kv_blocks": "many"}, "kv_blocks: 'many' is of the wrong type"),
        ({"models": []}, "at least one name"),
        ({"max_num_seqs": 0}, "max_num_seqs 0 is not positive"),
        ({"policy": "lottery"}, "policy 'lottery' is neither fcfs nor priority"),
        ({"unheard_of": 1}, "unheard_of"),
        ({"cache": {"groups": [{"kind": "full"}], "bytes_per_block": []}}, "block_tokens"),
        ({"step_time": None}, "mapping"),
    ],
)
def test_a_broken_file_is_refused_with_its_place(change: dict[str, object], message: str) -> None:
    document = json.loads(config().to_json()) | change
    with pytest.raises(SpecError, match=message):
        TwinConfig.from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "{", "[]", "null"])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(SpecError, match="twin configuration"):
        TwinConfig.from_json(text)


def test_a_missing_field_is_named() -> None:
    document = json.loads(config().to_json())
    del document["step_time"]
    with pytest.raises(SpecError, match="'step_time' is missing"):
        TwinConfig.from_json(json.dumps(document))


def test_a_pool_too_small_for_one_request_is_refused_as_vllm_does() -> None:
    with pytest.raises(ValueError, match="kv_blocks 64 hold no request of max_model_len 1024: it takes 64"):
        config(kv_blocks=64)
    config(kv_blocks=65)
