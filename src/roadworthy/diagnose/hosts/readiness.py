"""Is this host ready: rules over one host's clues. What would only hurt under load is a warning here already."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.facts import Expected, HostFacts, finding, gpus_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.values import Clue, ClueBook

CUDA_13_DRIVER = 580
"""Driver branch that CUDA 13 builds need (facts: deployment truth, vllm.fp8-kv-prereq)."""

SLOW_WEIGHTS_MB_PER_S = 500.0
"""700 GB at this rate take 23 minutes, longer than the start-up probe that we render waits."""

CLOSENESS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Links of `nvidia-smi topo -m`, closest first."""


def gpus(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """Fewer GPUs than the document says; a driver too old for CUDA 13."""
    listed = gpus_of(facts.book)
    if expected.gpus is not None and listed and len(listed) < expected.gpus:
        yield finding(
            "gpu-not-visible",
            facts,
            tuple(listed.values())[-1:],
            f"{len(listed)} GPUs are listed, the document says {expected.gpus}: one is missing, hidden or lost.",
            severity="critical",
        )
    driver = facts.book.first("driver.version")
    if (
        driver is not None
        and (found := re.match(r"(\d+)", driver.value("driver")))
        and int(found.group(1)) < CUDA_13_DRIVER
    ):
        yield finding(
            "cuda-driver-too-old",
            facts,
            (driver,),
            f"The driver is {driver.value('driver')}; builds for CUDA 13 need branch {CUDA_13_DRIVER} or newer.",
            confidence=0.6,
        )
    if facts.book.has("topo.gpu") and facts.book.has("fabric.down", "fabric.not-found") and _nvswitch(facts.book):
        clue = facts.book.all("fabric.down", "fabric.not-found")[0]
        yield finding(
            "fabric-manager-down",
            facts,
            (clue,),
            "GPUs are joined by NVSwitch and Fabric Manager does not run.",
            severity="critical",
        )


def _nvswitch(book: ClueBook) -> bool:
    """HGX boards with NVSwitch show NV12 and more between all GPUs."""
    return any(re.search(r"NV1[2-9]|NV[2-9]\d", line.text) for clue in book.all("topo.gpu") for line in clue.lines)


def held_memory(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    for clue in facts.book.all("gpu.held-by-orphan"):
        yield finding(
            "gpu-memory-occupied",
            facts,
            (clue,),
            f"Process {clue.value('pid')} holds {clue.value('mib')} MiB of a GPU and has lost its parent.",
        )


def placement(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    """A GPU whose nearest NIC is farther than its peers' is, or that sits on another socket than its place says."""
    links: dict[str, list[Clue]] = defaultdict(list)
    for clue in facts.book.all("topo.nic"):
        if clue.value("link") in CLOSENESS:
            links[clue.value("gpu")].append(clue)
    best = {gpu: min(some, key=lambda clue: CLOSENESS.index(clue.value("link"))) for gpu, some in links.items()}
    if len(best) >= 2:
        usual, times = Counter(clue.value("link") for clue in best.values()).most_common(1)[0]
        odd = {gpu: clue for gpu, clue in best.items() if CLOSENESS.index(clue.value("link")) > CLOSENESS.index(usual)}
        if odd and times > len(best) / 2:
            yield finding(
                "numa-nic-misplacement",
                facts,
                tuple(odd.values()),
                f"GPU {', '.join(odd)} reaches its nearest NIC over {next(iter(odd.values())).value('link')} while the "
                f"others have one at {usual}: it sits on the wrong socket or its NIC is missing.",
                subject=f"GPU {', '.join(odd)}",
            )
    numa = {clue.value("gpu"): clue for clue in facts.book.all("topo.gpu") if clue.value("numa").isdigit()}
    counts = Counter(clue.value("numa") for clue in numa.values())
    if len(numa) >= 4 and len(counts) > 1 and max(counts.values()) - min(counts.values()) >= 2:
        crowded = max(counts, key=lambda node: counts[node])
        text = ", ".join(f"node {node}: {count}" for node, count in sorted(counts.items()))
        yield finding(
            "numa-nic-misplacement",
            facts,
            tuple(clue for clue in numa.values() if clue.value("numa") == crowded)[:3],
            f"GPUs are spread unevenly over NUMA nodes ({text}): one sits on the wrong socket.",
            subject=f"NUMA node {crowded}",
        )


def ports(facts: HostFacts, expected: Expected) -> Iterator[Finding]:
    """RDMA ports that are down, missing or slower than the rest or the document."""
    down = facts.book.all("port.down")
    if down:
        names = ", ".join(dict.fromkeys(clue.value("device") for clue in down))
        yield finding(
            "rdma-link-degraded",
            facts,
            down,
            f"The port of {names} is {down[0].value('state') or 'down'}.",
            severity="critical",
            subject=names,
            confidence=0.9,
        )
    states = {clue.value("device"): clue for clue in facts.book.all("port.state") if clue.value("link_layer")}
    if expected.nics is not None and states and len(states) < expected.nics:
        yield finding(
            "rdma-link-degraded",
            facts,
            tuple(states.values())[:2],
            f"{len(states)} RDMA devices are there, the document says {expected.nics}.",
            severity="critical",
        )
    slow = facts.book.first("rate.below-peers")
    if slow is not None:
        yield finding(
            "rdma-link-degraded",
            facts,
            (slow,),
            f"{slow.value('devices')} runs at {slow.value('rate')} Gb/s, its peers at {slow.value('wanted')} Gb/s.",
            subject=slow.value("devices"),
        )
    wanted = expected.nic_gigabits_per_s
    for name, clue in states.items():
        rate = clue.value("rate")
        if wanted and rate.isdigit() and 0 < int(rate) < 0.9 * wanted and slow is None:
            yield finding(
                "rdma-link-degraded",
                facts,
                (clue,),
                f"{name} runs at {rate} Gb/s, the document says {wanted:g}.",
                subject=name,
            )


DMA_BUF_KERNEL = (5, 12)
"""Linux from which on drivers share device memory with RDMA (NCCL documents the same for GPUDirect by DMA-BUF)."""


def offers_dma_buf(book: ClueBook) -> bool:
    """Whether GPUs offer their memory to NICs without a peer memory module: open driver and a kernel that knows how."""
    kernel = book.first("kernel.version")
    return (
        kernel is not None
        and book.has("driver.open-module")
        and (int(kernel.value("major")), int(kernel.value("minor"))) >= DMA_BUF_KERNEL
    )


def rdma(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    """What RDMA needs beside its ports: locked memory, devices, GIDs, peer memory, a lossless class."""
    book = facts.book
    if not book.has("port.state"):
        return
    if (clue := book.first("limit.memlock-small")) is not None and not book.has("limit.ipc-lock"):
        yield finding(
            "memlock-limit",
            facts,
            (clue,),
            f"Max locked memory is {clue.value('limit')}: RDMA cannot register memory.",
            severity="critical",
        )
    if (clue := book.first("rdma.dev-folder-missing")) is not None:
        yield finding(
            "rdma-device-not-exposed",
            facts,
            (clue,),
            "HCAs are visible in sysfs but /dev/infiniband is not there.",
            severity="critical",
        )
    if (
        book.has("gpu.listed")
        and (clue := book.first("peermem.missing")) is not None
        and not book.has("peermem.loaded")
        and not offers_dma_buf(book)
    ):
        yield finding(
            "gpudirect-rdma-disabled",
            facts,
            (clue,),
            "nvidia_peermem is not loaded; without DMA-BUF every transfer goes through host memory.",
            confidence=0.6,
        )
    roce = {clue.value("device"): clue for clue in book.all("port.state") if clue.value("link_layer") == "Ethernet"}
    rows = book.all("gid.row")
    for device, clue in roce.items():
        kinds = [row for row in rows if row.value("device") == device]
        if kinds and not any(row.value("kind") == "routable" for row in kinds):
            yield finding(
                "rdma-gid-mismatch",
                facts,
                (clue, kinds[0]),
                f"{device} has no routable RoCE v2 GID: its interface has no address.",
                subject=device,
            )
    off = book.first("qos.pfc-off")
    if roce and off is not None and not book.has("qos.pfc-on"):
        yield finding(
            "roce-congestion",
            facts,
            (off,),
            "PFC is off on every priority of the RoCE ports: the fabric is lossy unless it was built for that.",
            confidence=0.6,
        )


def host(facts: HostFacts, _: Expected) -> Iterator[Finding]:
    """Shared memory, IOMMU, ACS, clocks, disks, processors."""
    book = facts.book
    if (clue := book.first("shm.small")) is not None:
        yield finding(
            "shm-too-small", facts, (clue,), f"/dev/shm is {clue.value('size')}: NCCL, Ray and engines need gigabytes."
        )
    if book.has("gpu.listed"):
        for name, text in (
            (
                "acs.redirect",
                "ACS redirection is on at a bridge: peer-to-peer traffic of GPUs goes through the root complex.",
            ),
            ("iommu.translating", "The IOMMU translates (no iommu=pt): peer-to-peer of GPUs is slow or hangs."),
        ):
            if (clue := book.first(name)) is not None:
                yield finding("pcie-acs-iommu", facts, (clue,), text, confidence=0.6)
    for name in ("clock.offset-large", "clock.unsynchronised"):
        if (clue := book.first(name)) is not None:
            text = (
                f"The clock is off by {clue.value('seconds')} s."
                if clue.value("seconds")
                else "The clock is not synchronised."
            )
            yield finding("clock-skew", facts, (clue,), text, confidence=0.7)
            break
    if (clue := book.first("limit.open-files-small")) is not None:
        yield finding(
            "ray-node-heartbeat-lost",
            facts,
            (clue,),
            f"Max open files is {clue.value('limit')}: a raylet or gateway with a thousand connections runs out.",
            confidence=0.55,
        )
    for clue in book.all("storage.dd"):
        rate = float(clue.value("rate")) * (1000 if clue.value("unit") == "GB/s" else 1)
        if rate < SLOW_WEIGHTS_MB_PER_S:
            yield finding(
                "slow-weights-storage",
                facts,
                (clue,),
                f"One file of the weights reads at {rate:,.0f} MB/s.",
                confidence=0.7,
            )
    quota, listed = book.first("cpu.quota"), gpus_of(book)
    if quota is not None and listed and float(quota.value("cores")) < len(listed) + 2:
        yield finding(
            "cpu-starvation",
            facts,
            (quota,),
            f"The container may use {quota.value('cores')} cores; an engine wants one for each of {len(listed)} GPUs "
            "and two more.",
            confidence=0.6,
        )


RULES = (gpus, held_memory, placement, ports, rdma, host)
