"""`roadworthy check`: is this host ready, or the hosts of the document; captures for another machine to judge."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import click

from roadworthy.cli import check_fabric
from roadworthy.core.errors import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_FINE, ProbeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from roadworthy.cli.check_fabric import FabricReport
    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.hosts.commands import Answer
    from roadworthy.diagnose.hosts.facts import Expected
    from roadworthy.spec.values import ClusterSpec, Deployment


@click.command()
@click.argument("spec", required=False)
@click.option("--capture", type=click.Path(path_type=Path), help="Also save every raw answer under this folder.")
@click.option(
    "--from",
    "source",
    type=click.Path(path_type=Path, allow_dash=True),
    help="Judge a folder that --capture wrote, or the logs of the rendered check (a file, or - for standard input).",
)
@click.option("--ssh", "ssh_hosts", multiple=True, metavar="HOST", help="Ask this host over ssh; may be given again.")
@click.option("--weights", metavar="DIR", help="Read a piece of the weights in this folder and say how fast.")
@click.option("--script", is_flag=True, help="Print the shell script that asks, and do nothing else.")
@click.option("--fabric", is_flag=True, help="Measure bandwidth and latency between the hosts, and between their GPUs.")
@click.option("--hosts", metavar="A,B,C", help="With --fabric: these hosts; NAME=ADDRESS where peers use another name.")
@click.option(
    "--tool", "tools", multiple=True, type=click.Choice(["perftest", "nccl-tests", "torch"]),
    help="With --fabric: only this tool; may be given again. Left out: the first of them that hosts have.",
)  # fmt: skip
@click.option(
    "--limit", "limit_s", type=click.FloatRange(min=5), default=60.0, show_default=True, metavar="S",
    help="With --fabric: seconds after which one measurement is given up.",
)  # fmt: skip
@click.option(
    "--reach", metavar="TEXT", help="With --fabric: command before `sh -s` on a host, {host} in it; left out: ssh."
)
@click.option("--python", metavar="PATH", help="With --fabric: interpreter with torch on the hosts.")
@click.option("--html", type=click.Path(path_type=Path), help="With --fabric: also write the matrices as one page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
def command(
    spec: str | None, capture: Path | None, source: Path | None, ssh_hosts: tuple[str, ...], weights: str | None,
    script: bool, fabric: bool, hosts: str | None, tools: tuple[str, ...], limit_s: float, reach: str | None,
    python: str | None, html: Path | None, as_json: bool,
) -> int:  # fmt: skip
    """Check whether this host, or those given, is ready: GPUs, NICs, RDMA, limits, clocks, links.

    With --fabric it measures how fast the links between hosts and between GPUs are.
    """
    if script:
        from roadworthy.diagnose.hosts.commands import capture_script

        click.echo(capture_script(weights=weights), nl=False)
        return EXIT_FINE
    if not fabric and source is None and (hosts or tools or reach or python or html):
        raise SpecError("--hosts, --tool, --reach, --python, --html: only with --fabric", hint="add --fabric")
    if source is not None and (hosts or tools or reach or python):
        raise SpecError(
            "--hosts, --tool, --reach, --python: for measuring, and --from judges what was measured before",
            hint="leave them out, or --from",
        )
    if html is not None:
        from roadworthy.adapters.report_files import require_writable

        require_writable(html)
    deployment = _deployment(spec)
    measured = None
    if fabric and source is None:
        ways = check_fabric.ways(reach, limit_s, python)
        measured = check_fabric.measured_report(deployment, hosts, tools, ways)
        if capture is not None:
            from roadworthy.adapters.fabric_files import write_fabric

            write_fabric(capture, measured.capture)
    elif source is not None:
        measured = _fabric_of(source, deployment, required=fabric)
    looked = Looked()
    if not fabric:
        looked = _looked(deployment, source, ssh_hosts, weights, capture, alone=measured is None)
    if html is not None:
        if measured is None:
            raise SpecError(
                f"--html {html}: {source} holds no fabric", hint="`check --fabric --capture DIR` captures one"
            )
        check_fabric.write_page(html, measured)
    return _told(looked, measured, as_json=as_json)


@dataclass(frozen=True, slots=True, kw_only=True)
class Looked:
    """What was found on hosts; nothing where only the fabric was asked for."""

    hosts: tuple[str, ...] = ()
    findings: tuple[Finding, ...] = ()
    missing: Mapping[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)
    unreachable: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[Mapping[str, str], ...] = ()


def _deployment(spec: str | None) -> Deployment | None:
    if spec is None:
        return None
    from roadworthy.adapters.documents import load_document

    return load_document(spec)


def _fabric_of(source: Path, deployment: Deployment | None, *, required: bool) -> FabricReport | None:
    """What a folder holds of a fabric; None where it holds none and none is asked for."""
    from roadworthy.adapters.capture import FABRIC_MANIFEST

    if not required and not (source / FABRIC_MANIFEST).is_file():
        return None
    from roadworthy.adapters.fabric_files import read_fabric

    return check_fabric.judged(read_fabric(source), deployment)


def _looked(
    deployment: Deployment | None, source: Path | None, ssh_hosts: Sequence[str], weights: str | None,
    capture: Path | None, *, alone: bool,
) -> Looked:  # fmt: skip
    from roadworthy.adapters.capture import holds_capture, write_capture
    from roadworthy.diagnose.hosts.check import check_hosts, could_not_look, host_facts
    from roadworthy.diagnose.hosts.rules import notes_on

    if source is not None and not alone and not holds_capture(source):
        return Looked()
    expected, named = _expected(deployment)
    captured, unreachable = _captured(source, ssh_hosts or (() if source else named), weights)
    if capture is not None:
        write_capture(capture, captured)
    facts = [host_facts(host, answers) for host, answers in captured.items()]
    return Looked(
        hosts=tuple(one.host for one in facts), findings=check_hosts(facts, expected), missing=could_not_look(facts),
        unreachable=unreachable, notes=tuple(note for one in facts for note in notes_on(one, expected)),
    )  # fmt: skip


def _expected(deployment: Deployment | None) -> tuple[Expected, tuple[str, ...]]:
    from roadworthy.diagnose.hosts.facts import Expected

    if deployment is None:
        return Expected(), ()
    cluster = deployment.cluster
    nics = sum(nic.count for nic in cluster.nics)
    rates = [nic.rate_bytes_per_s * 8 / 1e9 for nic in cluster.nics]
    expected = Expected(
        gpus=None if cluster.gpu == "cpu" else cluster.gpus_per_node, nics=nics or None,
        nic_gigabits_per_s=min(rates) if rates else None, ports=_ports(deployment),
        hcas=_compute_nics(cluster),
        roce_dscp=cluster.roce_dscp,
        engine_version=deployment.engine.version,
    )  # fmt: skip
    return expected, tuple(host.address for host in cluster.hosts)


def _compute_nics(cluster: ClusterSpec) -> tuple[str, ...]:
    """The RDMA devices that the document names anywhere, without their ports."""
    named = (*cluster.hcas, *(hca for host in cluster.hosts for hca in host.hcas))
    return tuple(dict.fromkeys(hca.partition(":")[0] for hca in named))


def _ports(deployment: Deployment) -> tuple[int, ...]:
    """On which engines and their ranks will listen: the document's own, else vLLM's defaults."""
    from roadworthy.render.placement import ENGINE_PORT, MASTER_PORT

    told = [one.url.rpartition(":")[2].strip("/") for one in deployment.engine.endpoints]
    ports = {int(port) for port in told if port.isdigit()} or {ENGINE_PORT}
    return tuple(sorted(ports | ({MASTER_PORT} if deployment.cluster.nodes > 1 else set())))


def _captured(
    source: Path | None, ssh_hosts: Sequence[str], weights: str | None
) -> tuple[dict[str, tuple[Answer, ...]], dict[str, str]]:
    from roadworthy.adapters.capture import capture_here, capture_over_ssh, read_capture

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


def _told(looked: Looked, measured: FabricReport | None, *, as_json: bool) -> int:
    findings = (*looked.findings, *(measured.judgement.findings if measured else ()))
    code = EXIT_FINDINGS if findings else EXIT_COULD_NOT_LOOK if looked.unreachable else EXIT_FINE
    if measured is not None and not findings:
        code = max(code, check_fabric.exit_code(measured))
    status = {EXIT_FINDINGS: "findings", EXIT_FINE: "healthy"}.get(code, "insufficient")
    if as_json:
        _print_json(looked, measured, findings, status)
        return code
    lines = _report(findings)
    if not findings and (status == "healthy" or looked.hosts):
        lines += ["Nothing found among what could be looked at.", ""]
    if measured is not None:
        lines = [*check_fabric.text_of(measured), *lines]
    notes = [f"Note: {note['text']}" for note in looked.notes]
    click.echo("\n".join(_shown(line) for line in (*lines, *notes, *_blind_spots(looked))))
    return code


def _shown(line: str) -> str:
    """``line`` without what would steer a terminal: hosts and logs say what they like."""
    return "".join(letter if letter.isprintable() else " " if letter == "\t" else "?" for letter in line)


def _print_json(looked: Looked, measured: FabricReport | None, findings: Sequence[Finding], status: str) -> None:
    from roadworthy.cli.output import print_json

    blind = {host: [{"what": what, "why": why} for what, why in some] for host, some in looked.missing.items()}
    document: dict[str, object] = {
        "status": status, "findings": findings, "notes": looked.notes, "hosts": looked.hosts,
        "unreachable": looked.unreachable, "could_not_look": blind, "capture_next": [],
    }  # fmt: skip
    if measured is not None:
        judgement = measured.judgement
        blind["fabric"] = [{"what": what, "why": why} for what, why in judgement.could_not_look]
        document["notes"] = (*looked.notes, *judgement.notes)
        document["hosts"] = looked.hosts or [one.host for one in measured.capture.inventories]
        document["unreachable"] = {
            **looked.unreachable,
            **{one.host: one.unanswered for one in measured.capture.inventories if one.unanswered},
        }
        document["fabric"] = check_fabric.json_of(measured)
        if check_fabric.exit_code(measured) == EXIT_COULD_NOT_LOOK:
            document["capture_next"] = [
                "install perftest (ib_write_bw) or torch on both hosts of each pair, then `roadworthy check --fabric`"
            ]
    print_json(document)


def _report(findings: Sequence[Finding]) -> list[str]:
    lines: list[str] = []
    for number, one in enumerate(findings, 1):
        lines.append(f"{number}. {one.code}  ({one.severity}, {one.confidence:.0%})  {one.subject}")
        lines.append(f"   {one.diagnosis}")
        lines += [f"     {quoted.file}:{quoted.line}: {quoted.text[:160]}" for quoted in one.evidence[:3]]
        lines += [f"   Remedy: {one.remedy}", ""]
    return lines


def _blind_spots(looked: Looked) -> list[str]:
    lines: list[str] = []
    for host, some in looked.missing.items():
        if some:
            lines.append(f"Could not look on {host}:")
            lines += [f"  {what} ({why})" for what, why in some]
    return lines + [f"Could not reach {host}: {why}" for host, why in looked.unreachable.items()]
