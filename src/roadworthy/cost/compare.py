"""Own service against API: the break-even volume, the clusters a volume needs, and both over a term of years.

N* = F / (p - v) * 1e6 tokens a month, with v the own variable cost per million. It is an answer only within what the
cluster can serve, R * 3600 * H * U_max (U_max is the mean use at which the busiest hour of the day is full; 1 for flat
traffic): beyond that there is none, and what would make one is said instead. At a volume N the service needs
k = ceil(N / (R * 3600 * H * U_max)) clusters and breaks even at p* = F * k / N.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from roadworthy.cost.estimate import MTOK, SECONDS_PER_MONTH

_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True, kw_only=True)
class BreakEven:
    """Where own cost and API price meet.

    Args:
        tokens_per_month: the break-even volume, None where the cluster cannot serve it or the API is never dearer.
        wanted_tokens_per_month: the volume that the formula asks for, within capacity or not; None when p <= v.
        limit_tokens_per_month: all that one cluster serves within the SLA, its busiest hour full.
        needed_tokens_per_s: throughput at which it would lie within capacity, at this cost and price.
        needed_price_per_mtok: API price at which it would lie within capacity, at this cost and throughput.
        needed_clusters: clusters under the same staff from which there is one; None when no number makes one.
    """

    tokens_per_month: float | None
    wanted_tokens_per_month: float | None
    limit_tokens_per_month: float
    needed_tokens_per_s: float | None
    needed_price_per_mtok: float | None
    needed_clusters: int | None


def break_even_tokens_per_month(fixed_per_month: float, price: float, variable: float = 0.0) -> float | None:
    """N*; None when a token of the API costs no more than the own variable cost."""
    return fixed_per_month / (price - variable) * MTOK if price > variable else None


def break_even(
    fixed_per_month: float,
    price: float,
    tokens_per_s: float,
    *,
    variable: float = 0.0,
    shared_per_month: float = 0.0,
    max_utilisation_ratio: float = 1.0,
) -> BreakEven:
    """The break-even at ``tokens_per_s`` (input and output) and an API price per million, with its limits.

    Args:
        shared_per_month: the part of ``fixed_per_month`` that further clusters would not need again.
    """
    wanted = break_even_tokens_per_month(fixed_per_month, price, variable)
    limit = tokens_per_s * SECONDS_PER_MONTH * max_utilisation_ratio
    return BreakEven(
        tokens_per_month=wanted if wanted is not None and wanted <= limit else None,
        wanted_tokens_per_month=wanted,
        limit_tokens_per_month=limit,
        needed_tokens_per_s=None if wanted is None else wanted / SECONDS_PER_MONTH / max_utilisation_ratio,
        needed_price_per_mtok=variable + fixed_per_month / limit * MTOK if limit > 0 else None,
        needed_clusters=_clusters_under_one_staff(fixed_per_month, shared_per_month, (price - variable) * limit / MTOK),
    )


def _clusters_under_one_staff(fixed: float, shared: float, worth: float) -> int | None:
    """The least k with k * (fixed - shared) + shared <= k * worth; ``worth`` is what a full cluster saves a month."""
    gain = worth - (fixed - shared)
    if gain <= 0:
        return None
    return max(1, math.ceil(shared / gain - _ROUNDING))


def clusters_needed(tokens_per_month: float, tokens_per_s: float, max_utilisation_ratio: float = 1.0) -> int:
    """k for a volume; at least one. Raises ValueError when nothing is served."""
    each = tokens_per_s * SECONDS_PER_MONTH * max_utilisation_ratio
    if each <= 0:
        raise ValueError(f"{tokens_per_s} tokens a second at {max_utilisation_ratio} serve no volume")
    return max(1, math.ceil(tokens_per_month / each - _ROUNDING))


def break_even_price_per_mtok(
    fixed_per_month: float, tokens_per_month: float, tokens_per_s: float, max_utilisation_ratio: float = 1.0
) -> float | None:
    """p* at a volume, with the clusters that it needs; None without volume."""
    if tokens_per_month <= 0:
        return None
    clusters = clusters_needed(tokens_per_month, tokens_per_s, max_utilisation_ratio)
    return fixed_per_month * clusters / tokens_per_month * MTOK


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """What a term is made of: the volume once the ramp is over, its growth, one-off costs and the discount rate."""

    months: int
    volume_tokens_per_month: float
    ramp_months: int = 0
    growth_ratio: float = 0.0
    interest_ratio: float = 0.0
    setup_cost: float = 0.0
    exit_cost: float = 0.0

    def volume(self, month: int) -> float:
        """Tokens of month 1, 2, ...: the middle of the month on the ramp, then growing month by month."""
        ramped = min(1.0, (month - 0.5) / self.ramp_months) if self.ramp_months else 1.0
        growth: float = (1 + self.growth_ratio) ** (max(0, month - self.ramp_months) / 12)
        return self.volume_tokens_per_month * ramped * growth


@dataclass(frozen=True, slots=True, kw_only=True)
class Year:
    """Twelve months, or what is left of the term, undiscounted."""

    year: int
    tokens: float
    clusters: int
    own: float
    api: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TermComparison:
    """Both streams of payments over the term.

    Args:
        own, api: as paid. own_present, api_present: discounted to the start at the same rate.
        payback_month: the first month by whose end the own service has cost less, discounted, and stays so; None when
            there is none within the term, 0 when it is cheaper from the start.
        overflow_tokens: what the own stream sends to the API, because another cluster would cost more.
    """

    months: int
    own: float
    api: float
    own_present: float
    api_present: float
    payback_month: int | None
    overflow_tokens: float
    years: tuple[Year, ...]

    @property
    def saving_present(self) -> float:
        """What self-hosting saves over the term, discounted; negative when it costs more."""
        return self.api_present - self.own_present


def compare_term(
    term: Term,
    *,
    fixed_per_month: float,
    price: float,
    tokens_per_s: float,
    variable: float = 0.0,
    max_utilisation_ratio: float = 1.0,
    overflow: bool = False,
) -> TermComparison:
    """Own service and API over the term. Payments fall at the end of a month, clusters are added as volume needs them.

    With ``overflow`` a further cluster is added only once it costs less than the API takes for what it would serve;
    until then that part of the volume goes to the API and its price stands in the own cost.

    The fixed cost holds the purchase as an annuity: hardware that is older than its months is bought again at the same
    price, and a term that ends before them sells it at what is left to pay.
    """
    monthly = 1 + term.interest_ratio / 12
    own_all, api_all = term.setup_cost, 0.0
    own_present, api_present = term.setup_cost, 0.0
    behind = [own_present > api_present]
    years: list[Year] = []
    sent = 0.0
    held, each = 1, tokens_per_s * SECONDS_PER_MONTH * max_utilisation_ratio
    for first in range(1, term.months + 1, 12):
        own_year, api_year, tokens = 0.0, 0.0, 0.0
        for month in range(first, min(first + 12, term.months + 1)):
            volume = term.volume(month)
            needed = clusters_needed(volume, tokens_per_s, max_utilisation_ratio)
            rest = volume - (needed - 1) * each
            if overflow and needed > 1 and price * rest / MTOK < fixed_per_month + variable * rest / MTOK:
                needed -= 1
            held = max(held, needed)
            served = min(volume, held * each)
            sent += volume - served
            own = fixed_per_month * held + (variable * served + price * (volume - served)) / MTOK
            own += term.exit_cost if month == term.months else 0.0
            api = price * volume / MTOK
            own_present += own / monthly**month
            api_present += api / monthly**month
            behind.append(own_present > api_present)
            own_year, api_year, tokens = own_year + own, api_year + api, tokens + volume
        own_all, api_all = own_all + own_year, api_all + api_year
        years.append(Year(year=len(years) + 1, tokens=tokens, clusters=held, own=own_year, api=api_year))
    last_behind = max((month for month, late in enumerate(behind) if late), default=-1)
    return TermComparison(
        months=term.months,
        own=own_all,
        api=api_all,
        own_present=own_present,
        api_present=api_present,
        payback_month=None if last_behind == term.months else last_behind + 1,
        overflow_tokens=sent,
        years=tuple(years),
    )
