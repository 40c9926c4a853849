"""A plan as one HTML page that opens offline: memory of every rank, cache, load, settings, losers, assumptions."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING

from roadworthy import __version__
from roadworthy.advise.pareto import Point, front_of, pareto
from roadworthy.advise.queueing import NOT_SIMULATED, Queueing
from roadworthy.advise.ranking import distinct, name_of, why_behind
from roadworthy.bench import cost_plots, plan_plots
from roadworthy.bench.report_page import notes, page, paragraph, sentence, table
from roadworthy.cli.cost_html import curve
from roadworthy.cli.cost_throughput import from_plan
from roadworthy.cli.plan_advice import objectives_needed, option_words, plan_options
from roadworthy.cli.plan_queueing import queueing_notes, skipped_groups
from roadworthy.core.errors import RoadworthyError
from roadworthy.core.units import format_bytes, format_count, format_duration, format_gib
from roadworthy.cost.report import make_report
from roadworthy.plan.cache_groups import in_flight_tokens
from roadworthy.plan.workload import demand_of

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Simulated
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, MemoryBudget, Predicted

PARTS = (
    ("weights", "weights_bytes"),
    ("activation and workspaces", "activation_bytes"),
    ("collectives", "comm_bytes"),
    ("CUDA graphs", "cudagraph_bytes"),
    ("KV pool", "kv_pool_bytes"),
    ("runtime", "runtime_bytes"),
    ("free", "free_bytes"),
)
"""Parts of a rank as the page draws them, from left to right, and the field of each."""

OTHERS_SHOWN = 40
_SINGLE = ' class="single"'
_FITS = {True: "yes", False: "no", "uncertain": "uncertain"}
_TONES = {True: "met", "uncertain": "undecided", False: "missed"}


def plan_page(planned: Planned, *, needed: str = "") -> str:
    """The page. ``needed`` says what would be needed where nothing fits."""
    best, queueing = planned.plan.best, planned.queueing or NOT_SIMULATED
    body = [verdict_banner(planned, needed)]
    if best is not None:
        body += [
            memory_section(best),
            _cache_section(planned, best),
            _load_section(planned, queueing),
            _settings_section(best),
            _warnings_section(best),
        ]
    body.append(_options_section(planned))
    if best is not None:
        body.append(_cost_section(planned))
    body += [_others_section(planned, queueing), _assumptions_section(planned)]
    return page(
        f"Plan: {planned.deployment.name}",
        body,
        subtitle=subtitle(planned),
        generator=f"roadworthy {__version__}",
        style=plan_plots.STYLE + cost_plots.STYLE,
    )


def subtitle(planned: Planned) -> str:
    """Model, cluster and load in one line."""
    cluster, workload = planned.deployment.cluster, planned.deployment.workload
    return (
        f"{planned.model.id}, {format_bytes(planned.plan.weights_bytes_total)} of weights, on {cluster.nodes} x "
        f"{cluster.gpus_per_node} {planned.gpu.id} ({format_gib(planned.gpu.device_bytes)} each); "
        f"{workload.rate_per_s:g} requests/s"
    )


def verdict_banner(planned: Planned, needed: str, *, name: str = "") -> str:
    """What it comes to, at the top of the page: the best layout and its promise, or what is lacking."""
    best = planned.plan.best
    if best is None:
        tone, sign, word, text = "missed", "✕", "Nothing fits", needed
    else:
        tone = _TONES[best.feasible]
        sign, word = {"met": "✓", "undecided": "?"}[tone], best.layout.label
        why = why_behind(best, planned.plan, planned.queueing or NOT_SIMULATED, planned.deployment.sla)
        text = f"{_FITS_WORDS[best.feasible]}; {why}"
        if "over" in why or "backlog" in why or "carries less" in why:
            tone, sign = "undecided", "!"
    of = f'<span class="of">{escape(name)}</span>' if name else ""
    return (
        f'<div class="banner {tone}"><span class="sign">{sign}</span><div><strong>{escape(word)}</strong>{of}'
        f"<p>{escape(sentence(text))}</p></div></div>"
    )


_FITS_WORDS = {True: "fits", "uncertain": "may fit"}


def memory_section(best: LayoutPlan, *, title: str = "Memory of every distinct rank") -> str:
    """A bar for each distinct rank, and the numbers below."""
    legend = "".join(f'<li><i class="k{at}"></i>{escape(name)}</li>' for at, (name, _) in enumerate(PARTS))
    rows = [
        (
            _rank_name(rank) + (" (tightest)" if rank.rank == best.tightest_rank and len(best.ranks) > 1 else ""),
            format_count(rank.count),
            *(format_gib(getattr(rank, field)) for _, field in PARTS),
        )
        for rank in best.ranks
    ]
    numbers = table(("rank", "ranks", *(name for name, _ in PARTS)), rows)
    bars = plan_plots.memory_stack([_bar(rank) for rank in best.ranks], format_gib)
    return (
        f'<section><h2>{escape(title)}</h2><ul class="legend">{legend}</ul>{bars}'
        f"<details><summary>The numbers</summary>{numbers}</details></section>"
    )


def _rank_name(rank: MemoryBudget) -> str:
    return f"rank {rank.rank}, stage {rank.stage}"


def _bar(rank: MemoryBudget) -> plan_plots.Bar:
    parts = tuple((at, name, getattr(rank, field)) for at, (name, field) in enumerate(PARTS))
    return plan_plots.Bar(name=f"{_rank_name(rank)}, x {rank.count}", device_bytes=rank.device_bytes, parts=parts)


def _cache_section(planned: Planned, best: LayoutPlan) -> str:
    demand = best.demand or demand_of(planned.deployment.workload)
    longest = best.settings["max_model_len"].value
    assert isinstance(longest, int)
    lengths = _lengths(longest)
    held = [(length, float(_held(best, length))) for length in lengths]
    admitted = [(length, _admitted(best, length)) for length in lengths]
    marks = [("workload's mean", demand.context_mean)] if lengths[0] <= demand.context_mean <= lengths[-1] else []
    requests = plan_plots.log_lines(
        (_line("decoding at once", held), _line("admitted at start-up", admitted)),
        x_name="context length, tokens", y_name="requests", marks=marks,
    )  # fmt: skip
    tokens = plan_plots.log_lines(
        (
            _line("decoding at once", [(length, count * length) for length, count in held]),
            _line("admitted at start-up", [(length, count * length) for length, count in admitted]),
        ),
        x_name="context length, tokens", y_name="tokens", marks=marks,
    )  # fmt: skip
    per = "each data-parallel rank" if best.layout.dp > 1 else "a replica"
    facts = (
        f"vLLM's start-up figures for {per}: {format_count(best.kv_capacity_tokens)} tokens, "
        f"{best.max_concurrency:.2f} requests of {longest:,} tokens.",
        f"Decoding requests of {longest:,} tokens it can hold: {format_count(best.resident_requests)} "
        f"({format_count(best.kv_resident_tokens)} tokens).",
        f"{format_count(best.kv_blocks)} blocks of {best.cache.block_tokens} tokens.",
        *(
            (f"Recurrent state of a sequence on one rank: {format_bytes(best.cache.state_bytes_per_sequence)}.",)
            if best.cache.state_bytes_per_sequence
            else ()
        ),
    )
    names = ("decoding at once", "admitted at start-up")
    keys = "".join(f'<li><i class="l{at}"></i>{name}</li>' for at, name in enumerate(names))
    figures = _figure(f"Requests, {per}", requests) + _figure(f"Tokens, {per}", tokens)
    return (
        f'<section><h2>KV capacity against context length</h2><ul class="legend">{keys}</ul>'
        f'<div class="plots">{figures}</div>{notes(facts)}</section>'
    )


def _lengths(longest: int) -> list[int]:
    """Powers of two from 256 tokens up to the context length, and that itself."""
    lengths, length = [], min(256, longest)
    while length < longest:
        lengths.append(length)
        length *= 2
    return [*lengths, longest]


def _held(best: LayoutPlan, length: int) -> int:
    return max(0, best.kv_blocks - 1) // best.cache.held_blocks(length)


def _admitted(best: LayoutPlan, length: int) -> float:
    batch = best.settings["max_num_batched_tokens"].value
    assert isinstance(batch, int)
    in_flight = in_flight_tokens(pp=best.layout.pp, max_num_batched_tokens=batch)
    return best.kv_blocks / best.cache.admission_blocks(length, in_flight)


def _line(name: str, points: Sequence[tuple[float, float]]) -> plan_plots.Line:
    return plan_plots.Line(name=name, points=tuple(point for point in points if point[1] > 0))


def _figure(caption: str, svg: str, kind: str = "") -> str:
    return f"<figure{kind}><figcaption>{escape(caption)}</figcaption>{svg}</figure>"


def _load_section(planned: Planned, queueing: Queueing) -> str:
    points = pareto(planned.plan, planned.deployment.workload)
    sla = planned.deployment.sla
    plot = plan_plots.front(
        [_dot(point) for point in points],
        x_name="TPOT P50", y_name="output tokens/s a GPU",
        limit_s=sla.tpot_p99_s, limit_name="TPOT P99 ≤",
    )  # fmt: skip
    front = table(
        ("layout", "in flight", "TPOT P50", "TTFT P50", "tokens/s a GPU", "requests/s", "asked rate"),
        [
            (
                point.label, format_count(point.concurrency), format_duration(point.tpot_p50_s),
                format_duration(point.ttft_p50_s), f"{point.tokens_per_s_and_gpu:,.1f}",
                f"{point.request_rate_per_s:,.3g}", "carried" if point.carries else "",
            )
            for point in front_of(points)
        ],
    )  # fmt: skip
    about = "Analytic, before queueing: every layout that fits, at doubling numbers of requests in flight."
    return (
        f"{_queueing_section(planned, queueing)}<section><h2>Latency against throughput</h2>"
        f"{_figure(about, plot, _SINGLE)}"
        f"<details><summary>The front</summary>{front}</details></section>"
    )


def _dot(point: Point) -> plan_plots.Dot:
    name = (
        f"{point.label}, {point.concurrency:,} in flight: TPOT {format_duration(point.tpot_p50_s)}, "
        f"{point.tokens_per_s_and_gpu:,.1f} tokens/s a GPU"
    )
    return plan_plots.Dot(x_s=point.tpot_p50_s, y=point.tokens_per_s_and_gpu, name=name, on_front=point.on_front)


def _queueing_section(planned: Planned, queueing: Queueing) -> str:
    shown = [judged for judged in planned.plan.layouts if judged.layout in queueing.results]
    best = planned.plan.best
    if not shown and best is not None:
        shown = [best]
    rows: list[tuple[str, ...]] = []
    for group in distinct(shown):
        result, predicted = queueing.of(group[0]), group[0].predicted
        if result is not None:
            rows.append((name_of(group), "simulated", *_numbers(group[0], result), _verdict(result)))
        if predicted is not None:
            met = {True: "met", False: "missed", None: "–"}[predicted.meets_sla]
            rows.append(("" if result is not None else name_of(group), "analytic", *_numbers(group[0], predicted), met))
    if not rows:
        return ""
    columns = ("layout", "numbers", "TTFT P50", "TTFT P99", "TPOT P50", "TPOT P99", "tokens/s", "SLA")
    remarks = [sentence(line) for line in queueing_notes(queueing)] if queueing.results else []
    remarks += [f"{name} was not simulated: {why}." for name, why in skipped_groups(planned, queueing)]
    wanted = objectives_needed(planned)
    remarks += [sentence(wanted)] if wanted else []
    if best is not None and best.predicted is not None:
        source = best.predicted.source.removesuffix("; before queueing")
        band = f"error band {best.predicted.error_band:.0%} either way"
        remarks.append(sentence(f"source of the step times: {source}; {band}"))
    badge = '<span class="badge simulated">simulated</span>' if queueing.results else ""
    return f"<section><h2>At the asked rate{badge}</h2>{table(columns, rows)}{notes(remarks)}</section>"


def _verdict(result: Simulated) -> str:
    return result.verdict if result.verdict == "met" else f"{result.verdict}, {result.attainment_ratio:.0%}"


def _numbers(judged: LayoutPlan, numbers: Simulated | Predicted) -> tuple[str, ...]:
    times = (numbers.ttft_p50_s, numbers.ttft_p99_s, numbers.tpot_p50_s, numbers.tpot_p99_s)
    return (*map(format_duration, times), format_count(numbers.output_tokens_per_s * judged.layout.replicas))


def _settings_section(best: LayoutPlan) -> str:
    rows = [(name, f"{setting.value}", setting.why) for name, setting in best.settings.items()]
    return f"<section><h2>Settings, and why</h2>{table(('setting', 'value', 'why'), rows)}</section>"


def _warnings_section(best: LayoutPlan) -> str:
    """What start-up would stumble over, and the setting that mends it; nothing where there is none."""
    if not best.warnings:
        return ""
    rows = [(sentence(warning.message), warning.mend or "–") for warning in best.warnings]
    return f"<section><h2>What start-up would bring to light</h2>{table(('', 'what mends it'), rows)}</section>"


def _options_section(planned: Planned) -> str:
    """What else could be done, and its effect; nothing where there is no alternative."""
    words = map(option_words, plan_options(planned))
    rows = [(title, settings or "–", sentence(effects)) for title, settings, effects in words]
    return f"<section><h2>Options</h2>{table(('option', 'settings', 'effect'), rows)}</section>" if rows else ""


def _cost_section(planned: Planned) -> str:
    """Own cost against the API's over tokens a month, at the planned throughput; nothing where none can be priced."""
    if planned.gpu.id == "cpu":
        return ""
    try:
        report = make_report(planned.deployment, planned.model.id, planned.gpu, from_plan(planned))
    except RoadworthyError as error:
        return f"<section><h2>Break-even</h2>{paragraph(sentence(f'not drawn: {error}'), 'note')}</section>"
    drawn = curve(report)
    words = [f"{report.decision.choice}: {report.decision.reasons[0]}"]
    words.append(
        f"own cost {report.fixed.per_month:,.0f} {report.fixed.currency} a month and cluster, "
        f"{report.unit_cost_per_mtok:,.2f} per million tokens at the planned throughput"
    )
    if not drawn:
        words.append("no API price is known for this model: cost.api states one")
    words.append("`roadworthy cost` has the parts, the range and what moves the result")
    return f"<section><h2>Break-even</h2>{drawn}{notes(map(sentence, words))}</section>"


def _others_section(planned: Planned, queueing: Queueing) -> str:
    groups = distinct(planned.plan.layouts)
    rows = [
        (
            name_of(group),
            _FITS[group[0].feasible],
            format_gib(max((rank.weights_bytes for rank in group[0].ranks), default=0)) if group[0].ranks else "–",
            why_behind(group[0], planned.plan, queueing, planned.deployment.sla),
        )
        for group in groups[:OTHERS_SHOWN]
    ]
    left = len(groups) - len(rows)
    more = f"and {left:,} more, each behind these; `roadworthy plan --all` lists them" if left else ""
    rest = paragraph(sentence(more), "note") if more else ""
    columns = ("layout", "fits", "weights, fullest rank", "why it stands there")
    return f"<section><h2>Every layout, best first</h2>{table(columns, rows)}{rest}</section>"


def _assumptions_section(planned: Planned) -> str:
    return f"<section><h2>Assumptions</h2>{notes(map(sentence, planned.plan.assumptions))}</section>"
