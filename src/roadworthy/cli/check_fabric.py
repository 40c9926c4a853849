"""`roadworthy check --fabric`: who is measured, and the answer as text, JSON and a page."""

from __future__ import annotations

import shlex
import socket
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import click

from roadworthy.core.errors import EXIT_COULD_NOT_LOOK, EXIT_FINDINGS, EXIT_FINE, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roadworthy.adapters.fabric import Host, Ways
    from roadworthy.diagnose.hosts.fabric.judge import Efficiency, FabricJudgement
    from roadworthy.diagnose.hosts.fabric.picture import Matrix
    from roadworthy.diagnose.hosts.fabric.steps import Choice
    from roadworthy.diagnose.hosts.fabric.values import FabricCapture, Measured
    from roadworthy.spec.values import Deployment


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricReport:
    """Everything that is said about a fabric."""

    capture: FabricCapture
    links: tuple[Measured, ...]
    judgement: FabricJudgement
    tables: tuple[Matrix, ...]


def measured_report(deployment: Deployment | None, hosts: str | None, tools: Sequence[str], ways: Ways) -> FabricReport:
    """Measure the hosts that are named, else those of the document."""
    from roadworthy.adapters.fabric import measure

    asked = fabric_hosts(deployment, hosts)
    return judged(measure(asked, _choice(deployment, tools), ways, _progress), deployment)


def judged(capture: FabricCapture, deployment: Deployment | None) -> FabricReport:
    """What a capture says, whoever made it. The document's rates go before those that the capture has."""
    from roadworthy.diagnose.hosts.fabric.interpret import measured
    from roadworthy.diagnose.hosts.fabric.judge import judge_fabric
    from roadworthy.diagnose.hosts.fabric.picture import matrices

    links = tuple(one for run in capture.runs for one in measured(run))
    if told := _nic_bytes_per_s(deployment):
        links = tuple(
            replace(one, link_bytes_per_s=told) if one.link_bytes_per_s and not one.inside else one for one in links
        )
    judgement = judge_fabric(links, _efficiency(deployment))
    return FabricReport(capture=capture, links=links, judgement=judgement, tables=matrices(links, judgement.slow))


def ways(reach: str | None, limit_s: float, python: str | None) -> Ways:
    """How hosts are reached. Raises SpecError for a way without a place for the host."""
    from roadworthy.adapters.fabric import Ways

    if reach is None:
        return Ways(limit_s=limit_s, python=python)
    words = tuple(shlex.split(reach))
    if not any("{host}" in word for word in words):
        raise SpecError(f"--reach {reach!r}: no {{host}} in it", hint="--reach 'kubectl exec -i {host} --'")
    return Ways(reach=words, limit_s=limit_s, python=python)


def fabric_hosts(deployment: Deployment | None, named: str | None) -> tuple[Host, ...]:
    """``a,b=10.0.0.2``, or the hosts of the document, or this one alone, whose GPUs are then measured.

    Raises SpecError for an empty list, one named twice, and a document of several nodes that names none.
    """
    from roadworthy.adapters.fabric import Host
    from roadworthy.spec.values import ClusterSpec

    if named is None and (deployment is None or (deployment.cluster.nodes == 1 and not deployment.cluster.hosts)):
        return (Host(name=socket.gethostname(), address="127.0.0.1"),)
    cluster = deployment.cluster if deployment is not None else ClusterSpec()
    known = {one.address: one for one in cluster.hosts}
    wrong, pairs = "cluster.hosts", [(address, address) for address in known]
    if named is not None:
        split = [one.strip().partition("=") for one in named.split(",") if one.strip()]
        wrong, pairs = "--hosts", [(name, address or name) for name, _, address in split]
    found = []
    for name, address in pairs:
        told = known.get(address) or known.get(name)
        found.append(
            Host(
                name=name, address=address, interface=(told and told.interface) or cluster.interface or "",
                hcas=(told and told.hcas) or cluster.hcas,
            )
        )  # fmt: skip
    if not found:
        raise SpecError(f"{wrong}: no hosts to measure between", hint="--hosts node-a,node-b,node-c")
    names = [one.name for one in found]
    if len(set(names)) < len(names):
        raise SpecError(f"{wrong}: a host is named twice: {', '.join(names)}", hint="each host once")
    return tuple(found)


def _choice(deployment: Deployment | None, tools: Sequence[str]) -> Choice:
    from roadworthy.adapters.fabric import program_text
    from roadworthy.diagnose.hosts.fabric.steps import Choice
    from roadworthy.diagnose.hosts.fabric.values import TOOLS

    return Choice(
        tools=tuple(tool for tool in TOOLS if not tools or tool in tools), program=program_text(),
        nic_bytes_per_s=_nic_bytes_per_s(deployment), nvlink_bytes_per_s=_nvlink_bytes_per_s(deployment),
    )  # fmt: skip


def _nic_bytes_per_s(deployment: Deployment | None) -> float | None:
    """Of the slowest NIC that the document names; None where it names none."""
    nics = () if deployment is None else deployment.cluster.nics
    return min((nic.rate_bytes_per_s for nic in nics), default=None)


def _nvlink_bytes_per_s(deployment: Deployment | None) -> float | None:
    if deployment is None:
        return None
    from roadworthy.catalog.gpus import gpu_by_name
    from roadworthy.catalog.links import inside_node

    cluster = deployment.cluster
    link = inside_node(gpu_by_name(cluster.gpu), nvlink_bytes_per_s=cluster.nvlink_bytes_per_s)
    return link.bytes_per_s if link.kind == "nvlink" else None


def _efficiency(deployment: Deployment | None) -> Efficiency:
    from roadworthy.catalog.gpus import gpu_by_name
    from roadworthy.catalog.links import between_nodes, inside_node
    from roadworthy.diagnose.hosts.fabric.judge import Efficiency
    from roadworthy.spec.values import Nics

    gpu = deployment.cluster.gpu if deployment is not None and deployment.cluster.gpu != "cpu" else "H100-80GB"
    nic = between_nodes((Nics(count=1, rate_bytes_per_s=1.0),), gpus_per_node=1)
    assert nic is not None
    return Efficiency(nic_ratio=nic.efficiency_ratio, nvlink_ratio=inside_node(gpu_by_name(gpu)).efficiency_ratio)


def _progress(text: str) -> None:
    click.echo(text, err=True)


def exit_code(report: FabricReport) -> int:
    """Fine is a fabric of which every pair was measured and nothing was found."""
    if report.judgement.findings:
        return EXIT_FINDINGS
    return EXIT_FINE if report.judgement.measured_anything and not unmeasured(report) else EXIT_COULD_NOT_LOOK


def unmeasured(report: FabricReport) -> list[tuple[str, str]]:
    """Pairs of hosts for which no tool gave a bandwidth."""
    pairs = {frozenset((one.one.host, one.two.host)) for one in report.links if not one.inside}
    with_number = {
        frozenset((one.one.host, one.two.host))
        for one in report.links
        if not one.inside and one.kind == "bandwidth" and one.status == "measured"
    }
    return sorted(tuple(sorted(pair)) for pair in pairs - with_number)  # type: ignore[misc]


def text_of(report: FabricReport) -> list[str]:
    """The matrices with slow pairs marked, weaker things, and where nobody could look; findings are the caller's."""
    from roadworthy.diagnose.hosts.fabric.picture import drawn

    lines: list[str] = []
    for table in report.tables:
        lines += [*drawn(table), ""]
    if report.tables:
        lines += ["Rows send, columns receive; ! slow, x failed, - not measured.", ""]
    if not report.links:
        lines += ["Nothing was measured: one host, and fewer than two GPUs that a tool could reach.", ""]
    lines += [f"Note: {note['text']}" for note in report.judgement.notes]
    if report.judgement.could_not_look:
        lines.append("Could not look:")
        lines += [f"  {what} ({why})" for what, why in report.judgement.could_not_look]
    return lines


def json_of(report: FabricReport) -> dict[str, Any]:
    """The key ``fabric`` of the JSON document."""
    slow = report.judgement.slow
    return {
        "hosts": [
            {
                "host": one.host, "tools": sorted(one.tools), "torch": one.python or None, "gpus": one.gpus,
                "rdma_ports": [port.device for port in one.ports], "unanswered": one.unanswered or None,
            }
            for one in report.capture.inventories
        ],
        "measurements": [
            {
                "kind": one.kind, "program": one.program, "from": one.one.text, "to": one.two.text,
                "both_ways": one.both_ways, "status": one.status, "why": one.why or None, "slow": one in slow,
                "bytes_per_s": one.value if one.kind == "bandwidth" else None,
                "latency_s": one.value if one.kind == "latency" else None, "link_bytes_per_s": one.link_bytes_per_s,
            }
            for one in report.links
        ],
        "usual": [{"of": name, "value": value} for name, value in report.judgement.usual_by_group],
    }  # fmt: skip


def write_page(path: Path, report: FabricReport) -> None:
    from roadworthy.adapters.files import write_atomically
    from roadworthy.diagnose.hosts.fabric.page import fabric_page

    judgement = report.judgement
    write_atomically(path, fabric_page(report.tables, judgement.findings, judgement.could_not_look))
