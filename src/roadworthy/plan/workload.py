"""What the planner takes from the request profile: mean lengths and the context a decoding request holds."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from roadworthy.spec.values import Quantiles, RequestProfile

_P90_SIGMAS = 1.2816


def mean_tokens(quantiles: Quantiles) -> float:
    """Mean of a log-normal length with this median and 90th percentile, not above the 99th percentile."""
    sigma = math.log(quantiles.p90 / quantiles.p50) / _P90_SIGMAS
    return min(quantiles.p50 * math.exp(sigma * sigma / 2), float(quantiles.p99))


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """The workload as means and tails. Tokens are floats where they are means."""

    rate_per_s: float
    prompt_mean: float
    prompt_p50: int
    prompt_p99: int
    output_mean: float
    output_p99: int

    @property
    def context_mean(self) -> float:
        """Mean context while decoding: the prompt and half the answer."""
        return self.prompt_mean + self.output_mean / 2


def demand_of(profile: RequestProfile) -> Demand:
    """The profile's means and tails. Prefix sharing is not credited: a cold cache is the case to plan for."""
    return Demand(
        rate_per_s=profile.rate_per_s,
        prompt_mean=mean_tokens(profile.prompt_tokens),
        prompt_p50=profile.prompt_tokens.p50,
        prompt_p99=profile.prompt_tokens.p99,
        output_mean=mean_tokens(profile.output_tokens),
        output_p99=profile.output_tokens.p99,
    )
