"""`roadworthy quota`: what tenants may hold and use, and what they hold now."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.admin_completion import tenants
from roadworthy.cli.admin_options import asks_gateway, given
from roadworthy.cli.limit_options import LIMIT_COLUMNS, limit_cells, quota_options
from roadworthy.core.units import format_bytes

if TYPE_CHECKING:
    from roadworthy.adapters.admin_client import AdminClient


@click.group()
def command() -> None:
    """Show and change what tenants may hold and use, while they hold it."""


@command.command()
@click.argument("tenant", required=False, shell_complete=tenants)
@asks_gateway
def show(client: AdminClient, as_json: bool, tenant: str | None) -> int:
    """Show limits beside what is held now, of TENANT or of all."""
    from roadworthy.adapters.admin_client import segment
    from roadworthy.cli.output import print_json
    from roadworthy.cli.tenants import all_pages

    if tenant is not None:
        quota = client.get(f"/api/tenants/{segment(tenant)}/quota")
        if as_json:
            print_json(quota)
        else:
            _print([quota])
        return 0
    now = {one["id"]: one for one in client.get("/api/live", idle="true")["tenants"]}
    quotas = [
        {
            "tenant": one["id"],
            "version": one["version"],
            "limits": {name: one[name] for name in ("kv_quota_bytes", "rpm", "tpm", "daily_tokens", "concurrency")},
            "now": now.get(one["id"]),
        }
        for one in all_pages(client, "/api/tenants", "tenants")["tenants"]
    ]
    if as_json:
        print_json({"quotas": quotas})
    else:
        _print(quotas)
    return 0


@command.command("set")
@click.argument("tenant", shell_complete=tenants)
@quota_options
@asks_gateway
def set_quota(client: AdminClient, as_json: bool, tenant: str, **options: Any) -> int:
    """Change limits of TENANT; what is not named stays, nothing in progress is cut."""
    from roadworthy.adapters.admin_client import segment
    from roadworthy.cli.output import print_json
    from roadworthy.core.errors import SpecError

    body = given(**options)
    if not body:
        raise SpecError("nothing to change", hint="name a limit, such as --rpm 600, or --rpm none")
    quota = client.send("PATCH", f"/api/tenants/{segment(tenant)}/quota", body)
    if as_json:
        print_json(quota)
    else:
        _print([quota])
    return 0


def _print(quotas: list[dict[str, Any]]) -> None:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.narrow import Fitting
    from roadworthy.cli.output import console

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("tenant", no_wrap=True)
    for name in (*LIMIT_COLUMNS, "KV held", "blocks", "tokens today", "requests now"):
        table.add_column(name, justify="right", no_wrap=True)
    for one in quotas:
        table.add_row(one["tenant"], *limit_cells(one["limits"]), *_held(one["limits"], one["now"]))
    console().print(Fitting(table))


def _held(limits: dict[str, Any], now: dict[str, Any] | None) -> list[str]:
    """What is held: bytes and blocks, tokens of the day, requests. A quota's blocks are as many as its bytes hold, so
    that bytes are told where there is a quota only."""
    if now is None:
        return ["-", "-", "-", "-"]
    held, quota = now["blocks_held"], now["blocks_quota"]
    size = format_bytes(limits["kv_quota_bytes"] * held / quota) if quota and limits["kv_quota_bytes"] else "-"
    blocks = f"{held:,}" if quota is None else f"{held:,} of {quota:,}"
    return [size, blocks, f"{now['tokens_today']:,}", f"{now['in_flight'] + now['waiting']:,}"]
