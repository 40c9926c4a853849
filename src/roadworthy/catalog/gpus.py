"""GPUs (and the CPU stand-in) by what their driver reports; numbers live in ``gpus.yaml``, each with its source."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.data import read_catalog
from roadworthy.core.errors import Unsupported
from roadworthy.core.units import GIB

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One accelerator.

    Args:
        device_bytes: what CUDA reports as total, which is less than the name on the card.
        context_bytes: CUDA context, taken before the engine's budget starts counting.
        hbm_bytes_per_s: nameplate memory bandwidth.
        dense_flops_per_s: nameplate, without sparsity, by number format (``bf16``, ``fp8``, ``fp4``).
        nvlink_bytes_per_s: nameplate sum of both directions per GPU; 0 without NVLink.
        compute_capability: (major, minor); (0, 0) for the CPU.
        power_w: nameplate board power.
        gpu_hour: ownership price of one GPU-hour in USD, None when no dated source is known.
        sources: field name -> where its value comes from.
    """

    id: str
    aliases: tuple[str, ...]
    device_bytes: int
    context_bytes: int
    hbm_bytes_per_s: float
    dense_flops_per_s: Mapping[str, float]
    nvlink_bytes_per_s: float
    compute_capability: tuple[int, int]
    power_w: float
    gpu_hour: float | None
    sources: Mapping[str, str]


@lru_cache(maxsize=1)
def known_gpus() -> tuple[Gpu, ...]:
    """Every GPU in the catalog, in the catalog's order."""
    document = read_catalog("gpus")
    return tuple(_gpu(entry, document["common_sources"]) for entry in document["gpus"])


def gpu_by_name(name: str) -> Gpu:
    """The GPU called ``name``: its id or an alias, in any case; spaces and underscores count as dashes.

    Raises Unsupported, with what is near and what is known.
    """
    wanted = _fold(name)
    by_name = {_fold(alias): gpu for gpu in known_gpus() for alias in (gpu.id, *gpu.aliases)}
    if wanted in by_name:
        return by_name[wanted]
    close = get_close_matches(wanted, by_name, n=1, cutoff=0.6)
    known = ", ".join(gpu.id for gpu in known_gpus())
    raise Unsupported(
        f"GPU {name!r} is not in the catalog; known: {known}",
        hint=f"did you mean {by_name[close[0]].id}?" if close else "`roadworthy gpus` lists them with their sources",
    )


def _fold(name: str) -> str:
    return "-".join(name.lower().replace("_", " ").replace("-", " ").split())


def _gpu(entry: Mapping[str, Any], common_sources: Mapping[str, str]) -> Gpu:
    major, minor = entry["compute_capability"]
    return Gpu(
        id=entry["id"],
        aliases=tuple(entry["aliases"]),
        device_bytes=round(entry["device_gib"] * GIB),
        context_bytes=round(entry["context_gib"] * GIB),
        hbm_bytes_per_s=float(entry["hbm_bytes_per_s"]),
        dense_flops_per_s=MappingProxyType({name: float(rate) for name, rate in entry["dense_flops_per_s"].items()}),
        nvlink_bytes_per_s=float(entry["nvlink_bytes_per_s"]),
        compute_capability=(major, minor),
        power_w=float(entry["power_w"]),
        gpu_hour=entry["gpu_hour"],
        sources=MappingProxyType({**common_sources, **entry["sources"]}),
    )
