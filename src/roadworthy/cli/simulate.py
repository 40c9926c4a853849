"""`roadworthy simulate`: the deployment of a document in virtual time, and a verdict for each objective."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.bench_options import DURATION
from roadworthy.cli.simulate_run import Asked, JudgedRun, judged_runs, seldom_collected, simulate_planned
from roadworthy.cli.simulate_trace import require_effect
from roadworthy.cli.trace_file import read_replay
from roadworthy.core.errors import SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.advise.gates import Verdict
    from roadworthy.cli.wiring import Planned

__all__ = ["JudgedRun", "command", "simulate_planned"]

DEFAULT_REQUESTS = 1100
"""Enough for a verdict on a 99th percentile though some sessions end early at the context limit."""

_COLOURS = {"met": "green", "missed": "red", "undecided": "yellow"}


class _WithPairs(click.Command):
    """Lets ``--what-if`` be followed by several KEY=VALUE without quotes around them."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        return super().parse_args(ctx, joined_pairs(args))


def joined_pairs(arguments: Sequence[str]) -> list[str]:
    """``--what-if a=1 b=2`` as ``--what-if "a=1 b=2"``."""
    joined: list[str] = []
    following = False  # whether the last one in ``joined`` is the value of --what-if
    for at, argument in enumerate(arguments):
        if following and "=" in argument and not argument.startswith("-"):
            joined[-1] += f" {argument}"
            continue
        joined.append(argument)
        following = argument.startswith("--what-if=") or (at > 0 and arguments[at - 1] == "--what-if")
    return joined


@click.command(cls=_WithPairs)
@click.argument("spec", metavar="SPEC")
@click.option(
    "--requests",
    type=click.IntRange(min=1),
    help="How many requests to send; a verdict on a P99 wants 1,000.  [default: "
    f"{DEFAULT_REQUESTS}, or all of the trace]",
)
@click.option(
    "--trace",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Replay a trace (Mooncake, Azure, ShareGPT, an access log, ...) instead of the document's workload.",
)
@click.option(
    "--speed",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    help="Of the replay: 2 is twice as fast.",
)
@click.option("--max-gap", type=DURATION, help="Cut silences of the trace to this.")
@click.option("--seed", type=int, default=0, show_default=True, help="Same seed, same run.")
@click.option(
    "--seeds",
    type=click.IntRange(min=1, max=1000),
    default=1,
    show_default=True,
    help="Run so many times, with this seed and the following ones; the report is of all together.",
)
@click.option(
    "--what-if",
    "what_if",
    multiple=True,
    metavar="KEY=VALUE …",
    help="Run a variant beside it, with keys of the document changed: `workload.rate=x2`, `tenants.legal.weight=3`, "
    "`traffic.legal=x2`, `outage=0@10min+5min`. Give it again for another variant.",
)
@click.option("--jobs", type=click.IntRange(min=1), help="Processes at most.  [default: as many as there are cores]")
@click.option("--ungoverned", is_flag=True, help="Leave quotas, queueing and rules out: everybody may go at once.")
@click.option(
    "--compare-routing",
    is_flag=True,
    help="Run the same load under every routing policy, round robin among them; takes that many times as long.",
)
@click.option(
    "--html",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Also write a report with plots, one file that opens offline.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    spec: str, requests: int | None, trace: Path | None, speed: float, max_gap: float | None, seed: int, seeds: int,
    what_if: tuple[str, ...], jobs: int | None, ungoverned: bool, compare_routing: bool, html: Path | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Run the same deployment in virtual time: hours of traffic in seconds.

    The engines are twins of the layout that `plan` puts first, routing and governance are the gateway's, the load is
    the document's workload. Exit code 0: every objective met; 1: one missed, too few requests to tell, or no layout
    fits; 2: wrong input. Variants are shown and not judged.
    """
    if html is not None:
        from roadworthy.adapters.report_files import require_writable

        require_writable(html)
    from roadworthy.simulate.recording import Recording

    recording = read_replay(Recording, trace, speed=speed, max_gap_s=max_gap, instead="workload.rate")
    if recording is None and requests is None:
        requests = DEFAULT_REQUESTS
    asked = Asked(requests=requests, seed=seed, seeds=seeds, jobs=jobs, governed=not ungoverned, recording=recording)
    with seldom_collected():
        judged, *others = _judged(spec, asked, what_if, compare_routing=compare_routing)
        return _told(judged, others, html=html, as_json=as_json)


def _judged(spec: str, asked: Asked, what_if: Sequence[str], *, compare_routing: bool) -> list[JudgedRun]:
    """The document's run, and that of each variant."""
    from roadworthy.cli.plan_progress import PlanProgress
    from roadworthy.cli.wiring import load_best
    from roadworthy.simulate.what_if import parse_variant

    variants = [parse_variant(text) for text in what_if]
    if asked.recording is not None:
        for variant in variants:
            require_effect(variant, asked.recording)
    source = _Source(spec, keep=bool(variants))
    with PlanProgress() as progress:
        base = load_best(spec, progress=progress, text=source.text)
        runs = [(base, asked)]
        runs += [(source.variant(one, base, progress), replace(asked, variant=one)) for one in variants]
    if not compare_routing:
        return judged_runs(runs)
    first = simulate_planned(
        base,
        requests=asked.requests,
        seed=asked.seed,
        compare_routing=True,
        governed=asked.governed,
        recording=asked.recording,
    )
    return [first, *judged_runs(runs[1:])] if variants else [first]


def _told(judged: JudgedRun, others: Sequence[JudgedRun], *, html: Path | None, as_json: bool) -> int:
    """Print and write what was asked for; returns the exit code."""
    if as_json:
        from roadworthy.cli.output import print_json
        from roadworthy.cli.simulate_json import simulate_document

        print_json(simulate_document(judged, others))
    else:
        _print_report(judged, others)
    if html is not None:
        _write_page(judged, others, html)
    return judged.report.exit_code


class _Source:
    """The document's text, kept where variants are to be made of it: standard input can be read once."""

    def __init__(self, spec: str, *, keep: bool) -> None:
        from roadworthy.adapters.documents import read_document

        self._spec = spec
        self.text = read_document(spec) if keep else None

    def variant(self, variant: Any, base: Planned, progress: Any) -> Planned:
        """The document with the changes of ``variant``, on the layout of ``base`` where the hardware stays as it is."""
        import yaml

        from roadworthy.adapters.documents import parse_document
        from roadworthy.cli.wiring import load_best
        from roadworthy.simulate.what_if import changed

        if not variant.changes:
            return base
        assert self.text is not None  # it is kept where there are variants

        def read(value: str) -> Any:
            try:
                return yaml.safe_load(value)
            except yaml.YAMLError as error:
                raise SpecError(f"what if {variant.name}: {value!r} is not YAML", hint="close what is open") from error

        tree = changed(yaml.safe_load(self.text), variant, read)
        text = yaml.safe_dump(tree, sort_keys=False, allow_unicode=True)
        if variant.replans:
            return load_best(self._spec, progress=progress, text=text)
        return replace(base, deployment=parse_document(text, self._spec))


def _print_report(judged: JudgedRun, variants: Sequence[JudgedRun]) -> None:
    from roadworthy.bench.report_text import render_text
    from roadworthy.cli import simulate_text as text

    def paint(verdict: Verdict, words: str) -> str:
        return words if os.environ.get("NO_COLOR") else click.style(words, fg=_COLOURS[verdict], bold=True)

    title = f"{judged.planned.deployment.name} in virtual time"
    click.echo(render_text(judged.section(title), paint=paint), nl=False)
    for lines in (
        text.standing_lines(judged),
        text.seed_lines(judged),
        text.what_if_lines(judged, variants),
        text.policy_lines(judged.policies),
    ):
        for line in lines:
            click.echo(line)


def _write_page(judged: JudgedRun, variants: Sequence[JudgedRun], path: Path) -> None:
    from roadworthy import __version__
    from roadworthy.adapters.files import write_atomically
    from roadworthy.bench.report_html import render_html

    title = f"{judged.planned.deployment.name} in virtual time"
    sections = [judged.section("Virtual time")]
    sections += [one.section(f"What if: {one.variant.name}") for one in variants if one.variant is not None]
    write_atomically(path, render_html(title, sections, generator=f"roadworthy {__version__}"))
    click.echo(f"wrote {path}", err=True)
