"""`roadworthy drain`: take an engine out of use without losing a request, and put it back."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from roadworthy.cli.admin_completion import engines
from roadworthy.cli.admin_options import asks_gateway
from roadworthy.core.errors import EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.adapters.admin_client import AdminClient

LOOK_S = 0.5


@click.command()
@click.argument("url", shell_complete=engines)
@click.option("--undo", is_flag=True, help="Send it requests again.")
@click.option("--wait", is_flag=True, help="Return when the last of its requests has ended.")
@click.option(
    "--timeout", "timeout_s", type=click.FloatRange(min=0), default=600.0, show_default=True,
    help="Most seconds that --wait waits.",
)  # fmt: skip
@asks_gateway
def command(client: AdminClient, as_json: bool, url: str, undo: bool, wait: bool, timeout_s: float) -> int:
    """Send the engine at URL no new requests; those in progress end.

    Exit codes: 0 done, 1 with --wait requests were still in progress at the end of the time, 2 wrong input, 3 the
    gateway does not answer.
    """
    from roadworthy.cli.output import print_json, say

    if undo and wait:
        raise SpecError("--undo together with --wait", hint="there is nothing to wait for")
    answer = client.send("POST", f"/api/engines/{'undrain' if undo else 'drain'}", {"url": url})
    left = _left(client, url)
    if wait:
        if not as_json:
            say(f"waiting for {left} requests")
        left = wait_for_the_last(lambda: _left(client, url), timeout_s)
    if as_json:
        print_json({**answer, "in_flight": left})
    elif undo:
        say(f"{url} gets requests again")
    else:
        say(f"{url} gets no new requests; {left} are in progress" if left else f"{url} is drained")
    if answer.get("audited") is False and not as_json:
        say("warning: the audit trail could not be written")
    return EXIT_FINDINGS if wait and left else EXIT_FINE


def wait_for_the_last(
    left_now: Callable[[], int],
    timeout_s: float,
    *,
    now_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """How many are left: none, or those at the end of the time."""
    end_s = now_s() + timeout_s
    while (left := left_now()) and now_s() < end_s:
        sleep(LOOK_S)
    return left


def _left(client: AdminClient, url: str) -> int:
    engines = client.get("/api/engines")["engines"]
    return sum(int(one["in_flight"]) for one in engines if one["url"] == url.rstrip("/"))
