"""Which GPU, NIC and cores of a host belong together, from the matrix that ``nvidia-smi topo -m`` prints.

Numbers of GPUs and NICs do not run in step, and extra NICs shift them, so nothing here is guessed from an index: a NIC
is a GPU's own when the matrix says that they sit below one PCIe switch (PIX, PXB).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.spec.values import ClusterSpec

NEAR = ("PIX", "PXB")
"""Below one PCIe switch, or several, without a host bridge between: where GPUDirect RDMA is meant to go."""
_LINKS = r"X|SYS|NODE|PHB|PXB|PIX|NV\d+"
_LEGEND = re.compile(r"^\s*(NIC\d+):\s*(\S+)\s*$")
_NAME = re.compile(r"[A-Za-z0-9_-]{1,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuPlace:
    """One GPU. ``numa_node`` is None where the matrix gives none or several; ``nics`` are the near ones, RDMA names."""

    gpu: int
    numa_node: int | None
    cores: str
    nics: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The GPUs of one host in order, and the NICs that are near none of them."""

    gpus: tuple[GpuPlace, ...]
    other_nics: tuple[str, ...]

    @property
    def numa_nodes(self) -> tuple[int, ...]:
        """The NUMA node of each GPU; empty unless every one is known."""
        nodes = [place.numa_node for place in self.gpus]
        return tuple(node for node in nodes if node is not None) if None not in nodes else ()

    @property
    def compute_nics(self) -> tuple[str, ...]:
        """The NICs near GPUs, in order of GPU; empty where a GPU has none, or NICs of other duties may be among them.

        A NIC that several GPUs share is theirs together. More near NICs than GPUs means that some serve storage or
        management, and the matrix does not say which.
        """
        near = tuple(dict.fromkeys(nic for place in self.gpus for nic in place.nics))
        if not near or any(not place.nics for place in self.gpus) or len(near) > len(self.gpus):
            return ()
        return near


def read_topology(text: str, *, source: str) -> Topology:
    """The topology in ``text``. Raises SpecError when there is no matrix in it."""
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line).rstrip() for line in text.splitlines()]
    head = next((index for index, row in enumerate(rows) if re.match(r"\s+GPU0\b", row)), None)
    if head is None:
        raise SpecError(
            f"{source}: no matrix of GPUs in it, wanted what `nvidia-smi topo -m` prints",
            hint="nvidia-smi topo -m > topology.txt",
        )
    columns = re.findall(r"GPU\d+|NIC\d+|mlx\w+|bnxt\w+|irdma\w+", rows[head].partition("CPU Affinity")[0])
    names = {found[1]: found[2] for row in rows if (found := _LEGEND.match(row))}
    places: list[GpuPlace] = []
    for row in rows[head + 1 :]:
        place = _gpu(row, columns, names)
        if place is not None:
            places.append(place)
    nics = [names.get(column, column) for column in columns if not column.startswith("GPU")]
    if not places:
        raise SpecError(f"{source}: the matrix has a head and no row of a GPU", hint="was it cut off?")
    near = {nic for place in places for nic in place.nics}
    return Topology(gpus=tuple(places), other_nics=tuple(nic for nic in nics if nic not in near))


def _gpu(row: str, columns: Sequence[str], names: Mapping[str, str]) -> GpuPlace | None:
    found = re.match(rf"^GPU(\d+)((?:\s+(?:{_LINKS})\b){{{len(columns)}}})(.*)$", row)
    if found is None:
        return None
    links = dict(zip(columns, found[2].split(), strict=True))
    near = [
        (NEAR.index(link), names.get(column, column))
        for column, link in links.items()
        if link in NEAR and not column.startswith("GPU")
    ]
    closest = min(near)[0] if near else 0
    nics = tuple(name for rank, name in near if rank == closest and _NAME.fullmatch(name))
    rest = found[3].split()
    return GpuPlace(
        gpu=int(found[1]),
        numa_node=int(rest[1]) if len(rest) > 1 and rest[1].isdigit() else None,
        cores=rest[0] if rest and rest[0] != "N/A" else "",
        nics=nics,
    )


def fitting(topology: Topology, cluster: ClusterSpec, *, source: str) -> dict[str, tuple[int, ...] | tuple[str, ...]]:
    """Fields of ``cluster`` that the document leaves open and the matrix fills: ``hcas``, ``gpu_numa_nodes``.

    Raises SpecError when the matrix is of a host with another number of GPUs.
    """
    if len(topology.gpus) != cluster.gpus_per_node:
        raise SpecError(
            f"{source}: {len(topology.gpus)} GPUs, wanted {cluster.gpus_per_node}, as cluster.gpus_per_node says",
            hint="take the matrix on one of the hosts that serve",
        )
    found: dict[str, tuple[int, ...] | tuple[str, ...]] = {}
    if not cluster.gpu_numa_nodes and topology.numa_nodes:
        found["gpu_numa_nodes"] = topology.numa_nodes
    if not cluster.hcas and topology.compute_nics:
        found["hcas"] = topology.compute_nics
    return found
