"""`roadworthy flags`: names explained, lists, differences, and the right exit code for what is not there."""

from __future__ import annotations

import contextlib
import io
import json
import sys
from unittest.mock import patch

import pytest

from roadworthy.cli import cli
from roadworthy.cli.output import run


def flags(*arguments: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of the command as the shell sees them."""
    out, err = io.StringIO(), io.StringIO()
    with (
        patch.object(sys, "argv", ["roadworthy", "flags", *arguments]),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        run(cli)
    code = ended.value.code
    assert isinstance(code, int)
    return code, out.getvalue(), err.getvalue()


def test_a_known_flag_is_explained_and_the_exit_code_is_fine() -> None:
    code, out, err = flags("--max-num-batched-tokens", "--engine", "vllm==0.32.0")
    assert (code, err) == (0, "")
    assert out.startswith("--max-num-batched-tokens: real\n")
    assert "vLLM 0.32.0, vLLM 0.33.0" in out


@pytest.mark.parametrize(
    ("name", "said", "hint"),
    [
        ("--swap-space", "removed", "kv-offloading-size"),
        ("--moe-capacity-factor", "never existed", "--max-num-seqs"),
        ("--tensor-parallel", "dangerous", ""),
        ("--nonsense-flag", "never existed", ""),
        ("NCCL_IB_HCAS", "never existed", "NCCL_IB_HCA"),
        ("RAY_num_heartbeats_timeout", "removed", "RAY_health_check"),
        ("UCX_NONSENSE", "unknown", ""),
    ],
)
def test_a_name_that_is_not_there_ends_with_code_2_and_what_to_use_instead(name, said, hint) -> None:
    code, out, err = flags(name)
    if said == "dangerous":
        assert (code, "write --tensor-parallel-size" in out) == (0, True)
        return
    assert (code, out) == (2, "")
    assert said in err
    assert hint in err
    assert "Traceback" not in err


def test_a_setting_may_be_written_as_in_the_document() -> None:
    assert flags("max_model_len")[1].startswith("--max_model_len: real")


def test_json_is_one_document_with_every_name_even_when_one_is_not_there() -> None:
    code, out, _ = flags("--json", "-tp", "NCCL_ALGO", "--device", "--disable-eplb")
    assert code == 2
    document = json.loads(out)
    assert (document["engine"], document["version"]) == ("vllm", "0.33.0")
    found = {entry["name"]: entry for entry in document["settings"]}
    assert found["-tp"]["flag"]["name"] == "--tensor-parallel-size"
    assert (found["NCCL_ALGO"]["type"], found["NCCL_ALGO"]["row"]) == ("variable", "nccl.ALGO")
    assert (found["--device"]["status"], found["--device"]["accepted"]) == ("removed", False)
    assert (found["--disable-eplb"]["negated"], found["--disable-eplb"]["versions"]) == (True, ["0.33.0"])


def test_all_flags_are_listed_and_can_be_narrowed() -> None:
    everything = json.loads(flags("--json")[1])["flags"]
    assert len(everything) > 300
    some = json.loads(flags("--json", "--match", "eplb")[1])["flags"]
    assert {flag["name"] for flag in some} == {"--enable-eplb", "--eplb-config"}
    assert all(flag in everything for flag in some)


def test_variables_are_listed() -> None:
    code, out, _ = flags("--environment", "--match", "nccl_ib_h", "--json")
    assert code == 0
    assert [entry["name"] for entry in json.loads(out)["variables"]] == ["NCCL_IB_HCA"]


def test_the_difference_of_two_versions_has_what_came_and_what_changed() -> None:
    code, out, _ = flags("--diff", "0.32.0", "0.33.0", "--json")
    assert code == 0
    document = json.loads(out)
    what = {change["name"]: change for change in document["flags"]}
    assert what["--monokernel"]["what"] == "added"
    assert what["--enable-eplb"]["details"] == ["takes + --disable-eplb"]
    back = json.loads(flags("--diff", "0.33.0", "0.32.0", "--json")[1])
    assert {change["name"]: change["what"] for change in back["flags"]}["--monokernel"] == "removed"
    assert json.loads(flags("--diff", "0.33.0", "0.33.1", "--json")[1])["flags"] == []


@pytest.mark.parametrize(
    "arguments",
    [
        ("--engine", "vllm==0.6.3", "-tp"),
        ("--engine", "sglang==0.5"),
        ("--engine", "nonsense"),
        ("--diff", "0.32.0", "0.1.0"),
        ("--diff", "0.32.0"),
        ("--diff", "0.32.0", "0.33.0", "-tp"),
    ],
)
def test_what_cannot_be_answered_ends_with_code_2(arguments) -> None:
    code, out, err = flags(*arguments)
    assert (code, out) == (2, "")
    assert err
    assert "Traceback" not in err
