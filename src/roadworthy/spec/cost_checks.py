"""What must hold between the keys of `cost`: one way to say the fixed cost, a whole day of hours, whole price lists."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Problem

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

PURCHASE = (
    "capex", "months", "resale", "power_per_gpu", "node_power", "pue", "kwh_price", "space_per_kw", "maintenance",
)  # fmt: skip
BESIDE_RENT = ("staff_per_month", "network_per_month", "other_per_month")
_HOURS = 24


def cost_problems(values: Mapping[str, Any]) -> Iterator[Problem]:
    """Problems of `cost` in ``values``, which maps the dotted path of each key that was right to its value."""
    stated = {path.removeprefix("cost."): value for path, value in values.items() if path.startswith("cost.")}
    yield from _one_fixed_cost(stated)
    if "power_per_gpu" in stated and "node_power" in stated:
        yield Problem(
            path="cost.node_power", seen="node_power and power_per_gpu", wanted="one of the two",
            hint="keep node_power if it was read at the node",
        )  # fmt: skip
    yield from _hours(stated)
    yield from _api(stated)
    needs = stated.get("needs", ())
    if len(set(needs)) != len(needs):
        yield Problem(path="cost.needs", seen=", ".join(needs), wanted="each need once")
    if stated.get("currency", "USD") == "USD" and stated.get("usd_rate", 1.0) != 1.0:
        yield Problem(
            path="cost.usd_rate", seen=f"{stated['usd_rate']:g} with currency USD", wanted="1, or no rate",
            hint="name the currency of the figures under currency",
        )  # fmt: skip


def _one_fixed_cost(stated: Mapping[str, Any]) -> Iterator[Problem]:
    rivals: tuple[str, ...] = ()
    if "fixed_per_month" in stated:
        rivals = (*PURCHASE, *BESIDE_RENT, "spare_nodes")
        chosen, hint = "fixed_per_month", "fixed_per_month is the whole bill: keep it alone, or take it out"
    elif "gpu_hour" in stated:
        rivals, chosen = PURCHASE, "gpu_hour"
        hint = "gpu_hour holds hardware, power and space: keep it, or the purchase"
    for key in rivals:
        if key in stated and (key, stated[key]) != ("spare_nodes", 0):
            yield Problem(
                path=f"cost.{key}", seen=f"{key} and {chosen}", wanted=f"{chosen} or {key}, not both", hint=hint
            )


def _hours(stated: Mapping[str, Any]) -> Iterator[Problem]:
    hours = stated.get("utilisation_by_hour")
    if not hours:
        return
    path = "cost.utilisation_by_hour"
    if "utilisation" in stated:
        yield Problem(
            path="cost.utilisation", seen="utilisation and utilisation_by_hour", wanted="one of the two",
            hint=f"the hours say {sum(hours) / max(1, len(hours)):.0%} on average: leave utilisation out",
        )  # fmt: skip
    if len(hours) != _HOURS:
        yield Problem(
            path=path, seen=f"{len(hours)} values", wanted="24, one an hour from 00:00 UTC",
            hint="0 for an hour without traffic",
        )  # fmt: skip
    elif not any(hours):
        yield Problem(path=path, seen="24 zeros", wanted="traffic in some hour", hint="leave it out, or say when it is")


def _api(stated: Mapping[str, Any]) -> Iterator[Problem]:
    prices = [key for key in ("input_miss", "input_hit", "output") if f"api.{key}" in stated]
    for key in ("input_miss", "output"):
        if prices and f"api.{key}" not in stated:
            yield Problem(
                path=f"cost.api.{key}", seen="nothing", wanted=f"a price, since {prices[0]} is given",
                hint="a list has input_miss and output at least; without any price the catalog's list is used",
            )  # fmt: skip
    hours = stated.get("api.peak_hours", ())
    if len(set(hours)) != len(hours):
        yield Problem(path="cost.api.peak_hours", seen=", ".join(map(str, hours)), wanted="each hour once")
    hit, miss = stated.get("api.input_hit"), stated.get("api.input_miss")
    if hit is not None and miss is not None and hit > miss:
        yield Problem(
            path="cost.api.input_hit", seen=f"{hit:g}, above input_miss {miss:g}", wanted="a hit no dearer than a miss",
            hint="were the two exchanged?",
        )  # fmt: skip
