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


CONCURRENCY_MIN, CROSSING_STEPS, CROSSING_RATIO = 1e-3, 12, 0.004
"""Where a search for an operating point begins, how long it may take and how near, as a ratio, it comes."""
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
    alone = _decode_s(step, demand, concurrency)
    beside = _beside_s(step, demand, concurrency, piece)
    # share of steps with a piece: share = arrivals in the time of a step = rate * pieces * walk
    arrivals = rate * pieces
    slope = arrivals * (beside - alone)
    walk = alone / (1 - slope) if slope < 1 else math.inf
    if arrivals * walk > 1:
        walk = beside
        for _ in range(3):  # several pieces in each step
            together = min(arrivals * walk, tokens_max / piece) * piece
            walk = _beside_s(step, demand, concurrency, together)
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
    walk = slow = _decode_s(step, demand, concurrency * even)
    share, keep, chance, busy = even, even, 0.0, 0.0
    for _ in range(PIPELINE_ROUNDS):
        large, small = concurrency * share, concurrency * (1 - share) / (stages - 1)
        plain, other = _decode_s(step, demand, large), _decode_s(step, demand, small)
        together = min(max(1.0, keep * rate * walk / chance if chance else 1.0) * piece, tokens_max)
        slow = (slow + _beside_s(step, demand, large, together)) / 2
        first, again = 1 - math.exp(-rate * plain), 1 - math.exp(-rate * slow)
        chance = first / (1 - again + first)
        walk = chance * slow + (1 - chance) * plain
        busy = chance * slow / walk
        also = 1 - math.exp(-rate * slow * (1 - keep) / (stages - 1))
        beside = other + also * (_beside_s(step, demand, small, piece) - other)
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


def _decode_s(step: RooflineStepTime, demand: Demand, sequences: float) -> float:
    """A step of decoding alone."""
    return step.seconds(0, 0, round(sequences) or 1, round(sequences * demand.context_mean))


def _beside_s(step: RooflineStepTime, demand: Demand, sequences: float, tokens: float) -> float:
    """A step of decoding with so many tokens of prompts, halfway through them."""
    return step.seconds(
        round(tokens) or 1,
        round(tokens * demand.prompt_mean / 2),
        round(sequences) or 1,
        round(sequences * demand.context_mean),
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
    point = full if saturated else _crossing(at, lambda found: math.log(found.rate_per_s / share), ceiling, upper=True)
    best = full
    if not _meets(full, sla):
        high = ceiling if _meets(point, sla) else point.concurrency
        best = _crossing(at, lambda found: math.log(_worst_miss(found, sla)), high, upper=False)
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
    return _worst_miss(point, sla) <= 1


def _worst_miss(point: OperatingPoint, sla: Sla) -> float:
    """How many times over its limit the worst objective is; 0 without objectives."""
    ratios = [point.ttft_p99_s / sla.ttft_p99_s] if sla.ttft_p99_s is not None else []
    ratios += [point.tpot_p99_s / sla.tpot_p99_s] if sla.tpot_p99_s is not None else []
    return max(ratios, default=0.0)


def _crossing(
    at: Callable[[float], OperatingPoint], excess: Callable[[OperatingPoint], float], ceiling: float, *, upper: bool
) -> OperatingPoint:
    """The operating point where ``excess`` turns positive as concurrency grows; the side of it that ``upper`` says.

    ``excess`` is a logarithm that is about linear in that of the concurrency and positive at ``ceiling``: the straight
    line between the ends is followed, and an end that stays put twice counts half (the Illinois rule).
    """
    low, high = math.log(CONCURRENCY_MIN), math.log(ceiling)
    below, above, stayed = excess(at(CONCURRENCY_MIN)), excess(at(ceiling)), 0
    if below >= 0:
        return at(CONCURRENCY_MIN)
    for _ in range(CROSSING_STEPS):
        if high - low < CROSSING_RATIO:
            break
        share = below / (below - above) if math.isfinite(above) else 0.5
        middle = low + (high - low) * min(0.95, max(0.05, share))
        found = excess(at(math.exp(middle)))
        if found >= 0:
            high, above = middle, found
            below, stayed = below / 2 if stayed > 0 else below, 1
        else:
            low, below = middle, found
            above, stayed = above / 2 if stayed < 0 else above, -1
        if abs(found) < CROSSING_RATIO and (found >= 0) == upper:
            break
    return at(math.exp(high if upper else low))
