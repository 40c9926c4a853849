"""Who is to blame: a host, a rail, a port, a pair, everything, or nobody."""

from __future__ import annotations

import pytest

from roadworthy.diagnose.hosts.fabric.judge import Efficiency, FabricJudgement, judge_fabric
from roadworthy.diagnose.hosts.fabric.values import End, Measured
from support.fabric import fabric, link

EFFICIENCY = Efficiency(nic_ratio=0.9, nvlink_ratio=0.67)


def judge(links: list[Measured]) -> FabricJudgement:
    return judge_fabric(links, EFFICIENCY)


def told(links: list[Measured]) -> list[tuple[str, str]]:
    return [(one.code, one.subject) for one in judge(links).findings]


@pytest.mark.parametrize("hosts", [2, 3, 4, 8])
@pytest.mark.parametrize("rails", [1, 8])
def test_an_even_fabric_has_no_finding(hosts: int, rails: int) -> None:
    found = judge(fabric(hosts, rails, {}))
    assert (found.findings, found.slow, found.notes, found.could_not_look) == ((), frozenset(), (), ())
    assert found.measured_anything


@pytest.mark.parametrize("hosts", [3, 4, 5, 9])
@pytest.mark.parametrize("rails", [1, 4])
def test_a_host_that_is_slow_to_all_is_named_alone(hosts: int, rails: int) -> None:
    links = fabric(hosts, rails, {("node-b", "*", "*"): 20.0, ("*", "node-b", "*"): 19.0})
    ((code, subject),) = told(links)
    assert code == "rdma-link-degraded"
    assert subject.split()[0] == "node-b"
    assert len(judge(links).slow) == 2 * (hosts - 1) * rails


def test_a_port_that_is_slow_to_all_is_named_with_its_device() -> None:
    links = fabric(4, 4, {("node-c", "*", "mlx5_2"): 20.0, ("*", "node-c", "mlx5_2"): 20.0})
    assert told(links) == [("rdma-link-degraded", "node-c mlx5_2")]


def test_a_rail_that_is_slow_between_all_is_the_fabrics() -> None:
    assert told(fabric(4, 4, {("*", "*", "mlx5_3"): 15.0})) == [("rdma-path-oversubscribed", "rail mlx5_3")]


def test_a_pair_that_is_slow_only_to_each_other_shares_a_path() -> None:
    links = fabric(4, 1, {("node-a", "node-d", "*"): 22.0, ("node-d", "node-a", "*"): 23.0})
    assert told(links) == [("rdma-path-oversubscribed", "node-a and node-d, mlx5_0")]


def test_one_direction_is_enough() -> None:
    assert told(fabric(3, 1, {("node-a", "node-b", "*"): 22.0})) == [
        ("rdma-path-oversubscribed", "node-a and node-b, mlx5_0")
    ]


def test_two_faults_at_once_are_two_findings() -> None:
    slow = {("node-b", "*", "*"): 20.0, ("*", "node-b", "*"): 20.0, ("node-d", "node-e", "mlx5_1"): 10.0}
    assert sorted(told(fabric(6, 2, slow))) == [
        ("rdma-link-degraded", "node-b"), ("rdma-path-oversubscribed", "node-d and node-e, mlx5_1"),
    ]  # fmt: skip


def test_all_below_the_rate_of_their_links_is_one_finding() -> None:
    """Nobody is odd among peers, and yet the document says 50 GB/s."""
    links = fabric(4, 2, {("*", "*", "*"): 24.0})
    ((code, subject),) = told(links)
    assert code == "rdma-path-oversubscribed"
    assert subject == "node-a, node-b, node-c, node-d"


def test_between_two_hosts_nothing_tells_which_end() -> None:
    (found,) = judge(fabric(2, 2, {("*", "*", "mlx5_1"): 20.0})).findings
    assert (found.code, found.subject, found.confidence) == ("rdma-link-degraded", "node-a and node-b, mlx5_1", 0.6)
    assert "which end" in found.diagnosis


def test_without_a_rate_only_peers_judge() -> None:
    links = [link(a, b, 5.0, link_gigabytes_per_s=None) for a, b in (("a", "b"), ("b", "c"), ("a", "c"))]
    assert told(links) == []
    links[0] = link("a", "b", 1.0, link_gigabytes_per_s=None)
    assert told(links) == [("rdma-path-oversubscribed", "a and b")]


def test_tcp_spreads_more_and_is_less_sure() -> None:
    speeds = {("a", "b"): 1.0, ("b", "c"): 0.62, ("a", "c"): 0.9}
    links = [link(*pair, speed, program="torch gloo", link_gigabytes_per_s=None) for pair, speed in speeds.items()]
    assert told(links) == []
    links.append(link("c", "d", 0.2, program="torch gloo", link_gigabytes_per_s=None))
    links += [link(one, "d", 0.9, program="torch gloo", link_gigabytes_per_s=None) for one in "ab"]
    (found,) = judge(links).findings
    assert found.confidence < 0.6
    assert "TCP" in found.diagnosis


def test_tools_are_not_compared_with_each_other() -> None:
    """One pair had no perftest: its all-reduce is no slow RDMA link."""
    links = [*fabric(3, 1, {}), link("node-a", "node-x", 1.1, program="torch gloo", link_gigabytes_per_s=None)]
    assert told(links) == []


def test_a_host_that_nobody_reaches_is_one_critical_finding() -> None:
    links = fabric(4, 1, {})
    links = [
        link(
            one.one.host,
            one.two.host,
            None,
            rail="mlx5_0",
            fault="rdma-peer-unreachable",
            why="Failed to modify QP 1 to RTR",
        )
        if "node-c" in (one.one.host, one.two.host)
        else one
        for one in links
    ]
    (found,) = judge(links).findings
    assert (found.code, found.severity) == ("rdma-peer-unreachable", "critical")
    assert found.subject.startswith("node-c")
    assert "Failed to modify QP" in found.diagnosis


def test_a_failure_without_a_cause_could_not_be_looked_at_and_is_no_finding() -> None:
    found = judge([*fabric(2, 1, {}), link("node-a", "node-z", None, why="no ib_write_bw on node-z")])
    assert found.findings == ()
    assert found.could_not_look == (
        ("bandwidth between node-a and node-z by ib_write_bw", "failed: no ib_write_bw on node-z"),
    )


def test_nothing_measured_is_not_healthy() -> None:
    assert not judge([link("a", "b", None, why="no tool")]).measured_anything


def gpu_links(slow: dict[tuple[int, int], float], *, nvlink: float | None = 450.0) -> list[Measured]:
    return [
        Measured(
            kind="bandwidth", tool="torch", program="torch copy", one=End(host="a", part=f"GPU{x}"),
            two=End(host="a", part=f"GPU{y}"), status="measured", value=slow.get((x, y), 380.0) * 1e9,
            link_bytes_per_s=nvlink * 1e9 if nvlink else None,
        )
        for x in range(8) for y in range(8) if x != y
    ]  # fmt: skip


def test_a_gpu_whose_nvlinks_are_slow_is_named() -> None:
    slow = {(x, y): 40.0 for x in range(8) for y in range(8) if 5 in (x, y)}
    assert told(gpu_links(slow)) == [("nvlink-fault", "a GPU5")]


def test_a_slow_pair_of_gpus_is_named_and_pcie_pairs_are_not_judged() -> None:
    assert told(gpu_links({(2, 3): 40.0, (3, 2): 41.0})) == [("nvlink-fault", "a GPU2 and a GPU3")]
    assert told(gpu_links({(2, 3): 40.0}, nvlink=None)) == []


def test_all_gpus_of_a_host_below_nvlink_are_one_finding() -> None:
    assert told(gpu_links({(x, y): 45.0 for x in range(8) for y in range(8)})) == [("nvlink-fault", "a, all GPUs")]


def test_a_late_host_is_a_note() -> None:
    links = [
        Measured(
            kind="latency", tool="perftest", program="ib_write_lat", one=End(host=a), two=End(host=b), both_ways=True,
            status="measured", value=(14e-6 if "d" in a + b else 2.2e-6),
        )
        for a, b in ("ab", "ac", "ad", "bc", "bd", "cd")
    ]  # fmt: skip
    found = judge(links)
    assert found.findings == ()
    (note,) = found.notes
    assert note["subject"] == "d"
    assert "14.0 us" in note["text"]
    assert len(found.slow) == 3
