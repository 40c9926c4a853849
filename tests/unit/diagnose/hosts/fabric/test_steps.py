"""What hosts say they have, and which steps follow from it."""

from __future__ import annotations

import subprocess

import pytest

from roadworthy.diagnose.hosts.fabric.inventory import inventory_script, parse_inventory
from roadworthy.diagnose.hosts.fabric.steps import Choice, Party, between, inside, missing, rails
from roadworthy.diagnose.hosts.fabric.values import GBIT, Inventory, Port

SAID = """\
tool ib_write_bw /usr/bin/ib_write_bw
tool ib_write_lat /usr/bin/ib_write_lat
tool timeout /usr/bin/timeout
torch /opt/venv/bin/python3
gpus 8
nvlink
port mlx5_0 1 ACTIVE 400 Ethernet
gid mlx5_0 1 0 0000:0000:0000:0000:0000:ffff:0a14:000b IB/RoCE v1
gid mlx5_0 1 3 0000:0000:0000:0000:0000:ffff:0a14:000b RoCE v2
gid mlx5_0 1 5 2001:0db8:0000:0000:0000:0000:0000:000b RoCE v2
port mlx5_1 1 DOWN 400 Ethernet
port mlx5_10 1 ACTIVE 400 InfiniBand
port mlx5_2 1 ACTIVE 200 InfiniBand
asked
"""


def party(host: str, text: str = SAID, hcas: tuple[str, ...] = ()) -> Party:
    return Party(inventory=parse_inventory(host, text, hcas=hcas), address=f"10.0.0.{ord(host[-1]) - 96}")


def test_active_ports_tools_interpreter_and_gpus_are_read() -> None:
    found = parse_inventory("node-a", SAID)
    assert found.ports == (
        Port(device="mlx5_0", rate_bytes_per_s=400 * GBIT, ethernet=True, gid_index=3),
        Port(device="mlx5_2", rate_bytes_per_s=200 * GBIT),
        Port(device="mlx5_10", rate_bytes_per_s=400 * GBIT),
    )
    assert found.tools["ib_write_bw"] == "/usr/bin/ib_write_bw"
    assert (found.python, found.gpus, found.nvlink, found.unanswered) == ("/opt/venv/bin/python3", 8, True, "")


def test_a_tool_that_cannot_start_is_not_there_and_a_broken_answer_is_none() -> None:
    assert "ib_write_bw" not in parse_inventory("a", SAID + "broken ib_write_bw\n").tools
    assert parse_inventory("a", SAID.removesuffix("asked\n")).unanswered
    assert parse_inventory("a", "").unanswered


def test_the_documents_devices_are_kept_in_its_order() -> None:
    found = parse_inventory("a", SAID, hcas=("mlx5_10:1", "mlx5_0", "mlx5_1"))
    assert [port.device for port in found.ports] == ["mlx5_10", "mlx5_0"]


def test_the_script_is_posix_and_runs_here() -> None:
    done = subprocess.run(
        ["sh", "-s"], input=inventory_script(), capture_output=True, text=True, check=True, timeout=60
    )
    found = parse_inventory("here", done.stdout)
    assert found.unanswered == ""
    assert "timeout" in found.tools


def test_each_rail_is_measured_both_ways_and_its_latency_once() -> None:
    (steps, *_) = between(party("node-a"), party("node-b"), Choice())
    assert [(step.program, step.one.text, step.two.text) for step in steps[:3]] == [
        ("ib_write_bw", "node-a mlx5_0", "node-b mlx5_0"),
        ("ib_write_bw", "node-b mlx5_0", "node-a mlx5_0"),
        ("ib_write_lat", "node-a mlx5_0", "node-b mlx5_0"),
    ]
    assert len(steps) == 9
    first = steps[0]
    assert first.first.host == "node-b"
    assert first.first.argv == ("/usr/bin/ib_write_bw", "-d", "mlx5_0", "-i", "1", "-F", "-p", "18515", "--report_gbits", "-D", "2", "-x", "3")  # fmt: skip
    assert first.then is not None
    assert first.then.argv == (*first.first.argv, "10.0.0.2")
    assert "-x" not in steps[3].first.argv, "InfiniBand needs no GID"
    assert len({step.first.listens_on for step in steps}) == len(steps)
    assert steps[0].link_bytes_per_s == 400 * GBIT


def test_the_slower_end_or_the_document_says_what_a_link_carries() -> None:
    slower = SAID.replace("mlx5_0 1 ACTIVE 400", "mlx5_0 1 ACTIVE 100")
    assert between(party("node-a"), party("node-b", slower), Choice())[0][0].link_bytes_per_s == 100 * GBIT
    assert between(party("node-a"), party("node-b"), Choice(nic_bytes_per_s=5e10))[0][0].link_bytes_per_s == 5e10


def test_ports_pair_by_name_or_else_in_order() -> None:
    def host(*devices: str) -> Inventory:
        return Inventory(host="x", ports=tuple(Port(device=device) for device in devices))

    assert [(a.device, b.device) for a, b in rails(host("mlx5_0", "mlx5_1"), host("mlx5_1", "mlx5_0", "mlx5_9"))] == [
        ("mlx5_0", "mlx5_0"), ("mlx5_1", "mlx5_1"),
    ]  # fmt: skip
    assert [(a.device, b.device) for a, b in rails(host("mlx5_0", "mlx5_3"), host("mlx5_2", "mlx5_3"))] == [
        ("mlx5_0", "mlx5_2"), ("mlx5_3", "mlx5_3"),
    ]  # fmt: skip


def test_the_next_tool_waits_behind_and_gpus_choose_nccl() -> None:
    with_mpi = SAID + "tool sendrecv_perf /opt/nccl-tests/build/sendrecv_perf\ntool mpirun /usr/bin/mpirun\n"
    found = between(party("node-a", with_mpi), party("node-b", with_mpi), Choice(program="print()"))
    assert [steps[0].program for steps in found] == ["ib_write_bw", "sendrecv_perf", "torch nccl"]
    assert found[1][0].first.argv[:6] == (
        "/usr/bin/mpirun",
        "--allow-run-as-root",
        "-np",
        "2",
        "--host",
        "10.0.0.1:1,10.0.0.2:1",
    )
    cpu = "torch /usr/bin/python3\nasked\n"
    ((step,),) = between(party("node-a", cpu), party("node-b"), Choice(program="print()"))
    assert (step.program, step.link_bytes_per_s) == ("torch gloo", None)
    assert step.first.reads == "print()"


@pytest.mark.parametrize(
    ("text", "tools", "why"),
    [
        ("asked\n", ("perftest", "nccl-tests", "torch"), "no ib_write_bw on node-b; no sendrecv_perf with mpirun on node-b; no Python with torch on node-b"),
        (SAID.replace("ACTIVE", "DOWN"), ("perftest",), "no active RDMA port on node-b"),
        ("torch /usr/bin/python3\nasked\n", ("perftest",), "no ib_write_bw on node-b"),
    ],
)  # fmt: skip
def test_why_a_pair_cannot_be_measured_is_said_in_words(text: str, tools: tuple[str, ...], why: str) -> None:
    rich = SAID + "tool sendrecv_perf /x\ntool mpirun /y\n"
    one, two = party("node-a", rich), party("node-b", text)
    assert between(one, two, Choice(tools=tools)) == ()  # type: ignore[arg-type]
    assert missing(one.inventory, two.inventory, tools) == why  # type: ignore[arg-type]


def test_gpus_inside_a_host_are_measured_in_rounds_of_disjoint_pairs() -> None:
    with_tool = party("node-a", SAID + "tool sendrecv_perf /x/sendrecv_perf\n")
    found = inside(with_tool, Choice(nvlink_bytes_per_s=450e9))
    assert len(found) == 7
    assert all(len(together) == 4 for together in found)
    ((step,),) = found[0][0]
    assert step.first.environment["CUDA_VISIBLE_DEVICES"].count(",") == 1
    assert step.link_bytes_per_s == 450e9


def test_without_nccl_tests_torch_copies_between_all_pairs_at_once_and_one_gpu_has_no_pair() -> None:
    (((steps,),),) = inside(party("node-a"), Choice(program="print()"))
    assert [step.program for step in steps] == ["torch copy"]
    assert inside(party("node-a", SAID.replace("gpus 8", "gpus 1")), Choice()) == ()
    assert inside(party("node-a", SAID.replace("torch /opt/venv/bin/python3\n", "")), Choice()) == ()
