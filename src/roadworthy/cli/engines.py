"""`roadworthy engines`: the engines of a running gateway as it sees them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.admin_options import asks_gateway
from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE

if TYPE_CHECKING:
    from roadworthy.adapters.admin_client import AdminClient


@click.command()
@asks_gateway
def command(client: AdminClient, as_json: bool) -> int:
    """List the engines of a running gateway: health, load, what they serve, which drain.

    Exit codes: 0 all are healthy, 1 some are not, 2 wrong input, 3 the gateway does not answer.
    """
    from roadworthy.cli.output import print_json

    answer = client.get("/api/engines")
    if as_json:
        print_json(answer)
    else:
        _print(answer["engines"])
    return EXIT_FINE if all(one["healthy"] for one in answer["engines"]) else EXIT_FINDINGS


def _print(engines: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.narrow import Fitting
    from roadworthy.cli.output import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("engine", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for name in ("ours", "running", "waiting", "KV used"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("models", no_wrap=True)
    table.add_column("note", no_wrap=True)
    for one in engines:
        table.add_row(
            one["url"], state_of(one), str(one["in_flight"]), str(one["running"]), str(one["waiting"]),
            f"{one['kv_usage_ratio']:.0%}", ", ".join(one["models"]) or "-",
            "; ".join(part for part in (one["note"], one["warning"]) if part),
        )  # fmt: skip
    console().print(Fitting(table))


def state_of(engine: dict[str, Any]) -> str:
    """One word or two for an engine's state."""
    if engine["draining"]:
        return "draining" if engine["in_flight"] else "drained"
    if engine["healthy"]:
        return "healthy"
    return "not probed yet" if engine["reachable"] is None else "not healthy" if engine["reachable"] else "no answer"
