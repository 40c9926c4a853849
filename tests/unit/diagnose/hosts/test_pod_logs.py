"""Captures out of logs: one pod or many, with whatever kubectl or the node puts before a line, whole or cut."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from roadworthy.adapters.capture import capture_here, holds_capture, read_capture
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.hosts.commands import QUESTIONS, capture_script
from roadworthy.diagnose.hosts.pod_logs import captures_of_log


def log(node: str, *, value: str = "x", whole: bool = True) -> str:
    answers = f"@@@ begin a.txt\n{value}\n@@@ rc 0\n@@@ end a.txt done\n@@@ begin b.txt\n@@@ end b.txt missing\n"
    return f"@@@ host {node}\n{answers}" + ("@@@ whole\n" if whole else "")


def prefixed(text: str, before: str) -> str:
    return "".join(f"{before}{line}\n" for line in text.splitlines())


def answers(text: str) -> dict[str, dict[str, tuple[str, str]]]:
    """host -> file -> (status, text), without what the log does not hold."""
    return {
        host: {one.file: (one.status, one.text) for one in some if one.status != "not in the log"}
        for host, some in captures_of_log(text).items()
    }


EXPECTED = {"a.txt": ("answered", "x\n"), "b.txt": ("missing", "")}


@pytest.mark.parametrize(
    "before",
    [
        "", "[pod/v4-check-x2x9z/check] ", "2026-11-30T16:45:17.123456789Z ",
        "[pod/v4-check-x2x9z/check] 2026-11-30T16:45:17.1Z ", "2026-11-30T16:45:17.123456789+01:00 stdout F ",
    ],
)  # fmt: skip
def test_whatever_stands_before_a_line_is_taken_off(before: str) -> None:
    assert answers(prefixed(log("node-a"), before)) == {"node-a": EXPECTED}


def test_many_pods_are_told_apart_one_after_the_other_and_interleaved() -> None:
    assert set(answers(log("node-a") + log("node-b"))) == {"node-a", "node-b"}
    one = prefixed(log("node-a", value="1"), "[pod/p/check] ").splitlines()
    two = prefixed(log("node-b", value="2"), "[pod/q/check] ").splitlines()
    mixed = "\n".join(line for pair in zip(one, two, strict=True) for line in pair)
    assert {host: some["a.txt"][1] for host, some in answers(mixed).items()} == {"node-a": "1\n", "node-b": "2\n"}


def test_a_long_line_that_the_node_cut_is_joined() -> None:
    stamp = "2026-11-30T16:45:17.1Z stdout "
    text = prefixed(log("node-a", value="LONG"), stamp + "F ").replace(f"{stamp}F LONG", f"{stamp}P LO\n{stamp}F NG")
    assert answers(text)["node-a"]["a.txt"] == ("answered", "LONG\n")


def test_the_last_whole_run_of_a_node_counts() -> None:
    again = log("node-a", value="old") + log("node-a", value="new") + log("node-a", value="cut", whole=False)
    assert answers(again)["node-a"]["a.txt"][1] == "new\n"
    assert (
        answers(log("node-a", value="1", whole=False) + log("node-a", value="2", whole=False))["node-a"]["a.txt"][1]
        == "2\n"
    )


def test_what_a_cut_log_does_not_hold_could_not_be_looked_at() -> None:
    (some,) = captures_of_log(
        "@@@ host node-a\n@@@ begin host.txt\nLinux\n@@@ rc 0\n@@@ end host.txt done\n@@@ begin date.txt\n17"
    ).values()
    status = {one.file: one.status for one in some}
    assert (status["host.txt"], status["date.txt"]) == ("answered", "timed out")
    assert {status[one.file] for one in QUESTIONS[2:]} == {"not in the log"}


def test_text_without_a_check_gives_nothing(tmp_path: Path) -> None:
    assert captures_of_log("INFO 11-30 engine started\n@@@ begin a.txt\n") == {}
    (tmp_path / "engine.log").write_text("INFO\n")
    assert not holds_capture(tmp_path)
    with pytest.raises(ProbeError, match="no output of a check"):
        read_capture(tmp_path / "engine.log")
    with pytest.raises(ProbeError, match="no such"):
        read_capture(tmp_path / "absent.log")


def test_a_folder_of_logs_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.log").write_text(log("node-a"))
    (tmp_path / "b.log").write_text(prefixed(log("node-b"), "[pod/q/check] "))
    (tmp_path / "notes.md").write_text("# notes\n")
    assert set(read_capture(tmp_path)) == {"node-a", "node-b"}


def test_the_script_in_a_pod_says_whose_answers_they_are_and_ends_whole() -> None:
    """Run for real, with the root of this host in the place of the mounted one where we may change roots."""
    here = {one.file: one.status for one in capture_here()}
    done = subprocess.run(
        ["sh", "-s"], input=capture_script().encode(), capture_output=True, check=True, timeout=120,
        env={"PATH": "/usr/bin:/bin", "ROADWORTHY_NODE": "node-7", "ROADWORTHY_ROOT": "/" if os.geteuid() == 0 else ""},
    )  # fmt: skip
    text = done.stdout.decode(errors="replace")
    assert text.startswith("@@@ host node-7\n")
    assert text.rstrip().endswith("@@@ whole")
    (found,) = captures_of_log(text).values()
    assert {one.file for one in found} == set(here)
    assert {one.status for one in found if one.file in ("host.txt", "limits.txt", "meminfo.txt")} == {"answered"}


def test_in_a_pod_the_hosts_matters_are_asked_in_its_root_and_tools_are_borrowed_from_it(tmp_path: Path) -> None:
    """`chroot` is replaced by a stand-in that says so: the real one needs a whole root."""
    script = capture_script()
    binaries = tmp_path / "bin"
    binaries.mkdir()
    stand_in = binaries / "chroot"
    stand_in.write_text(
        '#!/bin/sh\n[ "$1" = /host ] || exit 9\nshift\nASKED_IN_ROOT=yes PATH="$PATH:/hosttools" exec "$@"\n'
    )
    stand_in.chmod(0o755)
    probe = 'echo "root=${ASKED_IN_ROOT:-no}"'
    head = script[: script.index("ask host.txt")]
    asks = "".join(
        f"ask {name} 5 {tool!r} '( {probe} ); echo @@@ rc $?' {place}\n"
        for name, tool, place in (
            ("hosts.txt", "", "host"), ("pods.txt", "", "any"), ("both.txt", "sh", "any"),
            ("neither.txt", "no-such-tool", "any"),
        )
    )  # fmt: skip
    done = subprocess.run(
        ["sh", "-s"], input=(head + asks).encode(), capture_output=True, check=True, timeout=60,
        env={"PATH": f"{binaries}:/usr/bin:/bin", "ROADWORTHY_NODE": "n", "ROADWORTHY_ROOT": "/host"},
    )  # fmt: skip
    found = {one.file: (one.status, one.text) for one in captures_of_log(done.stdout.decode())["n"]}
    assert found["hosts.txt"] == ("answered", "root=yes\n")
    assert found["pods.txt"] == found["both.txt"] == ("answered", "root=no\n")
    assert found["neither.txt"] == ("missing", "")


def test_keys_on_an_engines_command_line_are_in_no_capture() -> None:
    question = next(one for one in QUESTIONS if one.file == "ps.txt")
    mask = question.run[question.run.index("sed -E") :]
    line = "12 1 S 01:00 vllm serve m --api-key sk-secret-1 --hf-token=hf_secret --port 8000\n"
    done = subprocess.run(["sh", "-c", mask], input=line, capture_output=True, text=True, check=True)
    assert done.stdout == "12 1 S 01:00 vllm serve m --api-key *** --hf-token=*** --port 8000\n"
