"""What `up` shows while it serves: engines, requests, tokens a second, KV use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from roadworthy.adapters.engines.supervisor import EngineStatus


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLoad:
    """One engine as last scraped; None where it has not said."""

    running: int | None = None
    waiting: int | None = None
    kv_usage_ratio: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What went through the gateway: in flight now, finished since the start, and the rates of the last interval."""

    in_flight: int
    finished: int
    failed: int
    output_tokens_per_s: float


def status_table(
    engines: Sequence[EngineStatus], loads: Mapping[str, EngineLoad], traffic: Traffic, *, simulated: bool
) -> Table:
    """One row an engine, the totals in the caption. Every state is a word, so it reads without colour."""
    from rich.table import Table
    from rich.text import Text

    title = "engines (simulated by the twin)" if simulated else "engines"
    table = Table(title=title, title_justify="left", caption=_caption(traffic), caption_justify="left")
    table.add_column("engine", no_wrap=True)
    table.add_column("state", no_wrap=True)
    for column in ("running", "waiting", "KV used"):
        table.add_column(column, justify="right", no_wrap=True)
    table.add_column("note", overflow="fold")
    colours = {"healthy": "green", "starting": "yellow", "restarting": "red", "stopped": "dim"}
    for engine in engines:
        load = loads.get(engine.url, EngineLoad())
        restarts = f"{engine.restarts} restarts" if engine.restarts else ""
        table.add_row(
            engine.name,
            Text(engine.phase, style=colours[engine.phase]),
            _shown(load.running),
            _shown(load.waiting),
            "-" if load.kv_usage_ratio is None else f"{load.kv_usage_ratio:.0%}",
            "; ".join(part for part in (engine.note, restarts) if part),
        )
    return table


def _caption(traffic: Traffic) -> str:
    return (
        f"gateway: {traffic.in_flight} in flight, {traffic.finished:,} finished, {traffic.failed:,} failed, "
        f"{traffic.output_tokens_per_s:,.0f} output tokens/s"
    )


def _shown(count: int | None) -> str:
    return "-" if count is None else str(count)
