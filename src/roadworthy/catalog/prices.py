"""Dated prices: what a purchase costs to keep, and what the APIs of models ask. Numbers live in ``prices.yaml``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from roadworthy.catalog.data import read_catalog
from roadworthy.core.errors import Unsupported


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """A figure with its range. ``low`` is the end that makes the service cheaper, whichever number is smaller."""

    low: float
    base: float
    high: float
    source: str

    def __post_init__(self) -> None:
        if not min(self.low, self.high) <= self.base <= max(self.low, self.high):
            raise ValueError(f"{self.base} lies outside {self.low} to {self.high}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiPrices:
    """One API's price list in USD per million tokens, off peak; peak hours are UTC and count ``peak_days`` a week."""

    id: str
    model: str
    date: str
    input_hit: float
    input_miss: float
    output: float
    peak_multiplier: float = 1.0
    peak_hours: tuple[int, ...] = ()
    peak_days: int = 7
    concurrency: int | None = None
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """All that is known, in USD.

    Args:
        purchase: upkeep by the attribute of ``CostSpec`` that it stands in for.
        capex_per_gpu: purchase price a GPU, by GPU id.
        gpu_hour_low: lower end of the ownership price of a GPU-hour, by GPU id.
        node_power_ratio: IT power of a node over the board power of its GPUs.
        stated_band_ratio: how far the sensitivity moves a figure that the document states.
        stated_price_band: the same for an API price, as factors.
        apis: the price lists, newest of a model first.
    """

    date: str
    purchase: Mapping[str, Band]
    capex_per_gpu: Mapping[str, Band]
    gpu_hour_low: Mapping[str, float]
    node_power_ratio: float
    node_power_source: str
    stated_band_ratio: float
    stated_price_band: tuple[float, float]
    apis: tuple[ApiPrices, ...]

    def api_of_model(self, model_id: str) -> ApiPrices | None:
        """The newest list of the API that serves ``model_id``; None when none is known."""
        return next((api for api in self.apis if api.model.lower() == model_id.lower()), None)

    def lists_of(self, model_id: str) -> tuple[ApiPrices, ...]:
        """Every dated list for ``model_id``."""
        return tuple(api for api in self.apis if api.model.lower() == model_id.lower())

    def api(self, name: str) -> ApiPrices:
        """The list called ``name``. Raises Unsupported, with what is near."""
        found = next((api for api in self.apis if api.id == name.lower()), None)
        if found is None:
            known = [api.id for api in self.apis]
            close = get_close_matches(name.lower(), known, n=1, cutoff=0.5)
            raise Unsupported(
                f"cost.api.name: no price list {name!r}; known: {', '.join(known)}",
                hint=f"did you mean {close[0]}?" if close else "state input_miss and output beside the name",
            )
        return found


@lru_cache(maxsize=1)
def known_prices() -> Prices:
    """The catalog's prices."""
    document = read_catalog("prices")
    return Prices(
        date=document["date"],
        purchase=_bands(document["purchase"]),
        capex_per_gpu=_bands(document["capex_per_gpu"]),
        gpu_hour_low=MappingProxyType(dict(document["gpu_hour_low"])),
        node_power_ratio=float(document["node_power_ratio"]["value"]),
        node_power_source=document["node_power_ratio"]["source"],
        stated_band_ratio=float(document["stated_band_ratio"]),
        stated_price_band=(float(document["stated_price_band"]["low"]), float(document["stated_price_band"]["high"])),
        apis=tuple(_api(entry) for entry in document["api"]),
    )


def _bands(entries: Mapping[str, Any]) -> Mapping[str, Band]:
    return MappingProxyType({
        name: Band(
            low=float(entry["low"]), base=float(entry["base"]), high=float(entry["high"]), source=entry["source"]
        )
        for name, entry in entries.items()
    })  # fmt: skip


def _api(entry: Mapping[str, Any]) -> ApiPrices:
    peak = entry.get("peak", {})
    return ApiPrices(
        id=entry["id"],
        model=entry["model"],
        date=entry["date"],
        input_hit=float(entry["input_hit"]),
        input_miss=float(entry["input_miss"]),
        output=float(entry["output"]),
        peak_multiplier=float(peak.get("multiplier", 1.0)),
        peak_hours=tuple(peak.get("hours", ())),
        peak_days=int(peak.get("days", 7)),
        concurrency=entry.get("concurrency"),
        source=entry["source"],
    )
