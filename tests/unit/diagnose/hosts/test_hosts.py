"""Captures: parsed whole or broken, judged host by host and against each other."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.adapters.capture import read_capture, write_capture
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.hosts.check import PROBES_OF, check_hosts, could_not_look, host_facts
from roadworthy.diagnose.hosts.commands import QUESTIONS, Answer, capture_script, parse_capture
from roadworthy.diagnose.hosts.facts import Expected, HostFacts

if TYPE_CHECKING:
    from roadworthy.diagnose.values import Clue, Document

CAPTURES = Path(__file__).parents[3] / "data" / "captures"


def facts(folder: Path) -> list[HostFacts]:
    return [host_facts(host, answers) for host, answers in read_capture(folder).items()]


def test_one_nic_down_and_one_gpu_on_the_wrong_socket_are_named_on_their_host() -> None:
    found = check_hosts(facts(CAPTURES / "one-nic-down"), Expected(gpus=8, nics=8, nic_gigabits_per_s=400))
    assert {(one.code, one.subject) for one in found} == {
        ("rdma-link-degraded", "node-b, mlx5_5"),
        ("rdma-link-degraded", "node-b"),
        ("numa-nic-misplacement", "node-b, GPU 6"),
        ("numa-nic-misplacement", "node-b, NUMA node 0"),
    }
    assert found[0].severity == "critical"
    assert all(one.evidence and one.evidence[0].file.startswith("node-b/") for one in found)


def test_a_host_in_order_has_no_finding_and_says_where_it_could_not_look() -> None:
    alone = facts(CAPTURES / "one-nic-down" / "node-a")
    assert check_hosts(alone, Expected(gpus=8, nics=8, nic_gigabits_per_s=400)) == ()
    assert could_not_look(alone) == {"node-a": (("PFC, trust and DSCP", "missing"),)}


@pytest.mark.parametrize(
    ("file", "old", "new", "code"),
    [
        ("limits.txt", "memory         unlimited", "memory         65536", "memlock-limit"),
        ("df.txt", "1008G   12M 1008G   1%", "64M     0   64M   0%", "shm-too-small"),
        ("lsmod.txt", "nvidia_peermem", "other", "gpudirect-rdma-disabled"),
        ("cmdline.txt", "iommu=pt", "intel_iommu=on", "pcie-acs-iommu"),
        ("fabric-manager.txt", "Active: active (running)", "Active: failed (Result: exit-code)", "fabric-manager-down"),
        ("chronyc.txt", "0.000021442 seconds slow", "12.402211000 seconds fast", "clock-skew"),
        ("nvidia-smi.txt", "580.95.05", "535.183.06", "cuda-driver-too-old"),
        ("ibstat.txt", "Rate: 400", "Rate: 200", "rdma-link-degraded"),
        ("dmesg.txt", "nvidia-nvlink:", "NVRM: Xid (PCI:0000:5d:00): 79, GPU lost", "gpu-fell-off-bus"),
    ],
)  # fmt: skip
def test_each_fault_of_a_host_is_a_finding(file: str, old: str, new: str, code: str) -> None:
    ((_, answers),) = read_capture(CAPTURES / "one-nic-down" / "node-a").items()
    assert any(old in one.text for one in answers if one.file == file)
    changed = [
        Answer(file=one.file, text=one.text.replace(old, new), status=one.status) if one.file == file else one
        for one in answers
    ]
    found = check_hosts([host_facts("node-a", changed)], Expected(gpus=8, nics=8, nic_gigabits_per_s=400))
    assert code in [one.code for one in found]


def test_a_long_answer_that_its_reader_trips_over_costs_its_own_clues_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def trips(document: Document) -> Iterator[Clue]:
        yield document.clue("gid.row")
        raise ValueError("could not convert string to float: '1..2'")

    monkeypatch.setitem(PROBES_OF, "gids.txt", (trips,))
    answers = [
        Answer(file="gids.txt", text="damaged\n", status="answered"),
        Answer(file="nvidia-smi.txt", text="GPU 0: NVIDIA H200 (UUID: GPU-1)\n", status="answered"),
    ]
    book = host_facts("a", answers).book
    assert book.has("gid.row")
    assert book.has("gpu.listed")


def test_a_missing_gpu_is_told_by_the_document() -> None:
    ((_, answers),) = read_capture(CAPTURES / "one-nic-down" / "node-a").items()
    found = check_hosts([host_facts("node-a", answers)], Expected(gpus=16))
    assert [one.code for one in found] == ["gpu-not-visible"]


def test_answers_end_with_their_status_and_a_broken_stream_is_a_time_out() -> None:
    output = (
        "@@@ begin a.txt\nhello\n@@@ rc 0\n@@@ end a.txt done\n@@@ begin b.txt\n@@@ end b.txt missing\n"
        "@@@ begin c.txt\nerror\n@@@ rc 3\n@@@ end c.txt done\n@@@ begin d.txt\nslow\n@@@ end d.txt done\n"
        "@@@ begin e.txt\nha"
    )
    assert [(one.file, one.status, one.text) for one in parse_capture(output)] == [
        ("a.txt", "answered", "hello\n"), ("b.txt", "missing", ""), ("c.txt", "failed", "error\n"),
        ("d.txt", "timed out", "slow\n"), ("e.txt", "timed out", "ha\n"),
    ]  # fmt: skip


def test_the_script_is_posix_shell_and_quotes_a_hostile_folder() -> None:
    script = capture_script(weights="/models/$(touch pwned)'; exit 9")
    done = subprocess.run(["sh", "-n"], input=script.encode(), capture_output=True, check=False)
    assert done.returncode == 0, done.stderr
    assert len({one.file for one in QUESTIONS}) == len(QUESTIONS)


def test_a_capture_that_was_written_is_read_again(tmp_path: Path) -> None:
    answers = (Answer(file="a.txt", text="é\n", status="answered"), Answer(file="b.txt", text="", status="missing"))
    write_capture(tmp_path, {"../x/host 1": answers})
    assert read_capture(tmp_path) == {"../x/host 1": answers}
    assert [path.name for path in tmp_path.iterdir()] == ["_x_host_1"]


def test_a_name_that_a_host_or_a_log_gives_leads_out_of_no_folder(tmp_path: Path) -> None:
    hostile = Answer(file="../../../out.txt", text="x", status="answered")
    write_capture(tmp_path / "cap", {"..": (hostile,)})
    assert {path.relative_to(tmp_path).parts[0] for path in tmp_path.rglob("*")} == {"cap"}


def test_a_folder_without_a_capture_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ProbeError, match="no capture"):
        read_capture(tmp_path)
    (tmp_path / "capture.json").write_text("{")
    with pytest.raises(ProbeError, match="not JSON"):
        read_capture(tmp_path)
