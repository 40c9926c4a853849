"""What the users send, as frozen values: the ``workload`` section of the document."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Pattern = Literal["poisson", "gamma", "constant", "diurnal", "ramp", "closed"]
SessionKindName = Literal["chat", "document", "agent"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantiles:
    """Tokens at the 50th, 90th and 99th percentile; they rise."""

    p50: int
    p90: int
    p99: int

    def __post_init__(self) -> None:
        if not 1 <= self.p50 <= self.p90 <= self.p99:
            raise ValueError(f"quantiles must rise from 1: p50 {self.p50}, p90 {self.p90}, p99 {self.p99}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sessions:
    """Multi-turn conversations: mean turns of one, and the pause a person takes before the next turn."""

    turns: float = 1.0
    think_time_s: float = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrivalPattern:
    """When sessions start.

    Args:
        burstiness: shape of the gamma law of the gaps: 1 is Poisson, below 1 is bunched, above 1 is more even. It goes
            with every open pattern but ``poisson`` and ``constant``.
        period_s: ``diurnal``: of one wave, which begins at its quietest and whose mean is the workload's rate.
        peak_ratio: ``diurnal``: the highest rate over the lowest.
        to_rate_per_s: ``ramp``: the rate at the end; the workload's rate is the first.
        users: ``closed``: how many sessions are always under way; the workload's rate is then not used.
    """

    pattern: Pattern = "poisson"
    burstiness: float = 1.0
    period_s: float = 86_400.0
    peak_ratio: float = 3.0
    to_rate_per_s: float | None = None
    users: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class MixPart:
    """One kind of session in a mixed load; None takes the kind's own numbers, for ``chat`` the workload's.

    Args:
        share_ratio: of the requests; shares are weighed against each other.
        added_tokens: new text of each later turn.
        tenants: ids of those who send it; empty means all.
    """

    kind: SessionKindName
    share_ratio: float = 1.0
    name: str | None = None
    prompt_tokens: Quantiles | None = None
    added_tokens: Quantiles | None = None
    output_tokens: Quantiles | None = None
    shared_prefix_ratio: float | None = None
    sessions: Sessions | None = None
    tenants: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestProfile:
    """What the users send. ``rate_per_s`` counts requests; ``shared_prefix_ratio`` is the share of each first
    prompt that is common to all requests (a system prompt). ``draft_acceptance_ratio`` is the chance that a drafted
    token is accepted, given those before it (None: assumed by method); ``expert_skew`` is Zipf's exponent of how often
    their tokens pick each expert (0: all alike). ``arrivals`` and ``mix`` are what `bench` and `simulate` send; the
    plan sizes for the lengths and the rate alone."""

    prompt_tokens: Quantiles = Quantiles(p50=512, p90=1024, p99=2048)
    output_tokens: Quantiles = Quantiles(p50=128, p90=256, p99=512)
    rate_per_s: float = 1.0
    shared_prefix_ratio: float = 0.0
    sessions: Sessions = Sessions()
    draft_acceptance_ratio: float | None = None
    expert_skew: float = 0.5
    arrivals: ArrivalPattern = ArrivalPattern()
    mix: tuple[MixPart, ...] = ()
