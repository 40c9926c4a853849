"""GPUs (and the CPU stand-in) by what their driver reports; numbers live in ``gpus.yaml``, each with its source."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


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
