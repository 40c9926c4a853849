"""`roadworthy bench`: load on a running service, and a verdict for each objective."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from roadworthy.cli import bench_compare, bench_evidence, bench_probe, bench_sweep
from roadworthy.cli.bench_options import (
    DURATION,
    WARMUP,
    load_options,
    report_options,
    sla_options,
    target_options,
)
from roadworthy.cli.default_group import DefaultGroup

if TYPE_CHECKING:
    from roadworthy.adapters.load_request import BenchRequest
    from roadworthy.adapters.load_run import BenchRun


@click.group(cls=DefaultGroup)
def command() -> None:
    """Drive open-loop load and give a verdict for each objective of the SLA.

    The target is the URL of an OpenAI-compatible service, or a document whose gateway or engine has a fixed address.
    Ctrl-C ends the load early and reports what there is. Exit code 0: every objective met; 1: one missed, or the run
    too small to tell; 2: wrong input; 3: the target could not be reached.
    """


@command.command()
@target_options
@click.option("--duration", type=DURATION, help="How long requests are sent, such as 20s (60s without --requests).")
@click.option("--requests", type=click.IntRange(min=1), help="How many requests to send.")
@load_options
@click.option("--max-concurrency", type=click.IntRange(min=1), help="Requests in flight at most; no cap otherwise.")
@click.option("--warmup", type=WARMUP, help="Leave this first stretch out of the numbers; `auto` finds it.")
@sla_options
@report_options
@click.option(
    "--evidence",
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="A new folder with every report, every request, the document and a manifest of them.",
)
@click.option(
    "--sign",
    type=click.Path(path_type=Path),
    metavar="KEY",
    help="With --evidence: an OpenSSH key that signs the manifest; `bench verify` checks it.",
)
@click.option("--detail", is_flag=True, help="With --json: every request too, which `bench compare` reads.")
def run(
    target: str | None, spec: str | None, ready_file: Path | None, key: str | None, as_json: bool, out: Path | None,
    html: Path | None, junit: Path | None, detail: bool, duration: float | None, requests: int | None,
    max_concurrency: int | None, warmup: float | Literal["auto"] | None, evidence: Path | None, sign: Path | None,
    **options: Any,
) -> int:  # fmt: skip
    """Drive load once and give a verdict for each objective; `bench run URL` is `bench URL`."""
    from roadworthy.cli.bench_aim import aim_at
    from roadworthy.cli.bench_load import bench_request
    from roadworthy.cli.bench_output import Places, bench_document, detailed, print_run, title_of, write_reports

    aim = aim_at(target, spec=spec, ready_file=ready_file, key=key)
    request = bench_request(
        aim, duration=duration, requests=requests,
        max_concurrency=max_concurrency, warmup=warmup, **options,
    )  # fmt: skip
    places = Places(out=out, html=html, junit=junit, evidence=evidence, sign=sign)
    if evidence is not None and aim.text is not None:
        secrets = [one for one in aim.keys.values() if one] + [one.key for one in aim.tenants if one.key]
        places = replace(places, document=bench_evidence.without_secrets(aim.text, secrets))
    places.require_writable()
    measured = _run(request)
    document = bench_document(measured)
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(detailed(document, measured.drive.records) if detail else document)
    else:
        print_run(measured.section(title_of(measured)))
    write_reports(measured, document, places)
    return measured.report.exit_code


def _run(request: BenchRequest) -> BenchRun:
    from roadworthy.adapters.load_run import run_bench
    from roadworthy.cli.bench_progress import watching

    with watching(request) as watch:
        return run_bench(request, watch=watch)


command.add_command(bench_sweep.command)
command.add_command(bench_compare.command)
command.add_command(bench_probe.command)
command.add_command(bench_evidence.command)
