"""Every fact that a capture asks for, end to end: what a host answers, in its own form, to the finding or the note.

The base is a host in order; each case changes one answer, so that whatever is found is found because of it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from roadworthy.adapters.capture import read_capture
from roadworthy.diagnose.hosts.check import check_hosts, could_not_look, host_facts
from roadworthy.diagnose.hosts.commands import QUESTIONS, Answer
from roadworthy.diagnose.hosts.facts import Expected
from roadworthy.diagnose.hosts.rules import notes_on

CAPTURES = Path(__file__).parents[3] / "data" / "captures"
EXPECTED = Expected(gpus=8, nics=8, nic_gigabits_per_s=400, ports=(8000, 29501), roce_dscp=26, engine_version="0.33.0")
ROCE = "".join(
    f"CA 'mlx5_{n}'\n\tState: ACTIVE\n\tPhysical state: LinkUp\n\tRate: 400\n\tLink layer: Ethernet\n\tnuma_node: {n // 4}\n"
    f"\tnetdev: eth{n}\n\tnetdev_mtu: 9000\n"
    for n in range(8)
)
ECN_ON = "".join(f"/sys/class/net/eth{n}/ecn/roce_{side}/enable/3:1\n" for n in range(8) for side in ("np", "rp"))
QOS = """\
DCBX mode: OS controlled
Priority trust state: dscp
PFC configuration:
	priority    0   1   2   3   4   5   6   7
	enabled     0   0   0   1   0   0   0   0
"""
MEMINFO = "MemTotal:       2113929216 kB\nHugePages_Total:       0\nHugepagesize:       2048 kB\n"
CGROUP = "# cpu.max\nmax 100000\n# memory.max\nmax\n# memory.events\noom 0\noom_kill 0\n# pids.max\nmax\n"
PORTS = "State  Recv-Q Send-Q Local Address:Port  Peer Address:Port\nLISTEN 0      128          0.0.0.0:22         0.0.0.0:*\n"
PS = "    PID    PPID STAT     ELAPSED CMD\n"
PIP = "torch                     2.11.0\nvllm                      0.33.0\nnvidia-nccl-cu13          2.30.4\n"
OPEN_DRIVER = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build\n"
GPU_NUMA = "".join(f"gpu 0000:{n}8:00.0 numa_node: {n // 4}\n" for n in range(8))
IN_ORDER = {
    "ecn.txt": ECN_ON, "mlnx_qos.txt": QOS, "meminfo.txt": MEMINFO, "cgroup.txt": CGROUP, "ports.txt": PORTS, "ps.txt": PS,
    "pip-list.txt": PIP, "rdma.txt": ROCE, "gpu-numa.txt": GPU_NUMA, "lscpu.txt": "NUMA node(s):            2\n",
}  # fmt: skip


def host(name: str = "node-a", **changed: str | None) -> list[Answer]:
    """Answers of a host in order, but for ``changed``: file (its dot as ``_dot_``) -> text, None takes it away."""
    ((_, answers),) = read_capture(CAPTURES / "one-nic-down" / "node-a").items()
    texts = {one.file: one.text for one in answers if one.status == "answered"} | IN_ORDER
    for file, text in changed.items():
        texts[file.replace("_dot_", ".").replace("__", "-")] = text or ""
    return [Answer(file=file, text=text, status="answered") for file, text in texts.items() if text]


def codes(answers: list[Answer], expected: Expected = EXPECTED) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in check_hosts([host_facts("node-a", answers)], expected)]


def test_a_host_in_order_has_no_finding_and_no_note() -> None:
    assert codes(host()) == []
    assert notes_on(host_facts("node-a", host()), EXPECTED) == ()


def nic(number: int, old: str, new: str) -> str:
    head, mark, tail = ROCE.partition(f"CA 'mlx5_{number}'")
    return head + mark + tail.replace(old, new, 1)


@pytest.mark.parametrize(
    ("changed", "code", "subject"),
    [
        # GPUs, driver, NVLink, Fabric Manager
        ({"nvidia__smi__nvlink_dot_txt": "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-1)\n\t Link 0: 26.562 GB/s\n\t Link 1: <inactive>\n"}, "nvlink-fault", "node-a"),
        ({"nvidia__smi__q_dot_txt": "GPU 00000000:19:00.0\n    Fabric\n        State                             : In Progress\n        Status                            : N/A\n"}, "fabric-manager-down", "node-a"),
        ({"nvidia__smi__q_dot_txt": "GPU 00000000:19:00.0\n    Remapped Rows\n        Pending                           : Yes\n        Remapping Failure Occurred        : Yes\n"}, "gpu-memory-ecc", "node-a"),
        ({"fabric__manager_dot_txt": "● nvidia-fabricmanager.service - NVIDIA fabric manager service\n     Active: inactive (dead)\n"}, "fabric-manager-down", "node-a"),
        # NUMA of GPUs and NICs, by sysfs where there is no matrix
        ({"nvidia__smi__topo_dot_txt": None, "rdma_dot_txt": ROCE.replace("numa_node: 1", "numa_node: 0")}, "numa-nic-misplacement", "node-a, NUMA node 1"),
        ({"gpu__numa_dot_txt": GPU_NUMA.replace("node: 0", "node: -1").replace("node: 1", "node: -1")}, "numa-nic-misplacement", "node-a"),
        # link rate and state
        ({"rdma_dot_txt": nic(2, "State: ACTIVE", "State: DOWN"), "ibstat_dot_txt": None}, "rdma-link-degraded", "node-a, mlx5_2"),
        ({"rdma_dot_txt": nic(2, "Rate: 400", "Rate: 100"), "ibstat_dot_txt": None}, "rdma-link-degraded", "node-a, mlx5_2"),
        # GIDs
        ({"gids_dot_txt": "/sys/class/infiniband/mlx5_1/ports/1/gids/0 fe80:0000:0000:0000:0ac0:ebff:fe12:3456\n/sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/0 RoCE v2\n"}, "rdma-gid-mismatch", "node-a, mlx5_1"),
        # PFC, ECN, DSCP
        ({"mlnx_qos_dot_txt": QOS.replace("1   0   0   0   0\n", "0   0   0   0   0\n")}, "roce-congestion", "node-a"),
        ({"mlnx_qos_dot_txt": QOS.replace("0   0   0   1", "0   1   0   0")}, "roce-congestion", "node-a"),
        ({"mlnx_qos_dot_txt": QOS.replace("state: dscp", "state: pcp")}, "roce-congestion", "node-a"),
        ({"ecn_dot_txt": ECN_ON.replace("eth5/ecn/roce_np/enable/3:1", "eth5/ecn/roce_np/enable/3:0").replace("eth5/ecn/roce_rp/enable/3:1", "eth5/ecn/roce_rp/enable/3:0")}, "roce-congestion", "node-a, eth5"),
        # MTU
        ({"rdma_dot_txt": nic(6, "netdev_mtu: 9000", "netdev_mtu: 1500")}, "rdma-peer-unreachable", "node-a, mlx5_6"),
        ({"rdma_dot_txt": ROCE.replace("netdev_mtu: 9000", "netdev_mtu: 1500")}, "rdma-link-degraded", ""),
        # memlock, /dev/shm, huge pages
        ({"limits_dot_txt": "Max locked memory         8388608              8388608              bytes     \n"}, "memlock-limit", "node-a"),
        ({"df_dot_txt": "shm              64M     0   64M   0% /dev/shm\n"}, "shm-too-small", "node-a"),
        ({"meminfo_dot_txt": MEMINFO.replace("Total:       0", "Total:  262144")}, "host-oom-kill", "node-a"),
        # ACS, IOMMU
        ({"lspci_dot_txt": "00:01.0 PCI bridge\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"}, "pcie-acs-iommu", "node-a"),
        ({"cmdline_dot_txt": "BOOT_IMAGE=/vmlinuz ro intel_iommu=on\n"}, "pcie-acs-iommu", "node-a"),
        # peer memory
        ({"lsmod_dot_txt": "ib_core 442368 9 rdma_cm,\nnvidia 56598528 147 nvidia_uvm,\n"}, "gpudirect-rdma-disabled", "node-a"),
        # clock
        ({"chronyc_dot_txt": None, "timedatectl_dot_txt": "System clock synchronized: no\n              NTP service: inactive\n"}, "clock-skew", "node-a"),
        # disk speed of the weights, disks
        ({"weights__read_dot_txt": "268435456 bytes (268 MB, 256 MiB) copied, 2.1 s, 128 MB/s\n"}, "slow-weights-storage", "node-a"),
        ({"df_dot_txt": "/dev/nvme0n1p2  1.8T  1.8T  2.0G 100% /\ntmpfs          1008G   12M 1008G   1% /dev/shm\n"}, "disk-full", "node-a"),
        # container limits
        ({"cgroup_dot_txt": CGROUP.replace("max 100000", "400000 100000")}, "cpu-starvation", "node-a"),
        ({"cgroup_dot_txt": CGROUP.replace("# memory.max\nmax", "# memory.max\n34359738368")}, "host-oom-kill", "node-a"),
        ({"cgroup_dot_txt": CGROUP.replace("oom_kill 0", "oom_kill 3")}, "host-oom-kill", "node-a"),
        # versions
        ({"pip__list_dot_txt": PIP.replace("0.33.0", "0.32.0+cu129")}, "invalid-engine-flags", "node-a"),
    ],
)  # fmt: skip
def test_each_fact_that_is_out_of_order_is_a_finding(changed: dict[str, str | None], code: str, subject: str) -> None:
    found = codes(host(**changed))
    assert code in [one for one, _ in found], found
    assert any(one == code and whom.startswith(subject or "node-a") for one, whom in found), found
    assert len({one for one, _ in found}) == 1, found


def test_an_open_driver_and_a_new_kernel_need_no_peer_memory_module() -> None:
    """GPUs then offer their memory as DMA-BUF."""
    without = {"lsmod_dot_txt": "ib_core 442368 9 rdma_cm,\nnvidia 56598528 147 nvidia_uvm,\n"}
    assert codes(host(**without, proc__version_dot_txt=OPEN_DRIVER)) == []
    old = "Linux node-a 5.4.0-200-generic #220-Ubuntu SMP x86_64 GNU/Linux\n"
    assert codes(host(**without, proc__version_dot_txt=OPEN_DRIVER, host_dot_txt=old)) == [
        ("gpudirect-rdma-disabled", "node-a")
    ]


def test_a_container_that_may_lock_memory_needs_no_limit() -> None:
    small = "Max locked memory         65536                65536                bytes     \n"
    assert codes(host(limits_dot_txt=small)) == [("memlock-limit", "node-a")]
    assert codes(host(limits_dot_txt=small + "CapEff:\t0000000400044000\n")) == []
    assert codes(host(limits_dot_txt=small + "CapEff:\t0000000400040000\n")) == [("memlock-limit", "node-a")]


def test_a_port_that_an_engine_will_want_is_a_note_unless_an_engine_has_it() -> None:
    taken = PORTS + "LISTEN 0      2048               *:8000             *:*\n"
    (note,) = notes_on(host_facts("node-a", host(ports_dot_txt=taken)), EXPECTED)
    assert note["what"] == "port-in-use"
    assert "Port 8000" in note["text"]
    serving = PS + "   4242       1 Ssl     01:02:03 python3 -m vllm.entrypoints.cli.main serve m --port 8000\n"
    assert notes_on(host_facts("node-a", host(ports_dot_txt=taken, ps_dot_txt=serving)), EXPECTED) == ()
    assert codes(host(ports_dot_txt=taken)) == []


def test_few_processes_for_a_container_are_a_note() -> None:
    (note,) = notes_on(
        host_facts("node-a", host(cgroup_dot_txt=CGROUP.replace("# pids.max\nmax", "# pids.max\n1024"))), EXPECTED
    )
    assert (note["what"], "1024" in note["text"]) == ("few-processes", True)


def test_capabilities_that_lspci_may_not_read_could_not_be_looked_at() -> None:
    facts = host_facts("node-a", host(lspci_dot_txt="00:01.0 PCI bridge: x\n\tCapabilities: <access denied>\n"))
    assert ("ACS and PCIe links", "may not be read: run as root") in could_not_look([facts])["node-a"]


def test_a_listing_of_pcie_that_is_longer_than_any_document_is_read_to_its_end() -> None:
    """A host with eight GPUs and their switches prints about a megabyte."""
    device = (
        "00:02.0 PCI bridge\n" + "\t\tDevCap:\tMaxPayload 512 bytes, PhantFunc 0, ExtTag+ RBE+ SlotPowerLimit 0W\n" * 30
    )
    text = device * 400 + "ff:01.0 PCI bridge\n\t\tACSCtl:\tSrcValid+ TransBlk- ReqRedir+ CmpltRedir+ UpstreamFwd+\n"
    assert len(text) > 800_000
    assert codes(host(lspci_dot_txt=text)) == [("pcie-acs-iommu", "node-a")]


STORAGE = ROCE + (
    "CA 'mlx5_8'\n\tState: ACTIVE\n\tPhysical state: LinkUp\n\tRate: 400\n\tLink layer: Ethernet\n\tnuma_node: 0\n"
    "\tnetdev: storage0\n\tnetdev_mtu: 1500\n"
)


def test_nics_of_other_duties_may_have_another_mtu() -> None:
    """By their rate, or because the document names the compute NICs."""
    assert ("rdma-peer-unreachable", "node-a, mlx5_8") in codes(host(rdma_dot_txt=STORAGE))
    named = replace(EXPECTED, hcas=tuple(f"mlx5_{n}" for n in range(8)))
    assert codes(host(rdma_dot_txt=STORAGE), named) == []
    slower = STORAGE.replace(
        "LinkUp\n\tRate: 400\n\tLink layer: Ethernet\n\tnuma_node: 0\n\tnetdev: storage0",
        "LinkUp\n\tRate: 100\n\tLink layer: Ethernet\n\tnuma_node: 0\n\tnetdev: storage0",
    )
    assert "rdma-peer-unreachable" not in [code for code, _ in codes(host(rdma_dot_txt=slower))]


def test_a_few_huge_pages_are_nobodys_business() -> None:
    assert codes(host(meminfo_dot_txt=MEMINFO.replace("Total:       0", "Total:    1024"))) == []


def test_without_a_document_only_the_host_itself_is_judged() -> None:
    assert codes(host(mlnx_qos_dot_txt=QOS.replace("state: dscp", "state: pcp")), Expected()) == []
    assert codes(host(pip__list_dot_txt=PIP.replace("0.33.0", "0.32.0")), Expected()) == []


@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"rdma_dot_txt": ROCE.replace("netdev_mtu: 9000", "netdev_mtu: 4200")}, "rdma-peer-unreachable"),
        ({"mlnx_qos_dot_txt": QOS.replace("0   0   0   1   0", "0   0   0   1   1")}, "roce-congestion"),
        ({"mlnx_qos_dot_txt": QOS.replace("state: dscp", "state: both")}, "roce-congestion"),
        ({"pip__list_dot_txt": PIP.replace("2.30.4", "2.28.3")}, "nccl-library-mismatch"),
        ({"pip__list_dot_txt": PIP.replace("torch                     2.11.0", "torch                     2.10.0")}, "nccl-library-mismatch"),
        ({"nvidia__smi_dot_txt": "| NVIDIA-SMI 590.44.01              Driver Version: 590.44.01      CUDA Version: 13.1     |\n" + "".join(f"|   {n}  NVIDIA H100 80GB HBM3          On  |   00000000:19:00.0 Off |                    0 |\n" for n in range(8))}, "driver-library-mismatch"),
    ],
)  # fmt: skip
def test_the_odd_one_out_of_three_is_named(changed: dict[str, str | None], code: str) -> None:
    facts = [host_facts("node-a", host()), host_facts("node-b", host(**changed)), host_facts("node-c", host())]
    assert [(one.code, one.subject) for one in check_hosts(facts, EXPECTED)] == [(code, "node-b")]


def test_every_question_of_the_list_is_asked() -> None:
    asked = {one.file for one in QUESTIONS}
    assert set(IN_ORDER) <= asked
    assert {"nvidia-smi.txt", "nvidia-smi-nvlink.txt", "fabric-manager.txt", "ibstat.txt", "gids.txt", "ip-link.txt", "limits.txt",
            "df.txt", "lspci.txt", "cmdline.txt", "lsmod.txt", "proc-version.txt", "chronyc.txt", "timedatectl.txt"} <= asked  # fmt: skip
