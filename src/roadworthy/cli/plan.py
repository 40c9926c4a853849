"""`roadworthy plan`: will it fit, how should it be split, how many tokens and users, how fast."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned
    from roadworthy.plan.values import LayoutPlan, Plan


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--layout", metavar="TEXT", help="Judge this layout alone, such as 'TP8 PP4' or '2 x TP8 PP2'.")
@click.option("--all", "show_all", is_flag=True, help="Show every layout, not only the best and the nearest losers.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec: str, layout: str | None, show_all: bool, as_json: bool) -> int:
    """Say whether it fits, how to split it, and how many tokens and users it holds.

    SPEC is a deployment document (- reads standard input). Exit code 0: some layout fits, or may; 1: none does.
    """
    from roadworthy.cli.wiring import load_planned

    planned = load_planned(spec)
    if layout is not None:
        planned = replace(planned, plan=only(planned.plan, layout))
    needed = ""
    if planned.plan.best is None:
        from roadworthy.plan.search import what_would_fit

        needed = what_would_fit(planned.plan, planned.gpu, planned.deployment.cluster.gpus)
    if as_json:
        from roadworthy.cli.output import print_json
        from roadworthy.cli.plan_json import plan_json

        print_json(plan_json(planned.plan, needed=needed))
    else:
        _print(planned, needed, show_all)
    return EXIT_FINE if planned.plan.best is not None else EXIT_FINDINGS


def _print(planned: Planned, needed: str, show_all: bool) -> None:
    from roadworthy.cli.output import console
    from roadworthy.cli.plan_report import report

    screen = console()
    for part in report(planned.deployment, planned.gpu, planned.plan, needed=needed, show_all=show_all):
        screen.print(part)


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
