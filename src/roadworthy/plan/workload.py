"""What the planner takes from the request profile: prompts and answers as means and tails, and what a cache saves.

A request's prompt is its whole context: in a conversation it repeats all that was said before. Of it only what no
cached prefix covers is computed. Lengths are taken as in :mod:`roadworthy.advise.arrivals`, which draws them for the
twin: log-normal between the percentiles, a conversation's number of turns geometric, each later turn adding the answer
before it and the unshared part of a new draw.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.spec.values import Quantiles, RequestProfile

_P90_SIGMAS, _P99_SIGMAS = 1.2816, 2.3263
TURNS_MAX, TURN_SHARE_MIN = 48, 0.002
"""Later and rarer turns are left out: the context ends most conversations before."""
_DRAWS = (-1.915, -1.282, -0.903, -0.605, -0.342, -0.111, 0.111, 0.342, 0.605, 0.903, 1.282, 1.915)
"""Standard normal scores about the middle of 12 equal shares."""


def mean_tokens(quantiles: Quantiles) -> float:
    """Mean of a log-normal length with this median and 90th percentile, not above the 99th percentile."""
    sigma = math.log(quantiles.p90 / quantiles.p50) / _P90_SIGMAS
    return min(quantiles.p50 * math.exp(sigma * sigma / 2), float(quantiles.p99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The workload as means and tails. Tokens are floats where they are means.

    Args:
        prompt_mean, prompt_p50, prompt_p99: whole prompts, what was said before included.
        cached_mean, cached_p50, cached_p99: tokens of those prompts that a cached prefix covers.
        prompt_sigma: standard deviation of the logarithm of what is computed of a prompt.
    """

    rate_per_s: float
    prompt_mean: float
    prompt_p50: int
    prompt_p99: int
    output_mean: float
    output_p99: int
    output_p50: int = 0
    cached_mean: float = 0.0
    cached_p50: int = 0
    cached_p99: int = 0
    prompt_sigma: float = 0.0

    @property
    def context_mean(self) -> float:
        """Mean context while decoding: the prompt and half the answer."""
        return self.prompt_mean + self.output_mean / 2

    @property
    def computed_mean(self) -> float:
        """Mean tokens of a prompt that are computed."""
        return max(1.0, self.prompt_mean - self.cached_mean)

    @property
    def hit_ratio(self) -> float:
        """Share of all prompt tokens that the prefix cache covers."""
        return self.cached_mean / self.prompt_mean

    def pieces_mean(self, tokens_max: float) -> float:
        """Mean number of steps that one prompt is computed in, ``tokens_max`` tokens at a time."""
        return _pieces_mean(self.computed_mean, self.prompt_sigma, tokens_max)

    def share_above(self, tokens: float) -> float:
        """Share of prompts of which more than ``tokens`` are computed."""
        if tokens <= 0:
            return 1.0
        mean, sigma = self.computed_mean, self.prompt_sigma
        if sigma <= 0:
            return float(mean > tokens)
        return 0.5 * math.erfc((math.log(tokens / mean) + sigma**2 / 2) / (sigma * math.sqrt(2)))


@lru_cache(maxsize=4096)
def _pieces_mean(mean: float, sigma: float, tokens_max: float) -> float:
    """Expectation of the rounded-up quotient of a log-normal length and ``tokens_max``."""
    if sigma <= 0:
        return float(max(1, math.ceil(mean / tokens_max)))
    median = mean / math.exp(sigma * sigma / 2)
    pieces, beyond, count = 1.0, 1.0, 1
    while beyond > 1e-3 and count < 1000:
        beyond = 0.5 * math.erfc(math.log(count * tokens_max / median) / sigma / math.sqrt(2))
        pieces += beyond
        count += 1
    return pieces


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefixes:
    """What the engine's prefix cache can give.

    Args:
        unit_tokens: hits are multiples of it.
        kept_ratio: share of conversations still in the pool when their next turn comes.
    """

    unit_tokens: int
    kept_ratio: float = 1.0


@lru_cache(maxsize=256)  # layouts with the same block size ask alike
def demand_of(
    profile: RequestProfile, *, prefixes: Prefixes | None = None, max_model_len_tokens: int | None = None
) -> Demand:
    """The profile's means and tails.

    Args:
        prefixes: what is cached; None computes every prompt whole.
        max_model_len_tokens: a conversation ends before it would exceed this.
    """
    first, output = mean_tokens(profile.prompt_tokens), mean_tokens(profile.output_tokens)
    shared = min(first * profile.shared_prefix_ratio, first - 1)
    new = first - shared
    weights = _turn_weights(profile.sessions.turns, first, output + new, output, max_model_len_tokens)
    whole = first + (output + new) * sum(turn * weight for turn, weight in enumerate(weights))
    cached = sum(
        weight * _cached(first, shared, turn, turn * (output + new), new, prefixes)
        for turn, weight in enumerate(weights)
    )
    if len(weights) == 1:
        p50, p99 = (
            (length, round(_cached(length, length * profile.shared_prefix_ratio, 0, 0.0, 0.0, prefixes)))
            for length in (profile.prompt_tokens.p50, profile.prompt_tokens.p99)
        )
    else:
        points = _points(profile, weights, output, prefixes, max_model_len_tokens)
        computed = sorted((prompt - hit, prompt, hit, weight) for prompt, hit, weight in points)
        p50, p99 = _at(computed, 0.5), _at(computed, 0.99)
    sigma = math.log(profile.prompt_tokens.p90 / profile.prompt_tokens.p50) / _P90_SIGMAS
    return Demand(
        rate_per_s=profile.rate_per_s,
        prompt_mean=whole,
        prompt_p50=p50[0],
        prompt_p99=p99[0],
        output_mean=output,
        output_p99=profile.output_tokens.p99,
        output_p50=profile.output_tokens.p50,
        cached_mean=cached,
        cached_p50=p50[1],
        cached_p99=p99[1],
        prompt_sigma=sigma,
    )


def _turn_weights(turns: float, first: float, grows: float, output: float, most: int | None) -> Sequence[float]:
    """The share of all requests that are the n-th turn of their conversation: geometric, cut where the context ends."""
    goes_on = 1 - 1 / turns
    weights, weight, prompt = [1.0], 1.0, first
    while goes_on > 0 and len(weights) < TURNS_MAX:
        prompt += grows
        weight *= goes_on
        if weight < TURN_SHARE_MIN or (most is not None and prompt + output > most):
            break
        weights.append(weight)
    total = sum(weights)
    return [weight / total for weight in weights]


def _cached(prompt: float, shared: float, turn: int, grown: float, new: float, prefixes: Prefixes | None) -> float:
    """Mean tokens of a prompt of ``prompt + grown`` that are cached: the shared beginning, or all but the new text.

    What is cached ends on a whole unit, so that half of one is computed again on average.
    """
    if prefixes is None:
        return 0.0
    unit = prefixes.unit_tokens
    common = shared // unit * unit
    if turn == 0:
        return min(common, prompt - 1)
    before = max(common, prompt + grown - new - unit / 2)
    return min(prefixes.kept_ratio * before + (1 - prefixes.kept_ratio) * common, prompt + grown - 1)


def _points(
    profile: RequestProfile, weights: Sequence[float], output: float, prefixes: Prefixes | None, most: int | None
) -> list[tuple[float, float, float]]:
    """(prompt, cached, weight) of requests that stand for all: every turn with drawn lengths of its own text."""
    points = []
    mean = mean_tokens(profile.prompt_tokens)
    ratio = profile.shared_prefix_ratio
    limit = math.inf if most is None else most - 1.0
    draws = [_quantile(profile.prompt_tokens, score) for score in _DRAWS]
    for turn, weight in enumerate(weights):
        for drawn in draws:
            if turn == 0:
                prompt, new, shared = drawn, drawn * (1 - ratio), drawn * ratio
                grown = 0.0
            else:
                prompt, new, shared = mean, max(1.0, drawn * (1 - ratio)), mean * ratio
                grown = (turn - 1) * (output + mean * (1 - ratio)) + output + new
            hit = _cached(prompt, min(shared, prompt - 1), turn, grown, new, prefixes)
            points.append((min(prompt + grown, limit), hit, weight / len(draws)))
    return points


def _quantile(quantiles: Quantiles, score: float) -> float:
    """The length at a standard normal score; its logarithm is straight through P50, P90 and P99."""
    to_p90 = math.log(quantiles.p90 / quantiles.p50) / _P90_SIGMAS
    to_p99 = math.log(quantiles.p99 / quantiles.p90) / (_P99_SIGMAS - _P90_SIGMAS)
    return quantiles.p50 * math.exp(to_p90 * min(score, _P90_SIGMAS) + to_p99 * max(0.0, score - _P90_SIGMAS))


def _at(points: Sequence[tuple[float, float, float, float]], share: float) -> tuple[int, int]:
    """Prompt and cached tokens of the request below whose computed tokens ``share`` of all requests lie."""
    below = 0.0
    for _, prompt, hit, weight in points:
        below += weight
        if below >= share:
            return max(1, round(prompt)), min(round(hit), max(0, round(prompt) - 1))
    _, prompt, hit, _ = points[-1]
    return max(1, round(prompt)), min(round(hit), max(0, round(prompt) - 1))
