"""The nodes by name in ``cluster``: what they may be called, and what must agree with what."""

from __future__ import annotations

import pytest

from roadworthy.spec.load import check_text, load_text
from roadworthy.spec.values import Host

TWO = "model: {config: tiny}\ncluster:\n  nodes: 2\n  gpus_per_node: 4\n  gpu: H100-80GB\n"


def test_hosts_are_read_in_order_with_what_differs_on_each() -> None:
    cluster = load_text(
        TWO + "  hosts: [{address: 10.0.0.1}, {address: node-b.cluster, interface: eno2, hcas: [mlx5_7]}]\n"
        "  interface: ens3f0\n  hcas: [mlx5_0, 'mlx5_3:1']\n  fabric: ethernet\n  roce_dscp: 26\n"
        "  gpu_numa_nodes: [0, 0, 1, 1]\n",
        source="x",
    ).cluster
    assert cluster.hosts == (
        Host(address="10.0.0.1"),
        Host(address="node-b.cluster", interface="eno2", hcas=("mlx5_7",)),
    )
    assert (cluster.interface, cluster.hcas, cluster.fabric) == ("ens3f0", ("mlx5_0", "mlx5_3:1"), "ethernet")
    assert (cluster.gpu_numa_nodes, cluster.roce_dscp) == ((0, 0, 1, 1), 26)


@pytest.mark.parametrize(
    ("line", "path", "wanted"),
    [
        ("hosts: [{address: a}]", "cluster.hosts", "2, as cluster.nodes says"),
        ("hosts: [{address: a}, {address: a}]", "cluster.hosts", "an address of its own"),
        ("hosts: [{address: 'a; reboot'}, {address: b}]", "cluster.hosts[0].address", "a host name or address"),
        ("hosts: [{address: -a}, {address: b}]", "cluster.hosts[0].address", "a host name or address"),
        ("interface: 'a b'", "cluster.interface", "the name of a network interface"),
        ("hcas: ['mlx5_0,mlx5_1']", "cluster.hcas[0]", "an RDMA device"),
        ("gpu_numa_nodes: [0, 1]", "cluster.gpu_numa_nodes", "4, one for each GPU"),
        ("fabric: infiniband\n  roce_dscp: 26", "cluster.roce_dscp", "cluster.fabric: ethernet"),
        ("fabric: roce", "cluster.fabric", "infiniband"),
    ],
)
def test_what_cannot_be_is_told_with_its_place(line: str, path: str, wanted: str) -> None:
    deployment, problems = check_text(TWO + f"  {line}\n", source="x")
    assert deployment is None
    assert [problem.path for problem in problems] == [path]
    assert wanted in problems[0].wanted
