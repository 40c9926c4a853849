"""A plan for people: layouts in a table, the best one's memory as bars, settings and speed with their reasons.

Nothing needs colour to be understood: what fits is said in words, and each part of a bar is a letter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from roadworthy.advise.ranking import distinct, name_of
from roadworthy.cli.narrow import Fitting, Stretching
from roadworthy.cli.plan_advice import item, objectives_needed, options_report, plan_options, warnings_report
from roadworthy.cli.plan_queueing import pareto_report, queueing_report
from roadworthy.core.units import GIB, format_bytes, format_count, format_duration, format_gib
from roadworthy.plan.weights import checkpoint_totals

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import Feasible, LayoutPlan, MemoryBudget, Plan
    from roadworthy.spec.values import Deployment

SHOWN_FITTING, SHOWN_LOSERS, SHOWN_UNBUILT = 8, 5, 2
BAR_COLUMNS = 48
_FITS = {True: ("yes", "green"), "uncertain": ("uncertain", "yellow"), False: ("no", "red")}
_PARTS = (
    ("W", "weights", "weights_bytes", "blue"),
    ("A", "activation and workspaces", "activation_bytes", "magenta"),
    ("C", "collectives", "comm_bytes", "yellow"),
    ("G", "CUDA graphs", "cudagraph_bytes", "yellow"),
    ("K", "KV pool", "kv_pool_bytes", "green"),
    ("R", "runtime", "runtime_bytes", "cyan"),
)
_FORMATS = {
    "bf16": "BF16", "fp8_block128_e8m0": "FP8", "fp8_block128_f32": "FP8", "fp8_channel": "FP8",
    "fp4_group32": "FP4", "mxfp4_group32": "MXFP4",
}  # fmt: skip


def report(planned: Planned, *, needed: str = "", show_all: bool = False) -> Iterator[RenderableType]:
    """The report part by part; laid out for 80 columns, and readable on fewer."""
    deployment, gpu, plan = planned.deployment, planned.gpu, planned.plan
    yield _head(deployment, gpu, plan)
    if needed:
        yield Text.assemble(("Nothing fits. ", "bold red"), needed)
    yield _layout_table(plan, show_all)
    if planned.queueing is not None:
        yield from queueing_report(planned, planned.queueing)
    best = plan.best
    if best is not None:
        yield Text.assemble(("\nBest: ", "bold"), (best.layout.label, "bold green"), _stage_words(best))
        yield _memory(best)
        yield _capacity(best)
        yield from warnings_report(best)
        yield _settings(best)
        yield _speed(deployment, best)
        missing = objectives_needed(planned)
        if missing:
            yield item(missing)
    yield from options_report(plan_options(planned))
    yield _losers(plan, show_all)
    if show_all:
        yield from pareto_report(planned)
    yield Group(Text("\nAssumptions", style="bold"), *(item(line) for line in plan.assumptions))


def _head(deployment: Deployment, gpu: Gpu, plan: Plan) -> Text:
    model, cluster, workload = plan.model, deployment.cluster, deployment.workload
    totals = checkpoint_totals(model)
    formats = _FORMATS[model.linear_format]
    if model.expert_format != model.linear_format:
        formats += f", experts {_FORMATS[model.expert_format]}"
    return Text.assemble(
        (model.id, "bold"),
        f"  {_parameters(totals.parameters)} parameters, {model.num_layers} layers, "
        f"{format_bytes(plan.weights_bytes_total)} of weights ({formats})\n",
        f"{cluster.nodes} x {cluster.gpus_per_node} {gpu.id}, {format_gib(gpu.device_bytes)} each; "
        f"{workload.rate_per_s:g} requests/s, prompts {workload.prompt_tokens.p50:,} to {workload.prompt_tokens.p99:,} "
        f"and answers {workload.output_tokens.p50:,} to {workload.output_tokens.p99:,} tokens (P50 to P99)\n",
    )


def _parameters(count: int) -> str:
    return f"{count / 1e9:,.1f} B" if count >= 1e8 else f"{count / 1e6:,.1f} M"


def _fits(feasible: Feasible) -> Text:
    word, colour = _FITS[feasible]
    return Text(word, style=colour)


def _named(layouts: Sequence[LayoutPlan]) -> list[tuple[str, LayoutPlan]]:
    """Layouts with a name each; one that differs by expert parallelism alone, to no effect, joins its twin."""
    return [(name_of(group), group[0]) for group in distinct(layouts)]


def _layout_table(plan: Plan, show_all: bool) -> RenderableType:
    fitting = _named([judged for judged in plan.layouts if judged.feasible is not False])
    if not fitting:
        return Text("")
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name in ("layout", "fits"):
        table.add_column(name, no_wrap=True)
    length = fitting[0][1].settings["max_model_len"].value
    for name in (f"{_short(length)} at\nstart", f"{_short(length)}\nheld", "TTFT\nP99", "TPOT\nP99", "tokens\n/s"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("SLA", no_wrap=True)
    shown = fitting if show_all else fitting[:SHOWN_FITTING]
    for name, judged in shown:
        table.add_row(*_row(name, judged))
    hidden = len(fitting) - len(shown)
    more = f"and {hidden} more that fit: --all shows them\n" if hidden else ""
    legend = "at start: requests of full length that vLLM's start-up check admits; held: that can decode at once"
    return Group(Text("Layouts, best first", style="bold"), Fitting(table), Text(more + legend, style="dim"))


def _short(tokens: object) -> str:
    """``32K`` for 32,768: a context length as people say it."""
    return f"{tokens // 1024}K" if isinstance(tokens, int) and tokens % 1024 == 0 else f"{tokens}"


def _row(name: str, judged: LayoutPlan) -> tuple[RenderableType, ...]:
    start: tuple[RenderableType, ...] = (
        name,
        _fits(judged.feasible),
        f"{judged.max_concurrency:.2f}",
        format_count(judged.resident_requests),
    )
    predicted = judged.predicted
    if predicted is None:
        return (*start, "-", "-", "-", "-")
    verdict = {True: Text("met", style="green"), False: Text("missed", style="red"), None: Text("-")}
    tokens = predicted.output_tokens_per_s * judged.layout.replicas
    return (
        *start,
        format_duration(predicted.ttft_p99_s),
        format_duration(predicted.tpot_p99_s),
        format_count(tokens) + ("*" if predicted.saturated else ""),
        verdict[predicted.meets_sla],
    )


def _stage_words(best: LayoutPlan) -> str:
    layout = best.layout
    stages = f", stages of {' + '.join(map(str, layout.stage_layers))} layers" if layout.pp > 1 else ""
    many = layout.replicas > 1
    engines = f"{layout.replicas} independent engines" if many else "one engine"
    ranks = f"{layout.world_size} ranks" if layout.world_size > 1 else "one rank"
    return f"  {engines} of {ranks}{' each' if many else ''}{stages}"


def _memory(best: LayoutPlan) -> RenderableType:
    lines: list[RenderableType] = []
    for budget in best.ranks:
        tight = "  tightest" if budget.rank == best.tightest_rank and len(best.ranks) > 1 else ""
        lines.append(
            Text(f"  rank {budget.rank}, stage {budget.stage} ({budget.count} rank{'s' * (budget.count > 1)}){tight}")
        )
        lines.append(_bar(budget))
        parts = ", ".join(
            f"{name} {_size(getattr(budget, field))}" for _, name, field, _ in _PARTS if getattr(budget, field)
        )
        lines.append(Padding(Text(f"{parts}, free {_size(budget.free_bytes)}", style="dim"), (0, 0, 0, 4)))
    return Group(Text("\nMemory of a rank", style="bold"), *lines, _legend())


def _size(size_bytes: int) -> str:
    """GiB, and a smaller unit only where GiB would read 0.00."""
    return format_gib(size_bytes) if abs(size_bytes) >= 0.01 * GIB or size_bytes == 0 else format_bytes(size_bytes)


def _legend() -> Padding:
    legend = Text()
    for letter, name, _, colour in _PARTS:
        legend.append(f"{letter} ", style=colour).append(f"{name}  ", style="dim")
    return Padding(legend.append(". free", style="dim"), (0, 0, 0, 2))


def _bar(budget: MemoryBudget) -> Stretching:
    """One letter for each forty-eighth of the device; a part too small for a letter shows in the line below."""
    before, after = "  [", f"] {format_gib(budget.device_bytes)}"

    def draw(columns: int) -> Text:
        room = max(8, columns - len(before) - len(after))
        bar, edge, drawn = Text(before), 0.0, 0
        for letter, _, field, colour in _PARTS:
            edge += getattr(budget, field) / budget.device_bytes * room
            cells = min(round(edge), room) - drawn
            bar.append(letter * cells, style=colour)
            drawn += cells
        bar.append("." * (room - drawn) + after[0], style="dim")
        return bar.append(after[1:])

    return Stretching(draw, most=BAR_COLUMNS + len(before) + len(after))


def _capacity(best: LayoutPlan) -> RenderableType:
    length = best.settings["max_model_len"].value
    per = "each data-parallel rank" if best.layout.dp > 1 else "a replica"
    lines = [
        f"vLLM's start-up figures for {per}: {format_count(best.kv_capacity_tokens)} tokens, "
        f"{best.max_concurrency:.2f} requests of {length:,} tokens",
        f"decoding requests of {length:,} tokens it can hold: {format_count(best.resident_requests)} "
        f"({format_count(best.kv_resident_tokens)} tokens)",
        f"{format_count(best.kv_blocks)} blocks of {best.cache.block_tokens} tokens, "
        f"{' / '.join(format_count(size) for size in best.cache.bytes_per_block)} bytes each"
        + (" by stage" if best.layout.pp > 1 else ""),
    ]
    if best.cache.state_bytes_per_sequence:
        lines.append(f"recurrent state of a sequence on one rank: {format_bytes(best.cache.state_bytes_per_sequence)}")
    return Group(Text("\nKV cache", style="bold"), *(item(line) for line in lines))


def _settings(best: LayoutPlan) -> RenderableType:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(no_wrap=True)
    table.add_column(style="dim")
    for name, setting in best.settings.items():
        value = "engine's own" if setting.value is None else str(setting.value)
        table.add_row(name, value, setting.why)
    return Group(Text("\nSettings", style="bold"), Padding(Fitting(table, least=64), (0, 0, 0, 2)))


def _speed(deployment: Deployment, best: LayoutPlan) -> RenderableType:
    predicted = best.predicted
    if predicted is None:
        return Text("")
    replicas, sla = best.layout.replicas, deployment.sla
    limits = [
        (name, limit)
        for name, limit in (("TTFT P99", sla.ttft_p99_s), ("TPOT P99", sla.tpot_p99_s))
        if limit is not None
    ]
    lines = [
        f"TTFT P50 {format_duration(predicted.ttft_p50_s)}, P99 {format_duration(predicted.ttft_p99_s)}; "
        f"TPOT P50 {format_duration(predicted.tpot_p50_s)}, P99 {format_duration(predicted.tpot_p99_s)}",
        f"{format_count(predicted.output_tokens_per_s * replicas)} output tokens/s at "
        f"{predicted.concurrency * replicas:,.0f} requests in flight",
    ]
    if predicted.saturated:
        carried = predicted.request_rate_per_s * replicas
        lines.append(
            f"* saturated: it carries {carried:.3g} requests/s of the {deployment.workload.rate_per_s:g} asked"
        )
    if predicted.near_saturation:
        lines.append(
            f"near saturation: {predicted.load_ratio:.0%} of all that it carries at any latency; from half of it on "
            "latencies climb steeply, and TPOT may be off by another half: trust the simulation"
        )
    if limits:
        words = ", ".join(f"{name} within {format_duration(limit)}" for name, limit in limits)
        lines.append(f"objectives ({words}): {'met' if predicted.meets_sla else 'missed'} at the asked rate")
    lines.append(f"source: {predicted.source}; error band {predicted.error_band:.0%} either way")
    return Group(Text("\nPredicted", style="bold"), *(item(line) for line in lines))


def _losers(plan: Plan, show_all: bool) -> RenderableType:
    losers = _named([judged for judged in plan.layouts if judged.feasible is False])
    if not losers:
        return Text("")
    shown = losers if show_all else _telling(losers)
    lines: list[RenderableType] = [
        item(Text.assemble((name + ": ", "bold"), "; ".join(judged.reasons))) for name, judged in shown
    ]
    if len(losers) > len(shown):
        lines.append(item(Text(f"and {len(losers) - len(shown)} more: --all shows them", style="dim")))
    return Group(Text("\nWhy the others lost", style="bold"), *lines)


def _telling(losers: Sequence[tuple[str, LayoutPlan]]) -> list[tuple[str, LayoutPlan]]:
    """The nearest of those that lack memory, and the first few that cannot be built."""
    lacking = [entry for entry in losers if entry[1].ranks]
    unbuilt = [entry for entry in losers if not entry[1].ranks]
    return lacking[:SHOWN_LOSERS] + unbuilt[:SHOWN_UNBUILT]
