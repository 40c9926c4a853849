"""`roadworthy cost`: pinned keys, exit codes, pages and messages."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from roadworthy.cli.cost import command
from roadworthy.core.errors import Infeasible, SpecError

DOCUMENT = """
model: {config: DeepSeek-V4-Pro, max_model_len: 32K}
cluster: {nodes: 4, gpus_per_node: 8, gpu: H100-80GB, nics: [{count: 8, rate: 400Gb/s}]}
workload: {prompt_tokens: {p50: 213, p90: 396, p99: 634}, output_tokens: {p50: 177, p90: 325, p99: 512}, rate: 16/s}
sla: {tpot_p99: %s}
cost: {%s}
"""
RUN = {"output_tokens_per_s": 3148.8, "total_tokens_per_s": 6963.2, "verdict": "met"}
BRIEF = "fixed_per_month: 57000, utilisation: 1, api: {name: theirs, input_miss: 2.5, output: 2.5}"


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    return write(tmp_path, BRIEF)


def write(folder: Path, cost: str, tpot: str = "80ms") -> Path:
    path = folder / "chat.yaml"
    path.write_text(DOCUMENT % (tpot, cost), encoding="utf-8")
    return path


def run(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], standalone_mode=False)


def measured(folder: Path, **changes: object) -> Path:
    path = folder / "run.json"
    path.write_text(json.dumps({**RUN, **changes}), encoding="utf-8")
    return path


def test_the_pinned_keys_carry_the_worked_values(spec: Path, tmp_path: Path) -> None:
    result = run(spec, "--measured", measured(tmp_path), "--json")
    found = json.loads(result.stdout)
    assert result.return_value == 0
    assert found["fixed_per_month"] == 57_000
    assert found["capacity_tokens_per_month"] == pytest.approx(18.299e9, rel=1e-4)
    assert found["unit_cost_per_mtok"] == pytest.approx(3.11, abs=0.01)
    assert found["blended_api_price_per_mtok"] == pytest.approx(2.5)
    assert found["break_even_tokens_per_month"] is None
    assert found["decision"] == "API"
    assert any("22.8 B" in reason and "8,676" in reason for reason in found["reasons"])
    assert found["gpu_hour"] == pytest.approx(2.440, abs=5e-4)


def test_a_measured_run_outside_the_sla_is_told_first_and_ends_with_1(spec: Path, tmp_path: Path) -> None:
    result = run(spec, "--measured", measured(tmp_path, verdict="missed", reason="P99 over"), "--json")
    found = json.loads(result.stdout)
    assert result.return_value == 1
    assert found["decision"] == "undecided"
    assert "P99 over" in found["reasons"][0]


def test_the_plan_is_priced_by_default(spec: Path) -> None:
    found = json.loads(run(spec, "--json").stdout)
    assert found["throughput"]["kind"] == "planned"
    assert found["throughput"]["output_tokens_per_s"] > 0
    assert found["throughput"]["error_band"] > 0


def test_a_promise_that_no_plan_keeps_ends_with_1(tmp_path: Path) -> None:
    result = run(write(tmp_path, BRIEF, tpot="1ms"))
    assert result.return_value == 1
    assert "Decision: change hardware\n  - No plan on these GPUs meets the SLA" in result.stdout


def test_the_twin_finds_a_rate_within_the_sla(spec: Path) -> None:
    result = run(spec, "--simulate", "--json")
    found = json.loads(result.stdout)
    assert found["throughput"]["kind"] == "simulated"
    assert found["throughput"]["meets_sla"] is True
    assert "simulating 1,000 requests" in result.stderr


def test_the_page_holds_the_curve_and_loads_nothing(spec: Path, tmp_path: Path) -> None:
    page = tmp_path / "cost.html"
    run(spec, "--measured", measured(tmp_path), "--html", page)
    text = page.read_text(encoding="utf-8")
    assert text.count("<svg") == 2
    assert "<script" not in text
    assert "://" not in text
    assert "22.8 B" in text


def test_names_from_the_document_are_escaped_in_the_page(tmp_path: Path) -> None:
    spec = write(tmp_path, 'fixed_per_month: 1, api: {name: "<b>&", input_miss: 1, output: 2}')
    page = tmp_path / "cost.html"
    run(spec, "--measured", measured(tmp_path), "--html", page)
    assert "<b>&" not in page.read_text(encoding="utf-8")


def test_no_known_price_says_what_to_set(tmp_path: Path) -> None:
    spec = write(tmp_path, "")
    spec.write_text(spec.read_text().replace("H100-80GB", "A100-80GB"), encoding="utf-8")
    result = run(spec, "--measured", measured(tmp_path))
    assert isinstance(result.exception, SpecError)
    assert "no price is known for A100-80GB" in str(result.exception)
    assert "cost.gpu_hour" in result.exception.hint


def test_nothing_that_fits_is_infeasible(examples: Path) -> None:
    assert isinstance(run(examples / "kimi-k3-fp8-32xh100.yaml").exception, Infeasible)


@pytest.mark.parametrize(("text", "word"), [("{", "not JSON"), ("[1]", "wanted the object"), ("{}", "output_tokens")])
def test_a_file_that_is_no_run_is_refused(spec: Path, tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "run.json"
    path.write_text(text, encoding="utf-8")
    result = run(spec, "--measured", path)
    assert isinstance(result.exception, SpecError)
    assert word in str(result.exception)


def test_two_throughputs_are_refused(spec: Path, tmp_path: Path) -> None:
    assert isinstance(run(spec, "--measured", measured(tmp_path), "--simulate").exception, SpecError)


def test_simulate_without_a_promise_is_refused(tmp_path: Path) -> None:
    spec = write(tmp_path, BRIEF)
    spec.write_text("\n".join(line for line in spec.read_text().splitlines() if not line.startswith("sla")))
    result = run(spec, "--simulate")
    assert isinstance(result.exception, SpecError)
    assert "sla.ttft_p99" in result.exception.hint


@pytest.mark.parametrize("cost", ["", BRIEF, BRIEF + ", volume_per_month: 100B, ramp_months: 12", "fixed_per_month: 0"])
def test_the_report_keeps_to_80_columns(tmp_path: Path, cost: str) -> None:
    result = run(write(tmp_path, cost), "--measured", measured(tmp_path))
    assert result.exception is None
    assert max(len(line) for line in result.stdout.splitlines()) <= 80


@pytest.mark.parametrize("name", ["deepseek-v4-flash-2xh200", "kimi-k3-32xh100", "deepseek-v4-pro-8xh200"])
def test_an_example_is_answered_with_its_reasons(examples: Path, name: str) -> None:
    result = run(examples / f"{name}.yaml", "--json")
    found = json.loads(result.stdout)
    assert result.return_value == (1 if found["sla_met_at_asked_rate"] is False else 0)
    assert found["fixed_per_month_range"]["low"] <= found["fixed_per_month"] <= found["fixed_per_month_range"]["high"]
    assert found["unit_cost_per_mtok"] == pytest.approx(
        found["fixed_per_month"] / found["capacity_tokens_per_month"] * 1e6
    )
    assert found["decision"]
    assert found["reasons"]
