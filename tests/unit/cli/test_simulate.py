"""The simulate command, on examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from roadworthy.cli.simulate import command, simulate_planned
from roadworthy.cli.simulate_json import simulate_document
from roadworthy.cli.wiring import load_planned
from roadworthy.core.errors import Infeasible

PINNED = {
    "objectives", "ttft_s", "tpot_s", "itl_s", "e2e_s", "requests", "failed", "output_tokens_per_s", "goodput_rps",
    "verdict", "tenants", "utilisation_ratio", "requests_per_cpu_s",
}  # fmt: skip


def simulate(spec: Path, *arguments: str) -> Result:
    return CliRunner().invoke(command, [str(spec), *arguments], standalone_mode=False)


def document(result: Result) -> dict[str, Any]:
    if result.exception is not None:
        raise result.exception
    loaded: dict[str, Any] = json.loads(result.stdout)
    return loaded


def test_json_has_the_pinned_keys_and_says_simulated(examples: Path) -> None:
    report = document(simulate(examples / "laptop.yaml", "--requests", "60", "--json"))
    assert report.keys() >= PINNED
    assert report["simulated"] is True
    assert report["requests"] == 60
    assert {"mean", "p50", "p90", "p95", "p99"} <= report["ttft_s"].keys()
    assert all({"name", "limit", "measured", "met"} <= objective.keys() for objective in report["objectives"])
    assert all({"id", "tokens", "sla_misses", "ttft_s"} <= tenant.keys() for tenant in report["tenants"])
    assert 0 < report["utilisation_ratio"] <= 1
    assert report["requests_per_cpu_s"] > 0


def test_json_says_how_it_was_routed_and_what_the_cache_gave(examples: Path) -> None:
    report = document(simulate(examples / "laptop.yaml", "--requests", "60", "--json"))
    assert report["routing"] == {"policy": "affinity", "cached_ratio": 0.0, "chosen_by": {"load": 60}}


def test_policies_are_compared_under_the_same_load(examples: Path) -> None:
    judged = simulate_planned(
        load_planned(str(examples / "seven-tenants.yaml")), requests=60, seed=0, compare_routing=True
    )
    routing: Any = simulate_document(judged)["routing"]
    policies = {one["policy"]: one for one in routing["policies"]}
    assert list(policies) == ["round-robin", "least-load", "session", "prefix", "affinity"]
    assert policies["affinity"]["cached_ratio"] == routing["cached_ratio"] > 0
    assert sum(routing["chosen_by"].values()) == len(judged.run.records)


def test_the_comparison_is_a_line_a_policy_in_eighty_columns(examples: Path) -> None:
    text = simulate(examples / "laptop.yaml", "--requests", "60", "--compare-routing").stdout
    lines = text[text.index("routing       cached") :].splitlines()
    assert [line.split()[0] for line in lines] == [
        "routing", "round-robin", "least-load", "session", "prefix", "affinity",
    ]  # fmt: skip
    assert all(len(line) <= 80 for line in lines)


def test_the_same_seed_gives_the_same_numbers_and_another_does_not(examples: Path) -> None:
    def numbers(*arguments: str) -> dict[str, Any]:
        report = document(simulate(examples / "laptop.yaml", "--requests", "80", "--json", *arguments))
        report.pop("requests_per_cpu_s")  # the one measured number
        return report

    assert numbers("--seed", "3") == numbers("--seed", "3")
    assert numbers("--seed", "3")["ttft_s"] != numbers("--seed", "4")["ttft_s"]


def test_too_few_requests_never_pass_a_p99(examples: Path) -> None:
    result = simulate(examples / "laptop.yaml", "--requests", "60", "--json")
    met = {objective["name"]: objective["met"] for objective in document(result)["objectives"]}
    assert met["ttft_p99"] is None
    assert result.return_value == 1


def test_the_report_for_people_says_that_nothing_was_measured(examples: Path) -> None:
    result = simulate(examples / "laptop.yaml", "--requests", "60")
    text = " ".join(result.stdout.split())
    assert "in virtual time (simulated engine)" in text
    assert "every number comes from a model of the engine, none was measured" in text


def test_a_pipeline_is_told_that_its_batches_are_uneven(examples: Path) -> None:
    result = simulate(examples / "deepseek-v4-pro-32xh100.yaml", "--requests", "60")
    assert "vLLM does not balance the batches of a pipeline" in " ".join(result.stdout.split())


def test_a_plan_without_a_layout_says_so(examples: Path) -> None:
    with pytest.raises(Infeasible, match="no layout fits"):
        document(simulate(examples / "kimi-k3-fp8-32xh100.yaml"))
