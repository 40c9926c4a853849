"""The matrix in a terminal and on a page: slow pairs marked, failures told from what was not measured."""

from __future__ import annotations

from roadworthy.diagnose.hosts.fabric.judge import Efficiency, judge_fabric
from roadworthy.diagnose.hosts.fabric.page import fabric_page
from roadworthy.diagnose.hosts.fabric.picture import drawn, matrices
from support.fabric import fabric, link

EFFICIENCY = Efficiency(nic_ratio=0.9, nvlink_ratio=0.67)


def test_slow_pairs_are_marked_and_rails_get_a_table_of_their_own() -> None:
    links = fabric(3, 2, {("node-a", "node-b", "mlx5_1"): 20.0})
    hosts, rails = matrices(links, judge_fabric(links, EFFICIENCY).slow)
    assert drawn(hosts) == [
        "Bandwidth between hosts, slowest rail, ib_write_bw, GB/s",
        "          node-a  node-b  node-c",
        "  node-a       -   20.0!    48.0",
        "  node-b    48.0       -    48.0",
        "  node-c    48.0    48.0       -",
    ]
    assert drawn(rails) == [
        "Bandwidth of each host's rails, to its best peer, ib_write_bw, GB/s",
        "          mlx5_0  mlx5_1",
        "  node-a    48.0    48.0",
        "  node-b    48.0    48.0",
        "  node-c    48.0    48.0",
    ]


def test_a_port_that_is_slow_to_all_is_marked_at_its_own_host_alone() -> None:
    links = fabric(4, 2, {("node-c", "*", "mlx5_1"): 20.0, ("*", "node-c", "mlx5_1"): 20.0})
    _, rails = matrices(links, judge_fabric(links, EFFICIENCY).slow)
    assert [place for place, cell in rails.cells.items() if cell.slow] == [("node-c", "mlx5_1")]


def test_what_failed_is_an_x_and_what_was_not_measured_a_dash() -> None:
    links = [link("a", "b", 48.0, both_ways=True), link("a", "c", None, why="timed out", both_ways=True)]
    (table,) = matrices(links, frozenset())
    assert [line.split() for line in drawn(table)[2:]] == [
        ["a", "-", "48.0", "x"],
        ["b", "48.0", "-", "-"],
        ["c", "x", "-", "-"],
    ]


def test_long_names_stay_apart_and_numbers_count_as_numbers() -> None:
    names = [f"rack12-gpu-node-with-a-long-name-{number}" for number in (2, 10)]
    (table,) = matrices([link(names[0], names[1], 48.0)], frozenset())
    lines = drawn(table)
    assert table.rows == (names[0], names[1])
    assert len({line.split()[0] for line in lines[2:]}) == 2
    assert max(len(line) for line in lines) < 90


def test_the_page_opens_offline_and_escapes_what_hosts_said() -> None:
    links = [link("<b>a", "b", 48.0), link("<b>a", "c", 5.0), link("b", "c", 48.0)]
    judgement = judge_fabric(links, EFFICIENCY)
    page = fabric_page(matrices(links, judgement.slow), judgement.findings, (("x<y", "a&b"),))
    assert "<b>a" not in page
    assert "&lt;b&gt;a" in page
    assert 'class="slow"' in page
    assert "x&lt;y" in page
    for outside in ("http:", "https:", "src=", "@import", "<script"):
        assert outside not in page
