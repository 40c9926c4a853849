"""What the catalog says of names in a document; every hint is followed and works."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from roadworthy.catalog.engines import read_engines
from roadworthy.catalog.vocabulary import CatalogVocabulary
from roadworthy.spec.kinds import WrongValueError

if TYPE_CHECKING:
    from roadworthy.spec.values import Scalar

VOCABULARY = CatalogVocabulary(is_checkpoint=lambda config: config == "./here")


@pytest.mark.parametrize(
    "config",
    ["tiny", "deepseek-v4-pro", "deepseek-ai/DeepSeek-V4-Pro", "deepseek-ai/DeepSeek-V4-Flash", "moonshotai/Kimi-K3",
     "moonshotai/Kimi-Linear-48B-A3B-Instruct", "deepseek-ai/DeepSeek-V3", "meta-llama/Llama-3.1-70B",
     "Qwen/Qwen3-235B-A22B", "./here"],
)  # fmt: skip
def test_models_of_the_catalog_and_checkpoints_that_exist_pass(config: str) -> None:
    assert VOCABULARY.model(config) == config


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        ("deepseek-ai/DeepSeek-V4-Por", "did you mean deepseek-ai/DeepSeek-V4-Pro?"),
        ("kimi-k33", "did you mean Kimi-K3?"),
        ("./elsewhere", "paths are relative to the document"),
        ("zzz", "`roadworthy models` lists the catalog; a path begins with / or ./"),
    ],
)
def test_other_models_are_refused_with_a_way_on(config: str, hint: str) -> None:
    with pytest.raises(WrongValueError) as raised:
        VOCABULARY.model(config)
    assert raised.value.hint == hint
    meant = re.search(r"did you mean (\S+)\?", hint)
    if meant:
        assert VOCABULARY.model(meant[1])


def test_a_gpu_becomes_its_id_and_a_line_its_newest_version() -> None:
    assert VOCABULARY.gpu("h200") == "H200-141GB"
    assert VOCABULARY.gpu("CPU") == "cpu"
    assert VOCABULARY.version("0.32") == "0.32.0"
    assert VOCABULARY.version("0.33.1") == "0.33.1"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("max_num_seqs", 64), ("gpu_memory_utilization", 0.95), ("enforce_eager", True), ("kv_cache_dtype", "fp8"),
        ("compilation_config", '{"mode": 3}'), ("load_format", "dummy"), ("max_num_seqs", None), ("cpu_offload_gb", 4),
    ],
)  # fmt: skip
def test_a_setting_of_the_right_type_passes_as_it_is(name: str, value: Scalar) -> None:
    assert VOCABULARY.setting("0.33.0", name, value) == value


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("max_num_seqs", "many", "a whole number"),
        ("max_num_seqs", True, "a whole number"),
        ("max_num_seqs", 0, "a whole number from 1"),
        ("gpu_memory_utilization", 92, "a share above 0 and up to 1, such as 0.92"),
        ("gpu_memory_utilization", "most", "a number"),
        ("enforce_eager", 1, "true or false"),
        ("compilation_config", "fast", "a JSON object as text"),
        ("compilation_config", "[1]", "a JSON object as text"),
        ("load_format", True, "text"),
        ("middleware", "x", "a setting of one value"),
        ("model", "x", "model.config in the document instead"),
        ("max_model_len", 4096, "model.max_model_len in the document instead"),
    ],
)
def test_a_setting_of_the_wrong_type_or_place_is_refused(name: str, value: Scalar, wanted: str) -> None:
    with pytest.raises(WrongValueError) as raised:
        VOCABULARY.setting("0.33.0", name, value)
    assert raised.value.wanted == wanted


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("max-num-seqs", "write it as max_num_seqs"),
        ("--max-num-seqs", "write it as max_num_seqs"),
        ("no_enable_prefix_caching", "write it as enable_prefix_caching: false"),
        ("max_num_seq", "did you mean max_num_seqs?"),
        ("cuda_graph_max_batch_size", "max_cudagraph_capture_size"),
    ],
)
def test_an_unknown_setting_is_met_with_the_one_meant(name: str, hint: str) -> None:
    with pytest.raises(WrongValueError) as raised:
        VOCABULARY.setting("0.33.0", name, 1)
    assert raised.value.hint == hint
    assert raised.value.wanted == "a setting of vLLM 0.33.0"


def test_a_choice_near_a_real_one_is_pointed_to() -> None:
    with pytest.raises(WrongValueError) as raised:
        VOCABULARY.setting("0.33.0", "kv_cache_dtype", "bfloat61")
    assert raised.value.hint == "did you mean bfloat16?"


@pytest.mark.parametrize("name", read_engines()["gone"])
def test_settings_of_old_guides_are_answered_with_something_that_is_accepted(name: str) -> None:
    with pytest.raises(WrongValueError) as raised:
        VOCABULARY.setting("0.33.0", name, 1)
    hint = raised.value.hint
    if hint.startswith("leave it out"):
        return
    for setting, written in re.findall(r"([a-z_]+): ('[^']*'|true|false|ray)", hint):
        value: Scalar = {"true": True, "false": False}.get(written, written.strip("'"))
        assert VOCABULARY.setting("0.33.0", setting, value) == value
    assert re.match(r"[a-z0-9_]+", hint)
