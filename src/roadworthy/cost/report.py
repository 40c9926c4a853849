"""The whole answer: cost, capacity, price, break-even, term, sensitivity and decision of one deployment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.catalog.prices import ApiPrices, Prices, known_prices
from roadworthy.core.errors import SpecError
from roadworthy.cost.compare import (
    BreakEven,
    Term,
    TermComparison,
    break_even,
    break_even_price_per_mtok,
    clusters_needed,
    compare_term,
)
from roadworthy.cost.decide import Decision, Facts, Overflow, decide
from roadworthy.cost.estimate import (
    MTOK,
    SECONDS_PER_MONTH,
    capacity_tokens_per_month,
    gpu_hour,
    unit_cost_per_mtok,
)
from roadworthy.cost.fixed import FixedCost, fixed_cost, usd_rate
from roadworthy.cost.price import Mix, api_prices, blended, converted, peak_ratio
from roadworthy.cost.sensitivity import Case, Influence, influences
from roadworthy.plan.workload import Prefixes, demand_of

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.cost.throughput import Throughput
    from roadworthy.spec.values import Deployment, RequestProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class CostReport:
    """Money in ``fixed.currency``, tokens are input and output together unless the name says output.

    Args:
        utilisation_ratio, max_utilisation_ratio: the month's mean use, and the mean at which the busiest hour is full.
        capacity_tokens_per_month: what one cluster serves at that mean use.
        unit_cost_per_mtok: own cost there; ``unit_cost_range`` at the low and the high fixed cost.
        volume_tokens_per_month: expected; ``volume_stated`` says whether the document gave it.
        result: what the influences move: own cost over API price, or own cost where no price is known.
        clusters: needed for it; the ``at_volume`` figures are for all of them.
    """

    name: str
    model: str
    gpus: int
    gpu: str
    fixed: FixedCost
    throughput: Throughput
    hours: tuple[float, ...]
    utilisation_ratio: float
    max_utilisation_ratio: float
    capacity_tokens_per_month: float
    unit_cost_per_mtok: float
    unit_cost_range: tuple[float, float]
    unit_cost_per_output_mtok: float
    mix: Mix
    api: ApiPrices | None
    price_per_mtok: float | None
    break_even: BreakEven | None
    volume_tokens_per_month: float
    volume_stated: bool
    clusters: int
    own_at_volume: float
    api_at_volume: float | None
    overflow: Overflow | None
    break_even_price_per_mtok: float | None
    term: TermComparison | None
    influences: tuple[Influence, ...]
    result: float
    decision: Decision
    notes: tuple[str, ...]

    @property
    def gpu_hour(self) -> float:
        return gpu_hour(self.fixed.per_month, self.gpus)

    @property
    def strongest(self) -> tuple[str, ...]:
        """The two inputs that move the result most."""
        return tuple(one.name for one in self.influences[:2] if one.spread > 0)


def cached_input_ratio(workload: RequestProfile) -> float:
    """Share of input tokens that a prefix cache without limits would have: an API's, unless the document says."""
    if workload.sessions.turns <= 1:
        return workload.shared_prefix_ratio
    return demand_of(workload, prefixes=Prefixes(unit_tokens=1)).hit_ratio


def make_report(
    deployment: Deployment, model_id: str, gpu: Gpu, throughput: Throughput, prices: Prices | None = None
) -> CostReport:
    """The report for a throughput of one cluster.

    Raises:
        SpecError: no price is known for the GPU, or nothing is served, or a currency rate is missing.
        Unsupported: the document names a price list that the catalog lacks.
    """
    prices = prices or known_prices()
    cost, cluster = deployment.cost, deployment.cluster
    fixed = fixed_cost(cost, cluster, gpu, prices)
    if fixed is None:
        raise SpecError(
            f"{deployment.name}: no price is known for {gpu.id}",
            hint="set cost.gpu_hour (an hour of one GPU), cost.capex (the purchase) or cost.fixed_per_month (the bill)",
        )
    total = throughput.total_tokens_per_s
    if total <= 0:
        raise SpecError(f"{deployment.name}: nothing is served, so there is no cost of a token")
    use = _Use.of(deployment)
    api = api_prices(cost, model_id, prices)
    hit = cached_input_ratio(deployment.workload) if cost.hit_ratio is None else cost.hit_ratio
    mix = Mix(input_ratio=throughput.input_ratio, hit_ratio=hit, peak_ratio=peak_ratio(use.hours, api) if api else 0.0)
    price = blended(mix, api) if api is not None else None
    capacity = capacity_tokens_per_month(total, use.mean)
    volume = cost.volume_tokens_per_month or capacity
    clusters = clusters_needed(volume, total, use.most) if cost.volume_tokens_per_month else 1
    own = fixed.per_month * clusters + cost.variable_per_mtok * volume / MTOK
    even = (
        break_even(
            fixed.per_month,
            price,
            total,
            variable=cost.variable_per_mtok,
            shared_per_month=fixed.shared_per_month,
            max_utilisation_ratio=use.most,
        )
        if price is not None
        else None
    )
    overflow = None
    if clusters > 1 and price is not None and _may_overflow(deployment):
        kept = (clusters - 1) * capacity_tokens_per_month(total, use.most)
        overflow = Overflow(
            clusters=clusters - 1,
            api_tokens_per_month=volume - kept,
            per_month=fixed.per_month * (clusters - 1)
            + (cost.variable_per_mtok * kept + price * (volume - kept)) / MTOK,
        )
    term = _term(deployment, prices, fixed, price, total, volume, use.most)
    case = Case(
        fixed_per_month=fixed.per_month,
        tokens_per_s=total,
        utilisation_ratio=use.mean,
        max_utilisation_ratio=use.most,
        volume_tokens_per_month=cost.volume_tokens_per_month,
        variable_per_mtok=cost.variable_per_mtok,
        mix=mix,
        api=api,
        overflow=_may_overflow(deployment),
    )
    facts = Facts(
        cost=cost,
        currency=fixed.currency,
        throughput=throughput,
        volume_tokens_per_month=volume,
        clusters=clusters,
        own_per_month=own,
        overflow=overflow,
        api_per_month=None if price is None else price * volume / MTOK,
        price_per_mtok=price,
        break_even=even,
        term=term,
        api=api,
    )

    def unit(per_month: float) -> float:
        return (unit_cost_per_mtok(per_month, capacity) or 0.0) + cost.variable_per_mtok

    return CostReport(
        name=deployment.name,
        model=model_id,
        gpus=cluster.gpus,
        gpu=gpu.id,
        fixed=fixed,
        throughput=throughput,
        hours=use.hours,
        utilisation_ratio=use.mean,
        max_utilisation_ratio=use.most,
        capacity_tokens_per_month=capacity,
        unit_cost_per_mtok=unit(fixed.per_month),
        unit_cost_range=(unit(fixed.range[0]), unit(fixed.range[1])),
        unit_cost_per_output_mtok=unit(fixed.per_month) * total / throughput.output_tokens_per_s,
        mix=mix,
        api=api,
        price_per_mtok=price,
        break_even=even,
        volume_tokens_per_month=volume,
        volume_stated=cost.volume_tokens_per_month is not None,
        clusters=clusters,
        own_at_volume=own,
        api_at_volume=facts.api_per_month,
        overflow=overflow,
        break_even_price_per_mtok=cost.variable_per_mtok
        + (
            (break_even_price_per_mtok(fixed.per_month, volume, total, use.most) or 0.0)
            if cost.volume_tokens_per_month
            else fixed.per_month / volume * MTOK
        ),
        term=term,
        influences=influences(
            case,
            fixed=fixed,
            cost=cost,
            cluster=cluster,
            prices=prices,
            lists=_lists(deployment, model_id, prices, api),
            error_band=throughput.error_band,
        ),
        result=case.result(),
        decision=decide(facts),
        notes=tuple(_notes(deployment, fixed, throughput, api, mix)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Use:
    """Mean use, and the mean at which the busiest hour is full (U_max); ``hours`` is empty for a bare mean."""

    mean: float
    most: float
    hours: tuple[float, ...]

    @classmethod
    def of(cls, deployment: Deployment) -> _Use:
        hours = deployment.cost.utilisation_by_hour
        if not hours:
            return cls(mean=deployment.cost.utilisation_ratio, most=1.0, hours=())
        mean = sum(hours) / len(hours)
        return cls(mean=mean, most=mean / max(hours), hours=hours)


def _may_overflow(deployment: Deployment) -> bool:
    """Whether an API could take what the clusters do not serve."""
    return deployment.cost.data_may_leave and "customisation" not in deployment.cost.needs


def _term(
    deployment: Deployment, prices: Prices, fixed: FixedCost, price: float | None, total: float, volume: float,
    most: float,
) -> TermComparison | None:  # fmt: skip
    if price is None:
        return None
    cost = deployment.cost
    interest = prices.purchase["interest_ratio"].base if cost.interest_ratio is None else cost.interest_ratio
    if cost.volume_tokens_per_month is None:
        most = max(most, volume / (total * SECONDS_PER_MONTH))
    return compare_term(
        Term(
            months=cost.term_months,
            volume_tokens_per_month=volume,
            ramp_months=cost.ramp_months,
            growth_ratio=cost.growth_ratio,
            interest_ratio=interest,
            setup_cost=cost.setup_cost,
            exit_cost=cost.exit_cost,
        ),
        fixed_per_month=fixed.per_month,
        price=price,
        tokens_per_s=total,
        variable=cost.variable_per_mtok,
        max_utilisation_ratio=most,
        overflow=_may_overflow(deployment),
    )


def _lists(deployment: Deployment, model_id: str, prices: Prices, api: ApiPrices | None) -> tuple[ApiPrices, ...]:
    """Dated lists of the catalog that show how the price moves; none beside prices that the document states."""
    if api is None or deployment.cost.api.prices:
        return ()
    rate = usd_rate(deployment.cost)
    return tuple(converted(one, rate) for one in prices.lists_of(api.model or model_id))


def _notes(
    deployment: Deployment, fixed: FixedCost, throughput: Throughput, api: ApiPrices | None, mix: Mix
) -> list[str]:
    cost = deployment.cost
    notes = [f"Throughput: {throughput.kind}, {throughput.source}; error band {throughput.error_band:.0%} either way."]
    if throughput.kind == "planned" and throughput.meets_sla is None:
        notes.append("No latency is promised, so the throughput is that of full concurrency.")
    if not throughput.searched:
        notes.append(
            "A run serves what it is asked: if its rate lies below the highest within the SLA, the capacity is higher "
            "and a token cheaper than said here."
        )
    notes.append(f"Fixed cost: {fixed.source}.")
    if any(not one.stated for one in fixed.inputs):
        catalogued = ", ".join(one.name for one in fixed.inputs if not one.stated)
        notes.append(f"From the catalog, with its range: {catalogued}.")
    if api is not None:
        notes.append(
            f"API: {api.id}, {api.date} ({api.source}): hit {api.input_hit:g}, miss {api.input_miss:g}, output "
            f"{api.output:g} per million off peak; {mix.hit_ratio:.0%} of input cached, {mix.peak_ratio:.0%} of tokens "
            f"at peak price (x {api.peak_multiplier:g})."
        )
    if deployment.cluster.nodes > 1 and cost.spare_nodes == 0:
        notes.append("No spare node is paid for: a failed node stops what spans it until it is repaired.")
    return notes
