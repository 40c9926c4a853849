"""From a plan to the engines it stands for."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast, get_args

from roadworthy.core.errors import Infeasible, Unsupported
from roadworthy.twin.config import Policy, TwinConfig

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.spec.values import Deployment, Scalar


def twin_configs(deployment: Deployment, plan: Plan) -> tuple[TwinConfig, ...]:
    """One twin for each data-parallel rank of each replica of the best layout; they are equal.

    vLLM's data-parallel ranks run in step when experts are spread over them; the twins of one replica do not wait for
    each other.

    Raises:
        Infeasible: no layout fits, or the pool cannot hold one request of the maximum length.
        Unsupported: the plan has no timing for this model and hardware.
    """
    best = plan.best
    if best is None:
        raise Infeasible(
            f"{deployment.name}: no layout fits, so there is no engine to simulate",
            hint="`roadworthy plan` lists every layout and what it lacks",
        )
    return (_config(deployment, best),) * (best.layout.dp * best.layout.replicas)


def _config(deployment: Deployment, best: LayoutPlan) -> TwinConfig:
    if best.step_time is None:
        raise Unsupported(
            f"{deployment.name}: the time of a step is not modelled for {best.layout.label}, so it cannot be simulated"
        )
    wanted = _value(deployment, best, "async_scheduling", None)
    try:
        return TwinConfig(
            models=(deployment.model.served_name,),
            cache=best.cache,
            kv_blocks=best.kv_blocks,
            max_num_seqs=_number(best, "max_num_seqs"),
            max_num_batched_tokens=_number(best, "max_num_batched_tokens"),
            max_model_len=_number(best, "max_model_len"),
            step_time=best.step_time,
            enable_prefix_caching=_value(deployment, best, "enable_prefix_caching", True) is not False,
            max_num_queued_reqs=_optional_number(deployment, best, "max_num_queued_reqs"),
            policy=_policy(deployment, best),
            async_scheduling=wanted is True,
            late_admission=best.scheduled_ahead and wanted is None,
            long_prefill_token_threshold=_optional_number(deployment, best, "long_prefill_token_threshold") or 0,
            answer_tokens=deployment.workload.output_tokens.p50,
            engine_version=deployment.engine.version,
        )
    except ValueError as error:
        raise Infeasible(
            f"{deployment.name}: {best.layout.label} cannot be simulated: {error}",
            hint="a smaller model.max_model_len, or more GPUs",
        ) from error


def _value(deployment: Deployment, best: LayoutPlan, name: str, default: Scalar) -> Scalar:
    """The plan's setting, else the operator's (for what the plan does not choose), else ``default``."""
    if name in best.settings:
        return best.settings[name].value
    return deployment.engine.settings.get(name, default)


def _number(best: LayoutPlan, name: str) -> int:
    value = best.settings[name].value if name in best.settings else None
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError(f"{name}: the plan says {value!r}, wanted a whole number")
    return value


def _optional_number(deployment: Deployment, best: LayoutPlan, name: str) -> int | None:
    value = _value(deployment, best, name, None)
    if value is None or (isinstance(value, int) and not isinstance(value, bool)):
        return value
    raise ValueError(f"{name}: {value!r}, wanted a whole number")


def _policy(deployment: Deployment, best: LayoutPlan) -> Policy:
    value = _value(deployment, best, "scheduling_policy", "fcfs")
    for policy in get_args(Policy):
        if value == policy:
            return cast("Policy", policy)
    raise ValueError(f"scheduling_policy: {value!r}, wanted fcfs or priority")
