"""How long one engine step takes: what `plan` predicts with and what the twin runs on.

A step walks one batch through every pipeline stage. Its time is launch overhead, plus the slower of reading HBM and
computing with what of the other it does not hide, plus collectives. Weights are read once a step; of the routed experts
only those that some token of the batch picked: with E experts and K picked per token, a batch of B tokens reads a share
1 - (1 - K/E)**B (facts: economics_and_sla.md, section 3), less where some experts are more popular than others. With
expert parallelism the rank with most to read and to compute sets the pace (:mod:`roadworthy.plan.expert_load`).

With speculative decoding a step verifies the drafts of every sequence beside its next token and yields several tokens.
Times here are those in which every decoding sequence gains *one* token, so that whoever counts tokens counts steps:
the real step over the tokens it yields, and the whole of what prompts add to it. Every field is a plain number so that
a model can be written to a file.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

GRAPH_TOKENS = 512
"""Largest batch that vLLM captures as a CUDA graph by default, prompts or not."""
POLL_S = 0.001
"""What vLLM's core sleeps after a turn of its loop that scheduled nothing while requests are unfinished
(``EngineCoreProc._process_engine_step``, vLLM 0.32 and 0.33)."""
Seconds = Callable[[float, float, float, float], float]
"""Prompt tokens, their context pairs, decoding sequences and the sum of their contexts to seconds."""


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
        graph_tokens: the largest batch that a CUDA graph holds.
        eager_s: how long the host takes to launch a step with prompts that no graph holds: it lasts at least that long.
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
        routed_flops_per_token: routed experts' part of the linear layers, which the fullest rank sets the time of; not
            in ``flops_per_token``.
        expert_floor, expert_spread, expert_excess_ratio, expert_noise, expert_read_noise: see
            :class:`~roadworthy.plan.expert_load.ExpertLoad`.
        draft_tokens: tokens drafted for a sequence in each step; 0 without speculative decoding.
        tokens_per_step: that a sequence gains in a step on average, 1 to ``draft_tokens + 1``.
        draft_launch_s: fixed cost of drafting one token for the whole batch, collectives included.
        draft_weight_bytes: weights read for that whatever the batch, head included.
        draft_expert_bytes: routed experts of the draft layer on a rank.
        draft_flops_per_token: of the draft layer and the head, per token and rank.
        draft_kv_bytes_per_context_token: cache of the draft layer, per token of context.
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
    graph_tokens: int = GRAPH_TOKENS
    eager_s: float = 0.0
    sequence_s: float = 0.0
    unhidden_ratio: float = 0.0
    routed_flops_per_token: float = 0.0
    expert_floor: float = 1.0
    expert_spread: float = 0.0
    expert_excess_ratio: float = 0.0
    expert_noise: float = 0.0
    expert_read_noise: float = 0.0
    draft_tokens: int = 0
    tokens_per_step: float = 1.0
    draft_launch_s: float = 0.0
    draft_weight_bytes: float = 0.0
    draft_expert_bytes: float = 0.0
    draft_flops_per_token: float = 0.0
    draft_kv_bytes_per_context_token: float = 0.0

    def step_s(self, load: StepLoad) -> float:
        """Seconds of ``load``, in which every decoding sequence gains one token."""
        return self.seconds(
            load.prefill_tokens, load.prefill_context_tokens, load.decode_sequences, load.decode_context_tokens
        )

    def seconds(
        self,
        prefill_tokens: float,
        prefill_context_tokens: float,
        decode_sequences: float,
        decode_context_tokens: float,
    ) -> float:
        """:meth:`step_s` of the load with these fields, which need not be whole."""
        return self.compiled()(prefill_tokens, prefill_context_tokens, decode_sequences, decode_context_tokens)

    def compiled(self) -> Seconds:
        """:meth:`seconds` with all that is the same for every load worked out, for those who ask 100,000 times."""
        if not self.draft_tokens:
            return _pass_seconds(self, 0)
        plain, real, tokens = _pass_seconds(self, 0), self.real_step(), self.tokens_per_step

        def seconds(prefill: float, prefill_context: float, sequences: float, context: float) -> float:
            if not sequences:
                return plain(prefill, prefill_context, 0, 0)
            decode_s = real(0, 0, sequences, context)
            if not prefill:
                return decode_s / tokens
            return real(prefill, prefill_context, sequences, context) - decode_s * (1 - 1 / tokens)

        return seconds

    def real_step(self) -> Seconds:
        """The engine's step as it runs, drafting included, whatever number of tokens it yields a sequence."""
        drafts = self.draft_tokens
        verify = _pass_seconds(self, drafts)
        if not drafts:
            return verify
        draft = _draft_seconds(self)

        def seconds(prefill: float, prefill_context: float, sequences: float, context: float) -> float:
            # the first draft follows all tokens of the step, so that its cache is whole; the others one a sequence
            first = draft(prefill + sequences * (1 + drafts), context)
            rest = (drafts - 1) * draft(sequences, context) if drafts > 1 else 0.0
            return verify(prefill, prefill_context, sequences, context) + first + rest

        return seconds


def _pass_seconds(step: RooflineStepTime, drafts: int) -> Seconds:
    """One pass of the model itself; every decoding sequence brings its next token and ``drafts`` to verify."""
    per_sequence = 1 + drafts
    hbm, compute = step.hbm_bytes_per_s, step.flops_per_s
    read_s, context_read_s = step.fixed_weight_bytes / hbm, step.kv_bytes_per_context_token / hbm
    state_read_s, token_s = 2 * step.state_bytes_per_sequence / hbm, step.flops_per_token / compute
    pair_s, context_pair_s = step.flops_per_context_pair / compute, step.flops_per_context_pair * per_sequence / compute
    experts_s, routed_s = step.expert_weight_bytes / hbm, step.routed_flops_per_token / compute
    experts_read_ratio = _experts_read(step) if step.expert_weight_bytes else None
    ranks, excess, noise = step.expert_batch_ranks, step.expert_excess_ratio**2, step.expert_noise
    sent_s, fixed_s = step.comm_bytes_per_token / step.link_bytes_per_s, step.launch_s + step.comm_latency_s
    sequence_s, prefill_s, unhidden = step.sequence_s, step.prefill_launch_s, step.unhidden_ratio
    graph_tokens, eager_s = step.graph_tokens, step.eager_s
    sqrt = math.sqrt

    def seconds(prefill: float, prefill_context: float, sequences: float, context: float) -> float:
        tokens = prefill + sequences * per_sequence
        if not tokens:
            return 0.0
        reading = read_s + context_read_s * context + state_read_s * sequences
        computing = token_s * tokens + pair_s * prefill_context + context_pair_s * context
        if experts_read_ratio is not None:
            batch = tokens * ranks
            reading += experts_s * experts_read_ratio(batch)
            computing += routed_s * tokens * (1 + sqrt(excess + noise / batch))
        beside = fixed_s + sent_s * tokens + sequence_s * sequences
        if reading > computing:
            beside += reading + unhidden * computing
        else:
            beside += computing + unhidden * reading
        if prefill:
            beside += prefill_s
            if beside < eager_s and tokens > graph_tokens:
                return eager_s
        return beside

    return seconds


def _draft_seconds(step: RooflineStepTime) -> Callable[[float, float], float]:
    """One pass of the draft layer and the head over tokens with so much context; next to nothing for n-grams."""
    hbm, ranks = step.hbm_bytes_per_s, step.expert_batch_ranks
    read_s, context_read_s = step.draft_weight_bytes / hbm, step.draft_kv_bytes_per_context_token / hbm
    experts_s, token_s = step.draft_expert_bytes / hbm, step.draft_flops_per_token / step.flops_per_s
    experts_read_ratio = _experts_read(step) if experts_s else None

    def seconds(tokens: float, context: float) -> float:
        reading = read_s + context_read_s * context
        if experts_read_ratio is not None:
            reading += experts_s * experts_read_ratio(tokens * ranks)
        return step.draft_launch_s + max(reading, token_s * tokens)

    return seconds


def _experts_read(step: RooflineStepTime) -> Callable[[float], float]:
    """Share of its experts that the rank which reads most of them reads for a batch of the whole group.

    The least popular expert is picked ``expert_floor`` times the mean; what the others are picked beyond it is taken to
    be gamma distributed (tests hold it to the exact sum over Zipf's law).
    """
    pick, noise, spread = step.expert_pick_ratio, step.expert_read_noise, step.expert_spread
    never: float = (1 - pick) ** step.expert_floor
    beyond = -math.log1p(-pick) * (1 - step.expert_floor) * spread if spread else 0.0
    power = -1 / spread if spread else 0.0
    sqrt = math.sqrt

    def ratio(tokens: float) -> float:
        missed: float = never**tokens
        if spread:
            missed *= (1 + beyond * tokens) ** power
        if noise:
            missed -= noise * sqrt(missed * (1 - missed))
            if missed < 0:
                return 1.0
        return 1 - missed

    return ratio
