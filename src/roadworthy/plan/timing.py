"""How long one engine step takes: what `plan` predicts with and what the twin runs on.

A step walks one batch through every pipeline stage. Its time is launch overhead, plus the slower of reading HBM and
computing with what of the other it does not hide, plus collectives. Weights are read once a step; of the routed experts
only those that some token of the batch picked: with E experts and K picked per token, a batch of B tokens reads a share
1 - (1 - K/E)**B (facts: economics_and_sla.md, section 3). Every field is a plain number so that a model can be written
to a file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class StepLoad:
    """What one scheduler step computes, summed over its requests.

    Args:
        prefill_tokens: prompt tokens computed in this step.
        prefill_context_tokens: sum over prefilling requests of (tokens computed this step) x (mean context they
            attend to), the size of the attention score matrix.
        decode_sequences: requests that produce one token in this step.
        decode_context_tokens: sum of the context lengths of those requests.
    """

    prefill_tokens: int = 0
    prefill_context_tokens: int = 0
    decode_sequences: int = 0
    decode_context_tokens: int = 0

    @property
    def tokens(self) -> int:
        """Tokens that pass through the model in this step."""
        return self.prefill_tokens + self.decode_sequences


class StepTimeModel(Protocol):
    """Seconds of one step of one data-parallel rank of one replica, walk through all pipeline stages included."""

    @property
    def pipeline_stages(self) -> int:
        """Batches that can be in flight at once (pp); a new one can enter every ``step_s / pipeline_stages``."""
        ...

    def step_s(self, load: StepLoad) -> float: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RooflineStepTime:
    """The analytic :class:`StepTimeModel`. Byte and FLOP counts are of one rank, summed over the stages.

    Args:
        launch_s: fixed cost of a step over all layers and stages (kernel launches, scheduling).
        fixed_weight_bytes: weights read whatever the batch (attention, dense, shared experts, head).
        expert_weight_bytes: all routed experts a rank holds; a batch reads a share of them.
        expert_pick_ratio: experts per token / routed experts; 0 for a dense model.
        prefill_launch_s: added to a step that computes prompt tokens, which runs outside the decode CUDA graphs.
        sequence_s: added for each decoding sequence: sampling, its attention's fixed part, bookkeeping.
        unhidden_ratio: of the shorter of reading and computing, the share that the longer does not hide.
        expert_batch_ranks: data-parallel ranks whose tokens meet in the same experts (expert parallelism).
        kv_bytes_per_context_token: cache read for each token of decode context.
        state_bytes_per_sequence: recurrent state read and written for each decoding sequence.
        flops_per_token: linear layers, per token and rank.
        flops_per_context_pair: attention, per (token, context token) pair and rank.
        hbm_bytes_per_s: achieved, not nameplate.
        flops_per_s: achieved, not nameplate.
        comm_bytes_per_token: bytes a rank sends per token over the link that limits, all layers.
        link_bytes_per_s: achieved rate of that link in one direction.
        comm_latency_s: latency of all collectives and stage hops of one step.
    """

    pipeline_stages: int
    launch_s: float
    fixed_weight_bytes: float
    expert_weight_bytes: float
    expert_pick_ratio: float
    kv_bytes_per_context_token: float
    state_bytes_per_sequence: float
    flops_per_token: float
    flops_per_context_pair: float
    hbm_bytes_per_s: float
    flops_per_s: float
    comm_bytes_per_token: float
    link_bytes_per_s: float
    comm_latency_s: float
    expert_batch_ranks: int = 1
    prefill_launch_s: float = 0.0
    sequence_s: float = 0.0
    unhidden_ratio: float = 0.0

    def step_s(self, load: StepLoad) -> float:
        return self.seconds(
            load.prefill_tokens, load.prefill_context_tokens, load.decode_sequences, load.decode_context_tokens
        )

    def seconds(
        self, prefill_tokens: int, prefill_context_tokens: int, decode_sequences: int, decode_context_tokens: int
    ) -> float:
        """:meth:`step_s` of the load with these fields, which the search asks for some 100,000 times."""
        tokens = prefill_tokens + decode_sequences
        if tokens == 0:
            return 0.0
        read_bytes = (
            self.fixed_weight_bytes
            + self.kv_bytes_per_context_token * decode_context_tokens
            + self.state_bytes_per_sequence * 2 * decode_sequences
        )
        if self.expert_weight_bytes:
            experts_read_ratio = 1 - (1 - self.expert_pick_ratio) ** (tokens * self.expert_batch_ranks)
            read_bytes += experts_read_ratio * self.expert_weight_bytes
        context_pairs = prefill_context_tokens + decode_context_tokens
        flops = self.flops_per_token * tokens + self.flops_per_context_pair * context_pairs
        read_s, computed_s = read_bytes / self.hbm_bytes_per_s, flops / self.flops_per_s
        comm_s = self.comm_latency_s + self.comm_bytes_per_token * tokens / self.link_bytes_per_s
        launch_s = (
            self.launch_s + self.sequence_s * decode_sequences + (self.prefill_launch_s if prefill_tokens else 0.0)
        )
        if read_s > computed_s:
            return launch_s + read_s + self.unhidden_ratio * computed_s + comm_s
        return launch_s + computed_s + self.unhidden_ratio * read_s + comm_s
