"""The screen of `roadworthy tenants top`: one row a tenant, what it holds and uses now."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from rich.console import RenderableType
    from rich.table import Table

    from roadworthy.adapters.admin_client import AdminClient

NEAR_RATIO = 0.9
"""Share of a KV quota from which on it is shown as nearly used up."""


def show_once(live: dict[str, Any], *, idle: bool) -> None:
    """One table on stdout."""
    from roadworthy.cli.narrow import Fitting
    from roadworthy.cli.output import console

    console().print(Fitting(table_of(live["tenants"], idle=idle)))


def watch(
    client: AdminClient,
    live: dict[str, Any],
    *,
    interval_s: float,
    idle: bool,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Keep the table up to date until Ctrl-C; a gateway that is gone for a while is said, and waited for."""
    from rich.live import Live

    from roadworthy.cli.output import console

    with Live(screen_of(client.url, live, "", idle=idle), console=console(), auto_refresh=False) as shown:
        try:
            while True:
                shown.refresh()
                sleep(interval_s)
                trouble = ""
                try:
                    live = client.get("/api/live", idle="true" if idle else None)
                except RoadworthyError as error:
                    trouble = str(error)
                shown.update(screen_of(client.url, live, trouble, idle=idle))
        except KeyboardInterrupt:
            return


def screen_of(url: str, live: dict[str, Any], trouble: str, *, idle: bool) -> RenderableType:
    """The table under a line that says of which gateway and moment it is; ``trouble`` says that it is old."""
    from rich.console import Group
    from rich.text import Text

    from roadworthy.cli.narrow import Fitting

    head = Text(f"{url}  {live['at']}", style="dim")
    if trouble:
        head.append(f"  no answer since: {trouble}", style="bold red")
    return Group(head, Fitting(table_of(live["tenants"], idle=idle)))


def table_of(tenants: Sequence[dict[str, Any]], *, idle: bool) -> Table:
    """The busiest first. Everything is told in words and numbers, so it reads without colour."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption=_caption(tenants, idle), caption_justify="left"
    )
    table.add_column("tenant", no_wrap=True)
    for name in (
        "in flight", "waiting", "borrowed", "blocks", "of quota", "tokens/min", "today", "TTFT p50", "p99", "requests",
        "refused", "failed",
    ):  # fmt: skip
        table.add_column(name, justify="right", no_wrap=True)
    for one in sorted(tenants, key=lambda one: (-one["in_flight"] - one["waiting"], -one["tokens_per_min"], one["id"])):
        table.add_row(
            one["id"],
            _count(one["in_flight"]),
            Text(_count(one["waiting"]), style="yellow" if one["waiting"] else ""),
            Text(_count(one["borrowed"]), style="cyan" if one["borrowed"] else ""),
            _count(one["blocks_held"]),
            _of_quota(one),
            f"{one['tokens_per_min']:,.0f}",
            _count(one["tokens_today"]),
            _time(one["ttft_p50_s"]),
            _time(one["ttft_p99_s"]),
            _count(one["requests"]),
            Text(_count(one["refused"]), style="red" if one["refused"] else ""),
            Text(_count(one["failed"]), style="red" if one["failed"] else ""),
        )
    return table


def _caption(tenants: Sequence[dict[str, Any]], idle: bool) -> str:
    running, waiting = (sum(one[name] for one in tenants) for name in ("in_flight", "waiting"))
    what = "tenants" if idle else "tenants that asked for something (--idle shows all)"
    return f"{len(tenants)} {what}, {running:,} requests in flight, {waiting:,} waiting"


def _of_quota(one: dict[str, Any]) -> Any:
    from rich.text import Text

    if one["blocks_quota"] is None:
        return "-"
    ratio = one["blocks_held"] / one["blocks_quota"] if one["blocks_quota"] else float(bool(one["blocks_held"]))
    return Text(f"{ratio:.0%}", style="red" if ratio > 1 else "yellow" if ratio >= NEAR_RATIO else "")


def _count(value: int) -> str:
    return f"{value:,}" if value else "-"


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
