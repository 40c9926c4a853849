"""`diagnose --prometheus`: what it asks, what it makes of refusals, stalls and partial answers, and what it keeps."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from fakes.prometheus import FakePrometheus, series, serving
from roadworthy.cli import diagnose
from roadworthy.core.errors import ProbeError, SpecError

NOW_S = 1_793_592_000.0
T0 = NOW_S - 7200
N = 480
ENGINE = {"job": "vllm", "instance": "10.1.0.7:8000", "engine": "0"}
RANGE = ("--from", f"{T0:.0f}", "--to", f"{NOW_S:.0f}")


def one(name: str, values: list[float], labels: dict[str, str] = ENGINE) -> dict[str, Any]:
    return series(name, values, start_s=T0, **labels)


def storm() -> list[dict[str, Any]]:
    return [
        one("vllm:kv_cache_usage_perc", [0.3] * 200 + [0.99] * 280),
        one("vllm:num_preemptions_total", [0.0] * 200 + [float(at) for at in range(280)]),
        one("vllm:num_requests_running", [9.0] * N),
        one("vllm:num_requests_waiting", [0.0] * 200 + [7.0] * 280),
        one("vllm:num_requests_running", [1.0] * N, {**ENGINE, "job": "other"}),
        one("up", [1.0] * N, {**ENGINE}),
        one("up", [0.0] * N, {"job": "unrelated", "instance": "x:1"}),
        one("go_goroutines", [5.0] * N),
    ]


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, dict[str, Any]]:
    code = diagnose.command.main([*map(str, arguments), "--json"], standalone_mode=False)
    document = json.loads(capsys.readouterr().out)
    assert isinstance(document, dict)
    return code, document


def test_a_storm_over_time_is_found_and_quoted_with_its_moments(capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakePrometheus(held=storm())) as fake:
        code, document = run(capsys, "--prometheus", fake.url, *RANGE)
    assert code == 1
    finding = document["findings"][0]
    assert (finding["code"], finding["subject"]) == ("kv-cache-exhaustion", "10.1.0.7")
    quoted = finding["evidence"][0]
    assert quoted["file"].endswith("/vllm_kv_cache_usage_perc.json")
    assert "0.99 at 2026-11-02T02:50:00Z" in quoted["text"]
    assert any(one["what"] == "kv.full-and-preempting" for one in document["timeline"])
    reasons = {one["file"].rsplit(" ", 1)[-1]: one["reason"] for one in document["skipped"]}
    assert {"GPUs", "hosts", "fabric", "Kubernetes", "gateway"} == set(reasons)


def test_only_what_rules_understand_is_asked_for_and_targets_of_the_engines_jobs_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(FakePrometheus(held=storm())) as fake:
        run(capsys, "--prometheus", fake.url + "/", "--selector", '{job="vllm"}', *RANGE)
        queries = [query["query"][0] for path, query in fake.asked if path.endswith("query_range")]
        steps = {query["step"][0] for path, query in fake.asked if path.endswith("query_range")}
    assert '{__name__="vllm:num_requests_running",job="vllm"}' in queries
    assert '{__name__="up",job=~"vllm"}' in queries
    assert not any("go_goroutines" in query for query in queries)
    assert steps == {"30"}


def test_several_selectors_are_alternatives_and_a_long_range_asks_for_the_worst_of_each_step(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with serving(FakePrometheus(held=storm())) as fake:
        both = ("--selector", '{job="vllm"}', "--selector", 'job="dcgm", zone!~"x|y"')
        run(capsys, "--prometheus", fake.url, "--since", "2d", "--to", f"{NOW_S:.0f}", *both)
        queries = [query["query"][0] for path, query in fake.asked if path.endswith("query_range")]
        matched = [query["match[]"] for path, query in fake.asked if path.endswith("values")]
    assert matched == [['{job="vllm"}', '{job="dcgm",zone!~"x|y"}']]
    name = '__name__="vllm:kv_cache_usage_perc"'
    expected = (
        f'label_replace(max_over_time({{{name},job="vllm"}}[900s]) or '
        f'max_over_time({{{name},job="dcgm",zone!~"x|y"}}[900s]), "__name__", "vllm:kv_cache_usage_perc", "", "")'
    )
    assert expected in queries


def test_what_was_kept_gives_the_same_findings_elsewhere(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with serving(FakePrometheus(held=storm())) as fake:
        _, live = run(capsys, "--prometheus", fake.url, *RANGE, "--keep", tmp_path / "kept")
    _, later = run(capsys, tmp_path / "kept")
    assert later["findings"] == live["findings"]
    assert later["skipped"] == live["skipped"] != []
    with pytest.raises(SpecError, match="not empty"):
        run(capsys, "--prometheus", fake.url, *RANGE, "--keep", tmp_path / "kept")


def test_a_query_that_fails_is_named_and_the_others_count(capsys: pytest.CaptureFixture[str]) -> None:
    def behave(path: str, query: str) -> tuple[int, bytes] | None:
        if "num_requests_running" in query:
            return 422, b'{"status":"error","errorType":"execution","error":"query would load too many samples"}'
        if "num_requests_waiting" in query:
            return (
                200,
                b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{"__name__":"vllm:num_reqCUT',
            )
        return None

    with serving(FakePrometheus(held=storm(), behave=behave, warnings=("store sg-2 is down",))) as fake:
        code, document = run(capsys, "--prometheus", fake.url, *RANGE)
    assert code == 1
    reasons = " ".join(one["reason"] for one in document["skipped"])
    assert "too many samples" in reasons
    assert "broke off" in reasons
    assert "store sg-2 is down" in reasons


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"no", "answered 401"),
        (302, b"", "answered 302"),
        (200, b"<html>login</html>", "does not answer as a Prometheus does"),
        (200, b'{"status":"error"}', "does not answer as a Prometheus does"),
        (503, b'{"status":"error","error":"shutting down"}', "shutting down"),
    ],
)
def test_a_server_that_does_not_answer_as_one_is_named(status: int, body: bytes, said: str) -> None:
    with (
        serving(FakePrometheus(held=(), behave=lambda path, query: (status, body))) as fake,
        pytest.raises(ProbeError, match=said),
    ):
        diagnose.command.main(["--prometheus", fake.url], standalone_mode=False)


def test_a_server_that_cannot_be_reached_is_named_beside_what_was_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "dmesg.txt").write_text("[771.120] NVRM: Xid (PCI:0000:dd:00): 79, GPU has fallen off the bus.\n")
    with serving(FakePrometheus(held=storm())) as fake:
        code, document = run(capsys, tmp_path, "--prometheus", "http://127.0.0.1:1", "--prometheus", fake.url, *RANGE)
    assert code == 1
    assert {one["code"] for one in document["findings"]} == {"gpu-fell-off-bus", "kv-cache-exhaustion"}
    assert any("cannot reach" in one["reason"] for one in document["skipped"])


@pytest.mark.parametrize(
    ("variables", "header"),
    [
        ({"TOKEN": "t0ken"}, "Bearer t0ken"),
        ({"USER": "ann", "PASSWORD": "p:w"}, "Basic YW5uOnA6dw=="),
    ],
)
def test_the_login_comes_from_the_environment(
    variables: dict[str, str], header: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"ROADWORTHY_PROMETHEUS_{name}", value)
    with serving(FakePrometheus(held=storm(), login=header)) as fake:
        assert run(capsys, "--prometheus", fake.url, *RANGE)[0] == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--prometheus", "prometheus:9090"),
        ("--prometheus", "http://user:secret@h:9090"),
        ("--prometheus", "http://h:1", "--selector", "job=vllm"),
        ("--prometheus", "http://h:1", "--selector", '{__name__="up"}'),
        ("--prometheus", "http://h:1", "--selector", '{job="a"} or up'),
        ("--prometheus", "http://h:1", "--from", "yesterday"),
        ("--prometheus", "http://h:1", "--from", "2026-11-02", "--to", "2026-11-01"),
        ("--prometheus", "http://h:1", "--from", "2026-11-02", "--since", "1h"),
        ("--prometheus", "https://h:1", "--ca-file", "/nowhere.pem"),
        ("--metrics", "ftp://h"),
        ("--gateway", "http://"),
    ],
)
def test_options_that_cannot_be_meant_are_wrong_input_before_anything_is_asked(arguments: tuple[str, ...]) -> None:
    with pytest.raises(SpecError) as caught:
        diagnose.command.main(list(arguments), standalone_mode=False)
    assert "secret" not in str(caught.value)


def test_keep_without_a_live_source_is_wrong_use(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        diagnose.command.main([str(tmp_path), "--keep", str(tmp_path / "k")], standalone_mode=False)
