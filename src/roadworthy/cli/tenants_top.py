"""The screen of `roadworthy tenants top`: one row a tenant, what it holds and uses now."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.core.units import format_duration

if TYPE_CHECKING:
    from collections.abc import Sequence

    from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
    from rich.table import Table

    from roadworthy.adapters.admin_client import AdminClient

NEAR_RATIO = 0.9
"""Share of a KV quota from which on it is shown as nearly used up."""


def show_once(live: dict[str, Any], *, idle: bool) -> None:
    """One table on stdout."""
    from roadworthy.cli.output import console

    console().print(_Screen(live["tenants"], idle=idle))


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

    head = Text(f"{url}  {live['at']}", style="dim")
    if trouble:
        head.append(f"  no answer since: {trouble}", style="bold red")
    return Group(head, _Screen(live["tenants"], idle=idle))


class _Screen:
    """As many columns as fit; where not even the most telling ones do, the rows one under the other."""

    def __init__(self, tenants: Sequence[dict[str, Any]], *, idle: bool) -> None:
        self._tables = [
            table_of(tenants, idle=idle, columns=[one for one in COLUMNS if one.rank <= rank])
            for rank in range(max(one.rank for one in COLUMNS), -1, -1)
        ]

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        from rich.measure import Measurement

        from roadworthy.cli.narrow import UNBOUNDED_COLUMNS, Fitting

        room = options.update(width=UNBOUNDED_COLUMNS)
        for table in self._tables:
            if Measurement.get(console, room, table).maximum <= options.max_width:
                yield table
                return
        yield Fitting(self._tables[-1])


def table_of(tenants: Sequence[dict[str, Any]], *, idle: bool, columns: Sequence[Column]) -> Table:
    """The busiest first. Everything is told in words and numbers, so it reads without colour."""
    from rich import box
    from rich.table import Table
    from rich.text import Text

    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), caption=_caption(tenants, idle), caption_justify="left"
    )
    table.add_column("tenant", no_wrap=True, vertical="bottom")
    for column in columns:
        table.add_column(column.head, justify="right", no_wrap=True, vertical="bottom")
    for one in sorted(tenants, key=lambda one: (-one["in_flight"] - one["waiting"], -one["tokens_per_min"], one["id"])):
        table.add_row(one["id"], *(Text(column.text(one), style=column.style(one)) for column in columns))
    return table


@dataclass(frozen=True, slots=True)
class Column:
    """One column. The higher its rank the sooner it goes where there is little room."""

    head: str
    rank: int
    text: Callable[[dict[str, Any]], str]
    style: Callable[[dict[str, Any]], str] = lambda _: ""


def _counted(head: str, name: str, rank: int, style: str = "") -> Column:
    return Column(head, rank, lambda one: _count(one[name]), lambda one: style if one[name] else "")


COLUMNS = (
    _counted("in\nflight", "in_flight", 0),
    _counted("waiting", "waiting", 0, "yellow"),
    _counted("borrowed", "borrowed", 0, "cyan"),
    _counted("blocks", "blocks_held", 2),
    Column("of\nquota", 0, lambda one: _of_quota(one)[0], lambda one: _of_quota(one)[1]),
    Column("tokens\n/min", 0, lambda one: f"{one['tokens_per_min']:,.0f}" if one["tokens_per_min"] else "-"),
    _counted("tokens\ntoday", "tokens_today", 1),
    Column("TTFT\np50", 2, lambda one: _time(one["ttft_p50_s"])),
    Column("TTFT\np99", 0, lambda one: _time(one["ttft_p99_s"])),
    _counted("requests", "requests", 1),
    _counted("refused", "refused", 0, "red"),
    _counted("failed", "failed", 1, "red"),
)


def _caption(tenants: Sequence[dict[str, Any]], idle: bool) -> str:
    running, waiting = (sum(one[name] for one in tenants) for name in ("in_flight", "waiting"))
    what = "tenants" if idle else "tenants that asked for something (--idle shows all)"
    return f"{len(tenants)} {what}, {running:,} requests in flight, {waiting:,} waiting"


def _of_quota(one: dict[str, Any]) -> tuple[str, str]:
    """The share of the KV quota that is held, and its colour."""
    quota = one["blocks_quota"]
    if quota is None:
        return "-", ""
    ratio = one["blocks_held"] / quota if quota else float(bool(one["blocks_held"]))
    return f"{ratio:.0%}", "red" if ratio > 1 else "yellow" if ratio >= NEAR_RATIO else ""


def _count(value: int) -> str:
    return f"{value:,}" if value else "-"


def _time(value_s: float | None) -> str:
    return "-" if value_s is None else format_duration(value_s)
