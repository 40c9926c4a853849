"""What a simulation says to people beyond the report that it shares with `bench`."""

from __future__ import annotations

import math
import statistics
from typing import TYPE_CHECKING

from roadworthy.cli.simulate_trace import trace_fact, trace_notes
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.cli.simulate_run import JudgedRun
    from roadworthy.core.latency import LatencySummary
    from roadworthy.simulate.compare import PolicyResult

NAME_COLUMNS = 23


def facts(judged: JudgedRun) -> tuple[tuple[str, str], ...]:
    """What lets a reader repeat the run."""
    best, deployment, run = judged.planned.best(), judged.planned.deployment, judged.run
    rate = judged.asked_rate_per_s
    return (
        ("model", deployment.model.served_name),
        ("layout", best.layout.label),
        ("engines", str(len(run.engines))),
        *((("load", trace_fact(judged.recording)),) if judged.recording is not None else ()),
        ("rate", "its own" if rate is None else f"{rate:g}/s"),
        ("seed", str(judged.seed) if len(judged.seeds) < 2 else f"{judged.seed} to {judged.seeds[-1].seed}"),
        ("utilisation", f"{run.utilisation_ratio:.0%}"),
        ("routing", f"{judged.routing.policy}, {run.cached_ratio:.0%} of prompt tokens from the prefix cache"),
        ("governance", "the document's quotas, queue and rules" if judged.governed else "none"),
    )


def notes(judged: JudgedRun) -> tuple[str, ...]:
    """What a reader must know to read the numbers right."""
    run, best = judged.run, judged.planned.best()
    predicted = best.predicted
    source = f" Step times: {predicted.source}, error {predicted.error_band:.0%}." if predicted is not None else ""
    said = [
        f"Virtual time: every number comes from a model of the engine, none was measured.{source}",
        f"{len(run.engines)} engine(s), pipeline {run.utilisation_ratio:.0%} busy, {run.preemptions:,} preemptions; "
        f"simulated at {judged.requests_per_cpu_s:,.0f} requests per CPU second.",
        f"Routing {judged.routing.policy}: {run.cached_ratio:.0%} of prompt tokens came from the prefix cache.",
    ]
    if judged.recording is not None:
        said += trace_notes(judged.recording, too_long=judged.too_long)
    if judged.periods > 1:
        said.append(
            f"Simulated as {judged.periods} periods with seeds of their own, each from an empty service on; the "
            "times are laid end to end."
        )
    if best.layout.pp > 1:
        said.append(
            "Batches of a pipeline cannot overtake, and vLLM does not even them out: one that computes a prompt sets "
            "the pace of all, and what comes meanwhile meets in the next."
            if best.scheduled_ahead
            else "Without asynchronous scheduling vLLM's core looks for new requests only when a result comes: batches "
            "of the pipeline merge, the largest one sets the pace of all, and the pipeline idles while requests wait."
        )
    return tuple(said)


def standing_lines(judged: JudgedRun) -> Iterator[str]:
    """How each tenant fared: work, waits, refusals, cost; and how even it was."""
    if not judged.standings:
        return
    cost = judged.cost
    yield ""
    money = judged.currency if cost is not None else ""
    yield f"{'tenant':<24}{'work':>6}{'waited':>8}{'wait P99':>10}{'refused':>9}{money:>10}".rstrip()
    for one in judged.standings:
        wait = "–" if one.waited_p99_s is None else format_duration(one.waited_p99_s)
        refused = sum(times for _, times in one.refused)
        money = f"{cost * one.work_ratio:,.2f}" if cost is not None else ""
        yield (f"{_short(one.id):<24}{one.work_ratio:>6.1%}{one.waited:>8,}{wait:>10}{refused:>9,}{money:>10}").rstrip()
        for code, times in one.refused:
            yield f"    {times:,} × {code}"
    even = fairness(judged)
    if even is not None:
        yield f"fairness {even:.3f} (Jain's index of the share of its requests each had answered)"


def fairness(judged: JudgedRun) -> float | None:
    """Jain's index of the shares of requests that tenants had answered; None where nothing was answered."""
    from roadworthy.simulate.standing import jain_index

    even = jain_index(one.completed_ratio for one in judged.standings)
    return None if math.isnan(even) else even


def seed_lines(judged: JudgedRun) -> Iterator[str]:
    """A line for each of several seeds, and how far apart they are."""
    if not judged.seeds:
        return
    yield ""
    yield f"{'seed':<8}{'verdict':>10}{'TTFT P99':>11}{'TPOT P99':>11}{'goodput':>10}{'failed':>8}{'busy':>6}"
    for one in judged.seeds:
        report = one.report
        yield (
            f"{one.seed:<8}{report.verdict:>10}{_p99(report.user_ttft_s):>11}{_p99(report.tpot_s):>11}{report.goodput_rps:>8.2f}/s{report.failed:>8,}"
            f"{one.utilisation_ratio:>6.0%}"
        )
    met = sum(one.report.verdict == "met" for one in judged.seeds)
    ttfts_s = [one.report.user_ttft_s.p99 for one in judged.seeds if one.report.user_ttft_s.count]
    spread = ""
    if len(ttfts_s) > 1:
        mean_s, apart_s = statistics.mean(ttfts_s), statistics.stdev(ttfts_s)
        spread = f"; TTFT P99 {format_duration(mean_s)} ± {format_duration(apart_s)}"
    yield f"met with {met} of {len(judged.seeds)} seeds{spread}"


def what_if_lines(base: JudgedRun, variants: Sequence[JudgedRun]) -> Iterator[str]:
    """The document beside each of its variants, and what changes for whom."""
    if not variants:
        return
    every = (base, *variants)
    yield ""
    yield f"{'what if':<26}{'verdict':>10}{'TTFT P99':>10}{'TPOT P99':>10}{'goodput':>10}{'failed':>8}{'busy':>6}"
    for letter, one in zip(_letters(), every, strict=False):
        report = one.report
        name = "as it is" if one.variant is None else one.variant.name
        if len(name) > NAME_COLUMNS:
            yield f"{letter} {name}"
            name = ""
        yield (
            f"{letter if name else ' '} {name:<24}{report.verdict:>10}{_p99(report.user_ttft_s):>10}"
            f"{_p99(report.tpot_s):>10}{report.goodput_rps:>8.2f}/s{report.failed:>8,}"
            f"{one.run.utilisation_ratio:>6.0%}"
        )
    if not any(one.report.tenants for one in every):
        return
    yield ""
    yield f"{'SLA misses of':<24}" + "".join(f"{letter:>9}" for letter, _ in zip(_letters(), every, strict=False))
    names = sorted({tenant.id for one in every for tenant in one.report.tenants})
    misses = [{tenant.id: tenant.sla_misses for tenant in one.report.tenants} for one in every]
    for name in names:
        cells = (f"{row[name]:>9,}" if name in row else f"{'–':>9}" for row in misses)
        yield f"{_short(name):<24}" + "".join(cells)


def policy_lines(policies: Sequence[PolicyResult]) -> tuple[str, ...]:
    """One line for each policy, under a heading; nothing for none."""

    def time_of(value_s: float | None) -> str:
        return "-" if value_s is None else format_duration(value_s)

    if not policies:
        return ()
    return (
        "",
        f"{'routing':<13}{'cached':>7}{'TTFT P50':>11}{'TTFT P99':>11}{'busy':>6}{'busiest engine':>16}{'failed':>8}",
        *(
            f"{one.policy:<13}{one.cached_ratio:>7.0%}{time_of(one.ttft_p50_s):>11}{time_of(one.ttft_p99_s):>11}"
            f"{one.utilisation_ratio:>6.0%}{one.busiest_ratio:>9.2f} x mean{one.failed:>8}"
            for one in policies
        ),
    )


def _p99(summary: LatencySummary) -> str:
    return format_duration(summary.p99) if summary.count else "–"


def _letters() -> Iterator[str]:
    yield from "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


def _short(name: str) -> str:
    return name if len(name) <= NAME_COLUMNS else f"{name[: NAME_COLUMNS - 1]}…"
