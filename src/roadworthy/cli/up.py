"""`roadworthy up`: engines, gateway and admin server of one document on this host, under one Ctrl-C."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import click

from roadworthy.cli.output import require_extra, require_two_ports
from roadworthy.core.errors import SpecError


@click.command()
@click.argument("spec", default="roadworthy.yaml", metavar="[SPEC]")
@click.option(
    "--engine",
    type=click.Choice(["twin", "vllm"]),
    default="twin",
    show_default=True,
    help="Simulated engines, or real vLLM processes.",
)
@click.option("--host", help="Address to listen on; the document's gateway.host otherwise.")
@click.option("--port", type=click.IntRange(0, 65535), help="Data port; 0 takes a free one.")
@click.option("--admin-port", type=click.IntRange(0, 65535), help="Admin port; 0 takes a free one.")
@click.option("--ready-file", type=click.Path(path_type=Path), help="Written once everything serves.")
@click.option("--log-folder", type=click.Path(path_type=Path), help="Where each engine's log goes.")
@click.option("--vllm", "vllm_path", help="The vllm command; beside this Python or on PATH otherwise.")
def command(
    spec: str,
    engine: str,
    host: str | None,
    port: int | None,
    admin_port: int | None,
    ready_file: Path | None,
    log_folder: Path | None,
    vllm_path: str | None,
) -> None:
    """Start engines, gateway and admin server here, supervised; Ctrl-C stops all.

    SPEC is the deployment document; ./roadworthy.yaml when it is left out. The twin answers with filler text at the
    speed the plan predicts, so that clients, dashboards and limits can be tried without a GPU.
    """
    if spec == "roadworthy.yaml" and not Path(spec).exists():
        raise SpecError(
            "no roadworthy.yaml in this folder",
            hint="name a document: `roadworthy up FILE`; `roadworthy spec schema` tells what one holds",
        )
    from roadworthy.cli.plan_progress import PlanProgress

    require_two_ports(port, admin_port)
    require_extra("gateway", "uvloop", "httptools", "starlette", "uvicorn", "prometheus_client")
    from roadworthy.adapters.documents import document_folder
    from roadworthy.cli.serve import ServeOptions, serve
    from roadworthy.cli.wiring import load_best

    with PlanProgress() as progress:
        planned = load_best(spec, progress=progress)
    gateway = planned.deployment.gateway
    gateway = replace(
        gateway,
        host=gateway.host if host is None else host,
        port=gateway.port if port is None else port,
        admin_port=gateway.admin_port if admin_port is None else admin_port,
    )
    planned = replace(planned, deployment=replace(planned.deployment, gateway=gateway))
    serve(
        planned,
        ServeOptions(
            engine="vllm" if engine == "vllm" else "twin",
            spec_folder=document_folder(spec),
            ready_file=ready_file,
            log_folder=log_folder or default_log_folder(planned.deployment.name),
            vllm_path=vllm_path,
        ),
    )


def default_log_folder(deployment: str) -> Path:
    """``$XDG_STATE_HOME/roadworthy/NAME`` or the same below ``~/.local/state``."""
    base = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    return Path(base) / "roadworthy" / re.sub(r"[^A-Za-z0-9._-]+", "-", deployment)
