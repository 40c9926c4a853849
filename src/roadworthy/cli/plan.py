"""`roadworthy plan`: will it fit, how should it be split, how many tokens and users, how fast."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from roadworthy.cli.plan_second_opinion import OpinionRow
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, Plan


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--layout", metavar="TEXT", help="Judge this layout alone, such as 'TP8 PP4' or '2 x TP8 PP2'.")
@click.option(
    "--queueing/--no-queueing",
    default=True,
    show_default=True,
    help="Simulate the best three layouts at the asked rate and rank them by that, or keep to the analytic order.",
)
@click.option("--all", "show_all", is_flag=True, help="Show every layout, and latency against throughput.")
@click.option("--compare", metavar="SPEC_B", help="Plan a second document too, and show the two side by side.")
@click.option("--html", type=click.Path(path_type=Path), help="Also write a report, one file that opens offline.")
@click.option(
    "--second-opinion",
    is_flag=True,
    help="Also ask aiconfigurator-core for the time per output token (needs the extra perf).",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    spec: str, layout: str | None, queueing: bool, show_all: bool, compare: str | None, html: Path | None,
    second_opinion: bool, as_json: bool,
) -> int:  # fmt: skip
    """Say whether it fits, how to split it, and how many tokens and users it holds.

    SPEC is a deployment document (- reads standard input). Exit code 0: some layout fits, or may; 1: none does.
    """
    if html is not None:
        from roadworthy.adapters.report_files import require_writable

        require_writable(html)
    if compare is not None:
        _refuse_with_compare(spec, compare, layout, show_all, second_opinion)
        return _compare(spec, compare, queueing=queueing, html=html, as_json=as_json)
    if second_opinion:
        from roadworthy.adapters.second_opinion import require_second_opinion

        require_second_opinion()  # before minutes of simulation
    planned = _planned(spec, layout, queueing=queueing)
    needed = needed_words(planned)
    opinions = _opinions(planned) if second_opinion else None
    if as_json:
        from roadworthy.cli.output import print_json
        from roadworthy.cli.plan_advice import objectives_needed, plan_options
        from roadworthy.cli.plan_json import plan_json

        print_json(
            plan_json(
                planned.plan,
                needed=needed,
                queueing=planned.queueing,
                options=plan_options(planned),
                objectives_needed=objectives_needed(planned),
                second_opinion=opinions,
            )
        )
    else:
        _print(planned, needed, show_all, opinions)
    if html is not None:
        from roadworthy.cli.plan_html import plan_page

        _write(html, plan_page(planned, needed=needed))
    return EXIT_FINE if planned.plan.best is not None else EXIT_FINDINGS


def _planned(spec: str, layout: str | None, *, queueing: bool) -> Planned:
    from roadworthy.cli.wiring import load_planned, with_queueing

    planned = load_planned(spec)
    if layout is not None:
        planned = replace(planned, plan=only(planned.plan, layout))
    if not queueing:
        return planned
    from roadworthy.cli.plan_progress import PlanProgress

    with PlanProgress() as progress:
        return with_queueing(planned, progress=progress)


def needed_words(planned: Planned) -> str:
    """What would be needed where nothing fits; empty where something does."""
    if planned.plan.best is not None:
        return ""
    from roadworthy.plan.search import what_would_fit

    return what_would_fit(planned.plan, planned.gpu, planned.deployment.cluster.gpus)


def _opinions(planned: Planned) -> tuple[OpinionRow, ...]:
    from roadworthy.cli.plan_second_opinion import opinions_of

    return opinions_of(planned)


def _print(planned: Planned, needed: str, show_all: bool, opinions: tuple[OpinionRow, ...] | None) -> None:
    from roadworthy.cli.output import console
    from roadworthy.cli.plan_report import report

    screen = console()
    for part in report(planned, needed=needed, show_all=show_all):
        screen.print(part)
    if opinions is not None:
        from roadworthy.cli.plan_second_opinion import opinions_report

        for part in opinions_report(opinions):
            screen.print(part)


def _refuse_with_compare(spec: str, other: str, layout: str | None, show_all: bool, second_opinion: bool) -> None:
    for name, given in (
        ("--layout", layout is not None), ("--all", show_all), ("--second-opinion", second_opinion),
    ):  # fmt: skip
        if given:
            raise SpecError(
                f"{name} together with --compare", hint=f"leave {name} out, or plan the documents one by one"
            )
    if spec == other == "-":
        raise SpecError("standard input can be one of the two documents, not both", hint="name a file for the other")


def _compare(spec: str, other: str, *, queueing: bool, html: Path | None, as_json: bool) -> int:
    from roadworthy.cli.plan_compare import compare_json, compare_page, compare_report

    both = (_planned(spec, None, queueing=queueing), _planned(other, None, queueing=queueing))
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(compare_json(*both))
    else:
        from roadworthy.cli.output import console

        screen = console()
        for part in compare_report(*both):
            screen.print(part)
    if html is not None:
        _write(html, compare_page(*both))
    return EXIT_FINE if all(planned.plan.best is not None for planned in both) else EXIT_FINDINGS


def _write(html: Path, page: str) -> None:
    from roadworthy.adapters.files import write_atomically

    write_atomically(html, page)
    click.echo(f"wrote {html}", err=True)


def only(plan: Plan, text: str) -> Plan:
    """The plan with nothing but the layouts called ``text``. Raises SpecError when there is none."""
    wanted = _plain(text)
    kept = tuple(judged for judged in plan.layouts if _plain(judged.layout.label) == wanted)
    if not kept:
        from difflib import get_close_matches

        labels = {_plain(judged.layout.label): judged.layout.label for judged in plan.layouts}
        close = get_close_matches(wanted, labels, n=1, cutoff=0.5)
        raise SpecError(
            f"--layout {text!r}: not a split of this model over this cluster",
            hint=f"did you mean '{labels[close[0]]}'?" if close else f"such as '{_first(plan.layouts)}'",
        )
    return replace(plan, layouts=kept)


def _first(layouts: tuple[LayoutPlan, ...]) -> str:
    return layouts[0].layout.label if layouts else "TP1"


def _plain(text: str) -> str:
    """``TP8·PP4 +EP8`` and ``tp8 pp4 ep8`` are one layout; degrees of one may be said or left out."""
    words = re.findall(r"\d+\s*x|[a-z]+\s*\d+", text.lower())
    return " ".join(
        re.sub(r"\s", "", word) for word in words if re.sub(r"\s", "", word) not in ("pp1", "dp1", "ep1", "1x")
    )
