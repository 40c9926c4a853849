"""The throughput that is priced: tokens a second served within the SLA, and how that is known."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from roadworthy.core.errors import SpecError, Unsupported
from roadworthy.core.units import format_duration
from roadworthy.plan.workload import demand_of

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.plan.workload import Demand
    from roadworthy.spec.values import Deployment, Sla

TRICKLE_PER_S = 1e-3
"""A rate at which requests are alone: what misses an objective here misses it at every load."""

MEASURED_BAND_RATIO = 0.05
"""How far another run of the same load is taken to differ."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Throughput:
    """Tokens a second of one whole cluster.

    Args:
        kind: ``planned`` (the plan's model), ``simulated`` (its twin) or ``measured`` (a bench run).
        meets_sla: whether this throughput keeps the SLA's objectives; None where none is stated.
        meets_at_asked_rate: whether the asked rate does as well.
        why: what misses, when something does.
        in_flight: requests in progress at the asked rate, None when not known.
        error_band: how far off either way, as a ratio.
        searched: the highest rate within the SLA was looked for; False for one run at one rate.
    """

    output_tokens_per_s: float
    total_tokens_per_s: float
    kind: Literal["planned", "simulated", "measured"]
    source: str
    layout: str
    error_band: float
    meets_sla: bool | None
    meets_at_asked_rate: bool | None
    why: str = ""
    in_flight: float | None = None
    searched: bool = True

    @property
    def standing(self) -> str:
        """Whether it keeps the SLA, in words."""
        if self.meets_sla is None:
            return "no latency promised" if self.searched else "no verdict"
        return "within the SLA" if self.meets_sla else "outside the SLA"

    @property
    def input_ratio(self) -> float:
        """Input tokens over all tokens."""
        return 1 - self.output_tokens_per_s / self.total_tokens_per_s if self.total_tokens_per_s > 0 else 0.0


def total_over_output(demand: Demand) -> float:
    """Input and output tokens for each output token of the workload."""
    return (demand.prompt_mean + demand.output_mean) / demand.output_mean


def at_a_trickle(deployment: Deployment) -> Deployment:
    """The same deployment with next to no load: its plan is ranked by capacity within the SLA."""
    return replace(deployment, workload=replace(deployment.workload, rate_per_s=TRICKLE_PER_S))


def planned_throughput(deployment: Deployment, plan: Plan, trickle: Plan) -> Throughput:
    """The most that a plan serves within the SLA, of the best layout that keeps it.

    Args:
        plan: at the asked rate. trickle: of :func:`at_a_trickle`; it says whether any load keeps the SLA.

    Raises:
        Unsupported: the plan has no speed for this model and hardware.
    """
    asked, alone = plan.best, trickle.best
    assert asked is not None  # the caller has asked for the best layout
    if asked.predicted is None or alone is None or alone.predicted is None:
        raise Unsupported(
            f"{deployment.name}: the speed of {asked.layout.label} is not modelled, so there is nothing to price",
            hint="give a measured throughput with --measured FILE, as `roadworthy bench --json` prints it",
        )
    at_asked = asked.predicted.meets_sla
    chosen = alone if at_asked is False and alone.predicted.meets_sla else asked
    predicted = chosen.predicted
    assert predicted is not None
    output = predicted.capacity_tokens_per_s * chosen.layout.replicas
    return Throughput(
        output_tokens_per_s=output,
        total_tokens_per_s=output * total_over_output(demand_of(deployment.workload)),
        kind="planned",
        source=predicted.source,
        layout=chosen.layout.label,
        error_band=predicted.error_band,
        meets_sla=alone.predicted.meets_sla if at_asked is False else at_asked,
        meets_at_asked_rate=at_asked,
        why="" if at_asked is not False else missed(alone if alone.predicted.meets_sla is False else asked, deployment),
        in_flight=asked.predicted.concurrency * asked.layout.replicas,
    )


def missed(judged: LayoutPlan, deployment: Deployment) -> str:
    """What ``judged`` misses of the SLA, in words."""
    predicted, sla = judged.predicted, deployment.sla
    assert predicted is not None
    words = [
        f"{name} {format_duration(value)}, {format_duration(limit)} promised"
        for name, value, limit in (
            ("TTFT P99", predicted.ttft_p99_s, sla.ttft_p99_s),
            ("TPOT P99", predicted.tpot_p99_s, sla.tpot_p99_s),
        )
        if limit is not None and value > limit
    ]
    if predicted.saturated:
        carried = predicted.request_rate_per_s * judged.layout.replicas
        words.append(f"it carries {carried:.3g} of {deployment.workload.rate_per_s:g} requests/s")
    return f"{judged.layout.label}: " + ("; ".join(words) or "an objective is missed")


def measured_throughput(run: Mapping[str, object], deployment: Deployment, *, source: str) -> Throughput:
    """The throughput of a run, from the JSON that ``bench`` or ``simulate`` prints.

    Its verdict says whether it lies within the SLA. Input tokens come from ``total_tokens_per_s`` where the run has
    it, else from the document's workload.

    Raises:
        SpecError: a number is missing or cannot be; the run is of another model.
    """
    output = _number(run, "output_tokens_per_s", source)
    if "total_tokens_per_s" in run:
        total = _number(run, "total_tokens_per_s", source)
    else:
        total = output * total_over_output(demand_of(deployment.workload))
    if output <= 0 or total < output:
        raise SpecError(
            f"{source}: {output:g} output tokens/s of {total:g} in all, wanted more than none, and input beside it",
            hint="did every request of the run fail? look at its `failed` and `verdict`",
        )
    model = run.get("model")
    served = {deployment.model.served_name, deployment.model.config}
    if isinstance(model, str) and model not in served:
        raise SpecError(
            f"{source}: a run of {model}, and the document serves {deployment.model.served_name}",
            hint="measure the model that is priced, or price the document that was measured",
        )
    verdict = run.get("verdict")
    met = {"met": True, "missed": False}.get(verdict) if isinstance(verdict, str) else None
    simulated = run.get("simulated") is True
    reason = run.get("reason")
    return Throughput(
        output_tokens_per_s=output,
        total_tokens_per_s=total,
        kind="simulated" if simulated else "measured",
        source=f"{source}, {'a simulated' if simulated else 'a measured'} run"
        + (f", verdict {verdict}" if isinstance(verdict, str) else ", without a verdict"),
        layout=str(run.get("layout") or "as measured"),
        error_band=MEASURED_BAND_RATIO,
        meets_sla=met if has_objectives(deployment.sla) else None,
        meets_at_asked_rate=met if has_objectives(deployment.sla) else None,
        why=reason if met is False and isinstance(reason, str) else "",
        searched=False,
    )


def has_objectives(sla: Sla) -> bool:
    """Whether a latency is promised."""
    return sla.ttft_p99_s is not None or sla.tpot_p99_s is not None


def _number(run: Mapping[str, object], name: str, source: str) -> float:
    value = run.get(name)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < 1e12:
        seen = "nothing" if name not in run else f"{value!r}"[:60]
        raise SpecError(
            f"{source}: {name}: {seen}, wanted tokens a second",
            hint="`roadworthy bench … --json > FILE` and `roadworthy simulate … --json > FILE` write what is read here",
        )
    return float(value)
