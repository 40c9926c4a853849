"""Versions and resources that do not go together: drivers, libraries, Ray nodes, clocks."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.values import derived

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, ClueBook


def software(book: ClueBook) -> Iterator[Clue]:
    """Versions that do not go together: module and libraries, NCCL's CUDA, hosts among themselves, fabric manager."""
    module, library = (
        book.first("driver.module", "driver.kernel-module"),
        book.first("nvml.library-version", "driver.version"),
    )
    if module is not None and library is not None:
        one, other = (
            module.value("version"),
            library.value("version") or library.value("package") or library.value("driver"),
        )
        if one and other and not (one.startswith(other) or other.startswith(one)):
            yield derived(module, "driver.versions-differ", library, module=one, library=other)
    torch = book.first("package.torch")
    for clue in book.all("nccl.version"):
        cuda = clue.value("cuda")
        if (
            torch is not None
            and torch.value("cuda")
            and cuda
            and not torch.value("cuda").startswith(cuda.split(".")[0])
        ):
            yield derived(clue, "nccl.cuda-differs-from-torch", torch, torch=torch.value("version"))
    wheels = book.all("package.nvidia-nccl-cu*")
    if len({clue.name for clue in wheels}) > 1:
        versions = " and ".join(f"{clue.name[8:]} {clue.value('version')}" for clue in wheels)
        yield derived(wheels[0], "nccl.two-wheels", *wheels[1:2], versions=versions)
    by_host: dict[str, Clue] = {}
    for clue in book.all("nccl.version", "nccl.vllm-version"):
        by_host.setdefault(clue.host or clue.lines[0].file, clue)
    if len({clue.value("version") for clue in by_host.values()}) > 1:
        some = list(by_host.values())
        yield derived(
            some[0],
            "nccl.versions-differ",
            some[-1],
            versions=" and ".join(sorted({clue.value("version") for clue in some})),
        )
    driver = book.first("driver.version")
    fabric = book.first("fabric.version")
    if (
        driver is not None
        and fabric is not None
        and driver.value("driver")
        and fabric.value("version") != driver.value("driver")
    ):
        yield derived(fabric, "fabric.version-differs", driver, driver=driver.value("driver"))
    capability, archs = book.first("cuda.capability"), book.first("cuda.arch-list")
    if capability is not None and archs is not None:
        major = capability.value("major") or capability.value("major2")
        minor = capability.value("minor") or capability.value("minor2")
        name = f"sm_{major}{minor}"
        if name not in archs.value("list"):
            yield derived(
                capability,
                "cuda.arch-not-built",
                archs,
                arch=name,
                capability=f"{major}.{minor}",
            )
    if driver is None or torch is None:
        return
    cuda, built = driver.value("cuda"), torch.value("cuda")
    if cuda and built and float(cuda) < float(f"{built[:-1]}.{built[-1]}"):
        yield derived(driver, "driver.cuda-below-build", torch, cuda=cuda, built=f"{built[:-1]}.{built[-1]}")


def ray_resources(book: ClueBook) -> Iterator[Clue]:
    """Demand against totals, and node addresses that Ray does not know."""
    demand, total = book.first("ray.demand"), book.first("ray.total-gpu")
    if demand is not None:
        wanted = demand.number("gpus")
        have = total.number("total") if total is not None else 0.0
        if wanted > have:
            others = list(book.all("ray.total-tpu", "ray.total-npu", "ray.total-neuron_cores"))
            yield derived(
                demand,
                "ray.demand-above-total",
                *([total] if total is not None else []),
                *others[:1],
                wanted=f"{wanted:g}",
                have=f"{have:g}",
            )
        elif (most := _gpus_of_a_node(book, have)) and demand.number("bundle") > most:
            yield derived(demand, "ray.bundle-above-node", bundle=demand.value("bundle"), most=f"{most:g}")
        else:
            yield derived(demand, "ray.enough-gpus", wanted=f"{wanted:g}", have=f"{have:g}")
    known = {clue.value("address") for clue in book.all("ray.node-address")}
    cluster = book.first("ray.address")
    for clue in book.all("ray.node-resource"):
        address = clue.value("address")
        if address.startswith("__internal"):
            continue
        if known and address not in known:
            yield derived(
                clue, "ray.unknown-node-address", *book.all("ray.node-address")[:2], known=", ".join(sorted(known))
            )
            return
        if not known and book.has("ray.enough-gpus") and re.search(r"pending|No available|Waiting", clue.lines[0].text):
            yield derived(clue, "ray.node-address-pending", *([cluster] if cluster else []))
            return
        if not known and not re.fullmatch(r"[\d.]+", address):
            yield derived(clue, "ray.node-address-is-a-name")
            return


def _gpus_of_a_node(book: ClueBook, total: float) -> float:
    """GPUs of a node where all are alike; 0 where the number of nodes is not known."""
    nodes = len(book.all("ray.node-active"))
    return total / nodes if nodes else 0.0


def clock_hosts(book: ClueBook) -> Iterator[Clue]:
    """``clock.hosts-differ`` from what each host's clock says against NTP."""
    for clue in book.all("clock.offset"):
        if clue.number("seconds") >= 1.0:
            yield derived(clue, "clock.offset-large")


JOINS = (software, ray_resources, clock_hosts)
