"""`roadworthy bench compare`: two results side by side, and whether chance explains the difference."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.bench_options import FILE, SHARE

if TYPE_CHECKING:
    from roadworthy.bench.compare import Outcome

_COLOURS = {"worse": "red", "better": "green", "same": "cyan", "unknown": "yellow"}


@click.command("compare")
@click.argument("a", type=FILE)
@click.argument("b", type=FILE)
@click.option("--tolerance", type=SHARE, default=0.02, help="Latencies may differ by this, such as 5% (2% otherwise).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--html", type=FILE, help="Also write a page with both distributions.")
def command(a: Path, b: Path, tolerance: float, as_json: bool, html: Path | None) -> int:
    """Set run B beside run A: what differs, and whether chance explains it.

    Results are files of `bench --out`, or of `vllm bench serve --save-result --save-detailed`. Exit code 0: nothing is
    worse in B; 1: something is, or the runs are too small to tell; 2: a file is no result.
    """
    from roadworthy.adapters.load_files import read_result
    from roadworthy.adapters.report_files import require_writable, write_or_rescue
    from roadworthy.bench.compare import compare
    from roadworthy.bench.compare_text import render_comparison
    from roadworthy.cli.output import plain, print_json

    if html is not None:
        require_writable(html)
    first, second = read_result(a), read_result(b)
    found = compare(first, second, tolerance_ratio=tolerance)
    if as_json:
        document = plain(found)
        assert isinstance(document, dict)  # a dataclass becomes an object
        print_json({"verdict": found.outcome, **document})
    else:
        click.echo(render_comparison(found, paint=_paint), nl=False)
    if html is not None:
        from roadworthy.bench.compare_html import comparison_page

        write_or_rescue([(html, comparison_page(found, first, second))], say=lambda text: click.echo(text, err=True))
    return 1 if found.outcome in ("worse", "unknown") else 0


def _paint(outcome: Outcome, text: str) -> str:
    return text if os.environ.get("NO_COLOR") else click.style(text, fg=_COLOURS[outcome], bold=True)
