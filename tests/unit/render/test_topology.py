"""The matrix of ``nvidia-smi topo -m``: what belongs together, and what is not certain enough to be taken."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from roadworthy.cli.render import command
from roadworthy.core.errors import SpecError
from roadworthy.render.topology import GpuPlace, Topology, fitting, read_topology
from roadworthy.spec.values import ClusterSpec
from support.rendering import LLAMA_ON_8_H100

LEGEND = """
Legend:

  X    = Self
  PIX  = Connection traversing at most a single PCIe bridge

NIC Legend:

{names}
"""


def matrix(links: list[list[str]], numa: list[str], names: list[str], *, colour: bool = False) -> str:
    """What the tool prints: a row a GPU, then a row a NIC, then two legends."""
    gpus, nics = len(links), len(names)
    head = [f"GPU{n}" for n in range(gpus)] + [f"NIC{n}" for n in range(nics)]
    lines = ["\t" + "\t".join(head) + "\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID"]
    for gpu, row in enumerate(links):
        cells = [" X " if other == gpu else "NV18" for other in range(gpus)] + row
        lines.append(f"GPU{gpu}\t" + "\t".join(cells) + f"\t{gpu * 8}-{gpu * 8 + 7},128\t{numa[gpu]}\t\tN/A")
    lines += [f"NIC{nic}\t" + "\t".join(["SYS"] * (gpus + nics)) for nic in range(nics)]
    text = "\n".join(lines) + LEGEND.format(names="\n".join(f"  NIC{n}: {name}" for n, name in enumerate(names)))
    return f"\x1b[4m{text}\x1b[0m" if colour else text


# four GPUs on two sockets; NIC numbers that do not follow GPU numbers, and a storage NIC in between
LINKS = [
    ["SYS", "PIX", "NODE", "SYS", "NODE"],
    ["SYS", "NODE", "PIX", "SYS", "NODE"],
    ["PXB", "SYS", "SYS", "NODE", "NODE"],
    ["NODE", "SYS", "SYS", "PXB", "NODE"],
]
NAMES = ["mlx5_7", "mlx5_0", "mlx5_3", "mlx5_9", "mlx5_bond_0"]


def test_each_gpu_has_the_nic_below_its_own_switch() -> None:
    found = read_topology(matrix(LINKS, ["0", "0", "1", "1"], NAMES), source="x")
    assert [place.nics for place in found.gpus] == [("mlx5_0",), ("mlx5_3",), ("mlx5_7",), ("mlx5_9",)]
    assert found.compute_nics == ("mlx5_0", "mlx5_3", "mlx5_7", "mlx5_9")
    assert found.other_nics == ("mlx5_bond_0",)
    assert found.numa_nodes == (0, 0, 1, 1)
    assert found.gpus[2].cores == "16-23,128"


def test_the_nearest_nic_counts_not_every_near_one() -> None:
    links = [["PIX", "PXB"], ["PXB", "PIX"]]
    found = read_topology(matrix(links, ["0", "1"], ["mlx5_0", "mlx5_1"]), source="x")
    assert found.compute_nics == ("mlx5_0", "mlx5_1")


def test_colours_of_a_terminal_are_no_part_of_it() -> None:
    assert read_topology(matrix(LINKS, ["0", "0", "1", "1"], NAMES, colour=True), source="x").numa_nodes == (0, 0, 1, 1)


@pytest.mark.parametrize(
    "links",
    [
        [["PHB", "SYS"], ["SYS", "PHB"]],  # a virtual machine hides the switches
        [["PIX", "SYS"], ["SYS", "NODE"]],  # the second GPU has none
        [["PIX", "PIX", "SYS"], ["SYS", "SYS", "PIX"]],  # three near two GPUs: one serves something else
    ],
)
def test_nics_that_are_not_certain_are_not_taken(links: list[list[str]]) -> None:
    names = [f"mlx5_{n}" for n in range(len(links[0]))]
    assert read_topology(matrix(links, ["0", "0"], names), source="x").compute_nics == ()


def test_a_nic_that_two_gpus_share_is_named_once() -> None:
    links = [["PIX", "SYS"], ["PIX", "SYS"], ["SYS", "PIX"], ["SYS", "PIX"]]
    assert read_topology(matrix(links, ["0", "0", "1", "1"], ["a", "b"]), source="x").compute_nics == ("a", "b")


@pytest.mark.parametrize("numa", [["N/A", "N/A"], ["0-1", "0-1"], ["0", "N/A"]])
def test_sockets_that_the_matrix_does_not_tell_are_unknown(numa: list[str]) -> None:
    assert read_topology(matrix([["PIX"], ["PIX"]], numa, ["a"]), source="x").numa_nodes == ()


@pytest.mark.parametrize("text", ["", "command not found", "GPU0 X", "\tGPU0\tGPU1\tCPU Affinity\n"])
def test_what_is_no_matrix_is_told(text: str) -> None:
    with pytest.raises(SpecError, match=r"topology.txt"):
        read_topology(text, source="topology.txt")


def test_names_that_could_break_out_of_a_list_are_no_nics() -> None:
    assert read_topology(matrix([["PIX"]], ["0"], ["mlx5_0,;$(x)"]), source="x").compute_nics == ()


def test_what_the_document_says_stays() -> None:
    place = GpuPlace(gpu=0, numa_node=1, cores="", nics=("mlx5_1",))
    topology = Topology(gpus=(place,), other_nics=())
    assert fitting(topology, ClusterSpec(), source="x") == {"gpu_numa_nodes": (1,), "hcas": ("mlx5_1",)}
    assert fitting(topology, ClusterSpec(hcas=("mlx5_8",), gpu_numa_nodes=(0,)), source="x") == {}
    with pytest.raises(SpecError, match="1 GPUs, wanted 8"):
        fitting(topology, ClusterSpec(gpus_per_node=8), source="x")


def test_the_command_takes_a_matrix_and_says_what_it_took(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text(LLAMA_ON_8_H100.replace("gpus_per_node: 8", "gpus_per_node: 4"))
    (tmp_path / "topology.txt").write_text(matrix(LINKS, ["0", "0", "1", "1"], NAMES))
    out = tmp_path / "out"
    arguments = [str(tmp_path / "spec.yaml"), "--layout", "TP4", "--topology", str(tmp_path / "topology.txt")]
    result = CliRunner().invoke(command, [*arguments, "--target", "vllm,host-prep", "--out", str(out)])
    assert result.exit_code == 0, result.output
    assert "cluster.gpu_numa_nodes: [0, 0, 1, 1]" in result.stderr
    assert "--numa-bind-nodes 0 0 1 1" in (out / "vllm/node-0.sh").read_text()
    page = (out / "host-prep/topology.md").read_text()
    assert "| 2 | 1 | 16-23,128 | `mlx5_7` |" in page
    assert "storage or management: `mlx5_bond_0`" in page
