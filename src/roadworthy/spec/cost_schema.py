"""The `cost` section of the document: every key with its unit, limits and words. Defaults of money are the catalog's.

A limit here is where a figure stops being one that anybody could mean: a PUE of 5, a lease of 300 months.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, ListOf, Section
from roadworthy.spec.kinds import Kind, WrongValueError
from roadworthy.spec.values import ApiSpec, CostSpec

if TYPE_CHECKING:
    from roadworthy.spec.yaml_text import ScalarNode

MAX_MONEY = 1e12
CATALOG = "the catalog's, dated"
HOURS_OF_A_DAY = 24
_WATTS = {"kW": 1e3, "W": 1.0, "MW": 1e6}


def _parse_power(text: str) -> float:
    for unit in sorted(_WATTS, key=len, reverse=True):
        if text.strip().endswith(unit):
            return float(text.strip().removesuffix(unit)) * _WATTS[unit]
    raise ValueError("a power with a unit, such as 10.2kW (units: W, kW, MW)")


def _write_power(value: float) -> str:
    kilowatts = f"{value / 1e3:.12g}kW"
    return kilowatts if _parse_power(kilowatts) == value else f"{value!r}W"


def power(*, most_w: float, example: str) -> Kind:
    """A power with its unit, in watts."""
    return kinds.measure(
        "power", _parse_power, _write_power, least=1.0, most=most_w, example=example, readings=("kW", "W")
    )


def yes_or_no() -> Kind:
    """``true`` or ``false``."""

    def read(node: ScalarNode) -> bool:
        if isinstance(node.value, bool):
            return node.value
        raise WrongValueError("true or false")

    return Kind(name="true or false", example="false", read=read, write=bool, json_schema={"type": "boolean"})


def _money(example: str, *, above: bool = False) -> Kind:
    return kinds.plain_number(least=0, most=MAX_MONEY, example=example, above=above)


def _volume() -> Kind:
    """Tokens; written ``22.8B`` or ``800M``."""
    return kinds.whole_number(most=10**16, example="22.8B", what="a count of tokens")


_PRICE = kinds.plain_number(least=0, most=1e6, example="0.66")

API = Section(
    cls=ApiSpec,
    doc="The API to compare with: prices per million tokens, off peak. Left out, the catalog's for this model.",
    fields=(
        Field(
            key="name",
            attribute="name",
            preset="the catalog's for the model",
            value=kinds.text("a name", r"\S(?:[^\n]*\S)?", example="deepseek-v4-pro", most=100),
            doc="A price list of the catalog, or a name for the prices given here.",
        ),
        Field(key="input_miss", attribute="input_miss", preset=CATALOG, value=_PRICE, doc="Input not cached there."),
        Field(
            key="input_hit",
            attribute="input_hit",
            preset="as input_miss where prices are stated",
            value=kinds.plain_number(least=0, most=1e6, example="0.022"),
            doc="Input that the API's prefix cache holds.",
        ),
        Field(
            key="output",
            attribute="output",
            preset=CATALOG,
            value=kinds.plain_number(least=0, most=1e6, example="1.98"),
            doc="Output.",
        ),
        Field(
            key="peak_multiplier",
            attribute="peak_multiplier",
            preset="1 where prices are stated",
            value=kinds.plain_number(least=0.1, most=10, example="2"),
            doc="All prices times this in peak hours.",
        ),
        Field(
            key="peak_hours",
            attribute="peak_hours",
            preset="none where prices are stated",
            value=ListOf(
                item=kinds.whole_number(least=0, most=HOURS_OF_A_DAY - 1, example="6", what="an hour of the day (UTC)"),
                most=HOURS_OF_A_DAY,
            ),
            doc="Peak hours of the day in UTC: 6 is 06:00 to 07:00.",
        ),
        Field(
            key="peak_days",
            attribute="peak_days",
            preset="7 where prices are stated",
            value=kinds.whole_number(most=7, example="5", what="days of a week"),
            doc="Days of a week that have peak hours; 5 means weekdays.",
        ),
        Field(
            key="concurrency",
            attribute="concurrency",
            preset="none where prices are stated",
            value=kinds.whole_number(most=10**7, example="500"),
            doc="Most requests in progress that the API allows.",
        ),
        Field(
            key="date",
            attribute="date",
            value=kinds.text("a date such as 2026-11-30", r"\d{4}-\d{2}(-\d{2})?", example='"2026-11-30"'),
            doc="When the prices were read; they move.",
        ),
    ),
)

COST = Section(
    cls=CostSpec,
    doc="Money. The fixed cost is `fixed_per_month`, or `gpu_hour`, or a purchase (`capex` to `maintenance`), which "
    "contradicts the other two. What is left out is the catalog's dated figure with its range.",
    fields=(
        Field(
            key="currency",
            attribute="currency",
            value=kinds.text("a currency code such as USD", r"[A-Z]{3}", example="EUR"),
            doc="Of the figures here.",
        ),
        Field(
            key="usd_rate",
            attribute="usd_rate",
            preset="1 for USD",
            value=kinds.plain_number(least=0, most=1e6, example="0.92", above=True),
            doc="What one USD costs in `currency`; the catalog's prices are in USD.",
        ),
        Field(
            key="gpu_hour",
            attribute="gpu_hour",
            value=_money("2.44"),
            preset="the catalog's, in USD",
            doc="What one GPU costs an hour, rented or owned, with power and space. `staff_per_month`, "
            "`network_per_month` and `other_per_month` come on top where they are given.",
        ),
        Field(
            key="fixed_per_month",
            attribute="fixed_per_month",
            value=_money("57000"),
            doc="What the whole service costs a month, everything included; goes before `gpu_hour`.",
        ),
        Field(
            key="capex",
            attribute="capex",
            preset="the catalog's for the GPU, or its gpu_hour",
            value=_money("1450000", above=True),
            doc="Price of the cluster without spares: nodes, fabric, storage.",
        ),
        Field(
            key="months",
            attribute="months",
            preset=CATALOG,
            value=kinds.whole_number(most=120, example="48", what="months"),
            doc="Months until it is sold.",
        ),
        Field(
            key="interest",
            attribute="interest_ratio",
            preset=CATALOG,
            value=kinds.ratio(example='"10%"'),
            doc="Yearly; also discounts the comparison over the term.",
        ),
        Field(
            key="resale",
            attribute="resale_ratio",
            preset=CATALOG,
            value=kinds.ratio(example='"15%"'),
            doc="Share of `capex` that the sale brings.",
        ),
        Field(
            key="power_per_gpu",
            attribute="power_per_gpu_w",
            preset="from the GPU's board power",
            value=power(most_w=20e3, example="1.275kW"),
            doc="IT power of a GPU with its share of the node.",
        ),
        Field(
            key="node_power",
            attribute="node_power_w",
            value=power(most_w=2e6, example="10.2kW"),
            doc="IT power of a node; instead of `power_per_gpu`.",
        ),
        Field(
            key="pue",
            attribute="pue",
            preset=CATALOG,
            value=kinds.plain_number(least=1, most=3, example="1.3"),
            doc="Power of the site over IT power.",
        ),
        Field(
            key="kwh_price",
            attribute="kwh_price",
            preset=CATALOG,
            value=kinds.plain_number(least=0, most=1e4, example="0.1"),
            doc="Of a kWh.",
        ),
        Field(
            key="space_per_kw",
            attribute="space_per_kw",
            preset=CATALOG,
            value=_money("150"),
            doc="Hosting, a month for each kW of IT power.",
        ),
        Field(
            key="maintenance",
            attribute="maintenance_ratio",
            preset=CATALOG,
            value=kinds.ratio(example='"5%"'),
            doc="A year, as a share of `capex`.",
        ),
        Field(
            key="staff_per_month",
            attribute="staff_per_month",
            preset="the catalog's beside a purchase, else 0",
            value=_money("12000"),
            doc="People who run it.",
        ),
        Field(
            key="network_per_month",
            attribute="network_per_month",
            preset="0",
            value=_money("1500"),
            doc="Uplink and egress.",
        ),
        Field(
            key="other_per_month",
            attribute="other_per_month",
            preset="0",
            value=_money("800"),
            doc="Software, storage, insurance and the like.",
        ),
        Field(
            key="spare_nodes",
            attribute="spare_nodes",
            value=kinds.whole_number(least=0, most=4096, example="1"),
            doc="Nodes kept for repair; they cost like the others and serve nothing.",
        ),
        Field(
            key="variable_per_mtok",
            attribute="variable_per_mtok",
            value=kinds.plain_number(least=0, most=1e6, example="0.05"),
            doc="Own cost of each million tokens beside the fixed cost.",
        ),
        Field(
            key="utilisation",
            attribute="utilisation_ratio",
            value=kinds.ratio(above=True, example='"50%"'),
            doc="Mean share of the throughput within the SLA that a month's traffic uses.",
        ),
        Field(
            key="utilisation_by_hour",
            attribute="utilisation_by_hour",
            value=ListOf(item=kinds.ratio(example="0.4"), most=HOURS_OF_A_DAY),
            doc="The same for each of the 24 hours of a day, UTC, from 00:00 on; instead of `utilisation`.",
        ),
        Field(key="api", attribute="api", value=API, doc=API.doc),
        Field(
            key="hit_ratio",
            attribute="hit_ratio",
            preset="`workload.shared_prefix`; with `workload.sessions` what turns repeat",
            value=kinds.ratio(example='"50%"'),
            doc="Share of input tokens that the API's prefix cache would hold.",
        ),
        Field(
            key="volume_per_month",
            attribute="volume_tokens_per_month",
            preset="what `utilisation` makes of the throughput",
            value=_volume(),
            doc="Tokens a month that the service is expected to carry, input and output.",
        ),
        Field(
            key="ramp_months",
            attribute="ramp_months",
            value=kinds.whole_number(least=0, most=120, example="6", what="months"),
            doc="Months in which the volume rises from nothing to the expected one, in a line.",
        ),
        Field(
            key="growth",
            attribute="growth_ratio",
            value=kinds.ratio(example='"30%"'),
            doc="Growth of the volume a year after the ramp.",
        ),
        Field(
            key="term_months",
            attribute="term_months",
            value=kinds.whole_number(most=120, example="36", what="months"),
            doc="Term of the comparison with the API.",
        ),
        Field(
            key="setup_cost",
            attribute="setup_cost",
            value=_money("20000"),
            doc="Paid once at the start: migration, acceptance.",
        ),
        Field(
            key="exit_cost",
            attribute="exit_cost",
            value=_money("10000"),
            doc="Paid once at the end of the term.",
        ),
        Field(
            key="data_may_leave",
            attribute="data_may_leave",
            value=yes_or_no(),
            doc="Whether prompts may be sent to somebody else's API.",
        ),
        Field(
            key="needs",
            attribute="needs",
            value=ListOf(item=kinds.choice("customisation", "audit", "sla", "capacity"), most=4),
            doc="What the service must give beside tokens: own weights (`customisation`), a record of every request "
            "(`audit`), promised latency (`sla`), guaranteed room (`capacity`).",
        ),
    ),
)
