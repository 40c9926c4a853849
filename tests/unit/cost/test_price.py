"""The API's price for a mix: what is stated, what the catalog says, and when in the day the tokens fall."""

from __future__ import annotations

import pytest

from roadworthy.catalog.prices import known_prices
from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.cost.price import Mix, api_prices, blended, peak_ratio
from roadworthy.spec.values import ApiSpec, CostSpec

PRICES = known_prices()


def test_the_newest_list_of_a_model_is_used() -> None:
    api = api_prices(CostSpec(), "DeepSeek-V4-Pro", PRICES)
    assert api is not None
    assert (api.id, api.date, api.output) == ("deepseek-v4-pro", "2026-11", 1.98)


def test_an_unknown_model_has_no_price() -> None:
    assert api_prices(CostSpec(), "Nobody/Model", PRICES) is None


def test_a_stated_price_takes_nothing_from_the_catalog() -> None:
    api = api_prices(CostSpec(api=ApiSpec(input_miss=1.0, output=3.0)), "DeepSeek-V4-Pro", PRICES)
    assert api is not None
    assert (api.input_hit, api.peak_hours, api.peak_multiplier, api.concurrency) == (1.0, (), 1.0, None)


def test_a_list_can_be_named_and_its_peak_changed() -> None:
    cost = CostSpec(api=ApiSpec(name="deepseek-v4-pro", peak_multiplier=3.0))
    api = api_prices(cost, "another", PRICES)
    assert api is not None
    assert (api.peak_multiplier, api.peak_days) == (3.0, 5)


def test_an_unknown_list_is_named_with_what_is_near() -> None:
    with pytest.raises(Unsupported, match="deepseek-v5") as caught:
        api_prices(CostSpec(api=ApiSpec(name="deepseek-v5")), "x", PRICES)
    assert "deepseek-v4-pro" in caught.value.hint


def test_a_catalog_list_is_converted_and_refused_without_a_rate() -> None:
    api = api_prices(CostSpec(currency="EUR", usd_rate=0.5), "Kimi-K3", PRICES)
    assert api is not None
    assert api.output == 7.5
    with pytest.raises(SpecError):
        api_prices(CostSpec(currency="EUR"), "Kimi-K3", PRICES)


def test_traffic_outside_the_peak_hours_pays_no_peak() -> None:
    api = PRICES.api("deepseek-v4-pro")
    night = tuple(0.0 if hour in api.peak_hours else 1.0 for hour in range(24))
    assert peak_ratio(night, api) == 0
    inside = tuple(1.0 if hour in api.peak_hours else 0.0 for hour in range(24))
    assert peak_ratio(inside, api) == pytest.approx(5 / 7)


def test_more_hits_are_cheaper_and_more_output_is_dearer() -> None:
    api = PRICES.api("kimi-k3")
    assert blended(Mix(input_ratio=0.8, hit_ratio=0.5), api) < blended(Mix(input_ratio=0.8), api)
    assert blended(Mix(input_ratio=0.7), api) > blended(Mix(input_ratio=0.8), api)


def test_every_list_has_a_date_and_a_source_and_a_hit_no_dearer_than_a_miss() -> None:
    for api in PRICES.apis:
        assert api.date
        assert api.source
        assert api.input_hit <= api.input_miss <= api.output
