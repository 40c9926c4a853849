"""The fixed cost of a month: one figure, a price per GPU-hour, or a purchase with its power, space and upkeep.

A purchase of CAPEX, kept n months at monthly interest i and sold for RV, costs (CAPEX - RV / (1+i)^n) * i /
(1 - (1+i)^-n) a month: the annuity of what the sale does not bring back. Power is IT kW * PUE * 730 h * price of a kWh;
space is paid for each IT kW; maintenance is a yearly share of CAPEX. What the document states is taken as exact, what
it leaves out is the catalog's, with the catalog's range.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from roadworthy.catalog.prices import Band, Prices, known_prices
from roadworthy.core.errors import Problem, SpecError
from roadworthy.cost.estimate import HOURS_PER_MONTH

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.spec.values import ClusterSpec, CostSpec

MONEY_INPUTS = frozenset({"capex", "kwh_price", "space_per_kw", "staff_per_month"})
"""Inputs of a purchase that are money, so that the catalog's figure (USD) has to be converted."""

STATED = "the document"


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """One figure that the fixed cost is made of, with its range and where it comes from."""

    name: str
    band: Band
    stated: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCost:
    """Money of one month, all included, and where the figure comes from.

    Args:
        low, high: the month with every input at its cheap or dear end; equal to ``per_month`` when all are stated.
        parts: (name, money a month) of the base case; they add up to ``per_month``.
        inputs: the figures behind a purchase, in order; empty for a price that was given whole.
        shared_per_month: the part that a second cluster would not need again (staff).
    """

    per_month: float
    currency: str
    source: str
    low: float | None = None
    high: float | None = None
    parts: tuple[tuple[str, float], ...] = ()
    inputs: tuple[Input, ...] = ()
    shared_per_month: float = 0.0

    @property
    def range(self) -> tuple[float, float]:
        return (
            self.per_month if self.low is None else self.low,
            self.per_month if self.high is None else self.high,
        )


def capital_per_month(capex: float, *, months: float, interest_ratio: float, resale: float) -> float:
    """The annuity of a purchase less the present value of its resale; ``interest_ratio`` is a year's."""
    monthly = interest_ratio / 12
    if monthly < 1e-12:  # below what a float can tell from no interest
        return (capex - resale) / months
    shrink = math.log1p(monthly) * months
    return (capex - resale * math.exp(-shrink)) * monthly / -math.expm1(-shrink)


def power_per_month(it_kw: float, *, pue: float, kwh_price: float) -> float:
    """What the electricity of ``it_kw``, on all month, costs."""
    return it_kw * pue * HOURS_PER_MONTH * kwh_price


def fixed_cost(cost: CostSpec, cluster: ClusterSpec, gpu: Gpu, prices: Prices | None = None) -> FixedCost | None:
    """The month's fixed cost of the cluster, spare nodes included.

    In this order: the document's own month, its GPU-hour, a purchase (the document's, or the catalog's for this GPU),
    the catalog's GPU-hour. None when no price is known for the GPU: no number is better than an invented one.

    Raises:
        SpecError: a catalog price in USD is needed and the document counts in another currency without ``usd_rate``.
    """
    prices = prices or known_prices()
    if cost.fixed_per_month is not None:
        return FixedCost(
            per_month=cost.fixed_per_month,
            currency=cost.currency,
            source="cost.fixed_per_month",
            parts=(("all of it, as stated", cost.fixed_per_month),),
        )
    if cost.gpu_hour is not None:
        return _by_the_hour(cost, cluster, Band(low=cost.gpu_hour, base=cost.gpu_hour, high=cost.gpu_hour,
                                                source="cost.gpu_hour"))  # fmt: skip
    if cost.capex is not None or gpu.id in prices.capex_per_gpu:
        return _purchase(cost, cluster, gpu, prices)
    if gpu.gpu_hour is None:
        return None
    rate = usd_rate(cost)
    low = min(prices.gpu_hour_low.get(gpu.id, gpu.gpu_hour), gpu.gpu_hour)
    source = gpu.sources.get("gpu_hour", f"catalog, {gpu.id}")
    return _by_the_hour(
        cost, cluster, Band(low=low * rate, base=gpu.gpu_hour * rate, high=gpu.gpu_hour * rate, source=source)
    )


def usd_rate(cost: CostSpec) -> float:
    """What the catalog's USD are worth in the document's currency. Raises SpecError when that is not said."""
    if cost.usd_rate is not None:
        return cost.usd_rate
    if cost.currency == "USD":
        return 1.0
    problem = Problem(
        path="cost.usd_rate",
        seen=f"nothing, with currency {cost.currency}",
        wanted=f"what one USD costs in {cost.currency}, since a price of the catalog is used",
        hint="usd_rate: 0.92, for example; or state every price in your currency",
    )
    raise SpecError("cost: 1 problem", problems=(problem,))


def _spares(cost: CostSpec, cluster: ClusterSpec) -> float:
    """Nodes paid for, over nodes that serve."""
    return (cluster.nodes + cost.spare_nodes) / cluster.nodes


def _by_the_hour(cost: CostSpec, cluster: ClusterSpec, price: Band) -> FixedCost:
    hours = cluster.gpus * _spares(cost, cluster) * HOURS_PER_MONTH
    beside = _beside(cost, cost.staff_per_month or 0.0)
    extra = sum(money for _, money in beside)
    gpus = round(cluster.gpus * _spares(cost, cluster))
    return FixedCost(
        per_month=price.base * hours + extra,
        currency=cost.currency,
        source=f"{gpus} GPUs x {price.base:g} an hour x {HOURS_PER_MONTH} h ({price.source})",
        low=price.low * hours + extra,
        high=price.high * hours + extra,
        parts=(("GPU-hours", price.base * hours), *beside),
        inputs=(
            Input(name="gpu_hour", band=price, stated=cost.gpu_hour is not None),
            *_stated_beside(cost),
        ),
        shared_per_month=cost.staff_per_month or 0.0,
    )


def _beside(cost: CostSpec, staff: float) -> tuple[tuple[str, float], ...]:
    named = (("staff", staff), ("network", cost.network_per_month or 0.0), ("other", cost.other_per_month or 0.0))
    return tuple((name, money) for name, money in named if money)


def _stated_beside(cost: CostSpec) -> tuple[Input, ...]:
    if not cost.staff_per_month:
        return ()
    staff = cost.staff_per_month
    return (Input(name="staff_per_month", band=Band(low=staff, base=staff, high=staff, source=STATED), stated=True),)


def _purchase(cost: CostSpec, cluster: ClusterSpec, gpu: Gpu, prices: Prices) -> FixedCost:
    inputs = {one.name: one for one in _purchase_inputs(cost, cluster, gpu, prices)}
    base = purchase_parts({name: one.band.base for name, one in inputs.items()}, cost, cluster)
    low = purchase_parts({name: one.band.low for name, one in inputs.items()}, cost, cluster)
    high = purchase_parts({name: one.band.high for name, one in inputs.items()}, cost, cluster)
    capex = inputs["capex"]
    return FixedCost(
        per_month=sum(base.values()),
        currency=cost.currency,
        source=f"purchase of {capex.band.base:,.0f} over {inputs['months'].band.base:g} months ({capex.band.source}), "
        "power, space, maintenance and staff",
        low=sum(low.values()),
        high=sum(high.values()),
        parts=tuple((name, money) for name, money in base.items() if money),
        inputs=tuple(inputs.values()),
        shared_per_month=base["staff"],
    )


def _purchase_inputs(cost: CostSpec, cluster: ClusterSpec, gpu: Gpu, prices: Prices) -> tuple[Input, ...]:
    bands = dict(prices.purchase)
    if gpu.id in prices.capex_per_gpu:
        per_gpu = prices.capex_per_gpu[gpu.id]
        bands["capex"] = _times(per_gpu, cluster.gpus)
    kilowatts = gpu.power_w * prices.node_power_ratio / 1e3
    bands["kw_per_gpu"] = Band(low=kilowatts, base=kilowatts, high=kilowatts, source=prices.node_power_source)
    stated: Mapping[str, float | None] = MappingProxyType({
        "capex": cost.capex,
        "months": cost.months,
        "interest_ratio": cost.interest_ratio,
        "resale_ratio": cost.resale_ratio,
        "kw_per_gpu": _stated_kw(cost, cluster),
        "pue": cost.pue,
        "kwh_price": cost.kwh_price,
        "space_per_kw": cost.space_per_kw,
        "maintenance_ratio": cost.maintenance_ratio,
        "staff_per_month": cost.staff_per_month,
    })  # fmt: skip
    return tuple(_input(name, value, bands.get(name), cost) for name, value in stated.items())


def _stated_kw(cost: CostSpec, cluster: ClusterSpec) -> float | None:
    if cost.power_per_gpu_w is not None:
        return cost.power_per_gpu_w / 1e3
    return None if cost.node_power_w is None else cost.node_power_w / 1e3 / cluster.gpus_per_node


def _input(name: str, stated: float | None, band: Band | None, cost: CostSpec) -> Input:
    if stated is not None:
        return Input(name=name, band=Band(low=stated, base=stated, high=stated, source=STATED), stated=True)
    assert band is not None, name  # capex alone may lack one, and then the document states it
    return Input(name=name, band=_times(band, usd_rate(cost)) if name in MONEY_INPUTS else band, stated=False)


def _times(band: Band, factor: float) -> Band:
    return replace(band, low=band.low * factor, base=band.base * factor, high=band.high * factor)


def purchase_parts(values: Mapping[str, float], cost: CostSpec, cluster: ClusterSpec) -> dict[str, float]:
    """Money a month by part, for one value of each input. Spare nodes are bought, housed, powered and maintained."""
    spares = _spares(cost, cluster)
    capex = values["capex"] * spares
    it_kw = values["kw_per_gpu"] * cluster.gpus * spares
    return {
        "capital": capital_per_month(
            capex,
            months=values["months"],
            interest_ratio=values["interest_ratio"],
            resale=capex * values["resale_ratio"],
        ),
        "power": power_per_month(it_kw, pue=values["pue"], kwh_price=values["kwh_price"]),
        "space": values["space_per_kw"] * it_kw,
        "maintenance": values["maintenance_ratio"] * capex / 12,
        "staff": values["staff_per_month"],
        "network": cost.network_per_month or 0.0,
        "other": cost.other_per_month or 0.0,
    }


def fixed_with(fixed: FixedCost, name: str, value: float, cost: CostSpec, cluster: ClusterSpec) -> float:
    """The month's cost with one input of ``fixed`` at ``value`` and the others at base."""
    values = {one.name: one.band.base for one in fixed.inputs}
    values[name] = value
    if "capex" in values:
        return sum(purchase_parts(values, cost, cluster).values())
    hours = cluster.gpus * _spares(cost, cluster) * HOURS_PER_MONTH
    return values["gpu_hour"] * hours + sum(money for _, money in _beside(cost, values.get("staff_per_month", 0.0)))
