"""`roadworthy gateway`: the gateway alone, in front of engines that run already."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli.output import STOP_SIGNALS, require_two_ports, say

if TYPE_CHECKING:
    from roadworthy.gateway.service import Gateway
    from roadworthy.spec.values import Tenant


@click.command()
@click.argument("spec", metavar="SPEC")
@click.option("--host", help="Address to listen on; the document's gateway.host otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), help="Data port; 0 takes a free one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Admin port; 0 takes a free one.")
@click.option(
    "--admin-host", default="127.0.0.1", show_default=True, help="Address of the admin port, which has no key."
)
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once it serves.")
@click.option(
    "--drain", "drain_s", type=click.FloatRange(min=0), default=10.0, show_default=True,
    help="Seconds that requests in progress get when it is told to stop.",
)  # fmt: skip
def command(
    spec: str,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    admin_host: str,
    ready_file: Path | None,
    drain_s: float,
) -> None:
    """Serve tenants through the OpenAI-compatible gateway alone.

    SPEC is the deployment document; requests go to the engines under engine.endpoints, which may appear later. Ends on
    Ctrl-C or SIGTERM, after the requests in progress.
    """
    from roadworthy.cli.output import require_extra

    require_extra("gateway", "uvloop", "httptools", "starlette", "uvicorn", "prometheus_client")
    from roadworthy.adapters.documents import load_document
    from roadworthy.adapters.event_loop import loop_factory, raise_descriptor_limit
    from roadworthy.adapters.ready_file import claimed
    from roadworthy.cli.tenant_keys import with_keys
    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.service import Gateway

    require_two_ports(port, admin_port)
    deployment = load_document(spec)
    tenants = with_keys(deployment.tenants, os.environ)
    config = GatewayConfig.from_deployment(deployment, tenants=tenants, host=host, port=port, admin_port=admin_port)
    raise_descriptor_limit()
    gateway = Gateway(replace(config, admin_host=admin_host))
    with claimed(ready_file), asyncio.Runner(loop_factory=loop_factory()) as runner:
        runner.run(_serve(gateway, tenants=tenants, ready_file=ready_file, drain_s=drain_s))


async def _serve(gateway: Gateway, *, tenants: tuple[Tenant, ...], ready_file: Path | None, drain_s: float) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in STOP_SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        await gateway.start()
        if ready_file is not None:
            _write_ready(gateway, tenants, ready_file)
        _say_where(gateway)
        warn_not_enforced(tenants)
        await stop.wait()
        # a second signal means now: what is in progress is cut
        say("stopping: requests in progress may end, Ctrl-C again cuts them")
        for number in STOP_SIGNALS:
            loop.add_signal_handler(number, gateway.cut)
    finally:
        await gateway.stop(drain_s)


def _write_ready(gateway: Gateway, tenants: tuple[Tenant, ...], path: Path) -> None:
    from roadworthy.adapters.ready_file import Ready, ReadyEngine, ReadyTenant, write_ready

    write_ready(
        path,
        Ready(
            data_url=gateway.data_url,
            admin_url=gateway.admin_url,
            engines=tuple(ReadyEngine(url=one.url, pid=None) for one in gateway.status().endpoints),
            tenants=tuple(ReadyTenant(id=tenant.id, key=tenant.key or "") for tenant in tenants),
        ),
    )


def _say_where(gateway: Gateway) -> None:
    say(f"serving at {gateway.data_url}, admin at {gateway.admin_url}")
    for endpoint in gateway.status().endpoints:
        if not endpoint.reachable:
            say(f"warning: engine {endpoint.url} does not answer yet: {endpoint.note}")
    if gateway.open_access:
        say(
            "warning: the document names no tenant, so anyone who reaches the port may use it\n"
            "hint: add tenants: [{id: NAME, key_env: VARIABLE}]"
        )


def warn_not_enforced(tenants: Sequence[Tenant]) -> None:
    """Say on stderr which limits of the document are not carried out: a limit believed in is worse than none."""
    from roadworthy.gateway.config import not_enforced

    names = not_enforced(tenants)
    if names:
        say(f"warning: not enforced by this version: tenants[].{', tenants[].'.join(names)}")
