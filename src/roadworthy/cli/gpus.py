"""`roadworthy gpus`: the GPUs in the catalog, each number with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from roadworthy.catalog.gpus import Gpu


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print {gpus: [...]} on stdout.")
@click.option("--sources", is_flag=True, help="Print where each number comes from.")
def command(as_json: bool, sources: bool) -> None:
    """List the GPUs known, with sources."""
    from roadworthy.catalog.gpus import known_gpus

    if as_json:
        from roadworthy.cli.output import print_json

        print_json({"gpus": known_gpus()})
        return
    _print_table(known_gpus())
    if sources:
        for gpu in known_gpus():
            click.echo(f"\n{gpu.id}")
            for field, source in gpu.sources.items():
                click.echo(f"  {field}: {source}")


def _print_table(gpus: tuple[Gpu, ...]) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from roadworthy.cli.output import console
    from roadworthy.core.units import GIB

    table = Table(box=SIMPLE_HEAD, pad_edge=False, collapse_padding=True)
    table.add_column("GPU", no_wrap=True)
    headings = ("memory\nGiB", "HBM\nTB/s", "bf16", "fp8", "fp4\nTFLOP/s", "NVLink\nGB/s", "power\nW", "USD an\nhour")
    for heading in headings:
        table.add_column(heading, justify="right", no_wrap=True)
    for gpu in gpus:
        flops = gpu.dense_flops_per_s
        table.add_row(
            gpu.id,
            f"{gpu.device_bytes / GIB:.2f}",
            f"{gpu.hbm_bytes_per_s / 1e12:.2f}",
            *(f"{flops[name] / 1e12:.4g}" if name in flops else "–" for name in ("bf16", "fp8", "fp4")),
            f"{gpu.nvlink_bytes_per_s / 1e9:.0f}" if gpu.nvlink_bytes_per_s else "–",
            f"{gpu.power_w:.0f}" if gpu.power_w else "–",
            f"{gpu.gpu_hour:.2f}" if gpu.gpu_hour is not None else "–",
        )
    console().print(table)
    click.echo("memory: CUDA's total; TFLOP/s: dense; NVLink: both directions; cpu: a stand-in", err=True)
    click.echo("--sources says where each number is from", err=True)
