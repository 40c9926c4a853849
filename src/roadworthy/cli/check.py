"""`roadworthy check`: is this host ready, or the hosts of the document; captures for another machine to judge."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.hosts.commands import Answer
    from roadworthy.diagnose.hosts.readiness import Expected


@click.command()
@click.argument("spec", required=False)
@click.option("--capture", type=click.Path(path_type=Path), help="Also save every raw answer under this folder.")
@click.option(
    "--from", "source", type=click.Path(path_type=Path), help="Judge a folder that --capture wrote, here or elsewhere."
)
@click.option("--ssh", "ssh_hosts", multiple=True, metavar="HOST", help="Ask this host over ssh; may be given again.")
@click.option("--weights", metavar="DIR", help="Read a piece of the weights in this folder and say how fast.")
@click.option("--script", is_flag=True, help="Print the shell script that asks, and do nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    spec: str | None, capture: Path | None, source: Path | None, ssh_hosts: tuple[str, ...], weights: str | None,
    script: bool, as_json: bool,
) -> int:  # fmt: skip
    """Check whether this host, or those given, is ready: GPUs, NICs, RDMA, limits, clocks."""
    from roadworthy.adapters.capture import write_capture
    from roadworthy.cli.output import print_json
    from roadworthy.diagnose.hosts.check import check_hosts, could_not_look, host_facts
    from roadworthy.diagnose.hosts.commands import capture_script

    if script:
        click.echo(capture_script(weights=weights), nl=False)
        return 0
    expected, named = _expected(spec)
    captured, unreachable = _captured(source, ssh_hosts or (() if source else named), weights)
    if capture is not None:
        write_capture(capture, captured)
    hosts = [host_facts(host, answers) for host, answers in captured.items()]
    findings = check_hosts(hosts, expected)
    missing = could_not_look(hosts)
    if as_json:
        print_json({
            "status": "findings" if findings else "healthy", "findings": findings, "notes": [],
            "hosts": [one.host for one in hosts], "unreachable": unreachable,
            "could_not_look": {
                host: [{"what": what, "why": why} for what, why in some] for host, some in missing.items()
            },
            "capture_next": [],
        })  # fmt: skip
    else:
        click.echo("\n".join(_report(findings, missing, unreachable)))
    if unreachable and not findings:
        return 3
    return 1 if findings else 0


def _expected(spec: str | None) -> tuple[Expected, tuple[str, ...]]:
    from roadworthy.diagnose.hosts.readiness import Expected

    if spec is None:
        return Expected(), ()
    from roadworthy.adapters.documents import load_document

    cluster = load_document(spec).cluster
    nics = sum(nic.count for nic in cluster.nics)
    rates = [nic.rate_bytes_per_s * 8 / 1e9 for nic in cluster.nics]
    expected = Expected(
        gpus=None if cluster.gpu == "cpu" else cluster.gpus_per_node, nics=nics or None,
        nic_gigabits_per_s=min(rates) if rates else None,
    )  # fmt: skip
    return expected, tuple(host.address for host in cluster.hosts)


def _captured(
    source: Path | None, ssh_hosts: Sequence[str], weights: str | None
) -> tuple[dict[str, tuple[Answer, ...]], dict[str, str]]:
    from roadworthy.adapters.capture import capture_here, capture_over_ssh, read_capture
    from roadworthy.core.errors import ProbeError

    if source is not None:
        return read_capture(source), {}
    if not ssh_hosts:
        click.echo("asking this host …", err=True)
        return {socket.gethostname(): capture_here(weights=weights)}, {}
    click.echo(f"asking {len(ssh_hosts)} hosts over ssh …", err=True)
    answers = capture_over_ssh(ssh_hosts, weights=weights)
    reached = {host: one for host, one in answers.items() if not isinstance(one, ProbeError)}
    unreachable = {host: str(one) for host, one in answers.items() if isinstance(one, ProbeError)}
    if not reached:
        raise ProbeError(next(iter(unreachable.values())), hint="no host could be asked")
    return reached, unreachable


def _report(
    findings: Sequence[Finding], missing: Mapping[str, Sequence[tuple[str, str]]], unreachable: Mapping[str, str]
) -> list[str]:
    lines: list[str] = []
    for number, one in enumerate(findings, 1):
        lines.append(f"{number}. {one.code}  ({one.severity}, {one.confidence:.0%})  {one.subject}")
        lines.append(f"   {one.diagnosis}")
        lines += [f"     {quoted.file}:{quoted.line}: {quoted.text[:160]}" for quoted in one.evidence[:3]]
        lines += [f"   Remedy: {one.remedy}", ""]
    if not findings:
        lines += ["Nothing found among what could be looked at.", ""]
    for host, some in missing.items():
        if some:
            lines.append(f"Could not look on {host}:")
            lines += [f"  {what} ({why})" for what, why in some]
    lines += [f"Could not reach {host}: {why}" for host, why in unreachable.items()]
    return lines
