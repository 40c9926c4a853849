"""`roadworthy tenants`: who is served by a running gateway, changed and watched."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.admin_completion import tenants
from roadworthy.cli.admin_options import asks_gateway, given
from roadworthy.cli.limit_options import LIMIT_COLUMNS, limit_cells, tenant_options

if TYPE_CHECKING:
    from roadworthy.adapters.admin_client import AdminClient


PAGE = 1000


@click.group()
def command() -> None:
    """List, watch and change the tenants of a running gateway."""


@command.command("list")
@asks_gateway
def list_tenants(client: AdminClient, as_json: bool) -> int:
    """List the tenants in force with their limits, and where each comes from."""
    from roadworthy.cli.output import console, print_json, say

    found = all_pages(client, "/api/tenants", "tenants")
    if as_json:
        print_json(found)
        return 0
    if not found["tenants"]:
        say("no tenant: anybody who reaches the data port is served, unless an administrator removed the last one")
        return 0
    console().print(_table(found["tenants"]))
    if not found["stored"]:
        say("changes are kept as long as the gateway runs: its document names no gateway.state_url")
    return 0


@command.command()
@click.option("--once", is_flag=True, help="Show one table and end.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=1.0, show_default=True, help="Seconds between.")
@click.option("--idle", is_flag=True, help="Show tenants without any request too.")
@asks_gateway
def top(client: AdminClient, as_json: bool, once: bool, interval: float, idle: bool) -> int:
    """Watch what each tenant holds and uses, the busiest first; Ctrl-C ends it.

    In flight and waiting are requests now; blocks are KV cache held, of the quota; borrowed requests run beyond it.
    TTFT and tokens a minute are of the last minute or so, the other counts since the gateway started.
    """
    from roadworthy.cli.output import print_json
    from roadworthy.cli.tenants_top import show_once, watch

    live = client.get("/api/live", idle="true" if idle else None)
    if as_json:
        print_json(live)
    elif once or not sys.stdout.isatty():
        show_once(live, idle=idle)
    else:
        watch(client, live, interval_s=interval, idle=idle)
    return 0


@command.command()
@click.argument("tenant")
@tenant_options
@click.option("--with-key", is_flag=True, help="Make a key too, and print it: it is shown this once.")
@asks_gateway
def add(client: AdminClient, as_json: bool, tenant: str, with_key: bool, **options: Any) -> int:
    """Add a tenant, which gets in with keys made by `roadworthy keys create`."""
    from roadworthy.adapters.admin_client import segment
    from roadworthy.cli.output import print_json, say

    added = client.send("POST", "/api/tenants", {"id": tenant, **_body(options)})
    made = client.send("POST", f"/api/tenants/{segment(tenant)}/keys", {}) if with_key else None
    if as_json:
        print_json({"tenant": added, **({} if made is None else made)})
        return 0
    say(f"added {tenant}" + ("" if made is not None else f"; `roadworthy keys create {tenant}` makes it a key"))
    if made is not None:
        click.echo(made["secret"])
    return 0


@command.command()
@click.argument("tenant", shell_complete=tenants)
@tenant_options
@asks_gateway
def edit(client: AdminClient, as_json: bool, tenant: str, **options: Any) -> int:
    """Change a tenant's limits, weight or models while it is served; what is not named stays."""
    from roadworthy.adapters.admin_client import segment
    from roadworthy.core.errors import SpecError

    body = _body(options)
    if not body:
        raise SpecError("nothing to change", hint="name what to change, such as --rpm 600, or --rpm none")
    return _show(client.send("PATCH", f"/api/tenants/{segment(tenant)}", body), as_json)


@command.command()
@click.argument("tenant", shell_complete=tenants)
@click.option("--yes", is_flag=True, help="Do not ask.")
@asks_gateway
def remove(client: AdminClient, as_json: bool, tenant: str, yes: bool) -> int:
    """Remove a tenant: its keys are revoked, what waits is refused, what runs ends."""
    from roadworthy.adapters.admin_client import segment
    from roadworthy.cli.output import print_json, say
    from roadworthy.core.errors import SpecError

    if not yes:
        if not sys.stdin.isatty():
            raise SpecError(f"{tenant}: not removed, since nobody can be asked", hint="--yes removes it without asking")
        click.confirm(f"Remove {tenant} and revoke its keys?", abort=True, err=True)
    removed = client.send("DELETE", f"/api/tenants/{segment(tenant)}")
    if as_json:
        print_json(removed)
    else:
        say(f"removed {tenant}, {len(removed['revoked_keys'])} keys revoked")
    return 0


@command.command()
@click.argument("tenant", shell_complete=tenants)
@asks_gateway
def reset(client: AdminClient, as_json: bool, tenant: str) -> int:
    """Take back every edit and removal of a tenant: it is what the document says."""
    from roadworthy.adapters.admin_client import segment

    return _show(client.send("POST", f"/api/tenants/{segment(tenant)}/reset"), as_json)


@command.command()
@click.argument("tenant", required=False, shell_complete=tenants)
@click.option("--from", "first", metavar="DAY", help="First day, UTC, such as 2026-11-01; 30 days back otherwise.")
@click.option("--to", "last", metavar="DAY", help="Last day, UTC; today otherwise.")
@click.option("--model", help="This model only.")
@click.option(
    "--by", type=click.Choice(["day", "tenant", "model", "all"]), default="tenant", show_default=True,
    help="What to sum by.",
)  # fmt: skip
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV.")
@asks_gateway
def usage(
    client: AdminClient,
    as_json: bool,
    tenant: str | None,
    first: str | None,
    last: str | None,
    model: str | None,
    by: str,
    as_csv: bool,
) -> int:
    """Sum up requests and tokens by day, tenant or model, out of the ledger."""
    from roadworthy.cli.output import console, print_json
    from roadworthy.core.errors import SpecError

    if as_json and as_csv:
        raise SpecError("--json together with --csv", hint="give one of them")
    query = {"from": first, "to": last, "tenant": tenant, "model": model, "by": by}
    if as_csv:
        click.echo(client.text("/api/usage", format="csv", **query), nl=False)
        return 0
    answer = client.get("/api/usage", **query)
    if as_json:
        print_json(answer)
    else:
        console().print(_usage_table(answer))
    return 0


@command.command()
@click.argument("tenant", required=False, shell_complete=tenants)
@click.option("--limit", type=click.IntRange(1, 1000), default=50, show_default=True, help="Most rows.")
@asks_gateway
def audit(client: AdminClient, as_json: bool, tenant: str | None, limit: int) -> int:
    """Show who changed what and when, the latest first; of one tenant, or everything."""
    from roadworthy.cli.output import print_json

    subject = None if tenant is None else f"tenant:{tenant}"
    answer = client.get("/api/audit", limit=limit, subject=subject)
    if as_json:
        print_json(answer)
        return 0
    for row in answer["rows"]:
        origin = f" from {row['address']}" if row["address"] else ""
        click.echo(f"{row['at']}  {row['who']}{origin}: {row['action']} {row['subject']}")
        for name in ("before", "after"):
            if row[name] is not None:
                told = (f"{key} {_told(value)}" for key, value in row[name].items() if value not in ("", []))
                click.echo(f"  {name}: {', '.join(told) or 'nothing'}")
    return 0


def all_pages(client: AdminClient, path: str, name: str, **query: Any) -> dict[str, Any]:
    """An answer with all that the API gives page by page."""
    found: dict[str, Any] = client.get(path, limit=PAGE, **query)
    after = found.pop("next")
    while after is not None:
        page = client.get(path, limit=PAGE, after=after, **query)
        found[name] += page[name]
        after = page["next"]
    return found


def _body(options: dict[str, Any]) -> dict[str, Any]:
    body = given(**options)
    if body.get("models") == ("all",):
        body["models"] = []
    return body


def _show(tenant: dict[str, Any], as_json: bool) -> int:
    from roadworthy.cli.output import console, print_json

    if as_json:
        print_json(tenant)
    else:
        console().print(_table([tenant]))
    return 0


def _table(tenants: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.narrow import Fitting

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    table.add_column("tenant", no_wrap=True)
    for name in ("weight", "priority", *LIMIT_COLUMNS, "keys"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("models", no_wrap=True)
    table.add_column("from", no_wrap=True)
    for one in tenants:
        models = ", ".join(one["models"]) or "all"
        source = f"document, edited: {', '.join(one['edited'])}" if one["source"] == "edited" else one["source"]
        table.add_row(
            one["id"], f"{one['weight']:g}", str(one["priority"]), *limit_cells(one), str(one["keys"]),
            models if one["fallback"] is None else f"{models}, else {one['fallback']}", source,
        )  # fmt: skip
    return Fitting(table)


def _usage_table(answer: dict[str, Any]) -> Any:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.narrow import Fitting

    names = ["day", "tenant", "model"] if answer["by"] == "all" else [answer["by"]]
    counts = ("requests", "prompt_tokens", "cached_tokens", "output_tokens", "total_tokens")
    table = Table(
        box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), title=f"{answer['from']} to {answer['to']} (UTC)",
        title_justify="left", show_footer=True,
    )  # fmt: skip
    for index, name in enumerate(names):
        table.add_column(name, no_wrap=True, footer="" if index else "all")
    for name in counts:
        table.add_column(
            name.replace("_tokens", ""), justify="right", no_wrap=True, footer=f"{answer['totals'][name]:,}"
        )
    for row in answer["rows"]:
        table.add_row(*(row[name] for name in names), *(f"{row[name]:,}" for name in counts))
    return Fitting(table)


def _told(value: Any) -> str:
    if value is None:
        return "none"
    if isinstance(value, dict):
        return f"({', '.join(f'{key} {_told(one)}' for key, one in value.items()) or 'as it is by default'})"
    return ", ".join(str(one) for one in value) if isinstance(value, list) else str(value)
