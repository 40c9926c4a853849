"""What a step time means under load: latencies and rate in steady state, and the most a layout carries.

Before queueing: arrivals are taken at their mean, with a deviation or two for the tail. Bursts and the growth of a
queue are the twin's, which runs on the same step time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from roadworthy.plan.speed import REQUEST_OVERHEAD_S, Calibration
from roadworthy.plan.timing import RooflineStepTime, StepLoad
from roadworthy.plan.values import Layout, Predicted

if TYPE_CHECKING:
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import Sla


RATE_ROUNDS, PIPELINE_ROUNDS = 4, 10
"""Iterations of Little's law, and in each of walk time and largest batch, halving the step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """One walk of a batch through all stages.

    Args:
        largest_share: of the requests in flight that the largest batch holds.
        gap_s: between two batches that come back and may take a new request, as an arrival finds it.
        longest_gap_s: the same while prompts are computed.
        carrier_share: of the prompts of one round that meet in one batch.
    """

    seconds: float
    largest_share: float
    gap_s: float
    longest_gap_s: float
    carrier_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Steady state of one data-parallel rank with ``concurrency`` requests in flight."""

    concurrency: float
    rate_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float


def operating_point(
    step: RooflineStepTime, demand: Demand, *, concurrency: float, max_num_batched_tokens: int
) -> OperatingPoint:
    """Latencies and rate with ``concurrency`` requests in flight (Little's law as a fixed point).

    In the time of one walk through all stages every request gains a token and the arriving prompts are computed;
    a new request waits for the next batch, then its prompt passes the stages chunk by chunk.
    """
    tokens_max = float(max_num_batched_tokens)
    rate = 0.0
    for _ in range(RATE_ROUNDS):
        walk = _walk(step, demand, concurrency, rate, tokens_max)
        ttft = _ttft_s(step, demand, concurrency, walk, demand.prompt_mean, walk.gap_s / 2, tokens_max)
        asked = concurrency / (ttft + max(demand.output_mean - 1, 0) * walk.seconds)
        rate = asked if rate == 0 else (rate + asked) / 2
    walk = _walk(step, demand, concurrency, rate, tokens_max)
    busy = concurrency + 2.33 * math.sqrt(concurrency)
    worst = _walk(step, demand, busy, rate * busy / max(concurrency, 1e-9), tokens_max)
    beside = rate * walk.seconds * walk.carrier_share  # other prompts that arrive for the same step
    crowd = (beside + 2.33 * math.sqrt(beside)) * demand.prompt_mean
    return OperatingPoint(
        concurrency=concurrency,
        rate_per_s=rate,
        ttft_p50_s=_ttft_s(step, demand, concurrency, walk, demand.prompt_p50, walk.gap_s / 2, tokens_max),
        ttft_p99_s=_ttft_s(step, demand, busy, worst, demand.prompt_p99 + crowd, worst.longest_gap_s, tokens_max),
        tpot_p50_s=walk.seconds,
        tpot_p99_s=worst.seconds,
    )


def _walk(step: RooflineStepTime, demand: Demand, concurrency: float, rate: float, tokens_max: float) -> _Walk:
    """The mean walk in steady state, steps with and without a piece of a prompt taken together.

    Mixing comes after the step times, not before: a batch that meets one prompt reads nearly all experts, so a mean
    batch would read too many.
    """
    if step.pipeline_stages > 1:
        return _pipeline_walk(step, demand, concurrency, rate, tokens_max)
    pieces = max(1, math.ceil(demand.prompt_mean / tokens_max))
    piece = demand.prompt_mean / pieces
    decode = _decoding(demand, concurrency)
    alone = step.step_s(decode)
    beside = step.step_s(_with_prompt(decode, piece, demand.prompt_mean / 2))
    # share of steps with a piece: share = arrivals in the time of a step = rate * pieces * walk
    arrivals = rate * pieces
    slope = arrivals * (beside - alone)
    walk = alone / (1 - slope) if slope < 1 else math.inf
    if arrivals * walk > 1:
        walk = beside
        for _ in range(3):  # several pieces in each step
            together = min(arrivals * walk, tokens_max / piece) * piece
            walk = step.step_s(_with_prompt(decode, together, demand.prompt_mean / 2))
    return _Walk(
        seconds=walk,
        largest_share=1.0,
        gap_s=walk,
        longest_gap_s=walk,
        carrier_share=1.0,
    )


def _pipeline_walk(step: RooflineStepTime, demand: Demand, concurrency: float, rate: float, tokens_max: float) -> _Walk:
    """The mean walk where as many batches as stages follow each other, first in, first out (docs/concepts/twin.md).

    Batches cannot overtake, so the slowest of those under way sets the pace of all. A round lasts ``plain``, the step
    of the largest batch, or ``slow``, the same with a piece of a prompt, if any batch carries one; whether one does
    depends on how long the round before lasted: ``chance = first / (1 - again + first)``, where ``first`` and
    ``again`` are the chances of an arrival in a plain and in a slow round. ``walk = chance * slow + (1 - chance) *
    plain``.

    The engine does not balance batches: a request joins the batch that comes back next, so a batch's share of the
    arrivals is its share of the round. The others come back right behind each other, each after its own step in the
    last stage; what is left of the round is the slowest one's, ``1 - (stages - 1) / stages * other / slowest``. Hence
    a batch that carries a prompt gets the next one too (``keep``), and the largest batch grows (``share``), by this or
    by chance: arrivals in such runs are as uneven as independent ones that are fewer.
    """
    stages = step.pipeline_stages
    pieces = max(1, math.ceil(demand.prompt_mean / tokens_max))
    piece, rate = demand.prompt_mean / pieces, rate * pieces
    even = 1 / min(stages, max(1.0, concurrency))
    walk = slow = step.step_s(_decoding(demand, concurrency * even))
    share, keep, chance, busy = even, even, 0.0, 0.0
    for _ in range(PIPELINE_ROUNDS):
        large = _decoding(demand, concurrency * share)
        small = _decoding(demand, concurrency * (1 - share) / (stages - 1))
        plain, other = step.step_s(large), step.step_s(small)
        together = min(max(1.0, keep * rate * walk / chance if chance else 1.0) * piece, tokens_max)
        slow = (slow + step.step_s(_with_prompt(large, together, demand.prompt_mean / 2))) / 2
        first, again = 1 - math.exp(-rate * plain), 1 - math.exp(-rate * slow)
        chance = first / (1 - again + first)
        walk = chance * slow + (1 - chance) * plain
        busy = chance * slow / walk
        also = 1 - math.exp(-rate * slow * (1 - keep) / (stages - 1))
        beside = other + also * (step.step_s(_with_prompt(small, piece, demand.prompt_mean / 2)) - other)
        keep = (keep + _rest_of_round(stages, beside, slow)) / 2
        # the largest batch's part of a plain round, of a slow one that it sets itself, and of one that another sets
        apart = plain / (stages * slow)
        grown = ((1 - busy) * _rest_of_round(stages, other, plain) + busy * apart) / (1 - busy * (keep - apart))
        runs = max(1.0, concurrency * (1 - busy * keep))
        spread = 1 / stages + math.sqrt(2 * math.log(stages) / (stages * runs))
        share = (share + min(1.0, max(even, grown, spread))) / 2
    gap = busy * keep * slow + (1 - busy) * share * plain
    return _Walk(
        seconds=walk,
        largest_share=share,
        gap_s=gap,
        longest_gap_s=keep * slow,
        carrier_share=keep,
    )


def _rest_of_round(stages: int, other_s: float, slowest_s: float) -> float:
    return 1 - (stages - 1) / stages * min(1.0, other_s / slowest_s)


def _decoding(demand: Demand, sequences: float) -> StepLoad:
    return StepLoad(
        decode_sequences=max(1, round(sequences)), decode_context_tokens=round(sequences * demand.context_mean)
    )


def _with_prompt(decode: StepLoad, tokens: float, context: float) -> StepLoad:
    return StepLoad(
        prefill_tokens=max(1, round(tokens)),
        prefill_context_tokens=round(tokens * context),
        decode_sequences=decode.decode_sequences,
        decode_context_tokens=decode.decode_context_tokens,
    )


def _ttft_s(
    step: RooflineStepTime, demand: Demand, concurrency: float, walk: _Walk, prompt: float, wait_s: float,
    tokens_max: float,
) -> float:  # fmt: skip
    """Waiting for a batch to join, then the walks of the prompt's chunks, each after the one before."""
    total, done = wait_s + REQUEST_OVERHEAD_S, 0.0
    sequences = concurrency * walk.largest_share
    while done < prompt:
        chunk = min(tokens_max, prompt - done)
        load = StepLoad(
            prefill_tokens=max(1, round(chunk)),
            prefill_context_tokens=round(chunk * (done + chunk / 2)),
            decode_sequences=round(sequences),
            decode_context_tokens=round(sequences * demand.context_mean),
        )
        total += step.step_s(load)
        done += chunk
    return total


def predict(
    step: RooflineStepTime, demand: Demand, sla: Sla, *, calibration: Calibration, layout: Layout, concurrency_max: int,
    max_num_batched_tokens: int,
) -> Predicted:  # fmt: skip
    """What one replica does at its share of the asked rate, and the most it does within the SLA.

    Args:
        calibration: whose source and error band the numbers carry.
        concurrency_max: requests one data-parallel rank can hold at the workload's mean context.
    """

    @cache  # the two searches below begin with the same steps, and end on a point that they have seen
    def at(concurrency: float) -> OperatingPoint:
        return operating_point(step, demand, concurrency=concurrency, max_num_batched_tokens=max_num_batched_tokens)

    ceiling = float(max(1, concurrency_max))
    share = demand.rate_per_s / (layout.replicas * layout.dp)
    full = at(ceiling)
    saturated = full.rate_per_s < share
    point = full if saturated else _bisect(at, ceiling, lambda found: found.rate_per_s >= share, upper=True)
    best = full
    if not _meets(full, sla):
        best = _bisect(at, ceiling, lambda found: not _meets(found, sla), upper=False)
        if not _meets(best, sla):
            best = full
    return Predicted(
        ttft_p50_s=point.ttft_p50_s,
        ttft_p99_s=point.ttft_p99_s,
        tpot_p50_s=point.tpot_p50_s,
        tpot_p99_s=point.tpot_p99_s,
        output_tokens_per_s=point.rate_per_s * demand.output_mean * layout.dp,
        source=calibration.source + "; before queueing",
        error_band=calibration.error_band,
        concurrency=point.concurrency * layout.dp,
        request_rate_per_s=point.rate_per_s * layout.dp,
        saturated=saturated,
        capacity_tokens_per_s=best.rate_per_s * demand.output_mean * layout.dp,
        meets_sla=_promises(sla) and _meets(point, sla) and not saturated if _promises(sla) else None,
    )


def _promises(sla: Sla) -> bool:
    return sla.ttft_p99_s is not None or sla.tpot_p99_s is not None


def _meets(point: OperatingPoint, sla: Sla) -> bool:
    return (sla.ttft_p99_s is None or point.ttft_p99_s <= sla.ttft_p99_s) and (
        sla.tpot_p99_s is None or point.tpot_p99_s <= sla.tpot_p99_s
    )


def _bisect(
    at: Callable[[float], OperatingPoint],
    ceiling: float,
    above: Callable[[OperatingPoint], bool],
    *,
    upper: bool,
) -> OperatingPoint:
    """The operating point where ``above`` turns true as concurrency grows; the side of it that ``upper`` says."""
    low, high = 1e-3, ceiling
    for _ in range(11):
        middle = math.sqrt(low * high)
        if above(at(middle)):
            high = middle
        else:
            low = middle
    return at(high if upper else low)
