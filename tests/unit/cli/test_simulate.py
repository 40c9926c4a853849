"""The simulate command, on examples."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from roadworthy.cli.simulate import command, joined_pairs, simulate_planned
from roadworthy.cli.simulate_json import simulate_document
from roadworthy.cli.wiring import load_planned
from roadworthy.core.errors import Infeasible, SpecError

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
        load_planned(str(examples / "seven-tenants.yaml")), requests=60, seed=0, compare_routing=True, governed=False
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


def test_a_pipeline_is_told_how_its_batches_hold_each_other_up(examples: Path, tmp_path: Path) -> None:
    example = examples / "deepseek-v4-pro-32xh100.yaml"
    text = " ".join(simulate(example, "--requests", "60").stdout.split())
    assert "Batches of a pipeline cannot overtake" in text
    assert "merge" not in text
    plain = tmp_path / "plain.yaml"
    document = yaml.safe_load(example.read_text(encoding="utf-8"))
    document["engine"].setdefault("settings", {})["async_scheduling"] = False
    plain.write_text(yaml.safe_dump(document), encoding="utf-8")
    text = " ".join(simulate(plain, "--requests", "60").stdout.split())
    assert "Without asynchronous scheduling vLLM's core looks for new requests only when a result comes" in text


def test_a_plan_without_a_layout_says_so(examples: Path) -> None:
    with pytest.raises(Infeasible, match="no layout fits"):
        document(simulate(examples / "kimi-k3-fp8-32xh100.yaml"))


def test_pairs_after_what_if_need_no_quotes() -> None:
    assert joined_pairs(["x.yaml", "--what-if", "a=1", "b=2", "--what-if=c=3", "d=4", "--json"]) == [
        "x.yaml", "--what-if", "a=1 b=2", "--what-if=c=3 d=4", "--json",
    ]  # fmt: skip


def test_a_variant_is_shown_beside_the_document_and_not_judged(examples: Path) -> None:
    report = document(
        simulate(examples / "laptop.yaml", "--requests", "60", "--json", "--jobs", "1", "--what-if", "traffic=x4")
    )
    (variant,) = report["what_if"]
    assert variant["changes"] == "traffic=x4"
    assert variant["asked_rate_per_s"] == pytest.approx(4 * report["asked_rate_per_s"])
    assert variant.keys() >= PINNED


def test_hardware_is_planned_anew_and_the_rest_asked_of_the_service_as_it_stands(examples: Path) -> None:
    result = simulate(
        examples / "llama-3.1-70b-8xa100.yaml", "--requests", "40", "--json", "--jobs", "1",
        "--what-if", "engine.settings.tensor_parallel_size=4", "--what-if", "sla.ttft_p99=1ms",
    )  # fmt: skip
    report = document(result)
    smaller, stricter = report["what_if"]
    assert smaller["layout"] != report["layout"] == stricter["layout"]
    assert {one["name"]: one["limit"] for one in stricter["objectives"]}["ttft_p99"] == 0.001


def test_what_if_of_a_key_that_is_wrong_names_the_place(examples: Path) -> None:
    result = simulate(examples / "laptop.yaml", "--what-if", "workload.rates=2/s")
    assert isinstance(result.exception, SpecError)
    assert [problem.path for problem in result.exception.problems] == ["workload.rates"]
    unknown = simulate(examples / "laptop.yaml", "--what-if", "traffic.nobody=x2")
    assert isinstance(unknown.exception, SpecError)
    assert "alice, bob" in unknown.exception.hint
    gone = simulate(examples / "laptop.yaml", "--what-if", "outage=7@1s")
    assert "there are 1" in str(gone.exception)


def test_several_seeds_are_told_one_by_one_and_together(examples: Path) -> None:
    report = document(simulate(examples / "laptop.yaml", "--requests", "50", "--seeds", "3", "--jobs", "1", "--json"))
    assert [one["seed"] for one in report["seeds"]] == [0, 1, 2]
    assert report["requests"] == 150
    text = simulate(examples / "laptop.yaml", "--requests", "50", "--seeds", "3", "--jobs", "1").stdout
    assert "of 3 seeds; TTFT P99" in text


def test_processes_change_nothing_but_the_time_it_takes(examples: Path) -> None:
    def numbers(jobs: str) -> dict[str, Any]:
        report = document(
            simulate(examples / "laptop.yaml", "--requests", "40", "--seeds", "2", "--jobs", jobs, "--json")
        )
        report.pop("requests_per_cpu_s")  # the one measured number
        return report

    assert numbers("1") == numbers("2")


def test_tenants_are_told_their_waits_refusals_and_cost(tmp_path: Path) -> None:
    spec = tmp_path / "tight.yaml"
    spec.write_text(
        "model: {config: tiny, max_model_len: 4096}\ncluster: {gpu: cpu}\ncost: {fixed_per_month: 730}\n"
        "workload: {prompt_tokens: {p50: 64, p90: 128, p99: 256},\n"
        "  output_tokens: {p50: 32, p90: 64, p99: 128}, rate: 40/s}\n"
        "tenants: [{id: calm, key: sk-a}, {id: busy, key: sk-b, rpm: 30}]\ngovernance: {slots_per_engine: 1}\n"
    )
    report = document(simulate(spec, "--requests", "200", "--json"))
    tenants = {one["id"]: one for one in report["tenants"]}
    assert tenants["busy"]["refused"]["rate_limited"] > 10
    assert tenants["calm"]["refused"] == {}
    assert tenants["calm"]["waited"] > 10
    assert sum(one["work_ratio"] for one in tenants.values()) == pytest.approx(1)
    assert report["cost"]["per_hour"] == pytest.approx(1.0)
    assert sum(one["cost"] for one in tenants.values()) == pytest.approx(report["cost"]["of_the_run"])
    assert report["queue"]["waited"] == sum(one["waited"] for one in tenants.values())
    assert report["fairness"]["jain_index"] < 1
    free = document(simulate(spec, "--requests", "200", "--json", "--ungoverned"))
    assert free["governed"] is False
    assert free["failed"] == 0


def test_what_is_said_of_tenants_and_variants_fits_eighty_columns(examples: Path) -> None:
    text = simulate(
        examples / "seven-tenants.yaml", "--requests", "60", "--jobs", "1", "--seeds", "2", "--what-if", "traffic=x2"
    ).stdout
    lines = text[text.index("tenant                    work") :].splitlines()
    assert any(line.startswith("fairness") for line in lines)
    assert all(len(line) <= 80 for line in lines), max(lines, key=len)


def test_the_page_opens_offline(examples: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    simulate(examples / "laptop.yaml", "--requests", "60", "--html", str(page))
    html = page.read_text()
    assert "simulated engine" in html.lower()
    assert "<script src" not in html


def test_a_service_that_answers_nothing_is_reported_too(tmp_path: Path) -> None:
    spec = tmp_path / "nothing.yaml"
    spec.write_text(
        "model: {config: tiny, max_model_len: 4096}\ncluster: {gpu: cpu}\n"
        "tenants: [{id: a, key: sk-a, daily_tokens: 1}]\n"
    )
    result = simulate(spec, "--requests", "5", "--seeds", "2", "--jobs", "1", "--what-if", "traffic=x2")
    assert result.exception is None, result.exception
    assert "met with 0 of 2 seeds\n" in result.stdout
    assert "10 × daily_budget_exhausted" in result.stdout
    report = document(simulate(spec, "--requests", "5", "--json"))
    assert report["fairness"]["jain_index"] is None


def test_a_value_that_is_not_yaml_is_named(examples: Path) -> None:
    result = simulate(examples / "laptop.yaml", "--what-if", "sla.ttft_p99=[1")
    assert isinstance(result.exception, SpecError)
    assert "'[1' is not YAML" in str(result.exception)


def trace_file(folder: Path, *, lines: int = 60, **more: object) -> Path:
    path = folder / "day.jsonl"
    entries = [
        {"timestamp": 500 * at, "input_length": 100 + at, "output_length": 20, "hash_ids": [at], **more}
        for at in range(lines)
    ]
    path.write_text("\n".join(map(json.dumps, entries)), encoding="utf-8")
    return path


def test_a_trace_is_replayed_whole_and_told_of(examples: Path, tmp_path: Path) -> None:
    report = document(simulate(examples / "laptop.yaml", "--trace", str(trace_file(tmp_path)), "--json"))
    assert report["requests"] == 60
    assert report["trace"] == {
        "file": "day.jsonl", "format": "mooncake", "requests": 60, "length_s": 29.5, "speed": 1.0, "max_gap_s": None,
        "left_out": 0, "too_long": 0, "reordered": 0, "longest_gap_s": 0.5,
    }  # fmt: skip
    assert report["asked_rate_per_s"] == pytest.approx(2.0)
    text = simulate(examples / "laptop.yaml", "--trace", str(tmp_path / "day.jsonl"), "--requests", "20").stdout
    assert "20, 0 failed" in text


def test_a_variant_of_a_trace_is_asked_of_the_same_requests(examples: Path, tmp_path: Path) -> None:
    report = document(
        simulate(
            examples / "laptop.yaml", "--trace", str(trace_file(tmp_path)), "--json", "--jobs", "1",
            "--what-if", "traffic=x2", "--what-if", "outage=0@10s+5s",
        )
    )  # fmt: skip
    doubled, outage = report["what_if"]
    assert (doubled["requests"], outage["requests"]) == (120, 60)


def test_what_a_trace_decides_cannot_be_varied(examples: Path, tmp_path: Path) -> None:
    for key in ("workload.rate=x2", "workload.prompt_tokens.p50=9"):
        with pytest.raises(SpecError, match="the trace decides"):
            document(simulate(examples / "laptop.yaml", "--trace", str(trace_file(tmp_path)), "--what-if", key))


def test_a_bad_trace_is_named_by_line(examples: Path, tmp_path: Path) -> None:
    path = trace_file(tmp_path, lines=2, timestamp=-3)
    with pytest.raises(SpecError, match="2 problems") as caught:
        document(simulate(examples / "laptop.yaml", "--trace", str(path)))
    assert next(str(problem) for problem in caught.value.problems).startswith("line 1: timestamp: -3")


def test_a_pace_without_a_trace_says_so(examples: Path) -> None:
    with pytest.raises(SpecError, match="need --trace"):
        document(simulate(examples / "laptop.yaml", "--speed", "2"))


def test_the_page_shows_governance_and_the_run_over_time(examples: Path, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    simulate(examples / "seven-tenants.yaml", "--requests", "200", "--html", str(page))
    text = page.read_text(encoding="utf-8")
    for words in ("<h3>Governance</h3>", ">borrowed<", "Utilisation over time", "Running and waiting over time"):
        assert words in text


def test_json_tells_each_tenants_way_through_the_gateway_and_the_run_over_time(examples: Path) -> None:
    report = document(simulate(examples / "seven-tenants.yaml", "--requests", "200", "--json"))
    assert sum(tenant["weight_ratio"] for tenant in report["tenants"]) == pytest.approx(1.0)
    assert sum(tenant["admitted"] for tenant in report["tenants"]) == report["requests"] - report["failed"]
    assert all({"borrowed", "refused", "waited", "work_ratio", "cost"} <= tenant.keys() for tenant in report["tenants"])
    timeline = report["timeline"]
    assert {len(column) for column in timeline.values()} == {len(timeline["at_s"])}
    assert timeline.keys() >= {"utilisation_ratio", "running", "waiting", "queued", "kv_usage_ratio"}
