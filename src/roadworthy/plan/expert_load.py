"""How unevenly a batch loads the ranks of an expert-parallel group: the fullest one sets the pace of all.

Two causes add up. Experts are not equally popular: the k-th of them is taken to be picked in proportion to
``k ** -skew`` (Zipf), and popularity knows nothing of the rank an expert lies on. And a batch is a sample: even
uniform routing throws its picks into the ranks like balls into bins. The balancer (EPLB) takes away most of the first
cause and none of the second.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate, pairwise

PLACEMENTS = 24
"""Placements of experts on ranks that the expectation averages over."""
UNIFORM_FLOOR = 1 - 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertLoad:
    """What a step time needs to know.

    Args:
        floor: how often the least popular expert is picked, over the mean; 1 for uniform routing.
        spread: squared coefficient of variation of what the experts are picked beyond that floor; 0 for uniform.
        excess_ratio: load of the fullest rank beyond the mean, by popularity alone.
        noise: the same by sampling, as a variance to be divided by the tokens of the batch.
        read_noise: standard deviations by which the rank that reads most experts exceeds the mean rank, over the
            square root of the experts of a rank.
    """

    floor: float = 1.0
    spread: float = 0.0
    excess_ratio: float = 0.0
    noise: float = 0.0
    read_noise: float = 0.0

    def fullest_ratio(self, tokens: float) -> float:
        """Expected load of the fullest rank over the mean, for a batch of ``tokens`` over the whole group."""
        return 1 + math.sqrt(self.excess_ratio**2 + self.noise / tokens)


@lru_cache(maxsize=256)
def expert_load(
    *, experts: int, per_token: int, ranks: int, skew: float = 0.0, redundant: int | None = None
) -> ExpertLoad:
    """The load of a layer with ``experts`` spread over ``ranks``.

    Args:
        per_token: experts that a token picks.
        skew: Zipf's exponent; 0 is uniform.
        redundant: extra expert slots that the balancer fills; None where it is off.
    """
    picked = pick_ratios(experts, per_token, skew)
    floor = min(1.0, picked[-1] * experts / per_token)
    variation = experts * sum(ratio * ratio for ratio in picked) / per_token**2 - 1
    spread = variation / (1 - floor) ** 2 if floor < UNIFORM_FLOOR else 0.0
    if spread == 0:
        floor = 1.0
    if ranks == 1:
        return ExpertLoad(floor=floor, spread=spread)
    largest = expected_largest(ranks)
    if skew == 0:
        fullest = 1.0
    elif redundant is None:
        fullest = _fullest_at_random(picked, ranks)
    else:
        fullest = balanced_ratio(picked, ranks, redundant)
    # a token's picks are drawn without replacement: hypergeometric over the ranks
    sampling = (ranks - 1) / per_token * (experts - per_token) / max(1, experts - 1)
    return ExpertLoad(
        floor=floor,
        spread=spread,
        excess_ratio=fullest - 1,
        noise=largest * largest * sampling,
        read_noise=largest / math.sqrt(experts / ranks),
    )


def pick_ratios(experts: int, per_token: int, skew: float) -> tuple[float, ...]:
    """The chance that a token picks each expert, most popular first; they add up to ``per_token``.

    In proportion to ``rank ** -skew``, and at most 1: what the most popular cannot take falls to the others.
    """
    weights = [(place + 1) ** -skew for place in range(experts)]
    certain = 0
    while certain < per_token:  # those picked by every token
        rest = (per_token - certain) / sum(weights[certain:])
        if weights[certain] * rest <= 1:
            return (*[1.0] * certain, *[weight * rest for weight in weights[certain:]])
        certain += 1
    return (*[1.0] * certain, *[0.0] * (experts - certain))


@lru_cache(maxsize=32)
def expected_largest(count: int) -> float:
    """Expected largest of ``count`` independent standard normal values: 0.56 for 2, 1.42 for 8, 2.07 for 32."""
    if count < 2:
        return 0.0
    step, total = 0.02, 0.0
    for index in range(-300, 301):
        value = index * step
        below = 0.5 * math.erfc(-value / math.sqrt(2))
        total += value * math.exp(-value * value / 2) * below ** (count - 1)
    return total * count * step / math.sqrt(2 * math.pi)


def _fullest_at_random(picked: Sequence[float], ranks: int) -> float:
    """Expected load of the fullest rank over the mean, where experts lie on the ranks at random."""
    share, fullest = len(picked) / ranks, 0.0
    bounds = [round(rank * share) for rank in range(ranks + 1)]
    for number in range(PLACEMENTS):
        sums = (0.0, *accumulate(picked[index] for index in _placement(len(picked), number)))
        fullest += max(sums[end] - sums[start] for start, end in pairwise(bounds))
    return max(1.0, fullest / PLACEMENTS * ranks / sum(picked))


@lru_cache(maxsize=PLACEMENTS * 4)
def _placement(experts: int, number: int) -> tuple[int, ...]:
    """One fixed shuffle of the experts, by a hash of their number (Knuth's multiplicative one, twice mixed)."""

    def mixed(index: int) -> int:
        value = (index + 1) * 2_654_435_761 + (number + 1) * 0x9E3779B97F4A7C15
        value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9 & 0xFFFFFFFFFFFFFFFF
        return value ^ (value >> 27)

    return tuple(sorted(range(experts), key=mixed))


def balanced_ratio(picked: Sequence[float], ranks: int, redundant: int) -> float:
    """Load of the fullest rank over the mean after the balancer: copies for the most loaded, then the heaviest first.

    Each redundant slot goes to the expert with the most load a copy; slots are packed heaviest first onto the rank
    with the least load that has a place (vLLM 0.32, `vllm/distributed/eplb/policy/default.py`). Popularity is taken to
    stay what the balancer saw.
    """
    from heapq import heapify, heappop, heappush, heapreplace

    copies = [(-ratio, ratio, 1) for ratio in picked]
    heapify(copies)
    for _ in range(redundant):
        _, whole, count = copies[0]
        heapreplace(copies, (-whole / (count + 1), whole, count + 1))
    slots = sorted((whole / count for _, whole, count in copies for _ in range(count)), reverse=True)
    places = math.ceil(len(slots) / ranks)
    open_ranks = [(0.0, rank, 0) for rank in range(ranks)]
    fullest = 0.0
    for slot in slots:
        load, rank, used = heappop(open_ranks)
        fullest = max(fullest, load + slot)
        if used + 1 < places:
            heappush(open_ranks, (load + slot, rank, used + 1))
    return max(1.0, fullest * ranks / sum(picked))
