"""`roadworthy bench` against an engine on a real socket: output, exit code, files, and an early end."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from fakes.engine import STREAM_HEAD, error_event, hang, plain, stream_of
from roadworthy.adapters.ports import free_ports
from roadworthy.cli.bench import command
from roadworthy.core.errors import ProbeError, SpecError
from support.commands import run, told
from support.threaded_engine import after, eventually, obedient, threaded_engine

QUICK = ("--rate", "400/s", "--requests", "120", "--seed", "3")
LENGTHS = ("ttft_s", "tpot_s", "itl_s", "e2e_s")
bench = partial(run, command)


def test_a_url_alone_is_enough_and_json_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine() as engine:
        code = bench(engine.url, *QUICK, "--json")
    document = told(capsys)
    assert (document["requests"], document["failed"], document["completed"]) == (120, 0, 120)
    assert document["verdict"] == "undecided"
    assert code == 1
    for name in LENGTHS:
        assert set(document[name]) >= {"mean", "p50", "p90", "p95", "p99"}
    assert {item["name"]: item["met"] for item in document["objectives"]} == {
        "ttft_p99": None, "tpot_p99": None, "success": True,
    }  # fmt: skip
    assert document["output_tokens_per_s"] > 0
    assert document["goodput_rps"] > 0
    assert document["model"] == "m"
    assert document["simulated"] is False


def test_prompts_come_out_about_as_long_as_planned(capsys: pytest.CaptureFixture[str]) -> None:
    """The engine counts one token a word and four a message; the default profile asks for 512 at the median."""
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, "--json")
        counts = sorted(
            sum(4 + len(message["content"].split()) for message in asked.json()["messages"])  # type: ignore[union-attr, attr-defined]
            for asked in engine.requests[2:]
        )
    assert counts[60] == pytest.approx(512, rel=0.25)
    assert max(counts) <= 4096 * 0.95
    document = told(capsys)
    assert document["input_tokens"] == sum(counts)


def test_an_objective_that_the_run_proves_is_met_with_exit_0(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The gates that wall time decides are opened: a busy machine must not decide a test of the verdict."""
    monkeypatch.setattr("roadworthy.advise.gates.MAX_CLIENT_LAG_P99_S", 60.0)
    monkeypatch.setattr("roadworthy.advise.gates.MAX_CLIENT_CPU_RATIO", 100.0)
    monkeypatch.setattr("roadworthy.advise.gates.MIN_STEADY_ARRIVALS", 0)
    with threaded_engine() as engine:
        code = bench(
            engine.url, "--rate", "40/s", "--requests", "100", "--warmup", "200ms", "--success", "99%", "--json"
        )
    document = told(capsys)
    assert document["warmup_requests"] > 0
    assert (document["verdict"], code) == ("met", 0), document["reason"]


def test_a_service_that_fails_every_request_is_missed_and_says_why(capsys: pytest.CaptureFixture[str]) -> None:
    refuse = stream_of([error_event(503), b"data: [DONE]\n\n"])
    with threaded_engine(after(2, obedient, refuse)) as engine:
        code = bench(engine.url, *QUICK, "--json")
    document = told(capsys)
    assert (document["verdict"], code) == ("missed", 1)
    assert document["failed"] == document["requests"] == 120
    assert document["ttft_s"]["p50"] is None
    (kind,) = document["errors"]
    assert kind[0].startswith("error event 503")


def test_the_report_for_people_and_both_files(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, html = tmp_path / "run.json", tmp_path / "run.html"
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, "--out", out, "--html", html)
        shown = capsys.readouterr()
    assert shown.out.startswith(f"m at {engine.url}: UNDECIDED\n")
    assert "wrote" in shown.err
    assert json.loads(out.read_text())["requests"] == 120
    assert html.read_text().startswith("<!DOCTYPE html>")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.html", "run.json"]


@pytest.mark.parametrize(("given", "sent"), [((), 0), (("--temperature", "0.7"), 0.7)])
def test_the_temperature_asked_for_is_sent(given: tuple[str, ...], sent: float) -> None:
    with threaded_engine() as engine:
        bench(engine.url, *QUICK, *given, "--json")
        assert {json.loads(asked.body)["temperature"] for asked in engine.requests[3:]} == {sent}


def test_the_same_seed_and_salt_send_the_same_requests() -> None:
    def sent(*more: str) -> set[bytes]:
        with threaded_engine() as engine:
            bench(engine.url, *QUICK, *more, "--json")
            return {asked.body for asked in engine.requests[2:]}

    assert sent("--salt", "a") == sent("--salt", "a")
    assert sent("--salt", "a").isdisjoint(sent("--salt", "b"))
    assert sent().isdisjoint(sent()), "a repeated run must not meet its own cached prefixes"


def test_a_ready_file_gives_the_url_and_each_tenants_key(tmp_path: Path) -> None:
    with threaded_engine() as engine:
        ready = tmp_path / "ready.json"
        keys = [{"id": "law", "key": "sk-law"}, {"id": "risk", "key": "sk-risk"}]
        ready.write_text(json.dumps({"data_url": engine.url, "admin_url": engine.url, "engines": [], "tenants": keys}))
        bench("--ready-file", ready, *QUICK, "--json")
        assert {asked.header("authorization") for asked in engine.requests[2:]} == {"Bearer sk-law", "Bearer sk-risk"}


# what can be wrong


def test_an_unreachable_target_is_exit_3_with_the_address_and_a_hint() -> None:
    (port,) = free_ports("127.0.0.1", 1)
    with pytest.raises(ProbeError, match=rf"cannot reach http://127.0.0.1:{port}: .*refused") as caught:
        bench(f"http://127.0.0.1:{port}")
    assert (caught.value.exit_code, bool(caught.value.hint)) == (3, True)


def test_an_unknown_model_names_what_is_served() -> None:
    with threaded_engine() as engine, pytest.raises(SpecError, match=r"'nope' is not served .* serves: m"):
        bench(engine.url, "--model", "nope")


@pytest.mark.parametrize("answer", [plain(500, b'{"error": {"message": "no GPU"}}'), plain(200), hang(STREAM_HEAD)])
def test_a_target_that_cannot_complete_one_token_is_not_loaded(answer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("roadworthy.adapters.load_run.PROBE_TIMEOUT_S", 0.2)
    with threaded_engine(answer) as engine:
        with pytest.raises(ProbeError, match="a completion of one token failed"):
            bench(engine.url, *QUICK)
        assert len(engine.requests) == 1


def test_something_else_on_the_port_is_exit_3() -> None:
    with threaded_engine() as engine, pytest.raises(ProbeError, match="HTTP 404, wanted a list of models"):
        bench(f"{engine.url}/elsewhere")


@pytest.mark.parametrize("option", ["--out", "--html"])
def test_a_report_that_cannot_be_written_is_found_before_the_load(option: str, tmp_path: Path) -> None:
    with threaded_engine() as engine:
        for place in (tmp_path / "absent" / "r", tmp_path):
            with pytest.raises(SpecError, match=str(place)):
                bench(engine.url, option, place)
        assert engine.requests == []


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_full_disk_is_found_before_the_load(tmp_path: Path) -> None:
    """A file-size limit of a process stands in for a disk: both refuse to let a file grow."""
    script = (
        "import resource, signal, sys; signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (4096, 4096))\n"
        "from roadworthy.cli import main; main()"
    )
    with threaded_engine() as engine:
        done = run_python("-c", script, "bench", engine.url, "--html", str(tmp_path / "r.html"))
        assert engine.requests == []
    assert done.returncode == 3
    assert "r.html: cannot be written: File too large" in done.stderr
    assert "hint: free" in done.stderr
    assert list(tmp_path.iterdir()) == []


def run_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, timeout=60, check=False)


def test_ctrl_c_ends_early_with_a_partial_report(tmp_path: Path) -> None:
    """Twelve answers, then silence: what ended is reported, what hangs is abandoned."""
    out = tmp_path / "run.json"
    with threaded_engine(after(14, obedient, hang(STREAM_HEAD))) as engine:
        process = bench_process(engine.url, "--rate", "100/s", "--duration", "1h", "--out", str(out))
        eventually(lambda: len(engine.requests) > 20)
        process.send_signal(signal.SIGINT)
        shown, err = process.communicate(timeout=30)
        eventually(lambda: not engine.open)
    assert process.returncode == 1, err
    assert "Traceback" not in err
    document = json.loads(out.read_text())
    assert (document["partial"], document["completed"], document["failed"]) == (True, 12, 0)
    assert document["abandoned"] >= 6
    assert "(partial): UNDECIDED" in shown.splitlines()[0]


def bench_process(*arguments: str) -> subprocess.Popen[str]:
    start: Sequence[str] = (sys.executable, "-c", "from roadworthy.cli import main; main()", "bench", *arguments)
    return subprocess.Popen(
        start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONUNBUFFERED": "1"}
    )


# the document

DOCUMENT = """
model: {{config: tiny}}
engine: {{endpoints: [{endpoints}]}}
workload: {{prompt_tokens: {{p50: 40, p90: 60, p99: 80}}, output_tokens: {{p50: 3, p90: 4, p99: 5}}, rate: 300/s}}
sla: {{ttft_p99: 5s, tpot_p99: 2s, success: 99%}}
tenants: [{{id: law, key: sk-law-0001, weight: 2}}, {{id: risk, key: sk-risk-0001}}]
"""


def document(folder: Path, *urls: str, more: str = "") -> Path:
    path = folder / "roadworthy.yaml"
    path.write_text(DOCUMENT.format(endpoints=", ".join(f'{{url: "{url}"}}' for url in urls)) + more)
    return path


def test_a_document_gives_address_workload_tenants_and_objectives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with threaded_engine() as engine:
        code = bench(document(tmp_path, engine.url), "--requests", "1000", "--json")
        keys = {asked.header("authorization") for asked in engine.requests[2:]}
    report = told(capsys)
    assert keys == {"Bearer sk-law-0001", "Bearer sk-risk-0001"}
    assert [tenant["id"] for tenant in report["tenants"]] == ["law", "risk"]
    assert {item["name"]: item["limit"] for item in report["objectives"]} == {
        "ttft_p99": 5.0, "tpot_p99": 2.0, "success": 0.99,
    }  # fmt: skip
    assert report["asked_rate_per_s"] == 300
    assert all(item["met"] is True for item in report["objectives"])
    assert code == (0 if report["verdict"] == "met" else 1)


def test_a_url_may_borrow_the_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with threaded_engine() as engine:
        path = document(tmp_path, "http://127.0.0.1:1")
        bench(engine.url, "--spec", path, "--requests", "20", "--ttft-p99", "7s", "--json")
    assert told(capsys)["objectives"][0]["limit"] == 7.0


def test_a_document_without_one_address_is_wrong_input_with_the_way_out(tmp_path: Path) -> None:
    for urls in ((), ("http://127.0.0.1:1", "http://127.0.0.1:2")):
        with pytest.raises(SpecError, match="no one address to measure") as caught:
            bench(document(tmp_path, *urls))
        assert "--ready-file" in caught.value.hint


def test_a_gateway_port_in_the_document_is_the_address(tmp_path: Path) -> None:
    (port,) = free_ports("127.0.0.1", 1)
    path = document(tmp_path, "http://127.0.0.1:1", more=f"gateway: {{host: 0.0.0.0, port: {port}}}\n")
    with pytest.raises(ProbeError, match=f"cannot reach http://127.0.0.1:{port}"):
        bench(path)


def test_two_documents_no_target_and_no_file_are_wrong_input(tmp_path: Path) -> None:
    path = document(tmp_path, "http://127.0.0.1:1")
    with pytest.raises(SpecError, match="two documents"):
        bench(path, "--spec", path)
    with pytest.raises(SpecError, match="no target"):
        bench()
    with pytest.raises(SpecError, match="no such file"):
        bench(tmp_path / "absent.yaml")
