"""What start-up would stumble over, and what else could be done, as lines of the report."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from roadworthy.core.units import format_count, format_duration, format_gib
from roadworthy.plan.options import options_of
from roadworthy.plan.sla_needs import what_would_meet

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, PlanOption

_TITLES = {
    "speculative_decoding": "speculative decoding",
    "no_speculative_decoding": "no speculative decoding",
    "fp8_kv_cache": "FP8 KV cache",
    "weights_in_host_memory": "weights in host memory",
    "kv_cache_in_host_memory": "KV cache in host memory",
    "expert_balancing": "expert balancing (EPLB)",
    "units_inside_a_host": "independent units inside a host",
}


def warnings_report(best: LayoutPlan) -> Iterator[RenderableType]:
    """The warnings of the layout to run, each with the setting that mends it; nothing where there is none."""
    if not best.warnings:
        return
    lines = [
        item(Text.assemble((warning.message, ""), (f"; {warning.mend}" if warning.mend else "", "bold")))
        for warning in best.warnings
    ]
    yield Group(Text("\nStart-up", style="bold yellow"), *lines)


def plan_options(planned: Planned) -> tuple[PlanOption, ...]:
    """Alternatives to the layout to run; to the nearest where none fits."""
    lacking = [judged for judged in planned.plan.layouts if judged.ranks]
    chosen = planned.plan.best or min(lacking, key=lambda judged: judged.short_by_bytes, default=None)
    if chosen is None:
        return ()
    return options_of(planned.deployment, planned.model, planned.gpu, planned.plan, chosen)


def objectives_needed(planned: Planned) -> str:
    """What would be needed for the objectives; empty where a layout meets them, simulated or analytic."""
    if planned.queueing is not None and any(result.verdict != "missed" for result in planned.queueing.results.values()):
        return ""
    return what_would_meet(planned.plan, planned.deployment)


def options_report(options: Sequence[PlanOption]) -> Iterator[RenderableType]:
    """One line an option: what to set, what it does to memory and to time; nothing where there is none."""
    if not options:
        return
    lines = []
    for option in options:
        title, settings, effects = option_words(option)
        lines.append(item(Text.assemble((title, "bold"), f" ({settings})" if settings else "", ": ", effects)))
    yield Group(Text("\nOptions", style="bold"), *lines)


def option_words(option: PlanOption) -> tuple[str, str, str]:
    """Its name, what to set, and what that does, in words."""
    settings = ", ".join(f"{name}: {_shown(value)}" for name, value in option.settings.items())
    effects = _effects(option) if option.possible else ["not possible"]
    return _TITLES[option.name], settings, "; ".join([*effects, option.message])


def _effects(option: PlanOption) -> list[str]:
    effects = []
    if option.resident_requests is not None:
        effects.append(f"{option.resident_requests:+,} resident requests" if option.resident_requests else "")
    if option.device_bytes:
        sign = "+" if option.device_bytes > 0 else "-"
        effects.append(f"{sign}{format_gib(abs(option.device_bytes))} on a rank beside the pool")
    if option.host_bytes:
        effects.append(f"{format_gib(option.host_bytes, 0)} of host memory")
    if option.tpot_s is not None:
        effects.append(f"TPOT P50 {format_duration(option.tpot_s)}")
    return [effect for effect in effects if effect]


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return format_count(value) if isinstance(value, int) else str(value)


def item(text: str | Text) -> Padding:
    """One line of a list, its wrapped rest indented."""
    line = Table.grid(padding=(0, 1, 0, 0))
    line.add_row("-", text)
    return Padding(line, (0, 0, 0, 2))
