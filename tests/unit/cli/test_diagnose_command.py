"""`roadworthy diagnose` and `explain`: the pinned JSON, exit codes, pages, and pods through a stand-in kubectl."""

from __future__ import annotations

import os
from pathlib import Path

import click
import pytest

from roadworthy.cli import diagnose, explain
from roadworthy.core.errors import ProbeError, Unsupported
from support.commands import run, told

XID = "[771.120] NVRM: Xid (PCI:0000:dd:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


def test_a_cause_is_a_finding_with_evidence_and_exit_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "dmesg.txt").write_text(XID)
    assert run(diagnose.command, tmp_path, "--json") == 1
    document = told(capsys)
    assert document["status"] == "findings"
    (finding,) = document["findings"]
    assert set(finding) == {"code", "severity", "confidence", "subject", "evidence", "diagnosis", "remedy"}
    assert finding["code"] == "gpu-fell-off-bus"
    assert finding["evidence"][0] == {"file": "dmesg.txt", "line": 1, "text": XID.strip()}


def test_a_healthy_log_has_no_finding_and_exit_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "engine.log").write_text("INFO:     Application startup complete.\n")
    assert run(diagnose.command, tmp_path, "--json") == 0
    document = told(capsys)
    assert (document["status"], document["findings"]) == ("healthy", [])


def test_symptoms_without_a_cause_say_what_to_capture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "r.log").write_text(
        "[rank0]:[E901 10:10:00 P.cpp:632] [Rank 0] Watchdog caught collective operation timeout\n"
    )
    assert run(diagnose.command, tmp_path, "--json") == 0
    document = told(capsys)
    assert (document["status"], document["findings"]) == ("insufficient", [])
    assert document["capture_next"]
    assert document["symptoms"][0]["file"] == "r.log"


def test_junk_alone_is_insufficient_and_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "core").write_bytes(bytes(range(256)) * 20)
    assert run(diagnose.command, tmp_path, "--json") == 0
    document = told(capsys)
    assert document["status"] == "insufficient"
    assert document["skipped"] == [{"file": "core", "reason": "not text"}]


def test_the_page_opens_offline_and_can_be_redacted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "node-a.dmesg.txt").write_text(XID + "<script>alert(1)</script> GPU is lost 192.0.2.1\n")
    assert run(diagnose.command, tmp_path / "in", "--html", tmp_path / "i.html", "--redact") == 1
    page = (tmp_path / "i.html").read_text()
    assert "gpu-fell-off-bus" in page
    assert "<script>" not in page
    assert "192.0.2.1" not in page + capsys.readouterr().out
    assert "node-a" not in page


def test_nothing_to_read_is_wrong_use_and_a_missing_path_could_not_be_looked_at(tmp_path: Path) -> None:
    with pytest.raises(click.UsageError):
        run(diagnose.command)
    with pytest.raises(ProbeError) as caught:
        run(diagnose.command, tmp_path / "nowhere")
    assert caught.value.exit_code == 3


def test_pods_are_read_through_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stand_in = tmp_path / "kubectl"
    stand_in.write_text(
        '#!/bin/sh\ncase "$1" in\n'
        'get) echo \'{"items": [{"metadata": {"name": "llm-0"}}]}\';;\n'
        "describe) printf 'Events:\\n  Normal  Killing  Container vllm failed liveness probe, will be restarted\\n';;\n"
        'logs) case "$*" in *previous*) echo "not found" >&2; exit 1;; *) echo hello;; esac;;\n'
        "esac\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    assert run(diagnose.command, "--kube", "app=vllm", "--json") == 1
    document = told(capsys)
    assert [one["code"] for one in document["findings"]] == ["probe-kill"]
    assert document["findings"][0]["subject"] == "llm-0"
    assert document["skipped"] == []


def test_a_cause_is_explained_and_an_unknown_one_has_a_neighbour(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(explain.command, "rdma-gid-mismatch") == 0
    assert capsys.readouterr().out.startswith("# rdma-gid-mismatch\n")
    with pytest.raises(Unsupported) as caught:
        run(explain.command, "rdma-gid-mismach")
    assert "rdma-gid-mismatch" in str(caught.value.hint)
    assert run(explain.command, "--json") == 0
    assert len(told(capsys)["causes"]) > 60
