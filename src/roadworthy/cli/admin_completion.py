"""What the shell offers for tenants, keys and engines: those of the gateway that the command line so far names.

A gateway that is not there, or takes long, offers nothing; completion never says an error.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from click.shell_completion import CompletionItem

from roadworthy.cli.admin_options import client_for
from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    import click

PATIENCE_S = 1.0


def tenants(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of tenants in force."""
    found = _asked(ctx, "/api/tenants", "tenants")
    return [CompletionItem(one["id"]) for one in found if one["id"].startswith(incomplete)]


def keys(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Ids of keys that open something, each with whose it is."""
    found = _asked(ctx, "/api/keys", "keys", state="active")
    return [
        CompletionItem(one["id"], help=" ".join(part for part in (one["tenant"] or one["role"], one["label"]) if part))
        for one in found
        if one["id"].startswith(incomplete)
    ]


def engines(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """URLs of the gateway's engines."""
    return [
        CompletionItem(one["url"])
        for one in _asked(ctx, "/api/engines", "engines")
        if one["url"].startswith(incomplete)
    ]


def _asked(ctx: click.Context, path: str, name: str, **query: str) -> list[dict[str, Any]]:
    given = (ctx.params.get(one) for one in ("admin", "ready_file", "spec"))
    with contextlib.suppress(RoadworthyError, OSError, KeyError, TypeError):
        admin, ready_file, spec = given
        client = client_for(admin, ready_file=ready_file, spec=spec, timeout_s=PATIENCE_S, warn=False)
        found: list[dict[str, Any]] = client.get(path, **query)[name]
        return found
    return []
