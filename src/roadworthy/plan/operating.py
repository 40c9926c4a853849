"""What a step time means under load: latencies and rate in steady state, and the most a layout carries.

Before queueing: arrivals are taken at their mean, with a deviation or two for the tail. Bursts and the growth of a
queue are the twin's, which runs on the same step time.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.plan.speed import REQUEST_OVERHEAD_S, Calibration
from roadworthy.plan.timing import RooflineStepTime, StepLoad
from roadworthy.plan.values import Layout, Predicted

if TYPE_CHECKING:
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import Sla


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
    a new request waits for the stage's running step, then its prompt passes the stages chunk by chunk.
    """
    stages = step.pipeline_stages
    tokens_max = float(max_num_batched_tokens)
    rate = 0.0
    for _ in range(4):
        tpot = _walk_s(step, demand, concurrency, rate, tokens_max)
        ttft = _ttft_s(step, demand, concurrency, demand.prompt_mean, tpot / stages / 2, 0.0, tokens_max)
        asked = concurrency / (ttft + max(demand.output_mean - 1, 0) * tpot)
        rate = asked if rate == 0 else (rate + asked) / 2
    tpot = _walk_s(step, demand, concurrency, rate, tokens_max)
    busy = concurrency + 2.33 * math.sqrt(concurrency)
    tpot_p99 = _walk_s(step, demand, busy, rate * busy / max(concurrency, 1e-9), tokens_max)
    beside = rate * tpot / stages  # other prompts that arrive for the same step
    crowd = (beside + 2.33 * math.sqrt(beside)) * demand.prompt_mean
    return OperatingPoint(
        concurrency=concurrency,
        rate_per_s=rate,
        ttft_p50_s=_ttft_s(step, demand, concurrency, demand.prompt_p50, tpot / stages / 2, 0.0, tokens_max),
        ttft_p99_s=_ttft_s(step, demand, busy, demand.prompt_p99, tpot_p99 / stages, crowd, tokens_max),
        tpot_p50_s=tpot,
        tpot_p99_s=tpot_p99,
    )


def _walk_s(step: RooflineStepTime, demand: Demand, concurrency: float, rate: float, tokens_max: float) -> float:
    """Mean seconds of one walk in steady state, steps with and without a piece of a prompt taken together.

    Mixing comes after the step times, not before: a batch that meets one prompt reads nearly all experts, so a mean
    batch would read too many.
    """
    stages = step.pipeline_stages
    pieces = max(1, math.ceil(demand.prompt_mean / tokens_max))
    piece = demand.prompt_mean / pieces
    decode = StepLoad(
        decode_sequences=max(1, round(concurrency / stages)),
        decode_context_tokens=round(concurrency / stages * demand.context_mean),
    )
    alone = step.step_s(decode)
    beside = step.step_s(_with_prompt(decode, piece, demand.prompt_mean / 2))
    # share of steps with a piece: share = arrivals in the time of a step = rate * pieces * walk / stages
    arrivals = rate * pieces / stages
    slope = arrivals * (beside - alone)
    walk = alone / (1 - slope) if slope < 1 else math.inf
    if arrivals * walk <= 1:
        return walk
    walk = beside
    for _ in range(3):  # several pieces in each step
        together = min(arrivals * walk, tokens_max / piece) * piece
        walk = step.step_s(_with_prompt(decode, together, demand.prompt_mean / 2))
    return walk


def _with_prompt(decode: StepLoad, tokens: float, context: float) -> StepLoad:
    return StepLoad(
        prefill_tokens=max(1, round(tokens)),
        prefill_context_tokens=round(tokens * context),
        decode_sequences=decode.decode_sequences,
        decode_context_tokens=decode.decode_context_tokens,
    )


def _ttft_s(
    step: RooflineStepTime, demand: Demand, concurrency: float, prompt: float, wait_s: float, crowd: float,
    tokens_max: float,
) -> float:  # fmt: skip
    total, done = wait_s + REQUEST_OVERHEAD_S, 0.0
    prompt += crowd
    while done < prompt:
        chunk = min(tokens_max, prompt - done)
        load = StepLoad(
            prefill_tokens=max(1, round(chunk)),
            prefill_context_tokens=round(chunk * (done + chunk / 2)),
            decode_sequences=round(concurrency / step.pipeline_stages),
            decode_context_tokens=round(concurrency / step.pipeline_stages * demand.context_mean),
        )
        # chunks of one prompt follow each other through the pipeline: the walk once, then one stage each
        total += step.step_s(load) if done == 0 else step.step_s(load) / step.pipeline_stages
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
