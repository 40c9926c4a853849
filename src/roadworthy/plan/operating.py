"""What a step time means under load: latencies and rate in steady state, and the most a layout carries.

Before queueing: arrivals are taken at their mean, with a deviation or two for the tail. Bursts and the growth of a
queue are the twin's, which runs on the same step time; `scripts/plan_against_twin.py` holds the two together.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from roadworthy.plan.expert_load import expected_largest
from roadworthy.plan.speed import REQUEST_OVERHEAD_S, Calibration
from roadworthy.plan.timing import POLL_S
from roadworthy.plan.values import Layout, Predicted

if TYPE_CHECKING:
    from roadworthy.plan.timing import RooflineStepTime
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import Sla


CONCURRENCY_MIN, CROSSING_STEPS, CROSSING_RATIO = 1e-3, 12, 0.004
"""Where a search for an operating point begins, how long it may take and how near, as a ratio, it comes."""
RATE_ROUNDS, PIPELINE_ROUNDS = 3, 10
"""Iterations of Little's law, and in each of walk time and largest batch, halving the step. A pipeline far into
congestion has no fixed point short of one batch that holds everything; the twin takes minutes to grow into it, and so
the iteration stops on its way."""
SLOW_VARIATION = 0.25
"""Squared coefficient of variation of what prompts add to a round: their lengths differ, and several may meet."""
P99_SIGMAS = 2.33
LASTING_REQUESTS = 300.0
"""A batch that is opened more seldom than once in so many requests is not reckoned with, however long it would last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Walk:
    """One walk of a batch through all stages.

    Args:
        largest_share: of the requests in flight that the largest batch holds.
        gap_s: between two batches that come back and may take a new request, as an arrival finds it.
        behind_s: what is left to wait for beyond, where the next batch is formed already.
        longest_gap_s: the same while prompts are computed.
        carrier_share: of the prompts of one round that meet in one batch.
        round_sd_s: standard deviation of one round, times the root of how long rounds of a kind follow each other: over
            n tokens the mean round deviates by this over the root of n.
    """

    seconds: float
    largest_share: float
    gap_s: float
    behind_s: float
    longest_gap_s: float
    carrier_share: float
    round_sd_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatingPoint:
    """Steady state of one data-parallel rank with ``concurrency`` requests in flight."""

    concurrency: float
    rate_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float


class Engine:
    """One data-parallel rank under a workload: its operating points.

    Args:
        step: its step time.
        max_num_batched_tokens: the most that a step computes.
    """

    def __init__(
        self, step: RooflineStepTime, demand: Demand, *, max_num_batched_tokens: int, scheduled_ahead: bool = False
    ) -> None:
        self._ahead = scheduled_ahead
        self._demand, self._stages = demand, step.pipeline_stages
        self._seconds = step.compiled()
        self._eager_s, self._graph_tokens = step.eager_s, step.graph_tokens
        self._launched = replace(step, eager_s=0.0).compiled()  # as if the host were never late
        self._tokens_max = float(max_num_batched_tokens)
        self._context, self._computed = demand.context_mean, demand.computed_mean
        self._reach = demand.cached_mean + self._computed / 2
        self._pieces = demand.pieces_mean(self._tokens_max)
        self._known: dict[float, tuple[_Walk, float]] = {}
        self._spread = expected_largest(self._stages) * math.sqrt((1 - 1 / self._stages) / self._stages)

    def rate_per_s(self, concurrency: float) -> float:
        """Requests a second with ``concurrency`` in flight."""
        return self._settled(concurrency)[1]

    def at(self, concurrency: float) -> OperatingPoint:
        """Latencies and rate with ``concurrency`` requests in flight (Little's law as a fixed point).

        In the time of one walk through all stages every request gains a token and the arriving prompts are computed;
        a new request waits for the next batch, then its prompt passes the stages chunk by chunk, together with the
        prompts that came in the same wait.
        """
        demand, tokens_max = self._demand, self._tokens_max
        walk, rate = self._settled(concurrency)
        busy = concurrency + P99_SIGMAS * math.sqrt(concurrency)
        worst = self._walk(busy, rate * busy / max(concurrency, 1e-9))
        beside = rate * walk.seconds * walk.carrier_share  # other prompts that arrive for the same step
        crowd = (beside + P99_SIGMAS * math.sqrt(beside)) * self._computed
        room = max(0.0, tokens_max - (demand.prompt_p50 - demand.cached_p50))
        met = min(rate * walk.gap_s * self._computed, room)
        lumps = P99_SIGMAS * walk.round_sd_s / math.sqrt(max(1, demand.output_p50 or demand.output_mean))
        return OperatingPoint(
            concurrency=concurrency,
            rate_per_s=rate,
            ttft_p50_s=self._ttft_s(
                concurrency, walk, demand.prompt_p50 + met, demand.cached_p50, self._wait_s(walk, concurrency)
            ),
            ttft_p99_s=self._ttft_s(
                busy, worst, demand.prompt_p99 + crowd, demand.cached_p99, self._longest_wait_s(worst, busy)
            ),
            tpot_p50_s=walk.seconds,
            tpot_p99_s=walk.seconds + math.hypot(max(0.0, worst.seconds - walk.seconds), lumps),
        )

    def _settled(self, concurrency: float) -> tuple[_Walk, float]:
        known = self._known.get(concurrency)
        if known is None:
            rate = 0.0
            for _ in range(RATE_ROUNDS):
                asked = self._asked_per_s(concurrency, self._walk(concurrency, rate))
                rate = asked if rate == 0 else (rate + asked) / 2
            known = self._known[concurrency] = self._walk(concurrency, rate), rate
        return known

    def _asked_per_s(self, concurrency: float, walk: _Walk) -> float:
        """Little's law: requests a second where each stays for its first token and a walk for every other."""
        demand = self._demand
        ttft = self._ttft_s(concurrency, walk, demand.prompt_mean, demand.cached_mean, self._wait_s(walk, concurrency))
        return concurrency / (ttft + max(demand.output_mean - 1, 0) * walk.seconds)

    def _walk(self, concurrency: float, rate: float) -> _Walk:
        """The mean walk in steady state, steps with and without a piece of a prompt taken together.

        Mixing comes after the step times, not before: a batch that meets one prompt reads nearly all experts, so a
        mean batch would read too many.
        """
        if self._stages == 1:
            return self._single_walk(concurrency, rate)
        return self._cycle_walk(concurrency, rate) if self._ahead else self._pipeline_walk(concurrency, rate)

    def _single_walk(self, concurrency: float, rate: float) -> _Walk:
        pieces, tokens_max = self._pieces, self._tokens_max
        piece = self._computed / pieces
        alone, beside = self._decode_s(concurrency), self._beside_s(concurrency, piece)
        # share of steps with a piece: share = arrivals in the time of a step = rate * pieces * walk
        arrivals = rate * pieces
        slope = arrivals * (beside - alone)
        walk = alone / (1 - slope) if slope < 1 else math.inf
        share, slow = min(1.0, arrivals * walk), beside
        if arrivals * walk > 1:
            walk = beside
            for _ in range(3):  # several pieces in each step
                together = min(arrivals * walk, tokens_max / piece) * piece
                walk = slow = self._beside_s(concurrency, together)
        busy = min(1.0, share * slow / walk)  # of the time, which is what an arrival finds
        return _Walk(
            seconds=walk,
            largest_share=1.0,
            gap_s=busy * slow + (1 - busy) * alone,
            behind_s=walk,
            longest_gap_s=walk,
            carrier_share=1.0,
            round_sd_s=_round_sd_s(slow - alone, share, 1 / pieces, min(1.0, rate * alone)),
        )

    def _cycle_walk(self, concurrency: float, rate: float) -> _Walk:
        """The mean walk of a pipeline with asynchronous scheduling, where batches have places in a cycle.

        A batch is scheduled as many turns of the core's loop after the last time as there are stages, while that step
        is under way, and a new request joins the batch whose turn comes after the next result (:mod:`twin.core_loop`).
        So batches are uneven by chance only, and what comes between two results meets in one batch.

        Batches cannot overtake: a round lasts ``plain``, the step of the largest batch, or ``slow``, the same with
        prompts, if any batch carries some. The other batches follow the slow one right away, each after its own step in
        the last stage, so that what is left of the round is one gap without a turn for new requests, the ``longest``.
        The prompts that come in it meet: with ``came`` expected ``came / (1 - exp(-came))`` of them, given that there
        are any. What does not fit into one step follows in the next batches, a stage behind each other: the slow rounds
        ``stay`` so long.

        Slow rounds end when none came in the last one. With lengths gamma distributed none comes in one with
        ``exp(-rate * plain) * (1 + c * rate * added) ** (-1 / c)``.
        """
        stages, pieces, exp = self._stages, self._pieces, math.exp
        even = 1 / min(stages, max(1.0, concurrency))
        share = even + self._spread / math.sqrt(max(1.0, concurrency))
        large = concurrency * share
        plain = slow = stay = self._decode_s(large)
        behind = plain / stages
        none = exp(-rate * plain)
        begins, ends = 1 - none, 1.0
        for _ in range(PIPELINE_ROUNDS):
            longest = stay - (stages - 1) * behind
            came = rate * longest
            met = came / (1 - exp(-came)) if came > CONCURRENCY_MIN else 1.0
            prompts = ends + (1 - ends) * met
            batches = max(pieces, prompts * self._computed / self._tokens_max + 0.5)  # the last is half full
            carrying = self._beside_s(large, prompts * self._computed / batches)
            slow = (slow + max(carrying, plain)) / 2
            stay = slow * (1 + (batches - 1) / stages)
            ends = none * (1 + SLOW_VARIATION * rate * (stay - plain)) ** (-1 / SLOW_VARIATION)
        slow_s = begins / (ends + begins) * stay
        plain_s = ends / (ends + begins) * plain
        rounds = slow_s / slow + plain_s / plain
        busy = slow_s / (slow_s + plain_s)
        longest = stay - (stages - 1) * behind
        return _Walk(
            seconds=(slow_s + plain_s) / rounds,
            largest_share=share,
            gap_s=busy * (longest**2 + (stages - 1) * behind**2) / stay + (1 - busy) * behind,
            behind_s=behind,
            longest_gap_s=longest,
            carrier_share=1.0,
            round_sd_s=_round_sd_s(slow - plain, slow_s / slow / rounds, ends, begins),
        )

    def _pipeline_walk(self, concurrency: float, rate: float) -> _Walk:
        """The mean walk where batches follow each other, first in, first out, at most as many as stages
        (docs/concepts/twin.md).

        Batches cannot overtake, so the slowest of those under way sets the pace of all. A round lasts ``plain``, the
        step of the largest batch, or ``slow``, the same with a piece of a prompt, if any batch carries one:
        ``walk = chance * slow + (1 - chance) * plain``.

        Prompts that overlap share their rounds, since each batch may carry one; a run of slow rounds ends when no
        prompt is left and none came in the last round. With ``ends`` the chance of that and ``begins`` that of an
        arrival in a plain round, ``chance = begins / (ends + begins)``. Rounds differ: with what prompts add to them
        gamma distributed, none comes in one with ``exp(-rate * plain) * (1 + c * rate * added) ** (-1 / c)``. The
        pieces of a prompt follow each other through the stages, each in the next batch, so that one of many pieces
        stays for ``rounds = pieces / stages``; then the slow rounds are a queue with a server for everyone, empty with
        ``exp(-rate * rounds * slow)``, whatever the lengths.

        The engine does not balance batches: a request joins the batch that comes back next, so a batch's share of the
        arrivals is its share of the round. The others come back right behind each other, each after its own step in
        the last stage; what is left of the round is the slowest one's, ``1 - others / stages * other / slowest``.
        Hence a batch that carries a prompt gets the next one too (``keep``), and the largest batch grows (``share``),
        by this or by chance: arrivals in such runs are as uneven as independent ones that are fewer. There may be
        fewer batches than stages (:meth:`_others`); then vLLM's core sleeps once a round (:mod:`twin.core_loop`).
        """
        stages, pieces, tokens_max = self._stages, self._pieces, self._tokens_max
        seconds, context, exp = self._seconds, self._context, math.exp
        piece, rounds = self._computed / pieces, max(1.0, pieces / stages)
        cut = self._demand.share_above(tokens_max)
        others = float(stages - 1)
        even = 1 / min(stages, max(1.0, concurrency))
        walk = slow = self._decode_s(concurrency * even)
        share, keep, chance = even, even, 0.0
        busy, ends, begins, plain = 0.0, 1.0, 0.0, slow
        for _ in range(PIPELINE_ROUNDS):
            large, small = concurrency * share, concurrency * (1 - share) / max(others, 0.1)
            running = large if large > 1 else 1.0
            plain = seconds(0, 0, running, large * context)
            other = seconds(0, 0, small if small > 1 else 1.0, small * context)
            others, full = self._others(concurrency, small, walk, cut)
            even = 1 / min(1 + others, max(1.0, concurrency))
            plain += (1 - full) * POLL_S
            together = min(max(1.0, keep * rate * walk / chance if chance else 1.0) * piece, tokens_max)
            carrying = self._beside_s(large, together)
            slow = (slow + (carrying if carrying > plain else plain)) / 2
            none = exp(-rate * plain)
            begins = 1 - none
            ends = none * (1 + SLOW_VARIATION * rate * (slow - plain)) ** (-1 / SLOW_VARIATION)
            if pieces > 1 and begins > 0:
                empty = exp(-rate * rounds * slow)
                ends = empty * (1 - ends) / (1 - empty)
            chance = begins / (ends + begins)
            walk = chance * slow + (1 - chance) * plain
            busy = chance * slow / walk
            also = 1 - exp(-rate * pieces * slow * (1 - keep) / max(others, 0.1))
            beside = other
            if also > 0:
                beside += also * (self._beside_s(small, piece) - other)
            keep = (keep + 1 - others / stages * min(1.0, beside / slow)) / 2
            # the largest batch's part of a plain round, of a slow one that it sets itself, and of another's
            apart = plain / (stages * slow)
            rest = 1 - others / stages * min(1.0, other / plain)
            grown = ((1 - busy) * rest + busy * apart) / (1 - busy * (keep - apart))
            runs = max(1.0, concurrency * (1 - busy * keep))
            share = (share + min(1.0, max(even, grown, even + self._spread / math.sqrt(runs)))) / 2
        return _Walk(
            seconds=walk,
            largest_share=share,
            gap_s=busy * keep * slow + (1 - busy) * share * plain,
            behind_s=0.0,
            longest_gap_s=keep * slow,
            carrier_share=keep,
            round_sd_s=_round_sd_s(slow - plain, chance, ends, begins),
        )

    def _others(self, concurrency: float, members: float, walk_s: float, cut: float) -> tuple[float, float]:
        """Batches beside the largest, and the chance that there are as many batches as stages.

        A request opens a batch of its own when it comes within one of the core's turns in vain, of which there are at
        most ``stages - 2`` behind a batch, or when its prompt does not fit into the step: ``cut``. A batch of ``m``
        members that gains them as it loses them lasts until it is empty: with ``b`` batches opened a request, there
        is one with odds of ``b * concurrency * (exp(m) - 1) / m`` (the busy period of a queue with a server for
        everyone).
        """
        stages = self._stages
        lasting = min(LASTING_REQUESTS, concurrency * math.expm1(min(members, 20.0)) / max(members, 1e-6))
        by_turns = (stages - 1) / 2 * POLL_S / walk_s * lasting if stages > 2 else 0.0
        by_chunks = cut * lasting
        some, last = 1 - 1 / (1 + by_turns + by_chunks), 1 - 1 / (1 + by_chunks)
        return (stages - 2) * some + last, some * last

    def _decode_s(self, sequences: float) -> float:
        """A step of decoding alone."""
        return self._seconds(0, 0, max(1.0, sequences), sequences * self._context)

    def _beside_s(self, sequences: float, tokens: float) -> float:
        """A step of decoding with so many tokens of prompts, halfway through what is computed of them.

        It lasts at least as long as the host needs where no graph holds it, which is a matter of the prompt's own
        length: a mean prompt just beyond the largest graph would make every step such a one.
        """
        running = max(1.0, sequences)
        seconds = self._launched(max(1.0, tokens), tokens * self._reach, running, sequences * self._context)
        if seconds >= self._eager_s:
            return seconds
        room = (self._graph_tokens - running) * self._computed / tokens
        return seconds + self._demand.share_above(room) * (self._eager_s - seconds)

    def _wait_s(self, walk: _Walk, concurrency: float) -> float:
        """For the end of the step under way, and for the next one where that is formed already."""
        return walk.gap_s / 2 + self._ahead * min(1.0, concurrency) * walk.behind_s

    def _longest_wait_s(self, walk: _Walk, concurrency: float) -> float:
        return walk.longest_gap_s + self._ahead * min(1.0, concurrency) * walk.behind_s

    def _ttft_s(self, concurrency: float, walk: _Walk, prompt: float, cached: float, wait_s: float) -> float:
        """Waiting for a batch to join, then the walk of the prompt's first chunk; the others follow it through the
        stages, each one stage behind the one before."""
        total, done = wait_s + REQUEST_OVERHEAD_S, min(cached, prompt - 1)
        sequences, share = concurrency * walk.largest_share, 1.0
        while done < prompt:
            chunk = min(self._tokens_max, prompt - done)
            step = self._seconds(max(1.0, chunk), chunk * (done + chunk / 2), sequences, sequences * self._context)
            total += step * share
            done += chunk
            share = 1 / self._stages
        return total


def operating_point(
    step: RooflineStepTime, demand: Demand, *, concurrency: float, max_num_batched_tokens: int,
    scheduled_ahead: bool = False,
) -> OperatingPoint:  # fmt: skip
    """Latencies and rate of one data-parallel rank with ``concurrency`` requests in flight, see :meth:`Engine.at`."""
    return Engine(
        step, demand, max_num_batched_tokens=max_num_batched_tokens, scheduled_ahead=scheduled_ahead
    ).at(concurrency)  # fmt: skip


def _round_sd_s(apart_s: float, share: float, ends: float, begins: float) -> float:
    """Deviation of a round that is ``apart_s`` longer with probability ``share``, for runs that end and begin so often.

    The variance of a mean over a chain of two states, whose correlation from round to round is ``1 - ends - begins``.
    """
    kept = 1 - ends - begins
    return apart_s * math.sqrt(max(0.0, share * (1 - share)) * (1 + kept) / max(1e-6, 1 - kept))


def predict(
    step: RooflineStepTime, demand: Demand, sla: Sla, *, calibration: Calibration, layout: Layout, concurrency_max: int,
    max_num_batched_tokens: int, scheduled_ahead: bool = False,
) -> Predicted:  # fmt: skip
    """What one replica does at its share of the asked rate, and the most it does within the SLA.

    Args:
        calibration: whose source and error band the numbers carry.
        concurrency_max: requests one data-parallel rank can hold at the workload's mean context.
        scheduled_ahead: a new request waits for the step under way and the one behind it.
    """

    engine = Engine(
        step, demand, max_num_batched_tokens=max_num_batched_tokens, scheduled_ahead=scheduled_ahead
    )  # fmt: skip
    at, ceiling = cache(engine.at), float(max(1, concurrency_max))
    share = demand.rate_per_s / (layout.replicas * layout.dp)
    full = at(ceiling)
    saturated = full.rate_per_s < share
    point = full if saturated else at(_carrying(engine, share, ceiling))
    best = full
    if not _meets(full, sla):
        high = ceiling if _meets(point, sla) else point.concurrency
        best = at(
            _crossing(lambda load: math.log(_worst_miss(at(load), sla)), CONCURRENCY_MIN, high, upper=False)
        )  # fmt: skip
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
        load_ratio=share / full.rate_per_s if full.rate_per_s > 0 else 0.0,
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


def _carrying(engine: Engine, rate_per_s: float, ceiling: float) -> float:
    """The least concurrency that carries ``rate_per_s``, which ``ceiling`` does."""

    @cache
    def excess(concurrency: float) -> float:
        return math.log(engine.rate_per_s(concurrency) / rate_per_s)

    # a request takes longest in company, so there are never fewer in flight than of requests by themselves
    alone_s = CONCURRENCY_MIN / engine.rate_per_s(CONCURRENCY_MIN)
    least = min(max(CONCURRENCY_MIN, rate_per_s * alone_s * 0.99), ceiling / 2)
    return _crossing(excess, least if excess(least) < 0 else CONCURRENCY_MIN, ceiling, upper=True)


def _crossing(excess: Callable[[float], float], floor: float, ceiling: float, *, upper: bool) -> float:
    """The concurrency where ``excess`` turns positive; the side of it that ``upper`` says.

    ``excess`` is a logarithm that is about linear in that of the concurrency and positive at ``ceiling``: the straight
    line between the ends is followed, and an end that stays put twice counts half (the Illinois rule).
    """
    low, high = math.log(floor), math.log(ceiling)
    below, above, stayed = excess(floor), excess(ceiling), 0
    if below >= 0:
        return floor
    for _ in range(CROSSING_STEPS):
        if high - low < CROSSING_RATIO:
            break
        share = below / (below - above) if math.isfinite(above) else 0.5
        middle = low + (high - low) * min(0.95, max(0.05, share))
        found = excess(math.exp(middle))
        if found >= 0:
            high, above = middle, found
            below, stayed = below / 2 if stayed > 0 else below, 1
        else:
            low, below = middle, found
            above, stayed = above / 2 if stayed < 0 else above, -1
        if abs(found) < CROSSING_RATIO and (found >= 0) == upper:
            break
    return math.exp(high if upper else low)
