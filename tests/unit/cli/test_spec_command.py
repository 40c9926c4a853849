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
        assert code == 2, place
        assert json.loads(out)["error"]["message"] in err if flags else out == ""
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


def test_what_the_plan_would_refuse_is_a_problem_already() -> None:
    code, out, _ = run("spec", "check", "-", "--json", stdin=b"model: {config: tiny, max_model_len: 1}\n")
    assert code == 2
    assert [problem["path"] for problem in json.loads(out)["problems"]] == ["workload.prompt_tokens.p50"]


def test_fields_of_the_models_own_file_are_problems_too(tmp_path: Path) -> None:
    config = {
        "architectures": ["LlamaForCausalLM"], "hidden_size": 1024, "num_hidden_layers": 4, "num_attention_heads": 16,
        "intermediate_size": 2048, "vocab_size": 1000, "max_position_embeddings": 4096, "head_dim": 999,
        "torch_dtype": "complex128",
    }  # fmt: skip
    (tmp_path / "odd.json").write_text(json.dumps(config))
    document = tmp_path / "deployment.yaml"
    document.write_text("model: {config: ./odd.json}\n")
    code, out, _ = run("spec", "check", str(document), "--json")
    assert code == 2
    assert [problem["path"] for problem in json.loads(out)["problems"]] == ["head_dim", "torch_dtype"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("spec", "check", "/no/such/file.yaml", "--json"),
        ("plan", "/no/such/file.yaml", "--json"),
        ("simulate", "{infeasible}", "--json"),
    ],
)
def test_without_a_result_json_is_still_one_document_that_says_why(arguments: tuple[str, ...], examples: Path) -> None:
    infeasible = str(examples / "kimi-k3-fp8-32xh100.yaml")
    code, out, err = run(*(argument.format(infeasible=infeasible) for argument in arguments))
    document = json.loads(out)
    assert code in (1, 2)
    assert document["problems"] == []
    assert f"error: {document['error']['message']}" in err
    assert document["error"]["hint"]
