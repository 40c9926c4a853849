"""Closed terminals, full disks, broken pipes, somebody else's files: one clear message and nothing left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from pathlib import Path

import pytest

from support.service import roadworthy, serving

pytestmark = pytest.mark.e2e


def run(*arguments: str, **more: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(roadworthy(*arguments), capture_output=True, text=True, check=False, **more)  # type: ignore[call-overload,no-any-return]


def test_up_stops_in_order_though_nobody_reads_its_messages_any_more(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        assert service.process.stderr is not None
        service.process.stderr.close()
        service.process.stderr = None
        service.process.send_signal(signal.SIGINT)
        assert service.process.wait(timeout=30) == 0
        assert not (tmp_path / "ready.json").exists()


def test_a_hung_up_terminal_stops_the_service_and_takes_the_keys_away(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        service.process.send_signal(signal.SIGHUP)
        _, err = service.process.communicate(timeout=30)
        assert service.process.returncode == 0, err
        assert not (tmp_path / "ready.json").exists()


def test_a_second_service_leaves_the_ready_file_of_the_first_alone(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        before = (tmp_path / "ready.json").read_text()
        second = run("up", str(examples / "laptop.yaml"), "--ready-file", str(tmp_path / "ready.json"))
        assert second.returncode == 2
        assert f"process {service.process.pid}" in second.stderr
        assert (tmp_path / "ready.json").read_text() == before


def test_a_file_that_is_no_ready_file_is_neither_overwritten_nor_deleted(examples: Path, tmp_path: Path) -> None:
    precious = tmp_path / "notes.txt"
    precious.write_text("mine")
    done = run("up", str(examples / "laptop.yaml"), "--ready-file", str(precious))
    assert done.returncode == 2
    assert "is not a ready file" in done.stderr
    assert precious.read_text() == "mine"


def test_the_ready_file_follows_an_engine_that_came_back(examples: Path, tmp_path: Path) -> None:
    with serving(tmp_path, "up", str(examples / "laptop.yaml")) as service:
        first = service.ready["engines"][0]["pid"]
        os.kill(first, signal.SIGKILL)
        assert service.process.stderr is not None
        for line in service.process.stderr:
            if "engine-0 healthy" in line and "restarting" not in line:
                break
        while (again := json.loads((tmp_path / "ready.json").read_text())["engines"][0]["pid"]) in (first, None):
            pass
        os.kill(again, 0)


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_command_started_without_a_standard_stream_does_its_work(examples: Path, closed: str) -> None:
    command = " ".join([*roadworthy("plan", str(examples / "laptop.yaml"), "--no-queueing"), closed])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="only Linux has /dev/full")
def test_a_full_disk_under_stdout_is_one_message_and_not_a_missed_objective(examples: Path) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            roadworthy("plan", str(examples / "laptop.yaml"), "--json", "--no-queueing"),
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 3
    assert "cannot write the output" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_reader_that_leaves_early_makes_no_noise(examples: Path) -> None:
    command = " ".join([*roadworthy("plan", str(examples / "laptop.yaml"), "--no-queueing"), "| head -1"])
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert done.stderr == ""
