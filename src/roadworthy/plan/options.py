"""What else could be done with the chosen layout: each alternative with its effect on memory and on time.

An option is the same plan with one setting changed, judged again, so that its numbers come from the same formulas.
Where a time cannot be modelled it is left out and said so.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING

from roadworthy.catalog.links import to_host
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.units import GIB, format_count, format_duration, format_gib
from roadworthy.plan.eplb import IGNORING_FAMILIES
from roadworthy.plan.expert_load import expert_load
from roadworthy.plan.layouts import PARALLEL_SETTINGS, routed_experts
from roadworthy.plan.search import judge_layout, make_plan
from roadworthy.plan.speculation import MTP, Speculation
from roadworthy.plan.timing import StepLoad
from roadworthy.plan.values import PlanOption

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.plan.values import LayoutPlan, Plan
    from roadworthy.spec.model import ModelSpec
    from roadworthy.spec.values import Deployment, Scalar

KEPT = ("gpu_memory_utilization", "max_num_seqs", "max_num_batched_tokens")
OFFLOAD_SHARE = 8
"""A weight offload is shown for this part of a rank's weights, in whole GiB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Case:
    deployment: Deployment
    model: ModelSpec
    gpu: Gpu
    plan: Plan
    chosen: LayoutPlan

    def again(self, settings: Mapping[str, Scalar]) -> LayoutPlan | None:
        """The chosen layout with ``settings`` beside the document's and the plan's, so that nothing else moves; None
        where they cannot be."""
        engine = self.deployment.engine
        kept = {name: self.chosen.settings[name].value for name in KEPT}
        changed = replace(engine, settings=MappingProxyType({**engine.settings, **kept, **settings}))
        try:
            return judge_layout(replace(self.deployment, engine=changed), self.model, self.gpu, self.chosen.layout)
        except RoadworthyError:
            return None


def options_of(
    deployment: Deployment, model: ModelSpec, gpu: Gpu, plan: Plan, chosen: LayoutPlan
) -> tuple[PlanOption, ...]:
    """Alternatives to ``chosen``, a layout of ``plan`` that has a budget. Empty on a CPU."""
    if gpu.id == "cpu" or not chosen.ranks:
        return ()
    case = _Case(deployment=deployment, model=model, gpu=gpu, plan=plan, chosen=chosen)
    rules = (
        _drafts(case), _fp8_cache(case), _weight_offload(case), _cache_offload(case), _balancing(case), _units(case),
    )  # fmt: skip
    return tuple(option for rule in rules for option in rule)


def _drafts(case: _Case) -> Iterator[PlanOption]:
    """Speculative decoding with the checkpoint's own MTP layer; without it where the document has some."""
    asked = case.deployment.engine.settings.get("speculative_config") is not None
    if asked:
        settings: dict[str, Scalar] = {"speculative_config": None}
    elif case.model.draft_layers:
        drafted = {"method": MTP, "num_speculative_tokens": case.model.draft_layers}
        settings = {"speculative_config": json.dumps(drafted)}
    else:
        return
    changed = case.again(settings)
    if changed is None or not changed.ranks:
        return
    plainly = "each step one token a sequence, and nothing to draft and verify"
    yield _compared(
        case, changed, name="no_speculative_decoding" if asked else "speculative_decoding", settings=settings,
        words=plainly if asked else _draft_words(case, changed),
    )  # fmt: skip


def _draft_words(case: _Case, changed: LayoutPlan) -> str:
    """What was assumed, and from which acceptance on drafting is worth it at the workload's load."""
    workload = case.deployment.workload
    speculation = Speculation.of(
        {"speculative_config": json.dumps({"method": MTP})}, draft_layers=case.model.draft_layers,
        acceptance_ratio=workload.draft_acceptance_ratio,
    )  # fmt: skip
    assert speculation is not None  # the setting is there
    source = "assumed; workload.draft_acceptance says yours" if speculation.assumed else "as the document says"
    words = (
        f"{speculation.tokens_per_step:.2g} tokens a step at {speculation.acceptance_ratio:.0%} of the drafts accepted "
        f"({source})"
    )
    step, chosen = changed.step_time, case.chosen
    if step is None or chosen.predicted is None or chosen.demand is None or chosen.step_time is None:
        return words
    running = max(1.0, chosen.predicted.concurrency / chosen.layout.dp / chosen.layout.pp)
    context = running * chosen.demand.context_mean
    worth = step.real_step()(0, 0, running, context) / chosen.step_time.seconds(0, 0, running, context) - 1
    if speculation.tokens > 1:
        return words
    if worth >= 1:
        return f"{words}; at {running:.0f} sequences a step it costs more than any acceptance gains"
    return f"{words}; at {running:.0f} sequences a step it is worth it from {max(0.0, worth):.0%} on"


def _fp8_cache(case: _Case) -> Iterator[PlanOption]:
    kind = case.chosen.settings["kv_cache_dtype"].value
    if kind == "fp8":
        return
    settings = {"kv_cache_dtype": "fp8"}
    changed = case.again(settings)
    if changed is None or not changed.ranks:
        why = changed.reasons[0] if changed is not None and changed.reasons else "not legal with what is fixed"
        yield PlanOption(name="fp8_kv_cache", settings=settings, possible=False, message=why)
        return
    words = "a cache of half the size; what it costs in answers is yours to judge"
    if case.model.family == "kimi_k3" and case.gpu.compute_capability < (10, 0):
        words += f"; not proved for {case.model.id} on {case.gpu.id}"
    yield _compared(case, changed, name="fp8_kv_cache", settings=settings, words=words)


def _weight_offload(case: _Case) -> Iterator[PlanOption]:
    if case.deployment.engine.settings.get("cpu_offload_gb") is not None:
        return
    weights = max(rank.weights_bytes for rank in case.chosen.ranks)
    hosted = max(1, round(weights / OFFLOAD_SHARE / GIB))
    if case.chosen.feasible is False:  # what it takes to fit
        hosted = math.ceil(case.chosen.short_by_bytes / GIB)
    settings = {"cpu_offload_gb": hosted}
    changed = case.again(settings)
    if changed is None or not changed.ranks:
        return
    layout, step = case.chosen.layout, case.chosen.step_time
    rate = to_host(case.gpu).achieved_bytes_per_s
    slower = f"{format_duration(hosted * GIB / rate * layout.pp)} of PCIe reads in a step at the most"
    option = _compared(
        case, changed, name="weights_in_host_memory", settings=settings,
        words=f"{hosted} GiB of each rank's weights cross PCIe in every step: {slower}" if step else slower,
    )  # fmt: skip
    yield replace(option, host_bytes=hosted * GIB * layout.world_size)


def _cache_offload(case: _Case) -> Iterator[PlanOption]:
    """Host memory as large as the pool: it keeps prefixes; running requests still need blocks on the GPU."""
    chosen, layout = case.chosen, case.chosen.layout
    if chosen.feasible is False:
        return
    pool = min(rank.kv_pool_bytes for rank in chosen.ranks)
    size_gib = max(1, round(pool * layout.tp / GIB))
    prompt = case.deployment.workload.prompt_tokens.p50
    cached = sum(chosen.cache.bytes_per_block) * chosen.cache.held_blocks(prompt)
    fetch_s = cached / to_host(case.gpu).achieved_bytes_per_s
    words = (
        f"a prefix cache of the pool's size again, {format_count(chosen.kv_resident_tokens)} tokens; it holds no more "
        f"requests at once; a cached prompt of {prompt:,} tokens is fetched in {format_duration(fetch_s)}"
    )
    if chosen.step_time is not None:
        load = StepLoad(prefill_tokens=prompt, prefill_context_tokens=prompt * prompt // 2)
        words += f" where computing it takes {format_duration(chosen.step_time.step_s(load))}"
    yield PlanOption(
        name="kv_cache_in_host_memory",
        settings={"kv_offloading_size": size_gib, "kv_offloading_backend": "native"},
        possible=True,
        message=words + "; how often it hits is not modelled",
        host_bytes=size_gib * GIB * layout.dp * layout.pp,
        resident_requests=0,
    )


def _balancing(case: _Case) -> Iterator[PlanOption]:
    moe, ranks = routed_experts(case.model), case.chosen.layout.ep
    if moe is None or ranks == 1 or case.deployment.engine.settings.get("enable_eplb") is True:
        return
    if case.model.family in IGNORING_FAMILIES:
        yield PlanOption(
            name="expert_balancing", settings={"enable_eplb": True}, possible=False,
            message=f"{case.model.architecture} accepts enable_eplb and ignores it",
        )  # fmt: skip
        return
    redundant = -moe.experts % ranks or ranks
    settings: dict[str, Scalar] = {
        "enable_expert_parallel": True,
        "enable_eplb": True,
        "eplb_config": f'{{"num_redundant_experts": {redundant}}}',
    }
    changed = case.again(settings)
    if changed is not None and changed.ranks:
        yield _compared(
            case, changed, name="expert_balancing", settings=settings,
            words=f"{redundant} redundant experts, the least that EP{ranks} can build; "
            + _balance_words(case, redundant),
        )  # fmt: skip


def _balance_words(case: _Case, redundant: int) -> str:
    """How full the fullest rank is by popularity alone, and what that is worth where prompts are computed."""
    moe, ranks = routed_experts(case.model), case.chosen.layout.ep
    assert moe is not None  # asked for a mixture of experts alone
    skew = case.deployment.workload.expert_skew

    def fullest(slots: int | None) -> float:
        load = expert_load(
            experts=moe.experts, per_token=moe.experts_per_token, ranks=ranks, skew=skew, redundant=slots
        )
        return 1 + load.excess_ratio

    words = (
        f"the fullest of {ranks} ranks carries {fullest(redundant):.2f} times the mean instead of {fullest(None):.2f} "
        f"at a skew of {skew:g} (workload.expert_skew)"
    )
    if skew == 0:
        words = f"with even routing (workload.expert_skew 0) the fullest of {ranks} ranks has nothing to gain"
    step, demand = case.chosen.step_time, case.chosen.demand
    if step is None or demand is None:
        return words
    tokens = demand.computed_mean
    balanced = replace(step, expert_excess_ratio=fullest(redundant) - 1)
    prefill = [one.seconds(tokens, tokens * tokens / 2, 0, 0) for one in (step, balanced)]
    return f"{words}; a mean prompt's step takes {format_duration(prefill[1])} instead of {format_duration(prefill[0])}"


def _units(case: _Case) -> Iterator[PlanOption]:
    """Independent engines that stay inside a host, where the chosen layout does not."""
    per_host, chosen = case.deployment.cluster.gpus_per_node, case.chosen
    if chosen.layout.world_size <= per_host:
        return
    inside = [judged for judged in _unpinned(case).layouts if judged.layout.world_size <= per_host and judged.ranks]
    if not inside:
        return
    # the plan's order: the best that fits, else the nearest
    best = inside[0]
    if best.feasible is False:
        best = min(inside, key=lambda judged: judged.short_by_bytes)
        yield PlanOption(
            name="units_inside_a_host", settings={}, possible=False,
            message=f"{best.layout.label} lacks {format_gib(best.short_by_bytes)} on its tightest rank: one host does "
            f"not hold {case.model.id}",
        )  # fmt: skip
        return
    option = _compared(
        case, best, name="units_inside_a_host", settings={},
        words=f"{best.layout.label}: engines that fail, restart and scale apart, and no traffic between hosts",
    )  # fmt: skip
    yield option


def _unpinned(case: _Case) -> Plan:
    """The plan; without the degrees that the document fixes, where it fixes some."""
    engine = case.deployment.engine
    free = {name: value for name, value in engine.settings.items() if name not in PARALLEL_SETTINGS}
    if len(free) == len(engine.settings):
        return case.plan
    changed = replace(case.deployment, engine=replace(engine, settings=MappingProxyType(free)))
    return make_plan(changed, case.model, case.gpu)


def _compared(case: _Case, changed: LayoutPlan, *, name: str, settings: Mapping[str, Scalar], words: str) -> PlanOption:
    beside = [
        max(rank.device_bytes - rank.kv_pool_bytes - rank.free_bytes for rank in judged.ranks)
        for judged in (case.chosen, changed)
    ]
    if changed.feasible is False:
        return PlanOption(name=name, settings=_set(settings), possible=False, message=changed.reasons[0])
    return PlanOption(
        name=name,
        settings=_set(settings),
        possible=True,
        message=words,
        device_bytes=beside[1] - beside[0],
        resident_requests=changed.resident_requests - case.chosen.resident_requests,
        tpot_s=changed.predicted.tpot_p50_s if changed.predicted else None,
    )


def _set(settings: Mapping[str, Scalar]) -> Mapping[str, str | int | float | bool]:
    return {name: value for name, value in settings.items() if value is not None}
