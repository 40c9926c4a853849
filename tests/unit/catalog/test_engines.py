"""Engine lines: versions, defaults by device, settings as the engine's own source spells them."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from roadworthy.catalog.engines import batch_defaults, engine_line, known_lines, known_settings, read_engines
from roadworthy.catalog.gpus import gpu_by_name
from roadworthy.core.errors import Unsupported

ROOT = Path(__file__).resolve().parents[3]


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


def test_no_setting_is_both_there_and_gone() -> None:
    assert not set(read_engines()["gone"]) & set(known_settings())
    assert set(read_engines()["elsewhere"]) <= set(known_settings())


def test_the_list_of_settings_is_what_the_installed_vllm_has() -> None:
    package = importlib.util.find_spec("vllm")
    if package is None or not package.submodule_search_locations:
        pytest.skip("vLLM is not installed: its source cannot be compared")
    tree = Path(next(iter(package.submodule_search_locations)))
    version = (tree / "_version.py").read_text(encoding="utf-8")
    catalog = yaml.safe_load((ROOT / "src/roadworthy/catalog/vllm_settings.yaml").read_text(encoding="utf-8"))
    if f"'{catalog['read_from']}" not in version:
        pytest.skip(f"the installed vLLM is not {catalog['read_from']}, which the list was read from")
    printed = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / "engine-settings"), str(tree)],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert yaml.safe_load(printed) == catalog["settings"]
