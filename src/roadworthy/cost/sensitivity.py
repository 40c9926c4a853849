"""Which inputs move the result most: each at its two ends while the others stay, sorted by what that does.

The result is the own cost of a million tokens over the API's price for them (1 is break-even), or the own cost itself
where no price is known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.cost.compare import clusters_needed
from roadworthy.cost.estimate import MTOK, SECONDS_PER_MONTH
from roadworthy.cost.fixed import FixedCost, fixed_with
from roadworthy.cost.price import Mix, blended, converted

if TYPE_CHECKING:
    from roadworthy.catalog.prices import ApiPrices, Prices
    from roadworthy.spec.values import ClusterSpec, CostSpec

HIT_STEP, SHARE_STEP = 0.25, 0.10
"""How far the cached share and the input share of tokens are moved: what a change of prompt template does to them."""
USE_STEP = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """All that the result depends on. ``volume_tokens_per_month`` None means what ``utilisation_ratio`` makes."""

    fixed_per_month: float
    tokens_per_s: float
    utilisation_ratio: float
    max_utilisation_ratio: float
    volume_tokens_per_month: float | None
    variable_per_mtok: float
    mix: Mix
    api: ApiPrices | None
    overflow: bool = False

    @property
    def price_per_mtok(self) -> float:
        """The API's price for the mix; 0 where none is known."""
        return blended(self.mix, self.api) if self.api is not None else 0.0

    def own_cost_per_mtok(self) -> float:
        """Own cost of a million tokens at the volume, with the clusters that it needs or, with ``overflow``, with one
        fewer and the rest at the API if that is cheaper."""
        full = self.tokens_per_s * SECONDS_PER_MONTH
        if self.volume_tokens_per_month is None:
            return self.fixed_per_month / (full * self.utilisation_ratio) * MTOK + self.variable_per_mtok
        volume = self.volume_tokens_per_month
        clusters = clusters_needed(volume, self.tokens_per_s, self.max_utilisation_ratio)
        own = self.fixed_per_month * clusters + self.variable_per_mtok * volume / MTOK
        if self.overflow and self.api is not None and clusters > 1:
            kept = (clusters - 1) * full * self.max_utilisation_ratio
            tokens_cost = self.price_per_mtok * (volume - kept) + self.variable_per_mtok * kept
            own = min(own, self.fixed_per_month * (clusters - 1) + tokens_cost / MTOK)
        return own / volume * MTOK

    def result(self) -> float:
        """Own cost over API price, or own cost where there is no price."""
        price = self.price_per_mtok
        return self.own_cost_per_mtok() / price if price > 0 else self.own_cost_per_mtok()


@dataclass(frozen=True, slots=True, kw_only=True)
class Influence:
    """One input at its two ends, as text in its own unit, and the result at each and as it stands."""

    name: str
    low: str
    high: str
    at_low: float
    at_base: float
    at_high: float
    why: str

    @property
    def reach(self) -> tuple[float, float]:
        """The least and the greatest result; steps of clusters can put the base case outside the two ends."""
        results = (self.at_low, self.at_base, self.at_high)
        return min(results), max(results)

    @property
    def spread(self) -> float:
        return self.reach[1] - self.reach[0]


def influences(
    case: Case,
    *,
    fixed: FixedCost,
    cost: CostSpec,
    cluster: ClusterSpec,
    prices: Prices,
    lists: tuple[ApiPrices, ...],
    error_band: float,
) -> tuple[Influence, ...]:
    """Every input, the strongest first.

    Args:
        error_band: how far the throughput may be off either way.
        lists: dated price lists of the same API in the document's currency, which show how its price moves.
    """
    found = [*_use(case, error_band), *_price(case, prices, lists), *_fixed(case, fixed, cost, cluster, prices)]
    return tuple(sorted(found, key=lambda one: (-one.spread, one.name)))


def _ends(name: str, base: Case, low: Case, high: Case, shown: Callable[[Case], str], why: str) -> Influence:
    return Influence(
        name=name,
        low=shown(low),
        high=shown(high),
        at_low=low.result(),
        at_base=base.result(),
        at_high=high.result(),
        why=why,
    )


def _use(case: Case, error_band: float) -> Iterator[Influence]:
    if error_band > 0:
        yield _ends(
            "throughput within the SLA",
            case,
            replace(case, tokens_per_s=case.tokens_per_s * max(0.05, 1 - error_band)),
            replace(case, tokens_per_s=case.tokens_per_s * (1 + error_band)),
            lambda one: f"{one.tokens_per_s:,.0f}/s",
            "error band of the throughput",
        )
    if case.volume_tokens_per_month is not None:
        volume = case.volume_tokens_per_month
        yield _ends(
            "volume",
            case,
            replace(case, volume_tokens_per_month=volume * (1 - USE_STEP)),
            replace(case, volume_tokens_per_month=volume * (1 + USE_STEP)),
            lambda one: f"{(one.volume_tokens_per_month or 0) / 1e9:,.3g} B",
            "half as much, and half as much again",
        )
        return
    yield _ends(
        "utilisation",
        case,
        replace(case, utilisation_ratio=case.utilisation_ratio * (1 - USE_STEP)),
        replace(case, utilisation_ratio=min(1.0, case.utilisation_ratio * (1 + USE_STEP))),
        lambda one: f"{one.utilisation_ratio:.0%}",
        "half as much, and half as much again",
    )


def _price(case: Case, prices: Prices, lists: tuple[ApiPrices, ...]) -> Iterator[Influence]:
    api = case.api
    if api is None or blended(case.mix, api) <= 0:
        return

    def shown(one: Case) -> str:
        return f"{one.price_per_mtok:.3g}"

    if len(lists) > 1:
        ordered = sorted((api, *lists), key=lambda one: blended(case.mix, one))
        why = f"its own lists, {min(one.date for one in lists)} to {max(one.date for one in lists)}"
        yield _ends("API price", case, replace(case, api=ordered[0]), replace(case, api=ordered[-1]), shown, why)
    else:
        low, high = prices.stated_price_band
        yield _ends(
            "API price",
            case,
            replace(case, api=converted(api, low)),
            replace(case, api=converted(api, high)),
            shown,
            "half and twice the price",
        )
    if api.input_hit != api.input_miss:
        hit = case.mix.hit_ratio
        yield _ends(
            "cached share of input",
            case,
            replace(case, mix=replace(case.mix, hit_ratio=max(0.0, hit - HIT_STEP))),
            replace(case, mix=replace(case.mix, hit_ratio=min(1.0, hit + HIT_STEP))),
            lambda one: f"{one.mix.hit_ratio:.0%}",
            "a quarter of the input either way",
        )
    share = case.mix.input_ratio
    yield _ends(
        "input share of tokens",
        case,
        replace(case, mix=replace(case.mix, input_ratio=max(0.0, share - SHARE_STEP))),
        replace(case, mix=replace(case.mix, input_ratio=min(1.0, share + SHARE_STEP))),
        lambda one: f"{one.mix.input_ratio:.0%}",
        "a tenth of the tokens either way",
    )


_NAMES = {
    "capex": "purchase price",
    "months": "months until sold",
    "interest_ratio": "interest",
    "resale_ratio": "resale",
    "kw_per_gpu": "power of a GPU",
    "pue": "PUE",
    "kwh_price": "price of a kWh",
    "space_per_kw": "space",
    "maintenance_ratio": "maintenance",
    "staff_per_month": "staff",
    "gpu_hour": "GPU-hour",
}


def _fixed(case: Case, fixed: FixedCost, cost: CostSpec, cluster: ClusterSpec, prices: Prices) -> Iterator[Influence]:
    step = prices.stated_band_ratio
    if not fixed.inputs:
        low, high = (replace(case, fixed_per_month=fixed.per_month * (1 + sign * step)) for sign in (-1, 1))
        yield _ends("fixed cost", case, low, high, lambda one: f"{one.fixed_per_month:,.0f}", f"{step:.0%} either way")
        return
    for one in fixed.inputs:
        band = one.band
        exact = band.low == band.high
        ends = (band.base * (1 - step), band.base * (1 + step)) if exact else (band.low, band.high)
        if one.name == "pue":
            ends = (max(1.0, ends[0]), max(1.0, ends[1]))
        if one.name == "resale_ratio":
            ends = (min(1.0, ends[0]), min(1.0, ends[1]))
        results = [
            replace(case, fixed_per_month=fixed_with(fixed, one.name, end, cost, cluster)).result() for end in ends
        ]
        yield Influence(
            name=_NAMES[one.name],
            low=_amount(one.name, ends[0]),
            high=_amount(one.name, ends[1]),
            at_low=results[0],
            at_base=case.result(),
            at_high=results[1],
            why=f"{step:.0%} either way" if exact else "the catalog's range",
        )


def _amount(name: str, value: float) -> str:
    if name.endswith("_ratio"):
        return f"{value:.3g}" if value >= 1 else f"{value:.1%}"
    return f"{value:,.0f}" if value >= 1000 else f"{value:.3g}"
