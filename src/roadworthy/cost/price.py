"""What an API asks for this workload's mix, per million tokens of input and output together.

p = s_in * (h * p_hit + (1 - h) * p_miss) + s_out * p_out, with s_in + s_out = 1 and h the share of input that the API's
prefix cache holds. Where prices rise in peak hours, the traffic's own hours weigh them: p * (1 + q * (m - 1)), q the
share of a week's tokens that falls into peak hours and m the multiplier.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.catalog.prices import ApiPrices
from roadworthy.cost.estimate import MTOK
from roadworthy.cost.fixed import usd_rate

if TYPE_CHECKING:
    from roadworthy.catalog.prices import Prices
    from roadworthy.spec.values import CostSpec

DAYS_OF_A_WEEK = 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Mix:
    """The workload as an API bills it: shares of input and output, cached share of input, share of tokens in peak."""

    input_ratio: float
    hit_ratio: float = 0.0
    peak_ratio: float = 0.0

    @property
    def output_ratio(self) -> float:
        return 1 - self.input_ratio


def blended_price(
    mix: Mix, *, input_hit: float, input_miss: float, output: float, peak_multiplier: float = 1.0
) -> float:
    """Money per million tokens of this mix."""
    of_input = mix.hit_ratio * input_hit + (1 - mix.hit_ratio) * input_miss
    off_peak = mix.input_ratio * of_input + mix.output_ratio * output
    return off_peak * (1 + mix.peak_ratio * (peak_multiplier - 1))


def blended(mix: Mix, api: ApiPrices) -> float:
    """:func:`blended_price` of a price list."""
    return blended_price(
        mix,
        input_hit=api.input_hit,
        input_miss=api.input_miss,
        output=api.output,
        peak_multiplier=api.peak_multiplier,
    )


def call_cost(tokens: float, price_per_mtok: float) -> float:
    """Money of one call of ``tokens`` at a price per million."""
    return tokens * price_per_mtok / MTOK


def peak_ratio(hours: Sequence[float], api: ApiPrices) -> float:
    """Share of a week's tokens in the API's peak hours, for traffic of this shape; flat when ``hours`` is empty."""
    shape = tuple(hours) or (1.0,) * 24
    total = sum(shape)
    return sum(shape[hour] for hour in api.peak_hours) / total * api.peak_days / DAYS_OF_A_WEEK if total > 0 else 0.0


def api_prices(cost: CostSpec, model_id: str, prices: Prices) -> ApiPrices | None:
    """The price list to compare with, in the document's currency; None when none is known for the model.

    Raises:
        Unsupported: the document names a list without prices, and the catalog does not know it.
        SpecError: the list is in USD, the document is not, and no rate is given.
    """
    asked = cost.api
    if asked.prices:
        miss, output = asked.input_miss, asked.output
        assert miss is not None
        assert output is not None
        return ApiPrices(
            id=asked.name or "the API",
            model=model_id,
            date=asked.date or "undated",
            input_hit=miss if asked.input_hit is None else asked.input_hit,
            input_miss=miss,
            output=output,
            peak_multiplier=asked.peak_multiplier or 1.0,
            peak_hours=asked.peak_hours or (),
            peak_days=asked.peak_days or DAYS_OF_A_WEEK,
            concurrency=asked.concurrency,
            source="cost.api",
        )
    known = prices.api(asked.name) if asked.name else prices.api_of_model(model_id)
    if known is None:
        return None
    known = replace(
        known,
        peak_multiplier=known.peak_multiplier if asked.peak_multiplier is None else asked.peak_multiplier,
        peak_hours=known.peak_hours if asked.peak_hours is None else asked.peak_hours,
        peak_days=known.peak_days if asked.peak_days is None else asked.peak_days,
        concurrency=known.concurrency if asked.concurrency is None else asked.concurrency,
    )
    return converted(known, usd_rate(cost))


def converted(api: ApiPrices, rate: float) -> ApiPrices:
    """The list with every price times ``rate``."""
    return replace(api, input_hit=api.input_hit * rate, input_miss=api.input_miss * rate, output=api.output * rate)
