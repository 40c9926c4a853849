"""Two plans side by side: what each gives at its best, and what differs in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from roadworthy import __version__
from roadworthy.advise.queueing import NOT_SIMULATED
from roadworthy.bench import plan_plots
from roadworthy.bench.report_page import notes, page, sentence, table
from roadworthy.cli.hourly_cost import cost_per_hour
from roadworthy.cli.plan_advice import item
from roadworthy.cli.plan_html import memory_section, subtitle, verdict_banner
from roadworthy.cli.plan_json import plan_json
from roadworthy.core.units import format_bytes, format_count, format_duration, format_gib

if TYPE_CHECKING:
    from roadworthy.advise.queueing import Simulated
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, Predicted

ALIKE_RATIO = 0.02
"""Numbers nearer to each other than this are called the same."""


Value = Callable[["Planned"], "float | None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of the comparison. ``number`` is None where a plan has none; ``text`` is how a number reads.

    ``better`` says whether more or less is better, or "" where it is neither; ``of_load`` marks what depends on the
    workload, and is not better or worse when the two plans serve different ones.
    """

    name: str
    numbers: tuple[float | None, float | None]
    text: Callable[[float], str]
    better: str = ""
    of_load: bool = False

    def shown(self) -> tuple[str, str]:
        first, second = (self.text(number) if number is not None else "–" for number in self.numbers)
        return first, second


def measures(one: Planned, other: Planned) -> tuple[Measure, ...]:
    """What is compared, in the order of the report."""

    def of(
        name: str, value: Value, text: Callable[[float], str], better: str = "", *, of_load: bool = False
    ) -> Measure:
        return Measure(
            name=name, numbers=(value(one), value(other)), text=text, better=better, of_load=of_load
        )  # fmt: skip

    def best(value: Callable[[LayoutPlan], float | None]) -> Value:
        return lambda planned: value(planned.plan.best) if planned.plan.best is not None else None

    return (
        of("GPUs", lambda planned: planned.deployment.cluster.gpus, format_count),
        of("weights of the model", lambda planned: planned.plan.weights_bytes_total, format_bytes, "less"),
        of("weights, fullest rank", best(lambda b: max(rank.weights_bytes for rank in b.ranks)), format_gib, "less"),
        of("KV pool, tightest rank", best(_pool_bytes), format_gib, "more"),
        of("context length", best(_context_tokens), format_count, "more"),
        of("full-length requests, start-up", best(lambda b: b.max_concurrency * _engines(b)), _two_digits, "more"),
        of("full-length requests held", best(lambda b: b.resident_requests * _engines(b)), format_count, "more"),
        of("tokens held", best(lambda b: b.kv_resident_tokens * _engines(b)), format_count, "more"),
        of("TTFT P50", best_speed("ttft_p50_s"), format_duration, "less", of_load=True),
        of("TTFT P99", best_speed("ttft_p99_s"), format_duration, "less", of_load=True),
        of("TPOT P50", best_speed("tpot_p50_s"), format_duration, "less", of_load=True),
        of("TPOT P99", best_speed("tpot_p99_s"), format_duration, "less", of_load=True),
        of("output tokens/s, asked rate", _tokens, format_count, "more", of_load=True),
        of("output tokens/s, most in the SLA", best(_capacity), format_count, "more", of_load=True),
        of("cost an hour", cost_per_hour, _two_digits, "less"),
        of("cost of 1M output, asked rate", _cost_of_a_million, _two_digits, "less", of_load=True),
    )


def _two_digits(number: float) -> str:
    return f"{number:,.2f}"


def _engines(best: LayoutPlan) -> int:
    return best.layout.dp * best.layout.replicas


def _pool_bytes(best: LayoutPlan) -> float:
    return next(rank.kv_pool_bytes for rank in best.ranks if rank.rank == best.tightest_rank)


def _context_tokens(best: LayoutPlan) -> float | None:
    value = best.settings["max_model_len"].value
    return value if isinstance(value, int) else None


def _capacity(best: LayoutPlan) -> float | None:
    return best.predicted.capacity_tokens_per_s * best.layout.replicas if best.predicted is not None else None


def numbers_of(planned: Planned) -> Simulated | Predicted | None:
    """The simulated numbers of the best layout where there are, else the analytic ones."""
    best = planned.plan.best
    if best is None:
        return None
    return (planned.queueing or NOT_SIMULATED).of(best) or best.predicted


def best_speed(name: str) -> Value:
    """The named time of a plan's best layout."""

    def value(planned: Planned) -> float | None:
        numbers = numbers_of(planned)
        return getattr(numbers, name) if numbers is not None else None

    return value


def _tokens(planned: Planned) -> float | None:
    numbers, best = numbers_of(planned), planned.plan.best
    return numbers.output_tokens_per_s * best.layout.replicas if numbers is not None and best is not None else None


def _cost_of_a_million(planned: Planned) -> float | None:
    """Money for a million output tokens while the asked rate runs; idle hours are not in it."""
    money, tokens = cost_per_hour(planned), _tokens(planned)
    return money / (tokens * 3600) * 1e6 if money is not None and tokens else None


def differences(one: Planned, other: Planned) -> list[str]:
    """What differs, in words, the first plan being A and the second B."""
    words = _documents_differ(one, other)
    layouts = [planned.plan.best.layout.label if planned.plan.best is not None else None for planned in (one, other)]
    if None in layouts:
        for name, label in zip("AB", layouts, strict=True):
            words.append(f"{name} does not fit" if label is None else f"{name} fits as {label}")
    else:
        same = layouts[0] == layouts[1]
        words.append(f"both run as {layouts[0]}" if same else f"A runs as {layouts[0]}, B as {layouts[1]}")
    same_load = one.deployment.workload == other.deployment.workload
    words += [said for measure in measures(one, other) if (said := _said(measure, same_load=same_load))]
    return words


def _documents_differ(one: Planned, other: Planned) -> list[str]:
    pairs = (
        ("model", one.model.id, other.model.id),
        ("GPU", one.gpu.id, other.gpu.id),
        ("weights", one.deployment.model.weights, other.deployment.model.weights),
        ("engine version", one.deployment.engine.version, other.deployment.engine.version),
    )
    words = [f"{name}: A {first}, B {second}" for name, first, second in pairs if first != second]
    if one.deployment.workload != other.deployment.workload:
        words.append("the workload differs: latencies and tokens/s are not of the same load")
    if one.deployment.sla != other.deployment.sla:
        words.append("the SLA differs: what one calls met the other may not")
    return words


def _said(measure: Measure, *, same_load: bool) -> str:
    a, b = measure.numbers
    if a is None or b is None or a == b:
        return ""
    low, high = sorted((a, b))
    if high <= low * (1 + ALIKE_RATIO):
        return ""
    first, second = measure.shown()
    words = f"{measure.name}: A {first}, B {second}"
    if not measure.better or (measure.of_load and not same_load) or low <= 0:
        return words
    winner = "A" if (a > b) == (measure.better == "more") else "B"
    return f"{words}; {winner} is better, {high / low:.3g} times"


def _sources(one: Planned, other: Planned) -> list[str]:
    how = ["simulated" if (p.queueing or NOT_SIMULATED).results else "analytic, before queueing" for p in (one, other)]
    lines = [f"times and tokens/s are {how[0]}" if how[0] == how[1] else f"times of A are {how[0]}, of B {how[1]}"]
    bands = [p.plan.best.predicted.error_band for p in (one, other) if p.plan.best and p.plan.best.predicted]
    if bands:
        lines.append(f"error band of speeds up to {max(bands):.0%} either way: smaller differences are not certain")
    return lines


def compare_report(one: Planned, other: Planned) -> Iterator[RenderableType]:
    """The comparison part by part, for a console of 80 columns or more."""
    screen = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    screen.add_column("")
    for name in "AB":
        screen.add_column(name, justify="right", overflow="fold")
    for row in _rows(one, other):
        screen.add_row(*row)
    yield Group(Text("Two plans, each at its best layout", style="bold"), screen)
    yield Group(
        Text("\nWhat differs", style="bold"),
        *(item(line) for line in differences(one, other)),
        *(Text(f"  {line}", style="dim") for line in _sources(one, other)),
    )


def _rows(one: Planned, other: Planned) -> list[tuple[str, str, str]]:
    both = (one, other)

    def words(name: str, value: Callable[[Planned], str]) -> tuple[str, str, str]:
        return name, value(both[0]), value(both[1])

    return [
        words("document", lambda planned: planned.deployment.name),
        words("model", lambda planned: planned.model.id),
        words("GPUs", lambda planned: f"{planned.deployment.cluster.gpus} x {planned.gpu.id}"),
        words("best layout", lambda planned: planned.plan.best.layout.label if planned.plan.best else "none fits"),
        words("SLA", _promise),
        *((measure.name, *measure.shown()) for measure in measures(one, other) if measure.name != "GPUs"),
        words("currency of the cost", _currency),
    ]


def _currency(planned: Planned) -> str:
    return planned.deployment.cost.currency if cost_per_hour(planned) is not None else "–"


def _promise(planned: Planned) -> str:
    best = planned.plan.best
    if best is None:
        return "–"
    result = (planned.queueing or NOT_SIMULATED).of(best)
    if result is not None:
        return result.verdict
    return {True: "met", False: "missed", None: "–"}[best.predicted.meets_sla if best.predicted is not None else None]


def compare_json(one: Planned, other: Planned) -> Mapping[str, object]:
    """Both plans whole, and what differs."""
    return {
        "a": {"name": one.deployment.name, **plan_json(one.plan, queueing=one.queueing)},
        "b": {"name": other.deployment.name, **plan_json(other.plan, queueing=other.queueing)},
        "measures": [
            {"name": measure.name, "a": measure.numbers[0], "b": measure.numbers[1], "better": measure.better or None}
            for measure in measures(one, other)
        ],
        "differences": differences(one, other),
    }


def compare_page(one: Planned, other: Planned) -> str:
    """The comparison as one page that opens offline."""
    from roadworthy.cli.plan import needed_words

    names = (f"A: {one.deployment.name}", f"B: {other.deployment.name}")
    body = [verdict_banner(p, needed_words(p), name=name) for name, p in zip(names, (one, other), strict=True)]
    body.append(f"<section><h2>Side by side</h2>{table(('', 'A', 'B'), _rows(one, other))}</section>")
    remarks = [*map(sentence, differences(one, other)), *map(sentence, _sources(one, other))]
    body.append(f"<section><h2>What differs</h2>{notes(remarks)}</section>")
    for name, planned in zip(names, (one, other), strict=True):
        if planned.plan.best is not None:
            body.append(memory_section(planned.plan.best, title=f"Memory of every distinct rank, {name}"))
        body.append(f'<p class="note">{escape(f"{name}: {subtitle(planned)}")}</p>')
    return page(
        f"{one.deployment.name} against {other.deployment.name}",
        body,
        subtitle="Two plans, each at its best layout",
        generator=f"roadworthy {__version__}",
        style=plan_plots.STYLE,
    )
