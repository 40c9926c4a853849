"""Bytes of one matrix in a number format, and how a layout cuts matrices into shards."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.spec.model import WeightFormat

BLOCK = 128
"""Rows and columns that share one scale in the ``fp8_block128`` formats."""
GROUP = 32
"""Neighbouring weights of a row that share one e8m0 scale in the 4-bit formats."""


def round_up(value: int, multiple: int) -> int:
    """The least multiple of ``multiple`` that is not below ``value``."""
    return -(-value // multiple) * multiple


def scale_bytes(rows: int, columns: int, form: WeightFormat) -> int:
    """Bytes of the scales that go with a ``rows`` x ``columns`` matrix; edge blocks and groups count whole."""
    if form == "fp8_block128_e8m0":
        return -(-rows // BLOCK) * -(-columns // BLOCK)
    if form == "fp8_block128_f32":
        return 4 * -(-rows // BLOCK) * -(-columns // BLOCK)
    if form == "fp8_channel":
        return 4 * rows
    if form in ("fp4_group32", "mxfp4_group32"):
        return rows * -(-columns // GROUP)
    return 0


def element_bytes(rows: int, columns: int, form: WeightFormat) -> int:
    """Bytes of the weights themselves, without scales."""
    if form == "bf16":
        return 2 * rows * columns
    if form in ("fp4_group32", "mxfp4_group32"):
        return rows * -(-columns // 2)
    return rows * columns


def matrix_bytes(rows: int, columns: int, form: WeightFormat) -> int:
    """Bytes of a ``rows`` x ``columns`` (output x input) projection, scales included."""
    return element_bytes(rows, columns, form) + scale_bytes(rows, columns, form)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """How one rank's share is cut.

    Args:
        tp: ranks that split heads, columns and vocabulary rows.
        expert_ranks: ranks of a stage that whole experts are spread over (tp * dp); 1 without expert parallelism.
        sequence_parallel: the MoE runs on sequence shards, so that shared experts are copied on every TP rank.
            vLLM does this with expert parallelism on, pp 1, tp > 1 and dp > 1
            (`vllm/config/parallel.py` use_sequence_parallel_moe).
        redundant_experts: expert slots beside the model's own, over all expert ranks (EPLB).
    """

    tp: int = 1
    expert_ranks: int = 1
    sequence_parallel: bool = False
    redundant_experts: int = 0

    @property
    def shared_tp(self) -> int:
        """Ranks that split the shared experts."""
        return 1 if self.sequence_parallel else self.tp


def split_of(*, tp: int, pp: int, dp: int, ep: int, redundant_experts: int = 0) -> Split:
    """The split that a layout's degrees mean. ``ep`` is 1 (off) or tp * dp."""
    expert_parallel = ep > 1
    return Split(
        tp=tp,
        expert_ranks=ep,
        sequence_parallel=expert_parallel and pp == 1 and tp > 1 and dp > 1,
        redundant_experts=redundant_experts if expert_parallel else 0,
    )
