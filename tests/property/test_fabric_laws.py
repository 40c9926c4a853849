"""Laws of the fabric check: every bad link has one culprit, and no text that a tool or a log prints breaks a reader."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from roadworthy.diagnose.hosts.fabric import nccl_tests, own, perftest
from roadworthy.diagnose.hosts.fabric.blame import culprits
from roadworthy.diagnose.hosts.fabric.inventory import parse_inventory
from roadworthy.diagnose.hosts.fabric.judge import Efficiency, judge_fabric
from roadworthy.diagnose.hosts.pod_logs import captures_of_log
from support.fabric import fabric, nccl, write_bw, write_lat

WORDS = st.sampled_from(
    [
        *write_bw(391.5).splitlines(), *write_lat(2.1).splitlines(), *nccl(340.0).splitlines(), own.MARK + "{}",
        own.MARK + '{"bytes_per_s": true}', own.MARK + '{"from": 1}', "@@@ host a", "@@@ host ", "@@@ begin a.txt",
        "@@@ begin ", "@@@ end a.txt done", "@@@ end a.txt", "@@@ rc x", "@@@ rc 0", "@@@ whole",
        "[pod/a/b] @@@ host c",
        "2026-11-30T00:00:00Z stdout P x", "port mlx5_0 1 ACTIVE 1e9 Ethernet", "gid mlx5_0 1 0 :: RoCE v2", "gpus x",
    ]
)  # fmt: skip
TEXTS = st.lists(WORDS | st.text(max_size=40), max_size=30).map("\n".join)


@given(TEXTS)
def test_no_text_breaks_a_reader(text: str) -> None:
    for module in (perftest, nccl_tests):
        for reading in (module.bandwidth(text), module.latency(text)):
            assert reading is None or 0 < reading.value < float("inf")
        module.fault(text)
    own.fault(text)
    for kind in ("bandwidth", "latency"):
        own.reading(text, kind)  # type: ignore[arg-type]
    parse_inventory("a", text)
    for answers in captures_of_log(text).values():
        assert all(one.status for one in answers)


@given(st.integers(2, 5), st.integers(1, 3), st.randoms(use_true_random=False), st.floats(0, 1))
def test_every_bad_link_has_exactly_one_culprit(hosts: int, rails: int, random: object, share: float) -> None:
    links = fabric(hosts, rails, {})
    bad = [link for link in links if random.random() < share]  # type: ignore[attr-defined]
    found = culprits(links, bad)
    blamed = [id(link) for culprit in found for link in culprit.links]
    assert sorted(blamed) == sorted(id(link) for link in bad)
    assert found == culprits(links, bad)


@given(st.integers(2, 5), st.integers(1, 3), st.randoms(use_true_random=False))
def test_an_even_fabric_stays_without_a_finding_however_it_scatters(hosts: int, rails: int, random: object) -> None:
    """A tenth to either side is what healthy links do."""
    from dataclasses import replace

    links = [
        replace(link, value=(link.value or 0) * random.uniform(0.9, 1.0))  # type: ignore[attr-defined]
        for link in fabric(hosts, rails, {})
    ]
    assert judge_fabric(links, Efficiency(nic_ratio=0.9, nvlink_ratio=0.67)).findings == ()
