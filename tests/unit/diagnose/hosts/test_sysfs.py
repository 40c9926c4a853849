"""The shell text of questions run for real over a tree that looks like /sys: asking and reading fit together."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from roadworthy.diagnose.hosts.check import host_facts
from roadworthy.diagnose.hosts.commands import QUESTIONS, Answer
from roadworthy.diagnose.hosts.fabric.inventory import inventory_script, parse_inventory
from roadworthy.diagnose.hosts.fabric.values import GBIT, Port

if TYPE_CHECKING:
    from roadworthy.diagnose.hosts.facts import HostFacts


def put(root: Path, **files: str) -> None:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text + "\n")


@pytest.fixture
def sysfs(tmp_path: Path) -> Path:
    """Two RoCE NICs, one of them down, on two sockets; one with ECN; two GPUs."""
    root = tmp_path / "sys"
    for number, (state, physical) in enumerate((("4: ACTIVE", "5: LinkUp"), ("1: DOWN", "3: Disabled"))):
        device = root / f"class/infiniband/mlx5_{number}"
        port = {
            "state": state, "phys_state": physical, "rate": "400 Gb/sec (4X NDR)", "link_layer": "Ethernet",
            "gids/0": "fe80:0000:0000:0000:0ac0:ebff:fe12:3456", "gid_attrs/types/0": "IB/RoCE v1",
            "gids/1": "0000:0000:0000:0000:0000:ffff:0a14:000b", "gid_attrs/types/1": "IB/RoCE v1",
            "gids/2": "0000:0000:0000:0000:0000:ffff:0a14:000b", "gid_attrs/types/2": "RoCE v2",
            "gids/3": "0000:0000:0000:0000:0000:0000:0000:0000", "hw_counters/out_of_sequence": "17",
            "counters/link_downed": "2",
        }  # fmt: skip
        put(device / "ports/1", **port)
        put(device / "device", numa_node=str(number), **{f"net/eth{number}/mtu": "9000"})
    put(root / "class/net/eth0", **{"ecn/roce_np/enable/3": "1", "ecn/roce_rp/enable/3": "0"})
    for number in (0, 1):
        bus = root / f"bus/pci/devices/0000:{number}8:00.0"
        put(bus, **{"vendor": "0x10de", "class": "0x030200", "numa_node": str(number)})
    put(root / "bus/pci/devices/0000:00:00.0", **{"vendor": "0x8086", "class": "0x060000", "numa_node": "0"})
    return root


def asked(sysfs: Path, *files: str) -> HostFacts:
    answers = []
    for question in QUESTIONS:
        if question.file in files:
            run = question.run.replace("/sys/", f"{sysfs}/")
            done = subprocess.run(["sh", "-c", run], capture_output=True, text=True, check=False)
            text = done.stdout.replace(f"{sysfs}/", "/sys/")
            assert done.stderr == "", question.file
            answers.append(Answer(file=question.file, text=text, status="answered"))
    return host_facts("node-a", answers)


def test_ports_come_with_their_state_rate_socket_interface_and_mtu(sysfs: Path) -> None:
    found = {clue.value("device"): dict(clue.values) for clue in asked(sysfs, "rdma.txt").book.all("port.state")}
    assert {key: found["mlx5_0"][key] for key in ("state", "rate", "link_layer", "numa", "netdev", "mtu")} == {
        "state": "ACTIVE", "rate": "400", "link_layer": "Ethernet", "numa": "0", "netdev": "eth0", "mtu": "9000",
    }  # fmt: skip
    assert (found["mlx5_1"]["state"], found["mlx5_1"]["numa"]) == ("DOWN", "1")


def test_gids_come_with_their_kind_and_empty_ones_stay_away(sysfs: Path) -> None:
    rows = asked(sysfs, "gids.txt").book.all("gid.row")
    kinds = {(row.value("device"), row.value("index")): row.value("kind") for row in rows}
    assert kinds["mlx5_0", "0"] == "link-local"
    assert kinds["mlx5_0", "1"] == "v1"
    assert kinds["mlx5_0", "2"] == "routable"
    assert ("mlx5_0", "3") not in kinds


def test_ecn_counters_and_sockets_of_gpus_are_read(sysfs: Path) -> None:
    book = asked(sysfs, "ecn.txt", "hw_counters.txt", "gpu-numa.txt").book
    assert {(one.value("side"), one.value("value")) for one in book.all("ecn.enable")} == {("np", "1"), ("rp", "0")}
    assert book.all("counter.out_of_sequence")[0].value("value") == "17"
    assert {one.value("bus"): one.value("node") for one in book.all("gpu.numa-node")} == {
        "0000:08:00.0": "0", "0000:18:00.0": "1",
    }  # fmt: skip


def test_the_inventory_of_the_fabric_takes_active_ports_and_their_routable_gid(sysfs: Path) -> None:
    script = inventory_script().replace("/sys/", f"{sysfs}/")
    done = subprocess.run(["sh", "-s"], input=script, capture_output=True, text=True, check=True, timeout=60)
    assert parse_inventory("a", done.stdout).ports == (
        Port(device="mlx5_0", rate_bytes_per_s=400 * GBIT, ethernet=True, gid_index=2),
    )
