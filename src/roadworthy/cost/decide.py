"""The decision tree of buy or build, answered with reasons and numbers.

1. No plan meets the SLA at any load: change hardware, SLA or model before pricing. One run that misses it decides
   nothing.
2. The data may not leave, or the API cannot do what is needed: self-host, and cost only sizes it.
3. Own cost at the expected volume against the API's price for it, with the clusters that it needs or one fewer and the
   rest at the API: dearer, API; cheaper by less than 1.3 times, or not over the whole term, API now and re-check;
   cheaper by more, self-host.
4. Limits of the API are to be tested with the same gate as the own service.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.catalog.prices import ApiPrices
    from roadworthy.cost.compare import BreakEven, TermComparison
    from roadworthy.cost.throughput import Throughput
    from roadworthy.spec.values import CostSpec

MARGIN = 1.3
"""How many times cheaper self-hosting must be before it is worth its risks."""

Choice = Literal["self-host", "API", "API now, re-check quarterly", "change hardware", "undecided"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Overflow:
    """One cluster fewer, kept full, and the rest of the tokens at the API: what avoids a step that is hardly used."""

    clusters: int
    api_tokens_per_month: float
    per_month: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What the tree asks about; money in one currency, volume in tokens a month (input and output)."""

    cost: CostSpec
    currency: str
    throughput: Throughput
    volume_tokens_per_month: float
    clusters: int
    own_per_month: float
    overflow: Overflow | None
    api_per_month: float | None
    price_per_mtok: float | None
    break_even: BreakEven | None
    term: TermComparison | None
    api: ApiPrices | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer and why, the weightiest reason first."""

    choice: Choice
    reasons: tuple[str, ...]


def decide(facts: Facts) -> Decision:
    """Walk the tree."""
    first = tuple(_sla(facts))
    if facts.throughput.meets_sla is False:
        choice: Choice = "change hardware" if facts.throughput.searched else "undecided"
        return Decision(choice=choice, reasons=(*first, *_no_matter_what(facts), *_economics(facts)))
    forced = tuple(_forced(facts))
    if forced:
        return Decision(choice="self-host", reasons=(*first, *forced, _size(facts), *_economics(facts), *_tests(facts)))
    by_money, reasons = _by_money(facts)
    return Decision(choice=by_money, reasons=(*first, *reasons, *_tests(facts)))


def _sla(facts: Facts) -> Iterator[str]:
    if facts.throughput.meets_sla is False and not facts.throughput.searched:
        yield (
            f"The run misses the SLA ({facts.throughput.why or facts.throughput.source}), so its throughput is none "
            "within it: measure at a lower rate, or let --simulate search. The numbers here are for that run as it was."
        )
    elif facts.throughput.meets_sla is False:
        yield (
            f"No plan on these GPUs meets the SLA at any load ({facts.throughput.why}): change the GPUs, the SLA or "
            "the model before pricing. The numbers here are for the throughput without that promise."
        )
    elif facts.throughput.meets_at_asked_rate is False:
        yield (
            f"No plan meets the SLA at the asked rate on one cluster ({facts.throughput.why}); within the SLA it "
            f"serves {facts.throughput.total_tokens_per_s:,.0f} tokens/s, which is what is priced here."
        )


def _no_matter_what(facts: Facts) -> Iterator[str]:
    if not facts.cost.data_may_leave:
        yield "The data may not leave, so an API is no way out."


def _forced(facts: Facts) -> Iterator[str]:
    if not facts.cost.data_may_leave:
        yield "The data may not leave: self-host, and cost only sizes it."
    if "customisation" in facts.cost.needs:
        yield "Own weights are needed (customisation): a model's API serves the published ones."
    limit, asked = (facts.api.concurrency if facts.api else None), facts.throughput.in_flight
    if limit is not None and asked is not None and asked > limit:
        yield (
            f"The asked rate keeps about {asked:,.0f} requests in flight and the API allows {limit:,}: it cannot carry "
            "this at any price."
        )


def _size(facts: Facts) -> str:
    return (
        f"{_tokens(facts.volume_tokens_per_month)} a month need {_clusters(facts.clusters)}: "
        f"{facts.own_per_month:,.0f} {facts.currency} a month."
    )


def _by_money(facts: Facts) -> tuple[Choice, tuple[str, ...]]:
    if facts.price_per_mtok is None or facts.api_per_month is None or facts.break_even is None:
        return "undecided", (
            "No API price is known for this model: state cost.api with input_miss and output to compare.",
            _size(facts),
        )
    reasons = tuple(_economics(facts))
    best = min(facts.own_per_month, facts.overflow.per_month if facts.overflow else facts.own_per_month)
    if facts.break_even.tokens_per_month is None or best > facts.api_per_month:
        if facts.break_even.tokens_per_month is not None and facts.term is not None and facts.term.saving_present > 0:
            return "API now, re-check quarterly", (
                *reasons, "It does not pay at this volume and does over the term as it grows: re-check as it comes."
            )  # fmt: skip
        return "API", reasons
    times = facts.api_per_month / best if best > 0 else float("inf")
    if times < MARGIN:
        return "API now, re-check quarterly", (
            *reasons, f"Self-hosting must be {MARGIN:g} times cheaper to be worth its risks; it is {times:.2f} times."
        )  # fmt: skip
    if facts.term is not None and facts.term.saving_present <= 0:
        return "API now, re-check quarterly", (
            *reasons, "It pays at the full volume and not over the term with its ramp: re-check as the volume comes."
        )  # fmt: skip
    return "self-host", reasons


def _economics(facts: Facts) -> Iterator[str]:
    if facts.price_per_mtok is None or facts.api_per_month is None or facts.break_even is None or facts.api is None:
        return
    even, currency = facts.break_even, facts.currency
    volume, there = _tokens(facts.volume_tokens_per_month), f"{facts.api_per_month:,.0f} {currency} at {facts.api.id}"
    price = f"({facts.price_per_mtok:,.3g} per million at this mix)"
    own = f"{facts.own_per_month:,.0f} {currency} on {_clusters(facts.clusters)}"
    spill = facts.overflow
    if spill is not None and spill.per_month < facts.own_per_month:
        yield (
            f"{volume} a month cost {spill.per_month:,.0f} {currency} with {_clusters(spill.clusters)} kept full and "
            f"the other {_tokens(spill.api_tokens_per_month)} at the API, {own}, and {there} {price}."
        )
    else:
        yield f"{volume} a month cost {own} and {there} {price}."
    if even.tokens_per_month is not None:
        share = even.tokens_per_month / even.limit_tokens_per_month
        yield f"Break-even is {_tokens(even.tokens_per_month)} a month, {share:.0%} of what one cluster can serve."
    else:
        yield no_break_even(facts)
    if facts.term is not None:
        saving = facts.term.saving_present
        word = "saves" if saving > 0 else "costs"
        more = "" if saving > 0 else " more"
        yield (
            f"Over {facts.term.months} months, ramp and discounting included, self-hosting {word} "
            f"{abs(saving):,.0f} {currency}{more} ({facts.term.own_present:,.0f} against "
            f"{facts.term.api_present:,.0f})."
        )


def no_break_even(facts: Facts) -> str:
    """Why there is none on this cluster, and what would make one: a throughput, a price, or more clusters."""
    even = facts.break_even
    assert even is not None
    if even.wanted_tokens_per_month is None or even.needed_tokens_per_s is None:
        return (
            f"No break-even at any volume: the API's {facts.price_per_mtok:,.3g} per million is not above the own "
            f"variable cost of {facts.cost.variable_per_mtok:,.3g}."
        )
    text = (
        f"No break-even on this cluster: it would be {_tokens(even.wanted_tokens_per_month)} a month and the cluster "
        f"serves {_tokens(even.limit_tokens_per_month)} at most. It takes {even.needed_tokens_per_s:,.0f} tokens/s "
        f"at this cost (now {facts.throughput.total_tokens_per_s:,.0f})"
    )
    if even.needed_price_per_mtok is not None:
        text += f", or an API price of {even.needed_price_per_mtok:,.3g} per million"
    if even.needed_clusters is not None:
        return text + f", or {even.needed_clusters} such clusters under the same staff."
    return text + "; more clusters of this kind cost as much more and make none."


def _tests(facts: Facts) -> Iterator[str]:
    if "sla" in facts.cost.needs:
        yield "An API promises no latency percentile: hold it to the same gate, `roadworthy bench URL --spec FILE`."
    if "audit" in facts.cost.needs:
        yield "Every request must be on record (audit): an API shows its bill; on your own service you keep the log."
    if "capacity" in facts.cost.needs and facts.api is not None:
        allowed = f"{facts.api.concurrency:,} requests at once" if facts.api.concurrency else "no stated room"
        yield f"Guaranteed capacity is needed: {facts.api.id} gives {allowed}; test it at your peak."


def _tokens(count: float) -> str:
    if count >= 1e15:
        return f"{count / 1e12:,.0f} T tokens"
    for unit, size in (("T", 1e12), ("B", 1e9), ("M", 1e6)):
        if count >= size:
            return f"{count / size:,.3g} {unit} tokens"
    return f"{count:,.0f} tokens"


def _clusters(count: int) -> str:
    return "one cluster" if count == 1 else f"{count:,} clusters"
