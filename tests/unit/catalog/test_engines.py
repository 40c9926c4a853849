"""Engine lines: versions, defaults by device, settings as the engine's own source spells them."""

from __future__ import annotations

import pytest

from roadworthy.catalog.engines import batch_defaults, engine_line, known_lines, known_settings, read_engines
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.core.errors import Unsupported


def test_the_three_lines_are_known_and_the_default_utilization_changed_between_them() -> None:
    assert [line.line for line in known_lines()] == ["0.33", "0.32", "0.26"]
    assert engine_line("0.33.0").gpu_memory_utilization == 0.92
    assert engine_line("0.32").gpu_memory_utilization == 0.92
    assert engine_line("0.26.1").gpu_memory_utilization == 0.90


@pytest.mark.parametrize("version", ["0.5.0", "0.3", "1.0", "0.330"])
def test_another_version_is_refused_with_the_lines_known(version: str) -> None:
    with pytest.raises(Unsupported) as raised:
        engine_line(version)
    assert "0.33, 0.32, 0.26" in str(raised.value)


@pytest.mark.parametrize(
    ("gpu", "tokens", "sequences"),
    [
        ("B200", 16384, 1024),
        ("H100", 8192, 1024),
        ("H200", 8192, 1024),
        ("A100-80GB", 2048, 256),
        ("L40S", 2048, 256),
        ("L4", 2048, 256),
    ],
)
def test_scheduler_defaults_follow_device_memory_and_the_a100_by_name(gpu: str, tokens: int, sequences: int) -> None:
    found = batch_defaults(gpu_by_name(gpu))
    assert (found.max_num_batched_tokens, found.max_num_seqs) == (tokens, sequences)
    assert batch_defaults(gpu_by_name(gpu), tp=8, pp=4) == found


def test_scheduler_defaults_of_the_cpu_backend_grow_with_the_world() -> None:
    one, four = batch_defaults(gpu_by_name("cpu")), batch_defaults(gpu_by_name("cpu"), tp=2, pp=2)
    assert (one.max_num_batched_tokens, one.max_num_seqs) == (2048, 128)
    assert (four.max_num_batched_tokens, four.max_num_seqs) == (8192, 512)


def test_a_setting_knows_its_flag_and_kind() -> None:
    settings = known_settings()
    assert settings["max_num_seqs"].flag == "--max-num-seqs"
    assert settings["max_num_seqs"].kind == "integer"
    assert settings["gpu_memory_utilization"].kind == "number"
    assert settings["enforce_eager"].kind == "switch"
    assert settings["compilation_config"].kind == "json"
    assert "fp8" in settings["kv_cache_dtype"].choices
    assert {fact.kind for fact in settings.values()} <= {"integer", "number", "switch", "text", "json", "list"}


def test_settings_follow_the_engine_version_and_an_older_engine_has_the_oldest_list() -> None:
    assert "monokernel" in known_settings("0.33.0")
    assert "monokernel" not in known_settings("0.32.1")
    assert known_settings("0.26.0") == known_settings("0.32.0")


def test_a_json_setting_names_the_keys_that_it_takes_or_takes_any() -> None:
    assert "num_redundant_experts" in known_settings()["eplb_config"].keys
    assert known_settings()["hf_overrides"].keys == ()


def test_no_setting_is_both_there_and_gone() -> None:
    assert not set(read_engines()["gone"]) & set(known_settings())
    assert set(read_engines()["elsewhere"]) <= set(known_settings())
