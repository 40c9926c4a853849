"""The fabric measured for real: torch between two network namespaces, tools through shells, and nothing left behind."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from roadworthy.adapters.fabric import Host, Ways, _take, measure, program_text
from roadworthy.adapters.fabric_files import read_fabric, write_fabric
from roadworthy.adapters.remote_shell import Programs, RemoteProgram, reach, script_of
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.hosts.fabric.interpret import measured
from roadworthy.diagnose.hosts.fabric.steps import Choice, Party, inside
from roadworthy.diagnose.hosts.fabric.values import Command, End, FabricCapture, Inventory, Port, Step
from support.fabric import run_of, write_bw
from support.hosts import two_hosts, why_not

CHECK = (sys.executable, "-m", "roadworthy", "check", "--fabric", "--python", sys.executable)
HERE = ("env", "FABRIC_HOST={host}")
"""A way to `hosts` that are all this one."""

needs_torch = pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="no torch in this interpreter")


@needs_torch
def test_torch_measures_between_two_hosts_and_the_capture_is_judged_again(tmp_path: Path) -> None:
    if reason := why_not():
        pytest.skip(reason)
    with two_hosts() as (one, two):
        hosts = f"{one.namespace}={one.address},{two.namespace}={two.address}"
        done = subprocess.run(
            [*CHECK, "--hosts", hosts, "--reach", "ip netns exec {host}", "--capture", str(tmp_path),
             "--limit", "100", "--json"],
            capture_output=True, text=True, timeout=280, check=False,
        )  # fmt: skip
        left = [*still_in(one.namespace), *still_in(two.namespace)]
    assert done.returncode == 0, done.stdout + done.stderr
    document = json.loads(done.stdout)
    assert document["status"] == "healthy"
    bandwidth, latency = document["fabric"]["measurements"]
    assert (bandwidth["program"], bandwidth["both_ways"]) == ("torch gloo", True)
    assert {bandwidth["from"], bandwidth["to"]} == {one.namespace, two.namespace}
    assert bandwidth["bytes_per_s"] > 1e6
    assert 0 < latency["latency_s"] < 1
    assert left == []
    again = subprocess.run(
        [sys.executable, "-m", "roadworthy", "check", "--from", str(tmp_path), "--json"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert json.loads(again.stdout)["fabric"] == document["fabric"]


@needs_torch
def test_a_peer_that_is_not_there_is_named_and_nothing_is_called_healthy(tmp_path: Path) -> None:
    """Rank 1 is told an address that nobody has."""
    capture = measure(
        [Host(name="a", address="127.0.0.1"), Host(name="b", address="127.0.0.2:1")],
        Choice(tools=("torch",), program="import sys; sys.exit('RuntimeError: Connection refused')"),
        Ways(reach=HERE, limit_s=30, python=sys.executable), lambda _: None,
    )  # fmt: skip
    found = [one for run in capture.runs for one in measured(run)]
    assert {(one.status, one.fault) for one in found} == {("failed", "network-port-blocked")}


def still_in(namespace: str, *, within_s: float = 15.0) -> list[str]:
    """Processes that do not leave a namespace in time."""
    until = time.monotonic() + within_s
    asks = ["ip", "netns", "pids", namespace]
    while (left := subprocess.run(asks, capture_output=True, text=True, check=True).stdout.split()) and (
        time.monotonic() < until
    ):
        time.sleep(0.05)
    return left


def fake_tool(folder: Path, name: str, text: str, *, pause: str = "") -> None:
    """A stand-in for a tool of two sides: with ``-p PORT`` alone it listens there for one client, else it connects."""
    script = f"""#!{sys.executable}
import socket, sys, time
port = int(sys.argv[sys.argv.index("-p") + 1])
if sys.argv[-1].startswith("127."):
    socket.create_connection((sys.argv[-1], port), timeout=5).close()
else:
    with socket.create_server(("127.0.0.1", port)) as listening:
        listening.accept()
{pause}
sys.stdout.write({text!r})
"""
    path = folder / name
    path.write_text(script)
    path.chmod(0o755)


def step_of(folder: Path, port: int) -> Step:
    tool = str(folder / "ib_write_bw")
    return Step(
        name="ib_write_bw.a.mlx5_0.b.mlx5_0", tool="perftest", program="ib_write_bw", kinds=("bandwidth",),
        one=End(host="a", part="mlx5_0"), two=End(host="b", part="mlx5_0"),
        first=Command(host="b", argv=(tool, "-p", str(port)), listens_on=port),
        then=Command(host="a", argv=(tool, "-p", str(port), "127.0.0.1")),
    )  # fmt: skip


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
    return port


def test_the_client_starts_once_the_server_listens_and_both_outputs_are_kept(tmp_path: Path) -> None:
    fake_tool(tmp_path, "ib_write_bw", write_bw(391.5))
    run = _take(step_of(tmp_path, free_port()), Ways(reach=HERE, limit_s=20), Programs())
    (found,) = measured(run)
    assert found.status == "measured", [output.text for output in run.outputs]
    assert found.value == pytest.approx(391.5e9 / 8)
    assert [output.code for output in run.outputs] == [0, 0]
    assert found.evidence[0].file == "fabric/ib_write_bw.a.mlx5_0.b.mlx5_0.sends.txt"


def test_a_server_that_ends_at_once_is_not_waited_for(tmp_path: Path) -> None:
    tool = tmp_path / "ib_write_bw"
    tool.write_text("#!/bin/sh\necho 'IB device mlx5_0 not found'\nexit 1\n")
    tool.chmod(0o755)
    began = time.monotonic()
    (found,) = measured(_take(step_of(tmp_path, free_port()), Ways(reach=HERE, limit_s=60), Programs()))
    assert (found.status, found.fault) == ("failed", "rdma-device-not-exposed")
    assert time.monotonic() - began < 30


def test_a_program_that_hangs_is_given_up_within_its_limit(tmp_path: Path) -> None:
    fake_tool(tmp_path, "ib_write_bw", "", pause="time.sleep(300)")
    (found,) = measured(_take(step_of(tmp_path, free_port()), Ways(reach=HERE, limit_s=2), Programs()))
    assert (found.status, found.value) == ("timed out", None)
    assert processes_of(tmp_path) == []


def processes_of(folder: Path) -> list[str]:
    """Command lines that name ``folder``, of processes that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(folder) in line and "-m pytest" not in line and "bin/pytest" not in line:
                found.append(line)
    return found


def gone(folder: Path, *, within_s: float = 15.0) -> list[str]:
    until = time.monotonic() + within_s
    while (left := processes_of(folder)) and time.monotonic() < until:
        time.sleep(0.05)
    return left


def stopped_once_there(process: subprocess.Popen[bytes], began: Path, how: signal.Signals) -> None:
    """Send ``how`` when the file ``began`` says that it runs on a host, and wait for its end."""
    until = time.monotonic() + 60
    while not began.exists():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < until
        time.sleep(0.05)
    process.send_signal(how)
    process.communicate(timeout=30)


@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_whoever_is_stopped_leaves_nothing_running(tmp_path: Path, how: signal.Signals) -> None:
    """Interrupted, told to end, or killed without a word: the lifeline ends what runs on the hosts."""
    interpreter = tmp_path / "python3"
    interpreter.write_text(
        f"#!{sys.executable}\nimport sys, time, pathlib\n"
        f"if sys.argv[1] == '-c': sys.exit(0)\n"
        f"pathlib.Path({str(tmp_path / 'began')!r}).touch()\nprint('@@@ ready 1', flush=True)\ntime.sleep(300)\n"
    )
    interpreter.chmod(0o755)
    arguments = ["--hosts", "a=127.0.0.1,b=127.0.0.1", "--reach", " ".join(HERE), "--python", str(interpreter)]
    with subprocess.Popen(
        [sys.executable, "-m", "roadworthy", "check", "--fabric", *arguments],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
    ) as process:  # fmt: skip
        stopped_once_there(process, tmp_path / "began", how)
    assert process.returncode != 0
    assert gone(tmp_path) == []


def test_a_shell_that_says_nothing_is_a_host_that_could_not_be_asked() -> None:
    capture = measure(
        [Host(name="a", address="a"), Host(name="b", address="b")], Choice(),
        Ways(reach=("false", "{host}"), limit_s=5), lambda _: None,
    )  # fmt: skip
    assert [one.unanswered for one in capture.inventories] == ["no answer", "no answer"]
    found = [one for run in capture.runs for one in measured(run)]
    assert {one.status for one in found} == {"missing"}


def test_the_script_quotes_and_tells_its_code() -> None:
    script = script_of(("sh", "-c", 'echo "$HOSTILE"; exit 7'), {"HOSTILE": "'; touch pwned; '$(id)"}, limit_s=10)
    with RemoteProgram(reach("h", HERE), script) as program:
        assert program.wait(20)
    assert (program.code, program.text) == (7, "'; touch pwned; '$(id)\n")


def test_a_capture_comes_back_as_it_was(tmp_path: Path) -> None:
    run = run_of("ib_write_bw", write_bw(391.5), other="é\n")
    inventory = Inventory(host="a", ports=(Port(device="mlx5_0", rate_bytes_per_s=5e10, ethernet=True, gid_index=3),))
    capture = FabricCapture(inventories=(inventory,), runs=(run,))
    write_fabric(tmp_path, capture)
    back = read_fabric(tmp_path)
    assert back.inventories == capture.inventories
    assert [measured(one) for one in back.runs] == [measured(run)]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"form": 9}', '{"form": 1}', '{"form": 1, "hosts": [], "runs": [{}]}']
)
def test_what_is_no_capture_of_a_fabric_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "fabric.json").write_text(text)
    with pytest.raises(ProbeError, match=r"fabric\.json"):
        read_fabric(tmp_path)


FAKE_TORCH = '''\
"""Two GPUs that are not there, for a program that copies between them."""
import types
uint8 = "uint8"
class device:
    def __init__(self, kind, index=0): self.index = index
class _Tensor:
    def copy_(self, other, non_blocking=False): return self
def empty(size, dtype=None, device=None): return _Tensor()
cuda = types.SimpleNamespace(
    device_count=lambda: 2, synchronize=lambda device=None: None, can_device_access_peer=lambda one, two: True)
'''


def test_copies_between_gpus_are_told_by_direction(tmp_path: Path) -> None:
    """The program that is sent, with a stand-in for torch: what it prints is what is read."""
    (tmp_path / "torch.py").write_text(FAKE_TORCH)
    party = Party(inventory=Inventory(host="a", python=sys.executable, gpus=2, nvlink=True), address="a")
    (((steps,),),) = inside(party, Choice(program=program_text(), nvlink_bytes_per_s=450e9))
    ways = Ways(reach=("env", f"PYTHONPATH={tmp_path}", "FABRIC_HOST={host}"), limit_s=30)
    found = measured(_take(steps[0], ways, Programs()))
    assert [(one.one.text, one.two.text, one.status) for one in found] == [
        ("a GPU0", "a GPU1", "measured"), ("a GPU1", "a GPU0", "measured"),
    ]  # fmt: skip
    assert all(one.value and one.link_bytes_per_s == 450e9 for one in found)


def test_hosts_are_reached_by_ssh_without_a_question(tmp_path: Path) -> None:
    """A stand-in for ssh that notes how it was called and gives a shell here."""
    ssh = tmp_path / "ssh"
    ssh.write_text(f'#!/bin/sh\necho "$*" >>{tmp_path}/calls\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    ssh.chmod(0o755)
    done = subprocess.run(
        [*CHECK, "--hosts", "node-a,node-b", "--tool", "perftest", "--json"],
        capture_output=True, text=True, timeout=60, check=False,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    calls = (tmp_path / "calls").read_text().splitlines()
    assert sorted(call.split(" -T ")[1] for call in calls) == ["node-a sh -s", "node-b sh -s"]
    assert all("BatchMode=yes" in call for call in calls)
    document = json.loads(done.stdout)
    assert (done.returncode, document["status"]) == (3, "insufficient")
    assert "on node-a, node-b" in document["could_not_look"]["fabric"][0]["why"]


def test_hosts_that_are_asked_over_ssh_are_left_alone_after_an_interrupt(tmp_path: Path) -> None:
    """The stand-in for ssh gives a shell here in which the first question never ends."""
    slow = tmp_path / "uname"
    slow.write_text(f"#!/bin/sh\ntouch {tmp_path}/began\nsleep 300\n")
    ssh = tmp_path / "ssh"
    ssh.write_text('#!/bin/sh\nwhile [ "$1" != sh ]; do shift; done\nexec "$@"\n')
    for program in (slow, ssh):
        program.chmod(0o755)
    with subprocess.Popen(
        [sys.executable, "-m", "roadworthy", "check", "--ssh", "node-a", "--ssh", "node-b"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    ) as process:  # fmt: skip
        stopped_once_there(process, tmp_path / "began", signal.SIGINT)
    assert process.returncode == 130
    assert gone(tmp_path) == []


def test_what_hosts_answer_over_ssh_is_what_they_answer_here(tmp_path: Path) -> None:
    ssh = tmp_path / "ssh"
    ssh.write_text(
        '#!/bin/sh\nfor word in "$@"; do [ "$word" = node-b ] && { echo "ssh: node-b: no route" >&2; exit 255; }\n'
        "done\n"
        'while [ "$1" != sh ]; do shift; done\nexec "$@"\n'
    )
    ssh.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "roadworthy", "check", "--ssh", "node-a", "--ssh", "node-b", "--json"],
        capture_output=True, text=True, timeout=120, check=False,
        env=os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    here = subprocess.run(
        [sys.executable, "-m", "roadworthy", "check", "--json"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    document, alone = json.loads(done.stdout), json.loads(here.stdout)
    assert document["hosts"] == ["node-a"]
    assert "no route" in document["unreachable"]["node-b"]
    assert document["could_not_look"]["node-a"] == next(iter(alone["could_not_look"].values()))
    assert [one["code"] for one in document["findings"]] == [one["code"] for one in alone["findings"]]
