"""`roadworthy cost`: what the service costs a month, what its tokens cost, and whether to buy or build."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from roadworthy.cli.wiring import Planned
    from roadworthy.cost.report import CostReport
    from roadworthy.cost.throughput import Throughput


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option(
    "--measured",
    metavar="FILE",
    type=click.Path(path_type=Path),
    help="Price the throughput of this run: the JSON of bench or simulate.",
)
@click.option("--simulate", "simulated", is_flag=True, help="Search the highest rate within the SLA with the twin.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of --simulate: same seed, same answer.")
@click.option("--html", metavar="FILE", type=click.Path(path_type=Path), help="Also write a page that opens offline.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(spec: str, measured: Path | None, simulated: bool, seed: int, html: Path | None, as_json: bool) -> int:
    """Say what it costs, what a million tokens costs, and whether to buy or build.

    The throughput priced is what the plan predicts within the SLA, unless --measured or --simulate says otherwise.
    Exit code 0: a decision, whatever it is; 1: no plan meets the SLA as asked, or nothing fits; 2: wrong input.
    """
    from roadworthy.cli.wiring import load_planned
    from roadworthy.cost.report import make_report

    if measured is not None and simulated:
        raise SpecError("--measured and --simulate: two throughputs", hint="keep the one to be priced")
    if html is not None:
        from roadworthy.adapters.report_files import require_writable

        require_writable(html)
    planned = load_planned(spec)
    report = make_report(
        planned.deployment, planned.model.id, planned.gpu, _throughput(planned, measured, simulated, seed)
    )
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(cost_json(report))
    else:
        from roadworthy.cli.cost_text import render

        click.echo(render(report, style=click.style), nl=False)
    if html is not None:
        from roadworthy.adapters.files import write_atomically
        from roadworthy.cli.cost_html import render_page

        write_atomically(html, render_page(report))
        click.echo(f"wrote {html}", err=True)
    return EXIT_FINDINGS if report.throughput.meets_at_asked_rate is False else EXIT_FINE


def _throughput(planned: Planned, measured: Path | None, simulated: bool, seed: int) -> Throughput:
    from roadworthy.cli.cost_throughput import from_file, from_plan, from_simulation

    if measured is not None:
        return from_file(planned, measured)
    if simulated:
        return from_simulation(planned, seed=seed)
    return from_plan(planned)


def cost_json(report: CostReport) -> dict[str, object]:
    """What ``--json`` prints; the first eight keys are pinned. Tokens are input and output unless the name says so."""
    even, fixed = report.break_even, report.fixed
    low, high = fixed.range
    return {
        "fixed_per_month": fixed.per_month,
        "capacity_tokens_per_month": report.capacity_tokens_per_month,
        "unit_cost_per_mtok": report.unit_cost_per_mtok,
        "blended_api_price_per_mtok": report.price_per_mtok,
        "break_even_tokens_per_month": even.tokens_per_month if even else None,
        "decision": report.decision.choice,
        "reasons": report.decision.reasons,
        "currency": fixed.currency,
        "model": report.model,
        "gpu": report.gpu,
        "gpus": report.gpus,
        "sla_met": report.throughput.meets_sla,
        "sla_met_at_asked_rate": report.throughput.meets_at_asked_rate,
        "fixed_per_month_range": {"low": low, "base": fixed.per_month, "high": high},
        "fixed_parts_per_month": dict(fixed.parts),
        "fixed_source": fixed.source,
        "gpu_hour": report.gpu_hour,
        "inputs": [
            {
                "name": one.name, "low": one.band.low, "base": one.band.base, "high": one.band.high,
                "stated": one.stated, "source": one.band.source,
            }
            for one in fixed.inputs
        ],
        "throughput": {**_plain(report.throughput), "input_ratio": report.throughput.input_ratio},
        "utilisation_ratio": report.utilisation_ratio,
        "max_utilisation_ratio": report.max_utilisation_ratio,
        "utilisation_by_hour": report.hours or None,
        "unit_cost_range_per_mtok": {"low": report.unit_cost_range[0], "high": report.unit_cost_range[1]},
        "unit_cost_per_output_mtok": report.unit_cost_per_output_mtok,
        "api": report.api,
        "mix": report.mix,
        "break_even": even,
        "volume": {
            "tokens_per_month": report.volume_tokens_per_month,
            "stated": report.volume_stated,
            "clusters": report.clusters,
            "own_per_month": report.own_at_volume,
            "api_per_month": report.api_at_volume,
            "overflow": report.overflow,
            "break_even_price_per_mtok": report.break_even_price_per_mtok,
        },
        "term": {**_plain(report.term), "saving_present": report.term.saving_present} if report.term else None,
        "sensitivity": report.influences,
        "strongest": report.strongest,
        "notes": report.notes,
    }  # fmt: skip


def _plain(value: object) -> dict[str, object]:
    from roadworthy.cli.output import plain

    mapping = plain(value)
    assert isinstance(mapping, dict)
    return mapping
