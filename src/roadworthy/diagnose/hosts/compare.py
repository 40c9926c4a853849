"""Hosts that should be alike: which is the odd one out, fact by fact."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.facts import HostFacts, finding, gpus_of

if TYPE_CHECKING:
    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.values import Clue, ClueBook


def odd_ones_out(hosts: Sequence[HostFacts]) -> Iterator[Finding]:
    """Findings on hosts that differ from most of the others; needs two hosts, and a majority to call one odd."""
    if len(hosts) < 2:
        return
    for what, code, read in FACTS:
        seen = {facts.host: (facts, found) for facts in hosts if (found := read(facts.book)) is not None}
        values = Counter(value for _, (value, _) in seen.values())
        if len(values) < 2:
            continue
        usual, times = values.most_common(1)[0]
        tied = list(values.values()).count(times) > 1
        for facts, (value, clues) in seen.values():
            if value != usual or (tied and facts.host == max(seen)):
                other = usual if value != usual else next(one for one in values if one != value)
                yield finding(
                    code,
                    facts,
                    clues,
                    f"{what} is {value} here, {other} on {'another host' if tied else 'most hosts'}.",
                    confidence=0.6 if tied else 0.75,
                )


Reader = Callable[["ClueBook"], "tuple[str, tuple[Clue, ...]] | None"]


def _value(name: str, key: str) -> Reader:
    def read(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
        clue = book.first(name)
        return (clue.value(key), (clue,)) if clue is not None and clue.value(key) else None

    return read


def _gpu_count(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    listed = gpus_of(book)
    return (f"{len(listed)} GPUs", tuple(listed.values())[-1:]) if listed else None


def _active_ports(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    states = {clue.value("device"): clue for clue in book.all("port.state")}
    active = [clue for clue in states.values() if clue.value("state").lower() in ("active", "yes")]
    return (f"{len(active)} active", tuple(states.values())[:1]) if states else None


def _port_rates(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    rates = {clue.value("device"): clue for clue in book.all("port.state") if clue.value("rate")}
    text = ", ".join(sorted({clue.value("rate") for clue in rates.values()}))
    return (f"{text} Gb/s", tuple(rates.values())[:1]) if rates else None


def _gid_index(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    routable = [clue for clue in book.all("gid.row") if clue.value("kind") == "routable"]
    indices = sorted({clue.value("index") for clue in routable})
    return (", ".join(indices), tuple(routable[:1])) if indices else None


def _nccl(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    clue = book.first("package.nvidia-nccl-cu13", "package.nvidia-nccl-cu12", "package.nvidia-nccl-cu11")
    return (clue.value("version"), (clue,)) if clue is not None else None


def _mtus(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    ports = {clue.value("device"): clue for clue in book.all("port.state") if clue.value("mtu").isdigit()}
    values = sorted({clue.value("mtu") for clue in ports.values()}, key=int)
    return (", ".join(values), tuple(ports.values())[:1]) if values else None


def _lossless(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    clues = book.all("qos.pfc-on", "qos.pfc-off")
    values = sorted({" ".join(clue.value("bits").split()) for clue in clues if clue.value("bits")})
    return ("; ".join(values), clues[:1]) if values else None


def _trust(book: ClueBook) -> tuple[str, tuple[Clue, ...]] | None:
    clues = book.all("qos.trust-*")
    values = sorted({clue.value("state") for clue in clues})
    return (", ".join(values), clues[:1]) if values else None


FACTS: tuple[tuple[str, str, Reader], ...] = (
    ("The driver", "driver-library-mismatch", _value("driver.version", "driver")),
    ("The number of GPUs", "gpu-not-visible", _gpu_count),
    ("The number of active RDMA ports", "rdma-link-degraded", _active_ports),
    ("The rate of RDMA ports", "rdma-link-degraded", _port_rates),
    ("The index of the routable GID", "rdma-gid-mismatch", _gid_index),
    ("The MTU of RDMA interfaces", "rdma-peer-unreachable", _mtus),
    ("PFC, by priority,", "roce-congestion", _lossless),
    ("What RoCE ports trust", "roce-congestion", _trust),
    ("NCCL", "nccl-library-mismatch", _nccl),
    ("Torch", "nccl-library-mismatch", _value("package.torch", "version")),
    ("vLLM", "nccl-library-mismatch", _value("package.vllm", "version")),
    ("Ray", "ray-version-mismatch", _value("package.ray", "version")),
)
