"""Processors, PCIe links and NUMA placement, put side by side."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.joins.network import used_devices
from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook

REMOTE_SHARE = 0.15
"""Share of a worker's memory off its GPU's node from which first touch went wrong; the C library alone takes 2 %."""


def processor(book: ClueBook) -> Iterator[Clue]:
    """``cpu.throttled``: share of scheduler periods in which the quota ran out."""
    periods, throttled = book.all("cpu.nr_periods"), book.all("cpu.nr_throttled")
    if periods and throttled:
        delta_periods = int(periods[-1].number("value")) - (int(periods[0].number("value")) if len(periods) > 1 else 0)
        delta = int(throttled[-1].number("value")) - (int(throttled[0].number("value")) if len(throttled) > 1 else 0)
        if delta_periods > 0 and delta / delta_periods > 0.2:
            yield derived(throttled[-1], "cpu.throttled", periods[-1], share=f"{delta / delta_periods:.0%}")
    for clue in book.all("cpu.throttled-percent"):
        if clue.number("percent") > 20:
            yield derived(clue, "cpu.throttled", share=f"{clue.value('percent')} %")
    load, cores = book.first("cpu.load"), book.first("cpu.cores", "cpu.quota")
    if load is not None and cores is not None and load.number("load") > 1.5 * cores.number("cores"):
        yield derived(load, "cpu.oversubscribed", cores, cores=cores.value("cores"))
    threads, quota = book.first("cpu.threads"), book.first("cpu.quota")
    if threads is not None and quota is not None and threads.number("threads") > 4 * quota.number("cores"):
        yield derived(threads, "cpu.more-threads-than-quota", quota, cores=quota.value("cores"))


UNDER_LOAD = re.compile(
    r"(?:under|with|during|while|at|full)\W+(?:\w+\W+){0,3}(?:load|busy|running|all_?reduce\w*|gpu_burn|test|bench\w*)|"
    r"\b(?:[4-9]\d|100) ?% ?(?:util|GPU-Util|gpu)|\butil\w*\W+(?:[4-9]\d|100)\b",
    re.IGNORECASE,
)


def pcie(book: ClueBook) -> Iterator[Clue]:
    """``pcie.degraded-under-load``: generation or width below the maximum on a busy device; idle ones save power."""
    links = book.all("pcie.link")
    busy = [clue for clue in links if int(clue.number("utilisation")) > 20 or clue.value("pstate") in ("0", "1", "2")]
    maximum_gen = max((int(clue.number("gen_max")) for clue in links), default=0)
    maximum_width = max((int(clue.number("width_max")) for clue in links), default=0)
    degraded = False
    for clue in busy:
        gen, width = int(clue.number("gen")), int(clue.number("width"))
        if (gen and gen < (int(clue.number("gen_max")) or maximum_gen)) or (
            width and width < (int(clue.number("width_max")) or maximum_width)
        ):
            degraded = True
            yield derived(
                clue,
                "pcie.degraded-under-load",
                gen_max=clue.value("gen_max") or maximum_gen,
                width_max=clue.value("width_max") or maximum_width,
            )
    if busy and not degraded:
        yield derived(busy[0], "pcie.full-speed-under-load")
    rates = [clue.number("rate") for clue in book.all("port.state") if clue.value("rate")]
    for clue in book.all("pcie.bandwidth-limited"):
        if rates and clue.number("available") < 0.9 * max(rates):
            yield derived(clue, "pcie.below-port", rate=f"{max(rates):g}")
    loaded = any(UNDER_LOAD.search(document.text) for document in book.documents)
    for clue in book.all("pcie.downgraded"):
        if clue.value("width_note") == "downgraded":
            yield derived(clue, "pcie.width-downgraded")
        if clue.value("speed_note") == "downgraded" and loaded:
            yield derived(clue, "pcie.slow-while-busy")


def numa(book: ClueBook) -> Iterator[Clue]:
    """``numa.memory-remote``: most memory of a worker lies on the other node; ``numa.device-apart`` of GPU and NIC."""
    home = {clue.value("gpu"): clue.value("numa") for clue in book.all("topo.gpu")}
    for clue in book.all("numa.process"):
        nodes = [float(value) for value in clue.value("nodes").split()]
        node = home.get(clue.value("gpu"), "")
        if node.isdigit() and int(node) < len(nodes):
            remote = sum(nodes) - nodes[int(node)]
            if remote > REMOTE_SHARE * sum(nodes):
                there = max(
                    (index for index in range(len(nodes)) if index != int(node)), key=lambda index: nodes[index]
                )
                yield derived(
                    clue,
                    "numa.memory-remote",
                    node=node,
                    there=there,
                    remote=f"{remote:.0f}",
                    share=f"{remote / sum(nodes):.0%}",
                )
    spread = [clue for clue in book.all("numa.process") if min(float(v) for v in clue.value("nodes").split()) > 500]
    if spread and not home:
        yield derived(spread[0], "numa.memory-spread")
    whole = {clue.value("cores") for clue in book.all("topo.gpu")}
    for clue in book.all("numa.affinity"):
        if whole and clue.value("cores") not in whole and clue.value("cores").startswith("0-") and len(whole) > 1:
            yield derived(clue, "numa.unbound")
    affinities = book.all("numa.affinity")
    if len(affinities) >= 3 and len({clue.value("cores") for clue in affinities}) == 1 and len(set(home.values())) > 1:
        yield derived(affinities[0], "numa.all-on-one-node", *book.all("numa.process-on-one-node")[:1])
    nics = {clue.value("nic") for clue in book.all("nccl.channel-gdr", "nccl.channel-no-gdr")}
    ranks = {clue.rank for clue in book.all("nccl.channel-gdr", "nccl.channel-no-gdr")}
    if len(ranks) >= 2 and len(nics) == 1:
        yield derived(book.all("nccl.channel-gdr", "nccl.channel-no-gdr")[0], "nic.one-for-all", nic=next(iter(nics)))
    yield from _far_nics(book)
    nodes_of = {clue.value("device").lower().replace(" ", ""): clue for clue in book.all("numa.device")}
    gpus = [clue for name, clue in nodes_of.items() if name.startswith("gpu")]
    others = [clue for name, clue in nodes_of.items() if not name.startswith("gpu")]
    if gpus and others and {c.value("node") for c in gpus}.isdisjoint({c.value("node") for c in others}):
        yield derived(gpus[0], "numa.device-apart", others[0])


NEAR = ("PIX", "PXB", "PHB", "NODE")


def _far_nics(book: ClueBook) -> Iterator[Clue]:
    """``nic.far-from-gpu``: a rank sends through a NIC across the socket link although its GPU has a nearer one."""
    links = {(clue.value("gpu"), clue.value("nic")): clue for clue in book.all("topo.nic")}
    legend = {clue.value("device"): clue.value("nic") for clue in book.all("topo.legend")}
    lists = {clue.host: clue for clue in book.all("rdma.devices-used")}
    for channel in book.all("nccl.channel-gdr", "nccl.channel-no-gdr"):
        used = lists.get(channel.host)
        if channel.rank is None:
            continue
        index = int(channel.number("nic"))
        if used is not None:
            names = [name for name, _ in used_devices(used)]
            name = names[index] if index < len(names) else ""
            column = legend.get(name, name)
        else:  # without NCCL's list of devices its number is the matrix's, where that has such a column
            column = f"NIC{index}"
            name = next((device for device, nic in legend.items() if nic == column), column)
        link = links.get((str(channel.rank), column))
        nearer = [nic for (gpu, nic), clue in links.items() if gpu == str(channel.rank) and clue.value("link") in NEAR]
        if link is not None and link.value("link") == "SYS" and nearer:
            yield derived(
                channel, "nic.far-from-gpu", link, gpu=channel.rank, device=name, nearer=", ".join(sorted(nearer))
            )  # fmt: skip
            return


JOINS = (processor, pcie, numa)
