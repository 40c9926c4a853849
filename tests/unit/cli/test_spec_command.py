"""`roadworthy spec` as a person and a program meet it: streams, exit codes, one JSON document."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path


def run(*arguments: str, stdin: bytes = b"") -> tuple[int, str, str]:
    done = subprocess.run(
        [sys.executable, "-m", "roadworthy", *arguments], input=stdin, capture_output=True, check=False
    )
    return done.returncode, done.stdout.decode(), done.stderr.decode()


def test_a_good_document_is_said_to_be_one_on_stderr(examples: Path) -> None:
    code, out, err = run("spec", "check", str(examples / "laptop.yaml"))
    assert (code, out) == (0, "")
    assert "no problems" in err


def test_problems_as_json_are_one_document_with_the_pinned_keys() -> None:
    code, out, err = run("spec", "check", "-", "--json", stdin=b"model: {config: tniy}\ncluster: {nodes: 0}\n")
    assert (code, err) == (2, "")
    problems = json.loads(out)["problems"]
    assert [problem["path"] for problem in problems] == ["model.config", "cluster.nodes"]
    assert all(set(problem) == {"path", "seen", "wanted", "hint"} for problem in problems)


def test_no_problems_as_json() -> None:
    assert json.loads(run("spec", "check", "-", "--json", stdin=b"model: {config: tiny}")[1]) == {"problems": []}


def test_problems_for_people_go_to_stderr_with_their_hints() -> None:
    code, out, err = run("spec", "check", "-", stdin=b"model: {config: tiny}\nsla: {ttft_p99: 250}\n")
    assert (code, out) == (2, "")
    assert "sla.ttft_p99: 250" in err
    assert "hint: 250 alone could be 250ms or 250s" in err


@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_a_file_that_is_not_there_or_no_text_is_wrong_input(tmp_path: Path, flags: tuple[str, ...]) -> None:
    (tmp_path / "binary").write_bytes(b"\x7fELF\xff\xfe\x00")
    for place in (tmp_path / "missing.yaml", tmp_path, tmp_path / "binary"):
        code, out, err = run("spec", "check", str(place), *flags)
        assert (code, out) == (2, ""), place
        assert err.startswith("error: ")
        assert "Traceback" not in err


def test_a_file_that_cannot_be_read_could_not_be_looked_at() -> None:
    code, _, err = run("spec", "check", "/proc/self/mem")
    assert code == 3
    assert "Traceback" not in err


def test_the_schema_is_one_json_document() -> None:
    code, out, err = run("spec", "schema")
    assert (code, err) == (0, "")
    assert json.loads(out)["required"] == ["model"]


def test_gpus_print_a_table_and_json_with_sources() -> None:
    code, out, _ = run("gpus")
    assert code == 0
    assert "H100-80GB" in out
    gpus = json.loads(run("gpus", "--json")[1])["gpus"]
    assert {"H100-80GB", "H200-141GB", "cpu"} <= {gpu["id"] for gpu in gpus}
    assert all(gpu["sources"]["device_bytes"] for gpu in gpus)
    assert "vllm-project/vllm issue 51124" in run("gpus", "--sources")[1]
