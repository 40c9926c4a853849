"""Rules about the RDMA network of a host: MTU, congestion control, traffic class, sockets of GPUs and NICs."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.facts import Expected, HostFacts, finding

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.values import Clue, ClueBook

FULL_MTU = 4200
"""An RDMA packet of 4096 bytes with its headers; below it RoCE falls to 2048 or 1024 bytes a packet."""


def roce_ports(book: ClueBook) -> Mapping[str, Clue]:
    """RoCE ports by device, with the interface that each belongs to where that is known."""
    found: dict[str, Clue] = {}
    for clue in book.all("port.state"):
        if clue.value("link_layer") == "Ethernet" and (clue.value("netdev") or clue.value("device") not in found):
            found[clue.value("device")] = clue
    return found


def mtu(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """RoCE ports that cut packets small, and ports of one kind that disagree: those of one rate, since NICs for storage
    or management have their own."""
    by_rate: dict[str, dict[str, Clue]] = defaultdict(dict)
    for device, clue in _compute(roce_ports(facts.book), expected).items():
        if clue.value("mtu").isdigit():
            by_rate[clue.value("rate")][device] = clue
    for ports in by_rate.values():
        yield from _mtu_of(facts, ports)


def _compute(ports: Mapping[str, Clue], expected: Expected) -> Mapping[str, Clue]:
    """The ports that the document calls compute NICs; all where it names none of them."""
    named = {device: clue for device, clue in ports.items() if device in expected.hcas}
    return named or ports


def _mtu_of(facts: HostFacts, ports: Mapping[str, Clue]) -> Iterator[Finding]:
    usual = Counter(clue.value("mtu") for clue in ports.values()).most_common(1)[0][0]
    odd = {device: clue for device, clue in ports.items() if clue.value("mtu") != usual}
    for device, clue in odd.items():
        yield finding(
            "rdma-peer-unreachable", facts, (clue,), subject=device, confidence=0.6,
            diagnosis=f"The MTU of {device} ({clue.value('netdev')}) is {clue.value('mtu')}, of the other ports {usual}: "
            "large messages between them fail or wait for retries.",
        )  # fmt: skip
    if int(usual) < FULL_MTU:
        first = next(clue for clue in ports.values() if clue.value("mtu") == usual)
        yield finding(
            "rdma-link-degraded", facts, (first,), subject=", ".join(device for device in ports if device not in odd),
            confidence=0.55, severity="information",
            diagnosis=f"The MTU of the RoCE ports is {usual}: RDMA packets carry 1024 or 2048 bytes of 4096, which costs "
            f"bandwidth. {FULL_MTU} or 9000 on hosts and switches carries 4096.",
        )  # fmt: skip


def congestion(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """ECN that nobody answers, and a traffic class other than the document's."""
    book, ports = facts.book, _compute(roce_ports(facts.book), expected)
    if not ports:
        return
    interfaces = {clue.value("netdev") for clue in ports.values()} - {""}
    on = {
        (clue.value("device"), clue.value("priority")) for clue in book.all("ecn.enable") if clue.value("value") == "1"
    }
    shown = [clue for clue in book.all("ecn.enable") if not interfaces or clue.value("device") in interfaces]
    priority = None if expected.roce_dscp is None else str(expected.roce_dscp >> 3)
    silent = {
        clue.value("device"): clue
        for clue in shown
        if not any(device == clue.value("device") and priority in (None, level) for device, level in on)
    }
    if silent:
        which = "every priority" if priority is None else f"priority {priority}, which the document's DSCP is in"
        yield finding(
            "roce-congestion", facts, tuple(silent.values())[:3], subject=", ".join(silent), confidence=0.55,
            diagnosis=f"ECN is off on {which}: congestion shows as pauses or drops alone.",
        )  # fmt: skip
    if expected.roce_dscp is None:
        return
    if (clue := book.first("qos.trust-pcp")) is not None:
        yield finding(
            "roce-congestion", facts, (clue,), confidence=0.7,
            diagnosis=f"The port trusts PCP, the document marks traffic with DSCP {expected.roce_dscp}: it lands in the "
            "default class.",
        )  # fmt: skip
    for clue in book.all("qos.pfc-on"):
        bits = clue.value("bits").split()
        if len(bits) == 8 and bits[expected.roce_dscp >> 3] == "0":
            yield finding(
                "roce-congestion", facts, (clue,), confidence=0.65,
                diagnosis=f"PFC is on, but not for priority {priority}, which the document's DSCP {expected.roce_dscp} is in.",
            )  # fmt: skip
            return


def sockets(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    """NUMA nodes by sysfs, where `nvidia-smi topo -m` has no say: hidden ones, and sockets without a NIC."""
    book = facts.book
    gpus = {clue.value("bus"): clue for clue in book.all("gpu.numa-node")}
    nodes = {clue.value("node") for clue in gpus.values()}
    if len(gpus) >= 2 and nodes == {"-1"} and _sockets(book) > 1:
        yield finding(
            "numa-nic-misplacement", facts, tuple(gpus.values())[:2], confidence=0.55,
            diagnosis="The host has several NUMA nodes and tells of none for its GPUs: firmware or a virtual machine hides "
            "the topology, and NCCL chooses NICs blindly.",
        )  # fmt: skip
    if book.has("topo.nic"):
        return
    nics = {clue.value("device"): clue for clue in book.all("port.state") if clue.value("numa").isdigit()}
    with_nic = {clue.value("numa") for clue in nics.values()}
    bare = {
        bus: clue for bus, clue in gpus.items() if clue.value("node") not in with_nic and clue.value("node") != "-1"
    }
    if len(nics) >= 2 and bare and len(bare) < len(gpus):
        yield finding(
            "numa-nic-misplacement", facts, tuple(bare.values())[:3], confidence=0.6,
            subject=f"NUMA node {', '.join(sorted({clue.value('node') for clue in bare.values()}))}",
            diagnosis=f"{len(bare)} GPUs sit on a NUMA node without an RDMA port, the others have one on theirs.",
        )  # fmt: skip


def _sockets(book: ClueBook) -> int:
    clue = book.first("numa.nodes")
    return int(clue.value("count")) if clue is not None else 1


RULES = (mtu, congestion, sockets)
