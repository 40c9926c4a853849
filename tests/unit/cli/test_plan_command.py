"""`roadworthy plan` and `roadworthy models` as commands: pinned JSON, 80 columns, exit codes."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roadworthy.cli.models import command as models_command
from roadworthy.cli.plan import command as plan_command
from roadworthy.core.errors import RoadworthyError, SpecError

LAYOUT_KEYS = {
    "tp", "pp", "dp", "ep", "stage_layers", "feasible", "reasons", "short_by_bytes", "ranks", "tightest_rank",
    "kv_capacity_tokens", "max_concurrency", "kv_resident_tokens", "resident_requests", "kv_blocks", "bytes_per_block",
    "state_bytes_per_sequence", "replicas", "settings", "predicted",
}  # fmt: skip
RANK_KEYS = {
    "rank", "count", "stage", "device_bytes", "weights_bytes", "activation_bytes", "comm_bytes", "runtime_bytes",
    "cudagraph_bytes", "kv_pool_bytes", "free_bytes",
}  # fmt: skip
SETTING_KEYS = {
    "gpu_memory_utilization", "max_model_len", "max_num_seqs", "max_num_batched_tokens", "block_size", "kv_cache_dtype",
}  # fmt: skip
PREDICTED_KEYS = {
    "ttft_p50_s", "ttft_p99_s", "tpot_p50_s", "tpot_p99_s", "output_tokens_per_s", "source", "error_band",
}  # fmt: skip


def run(*arguments: str, columns: int = 80) -> Result:
    """The command without simulation, which has tests of its own."""
    return CliRunner(env={"COLUMNS": str(columns), "NO_COLOR": "1"}).invoke(
        plan_command, ["--no-queueing", *arguments], standalone_mode=False
    )


def plan_json(spec: Path, *options: str) -> dict[str, Any]:
    result = run(str(spec), "--json", *options)
    assert result.exception is None
    document: dict[str, Any] = json.loads(result.stdout)
    return document


def test_json_has_the_pinned_keys(examples: Path) -> None:
    document = plan_json(examples / "deepseek-v4-pro-32xh100.yaml")
    assert {"model", "weights_bytes_total", "assumptions", "layouts"} <= document.keys()
    assert document["model"] == "DeepSeek-V4-Pro"
    assert document["weights_bytes_total"] == 864_704_792_696
    for layout in document["layouts"]:
        assert layout.keys() >= LAYOUT_KEYS
        assert layout["feasible"] in (True, False, "uncertain")
        assert all(rank.keys() == RANK_KEYS for rank in layout["ranks"])
        for rank in layout["ranks"]:
            parts = sum(rank[key] for key in RANK_KEYS - {"rank", "count", "stage", "device_bytes"})
            assert parts == rank["device_bytes"]
        if layout["feasible"]:
            assert layout["settings"].keys() >= SETTING_KEYS
            assert all(setting.keys() == {"value", "why"} for setting in layout["settings"].values())
            assert layout["predicted"].keys() >= PREDICTED_KEYS
            assert layout["predicted"]["simulated"] is None
        else:
            assert layout["reasons"]


@pytest.mark.parametrize(
    "name",
    [
        "bench-gateway", "deepseek-v4-flash-2xh200", "deepseek-v4-pro-32xh100", "deepseek-v4-pro-8xh200",
        "kimi-k3-32xh100", "kimi-k3-32xh200", "kimi-k3-64xh100", "laptop", "llama-3.1-70b-8xa100", "seven-tenants",
    ],
)  # fmt: skip
def test_every_example_has_a_layout_that_fits(name: str, examples: Path) -> None:
    result = run(str(examples / f"{name}.yaml"))
    assert result.exception is None
    assert result.return_value == 0
    assert "Best: " in result.stdout


@pytest.mark.parametrize("columns", [80, 120])
def test_the_report_keeps_to_the_width_and_needs_no_colour(examples: Path, columns: int) -> None:
    result = run(str(examples / "deepseek-v4-pro-32xh100.yaml"), "--all", columns=columns)
    assert max(len(line) for line in result.stdout.splitlines()) <= columns
    assert "\x1b" not in result.stdout
    for word in ("yes", "missed", "tightest", "W weights", "error band", "Assumptions", "Why the others lost"):
        assert word in result.stdout


def test_kimi_k3_in_fp8_is_infeasible_and_says_why_in_bytes(examples: Path) -> None:
    spec = examples / "kimi-k3-fp8-32xh100.yaml"
    result = run(str(spec))
    assert result.return_value == 1
    text = " ".join(result.stdout.split())
    assert "Weights of 2,822,755,361,792 bytes" in text
    assert "against 2,720,604,083,968 bytes" in text
    document = plan_json(spec)
    assert document["feasible"] is False
    assert "2,822,755,361,792 bytes" in document["needed"]
    assert all(layout["feasible"] is False for layout in document["layouts"])


@pytest.mark.parametrize("text", ["TP8 DP4 EP32", "tp8·dp4 +ep32", "TP8 PP1 DP4 EP32", "1 x TP8 DP4 EP32"])
def test_one_layout_can_be_asked_for_as_people_write_it(examples: Path, text: str) -> None:
    document = plan_json(examples / "deepseek-v4-pro-32xh100.yaml", "--layout", text)
    assert [layout["label"] for layout in document["layouts"]] == ["TP8 DP4 EP32"]


def test_a_layout_that_is_none_is_refused_with_one_that_is(examples: Path) -> None:
    spec = str(examples / "deepseek-v4-pro-32xh100.yaml")
    result = run(spec, "--layout", "TP8 PP5")
    assert isinstance(result.exception, SpecError)
    suggestion = result.exception.hint.removeprefix("did you mean '").removesuffix("'?")
    assert run(spec, "--layout", suggestion).exception is None


def test_a_layout_that_loses_ends_with_findings(examples: Path) -> None:
    assert run(str(examples / "deepseek-v4-pro-32xh100.yaml"), "--layout", "4 x TP8").return_value == 1


def test_a_missing_document_is_wrong_input() -> None:
    result = run("no-such-file.yaml")
    assert isinstance(result.exception, RoadworthyError)
    assert result.exception.exit_code == 2


def test_planning_loads_neither_numpy_nor_rich_for_json(examples: Path) -> None:
    """A plan answers within a second of a cold start; heavy imports are how that gets lost."""
    program = (
        "import sys, roadworthy.cli.wiring as w; w.load_planned(sys.argv[1]); "
        "print([m for m in ('numpy', 'rich', 'asyncio', 'httptools', 'hypothesis') if m in sys.modules])"
    )
    spec = str(examples / "kimi-k3-32xh200.yaml")
    done = subprocess.run([sys.executable, "-c", program, spec], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_models_lists_every_catalog_model_with_its_source() -> None:
    runner = CliRunner(env={"COLUMNS": "80", "NO_COLOR": "1"})
    text = runner.invoke(models_command, [], standalone_mode=False).stdout
    document = json.loads(runner.invoke(models_command, ["--json"], standalone_mode=False).stdout)
    assert len(document["models"]) == 12
    for model in document["models"]:
        assert model["id"] in text
        assert model["source"] in text
    assert "LlamaForCausalLM" in document["architectures"]
