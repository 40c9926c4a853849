"""What `plan` says of start-up and of alternatives, in words and in JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from roadworthy.cli.plan import command


def run(document: str, *flags: str, tmp_path: Path) -> Any:
    file = tmp_path / "case.yaml"
    file.write_text(document, encoding="utf-8")
    runner = CliRunner(env={"COLUMNS": "400", "NO_COLOR": "1"})
    return runner.invoke(command, [str(file), "--no-queueing", *flags], standalone_mode=False)


HYBRID = """
model: {config: kimi-linear, max_model_len: 131072}
cluster: {gpu: H200}
engine: {version: 0.26.0, settings: {max_num_seqs: 1024}}
"""


def test_the_hybrid_default_is_refused_in_the_first_lines_with_its_number_and_its_mend(tmp_path: Path) -> None:
    result = run(HYBRID, tmp_path=tmp_path)
    assert result.return_value == 1
    first = next(line for line in result.stdout.splitlines() if line.startswith("Nothing fits."))
    assert "1,024 x 1,888 rows: 29.50 GiB" in first
    assert "max_num_seqs 34 takes 1.08 GiB" in first


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ("tensor_parallel_size: 32", "tp 32 exceeds o_groups 16"),
        (
            "enable_expert_parallel: true, enable_eplb: true, data_parallel_size: 4, "
            """eplb_config: '{"num_redundant_experts": 4}'""",
            "384 experts + 4 redundant over EP32 leave 4, so vLLM fails while it builds the model; nearest legal "
            "num_redundant_experts: 0 or 32",
        ),
    ],
)
def test_a_wrong_split_is_refused_with_the_number(settings: str, said: str, tmp_path: Path) -> None:
    document = f"""
model: {{config: v4-pro, max_model_len: 32K}}
cluster: {{nodes: 4, gpus_per_node: 8, gpu: H100-80GB}}
engine: {{settings: {{{settings}}}}}
"""
    result = run(document, tmp_path=tmp_path)
    assert said in result.stdout


LLAMA = """
model: {config: llama-70b, max_model_len: 32K}
cluster: {gpus_per_node: 4, gpu: H100-80GB}
engine: {settings: {enable_lora: true, max_lora_rank: "64"}}
"""


def test_warnings_and_options_are_printed_and_in_the_json(tmp_path: Path) -> None:
    text = run(LLAMA, tmp_path=tmp_path).stdout
    assert "Start-up\n  - 1 slots of rank 64 take" in text
    assert "\nOptions\n  - FP8 KV cache (kv_cache_dtype: fp8): +" in text
    document = json.loads(run(LLAMA, "--json", tmp_path=tmp_path).stdout)
    assert [warning["code"] for warning in document["layouts"][0]["warnings"]] == ["lora_slots"]
    names = [option["name"] for option in document["options"]]
    assert names == ["fp8_kv_cache", "weights_in_host_memory", "kv_cache_in_host_memory"]
    assert document["options"][1]["device_bytes"] == -document["options"][1]["settings"]["cpu_offload_gb"] * 2**30


def test_an_illegal_lora_rank_or_eplb_text_is_wrong_input_without_a_traceback(tmp_path: Path) -> None:
    for wrong in ('max_lora_rank: "48"', """eplb_config: '{"num_redundant_experts": -1}'"""):
        result = run(LLAMA.replace('max_lora_rank: "64"', wrong), tmp_path=tmp_path)
        assert type(result.exception).__name__ == "SpecError"
