"""Links between the GPUs of a deployment: nameplate rates, and what of them arrives; ``links.yaml`` has the sources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.data import read_catalog

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.spec.values import Nics


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """What one GPU can send to the others.

    Args:
        kind: ``nvlink``, ``pcie``, ``nic`` or ``memory``.
        bytes_per_s: nameplate, one direction, of one GPU's share.
        efficiency_ratio: achieved over nameplate for large transfers.
        latency_s: cost of a small collective.
        sources: field -> where its value comes from; an assumption says so.
    """

    kind: str
    bytes_per_s: float
    efficiency_ratio: float
    latency_s: float
    sources: Mapping[str, str]

    @property
    def achieved_bytes_per_s(self) -> float:
        return self.bytes_per_s * self.efficiency_ratio


def inside_node(gpu: Gpu, *, nvlink_bytes_per_s: float | None = None) -> Link:
    """The link between the GPUs of one node: NVLink where the GPU or the document has it, else PCIe.

    ``nvlink_bytes_per_s`` is the document's figure, both directions of one GPU; None takes the catalog's.
    """
    facts = _facts()
    if gpu.id == "cpu":
        memory = facts["memory"]
        return Link(
            kind="memory", bytes_per_s=memory["bytes_per_s"], efficiency_ratio=memory["efficiency_ratio"],
            latency_s=memory["latency_s"], sources=_sources("memory"),
        )  # fmt: skip
    both_directions = gpu.nvlink_bytes_per_s if nvlink_bytes_per_s is None else nvlink_bytes_per_s
    if both_directions > 0:
        return Link(
            kind="nvlink", bytes_per_s=both_directions / 2, efficiency_ratio=facts["nvlink_efficiency_ratio"],
            latency_s=facts["nvlink_latency_s"], sources=_sources("nvlink"),
        )  # fmt: skip
    return to_host(gpu)


def to_host(gpu: Gpu) -> Link:
    """The link between one GPU and its host's memory: sixteen lanes of PCIe."""
    facts = _facts()
    major, minor = gpu.compute_capability
    generation = facts["pcie_generation_by_capability"].get(f"{major}.{minor}", 4)
    rate = next(entry["bytes_per_s"] for entry in facts["pcie"] if entry["generation"] == generation)
    return Link(
        kind="pcie", bytes_per_s=rate, efficiency_ratio=facts["pcie_efficiency_ratio"],
        latency_s=facts["pcie_latency_s"], sources=_sources("pcie"),
    )  # fmt: skip


def between_nodes(nics: Sequence[Nics], *, gpus_per_node: int) -> Link | None:
    """One GPU's share of its node's NICs; None when the document names none."""
    total = sum(nic.count * nic.rate_bytes_per_s for nic in nics)
    if total <= 0:
        return None
    facts = _facts()
    return Link(
        kind="nic", bytes_per_s=total / gpus_per_node, efficiency_ratio=facts["nic_efficiency_ratio"],
        latency_s=facts["nic_latency_s"], sources=_sources("nic"),
    )  # fmt: skip


def nvlink_generation(gpu: Gpu) -> int | None:
    """The NVLink generation of ``gpu``, None without NVLink."""
    if gpu.nvlink_bytes_per_s <= 0:
        return None
    for entry in _facts()["nvlink"]:
        if tuple(entry["compute_capability"]) == gpu.compute_capability:
            generation: int = entry["generation"]
            return generation
    return None


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    return read_catalog("links")


def _sources(kind: str) -> Mapping[str, str]:
    return {field: source for field, source in _facts()["sources"].items() if field.startswith(kind)}
