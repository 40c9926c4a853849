"""`roadworthy keys`: keys of tenants and of the admin API, made, rotated and revoked while the gateway serves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.admin_completion import keys, tenants
from roadworthy.cli.admin_options import Parsed, asks_gateway, given
from roadworthy.core.errors import SpecError
from roadworthy.core.units import parse_duration

if TYPE_CHECKING:
    from roadworthy.adapters.admin_client import AdminClient


def _whole_seconds(text: str) -> int:
    seconds = parse_duration(text)
    if seconds != int(seconds):
        raise ValueError("a duration of whole seconds, such as 90d")
    return int(seconds)


def _key_id(text: str) -> str:
    """A key by its id, its prefix, or the whole of it."""
    from roadworthy.route.keys import id_in

    return id_in(text) or text.removeprefix("rw-")


_SCOPES = click.Choice(["trusted-caller"])
_LABEL = click.option("--label", help="What it is for, in your words.")
_SCOPE = click.option("--scope", "scopes", multiple=True, type=_SCOPES, help="What it may do beyond asking.")
_EXPIRES = click.option(
    "--expires", "expires_in_s", type=Parsed("duration", _whole_seconds, none=True),
    help="When it ends, counted from now, such as 90d; none for never.",
)  # fmt: skip


@click.group()
def command() -> None:
    """Make, rotate and revoke keys of tenants and of the admin API."""


@command.command("list")
@click.option("--tenant", shell_complete=tenants, help="Keys of this tenant only.")
@click.option(
    "--state", type=click.Choice(["active", "expired", "revoked", "all"]), default="all", show_default=True,
    help="Keys in this state only.",
)  # fmt: skip
@asks_gateway
def list_keys(client: AdminClient, as_json: bool, tenant: str | None, state: str) -> int:
    """List the keys that were issued, without their secrets; a document's own keys are not among them."""
    from roadworthy.cli.output import console, print_json, say
    from roadworthy.cli.tenants import all_pages

    found = all_pages(client, "/api/keys", "keys", tenant=tenant, state=state)
    if as_json:
        print_json(found)
    elif not found["keys"]:
        say("no such key: a document's own keys are not listed")
    else:
        console().print(_table(found["keys"]))
    return 0


@command.command()
@click.argument("tenant", required=False, shell_complete=tenants)
@click.option("--role", type=click.Choice(["viewer", "operator", "admin"]), help="A key of the admin API instead.")
@_LABEL
@_SCOPE
@_EXPIRES
@asks_gateway
def create(
    client: AdminClient,
    as_json: bool,
    tenant: str | None,
    role: str | None,
    label: str | None,
    scopes: tuple[str, ...],
    expires_in_s: Any,
) -> int:
    """Make a key of TENANT, or with --role one of the admin API, and print it: it is shown this once.

    A viewer reads everything; an operator also drains, reloads and edits quotas; an admin also changes tenants and
    keys.
    """
    from roadworthy.adapters.admin_client import segment

    if (tenant is None) == (role is None):
        raise SpecError("whose key? wanted either TENANT or --role", hint="`roadworthy keys create team-a`")
    if role is not None and scopes:
        raise SpecError("--scope with --role", hint="scopes are for tenants' keys")
    body = given(label=label, scopes=scopes, expires_in_s=expires_in_s)
    if tenant is not None:
        made = client.send("POST", f"/api/tenants/{segment(tenant)}/keys", body)
    else:
        made = client.send("POST", "/api/admin-keys", {**body, "role": role})
    return _hand_out(made, as_json)


@command.command()
@click.argument("key", shell_complete=keys)
@click.option(
    "--overlap", "overlap_s", type=Parsed("duration", _whole_seconds), default="24h", show_default=True,
    help="How long the old key goes on to open; 0s ends it at once.",
)  # fmt: skip
@_EXPIRES
@asks_gateway
def rotate(client: AdminClient, as_json: bool, key: str, overlap_s: int, expires_in_s: Any) -> int:
    """Put a new key in the place of KEY, which opens for the overlap still, and print the new one."""
    from roadworthy.adapters.admin_client import segment

    body = {"overlap_s": overlap_s, **given(expires_in_s=expires_in_s)}
    return _hand_out(client.send("POST", f"/api/keys/{segment(_key_id(key))}/rotate", body), as_json)


@command.command()
@click.argument("key", shell_complete=keys)
@_LABEL
@_SCOPE
@click.option("--no-scopes", is_flag=True, help="Take its scopes away.")
@_EXPIRES
@asks_gateway
def edit(
    client: AdminClient,
    as_json: bool,
    key: str,
    label: str | None,
    scopes: tuple[str, ...],
    no_scopes: bool,
    expires_in_s: Any,
) -> int:
    """Change the label, scopes or expiry of KEY."""
    from roadworthy.adapters.admin_client import segment

    if scopes and no_scopes:
        raise SpecError("--scope together with --no-scopes", hint="give one of them")
    body = {**given(label=label, scopes=scopes, expires_in_s=expires_in_s), **({"scopes": []} if no_scopes else {})}
    if not body:
        raise SpecError("nothing to change", hint="name what to change, such as --expires 30d")
    return _show(client.send("PATCH", f"/api/keys/{segment(_key_id(key))}", body), as_json)


@command.command()
@click.argument("key", shell_complete=keys)
@asks_gateway
def revoke(client: AdminClient, as_json: bool, key: str) -> int:
    """Revoke KEY (its id, its prefix, or the whole of it) for good; streams in progress end as they would have."""
    from roadworthy.adapters.admin_client import segment

    return _show(client.send("POST", f"/api/keys/{segment(_key_id(key))}/revoke"), as_json)


def _hand_out(made: dict[str, Any], as_json: bool) -> int:
    from roadworthy.cli.output import print_json, say

    if as_json:
        print_json(made)
        return 0
    key = made["key"]
    whose = f"of tenant {key['tenant']}" if key["tenant"] else f"of the admin API, role {key['role']}"
    ends = "never" if key["expires"] is None else key["expires"]
    say(f"key {key['id']} {whose}, expires {ends}; it is shown this once:")
    click.echo(made["secret"])
    if "replaced" in made:
        say(f"{made['replaced']['prefix']} opens until {made['replaced']['expires']}")
    if not made["stored"]:
        say("warning: it is gone when the gateway ends\nhint: name gateway.state_url in the document to keep it")
    return 0


def _show(key: dict[str, Any], as_json: bool) -> int:
    from roadworthy.cli.output import console, print_json

    if as_json:
        print_json(key)
    else:
        console().print(_table([key]))
    return 0


def _table(keys: list[dict[str, Any]]) -> Any:
    from rich import box
    from rich.table import Table

    from roadworthy.cli.narrow import Fitting

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("key", "of", "state", "scopes", "label", "created", "ends", "replaced by"):
        table.add_column(name, no_wrap=True)
    for key in keys:
        ends = key["revoked"] if key["state"] == "revoked" else key["expires"]
        table.add_row(
            key["id"], key["tenant"] or f"admin API ({key['role']})", key["state"], ", ".join(key["scopes"]) or "-",
            key["label"] or "-", key["created"][:16], ends[:16] if ends else "never", key["replaced_by"] or "-",
        )  # fmt: skip
    return Fitting(table)
