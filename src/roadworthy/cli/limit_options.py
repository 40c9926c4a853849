"""A tenant's limits as options, and as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.admin_options import Parsed
from roadworthy.core.units import format_bytes, parse_count, parse_size

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

_SIZE = Parsed("size", parse_size, none=True)
_COUNT = Parsed("count", parse_count, none=True)

_QUOTA = (
    click.option("--kv-quota", "kv_quota_bytes", type=_SIZE, help="KV cache held at once, such as 64GiB; none."),
    click.option("--rpm", type=_COUNT, help="Requests a minute; none."),
    click.option("--tpm", type=_COUNT, help="Tokens a minute, such as 200k; none."),
    click.option("--daily-tokens", type=_COUNT, help="Tokens a day (UTC), such as 5M; none."),
    click.option("--concurrency", type=_COUNT, help="Requests at once; none."),
)
_REST = (
    click.option("--weight", type=float, help="Share of the engines under contention."),
    click.option("--priority", type=int, help="As the engine counts: lower goes first."),
    click.option(
        "--model", "models", multiple=True, help="A model it may ask for; may be repeated. all for every one."
    ),
    click.option("--fallback", type=Parsed("model", str, none=True), help="Model that stands in; none."),
)


def quota_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options for what an operator may edit."""
    for option in reversed(_QUOTA):
        function = option(function)
    return function


def tenant_options(function: Callable[..., Any]) -> Callable[..., Any]:
    """Options for everything about a tenant."""
    for option in reversed((*_REST, *_QUOTA)):
        function = option(function)
    return function


def limit_cells(tenant: Mapping[str, Any]) -> list[str]:
    """The five limits of a tenant or quota as the API has them, as text; a dash for none."""
    size = tenant["kv_quota_bytes"]
    counts = (tenant[name] for name in ("rpm", "tpm", "daily_tokens", "concurrency"))
    return ["-" if size is None else format_bytes(size), *("-" if one is None else f"{one:,}" for one in counts)]


LIMIT_COLUMNS = ("KV quota", "requests/min", "tokens/min", "tokens/day", "at once")
