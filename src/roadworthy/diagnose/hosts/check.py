"""Captures of hosts to findings: what the logs say, what readiness asks, who is the odd one out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.diagnose.causes import CAUSES
from roadworthy.diagnose.examine import DOCUMENT_LIMIT_BYTES, Examination, given
from roadworthy.diagnose.hosts.commands import QUESTIONS, Answer
from roadworthy.diagnose.hosts.compare import odd_ones_out
from roadworthy.diagnose.hosts.facts import Expected, HostFacts, gravest_first
from roadworthy.diagnose.hosts.rules import findings_on
from roadworthy.diagnose.judge import judge
from roadworthy.diagnose.probes import capture, gpu, rdma
from roadworthy.diagnose.probes import host as host_probes
from roadworthy.diagnose.values import Document

if TYPE_CHECKING:
    from roadworthy.core.finding import Finding

PROBES_OF = {
    "lspci.txt": (host_probes.boot, capture.hidden),
    "dmesg.txt": (),
    "nvidia-smi-q.txt": (gpu.health,),
    "hw_counters.txt": (rdma.counters,),
    "gids.txt": (rdma.gid_tables,),
    "ethtool.txt": (rdma.port_states, rdma.counters),
    "ip-addr.txt": (host_probes.network,),
}
"""Which probes read the long answers, whatever their length; the others are read by all, as files of an incident."""

ABOUT = {question.file: question.about for question in QUESTIONS}


def host_facts(host: str, answers: Sequence[Answer]) -> HostFacts:
    """One host's answers as clues."""
    examination = Examination.new()
    for answer in answers:
        if not answer.text:
            continue
        file = f"{host}/{answer.file}"
        scan = examination.scan(file)
        scan.host = host
        scan.feed(answer.text.encode("utf-8", "replace"))
        probes = PROBES_OF.get(answer.file)
        if probes is None:
            examination.finished(scan, answer.text if len(answer.text) <= DOCUMENT_LIMIT_BYTES else None)
            continue
        examination.finished(scan, None)
        document = Document(file=file, text=answer.text, host=host)
        for probe in probes:
            examination.add(given(probe, document))
    unanswered = [(answer.file, answer.status) for answer in answers if answer.status != "answered"]
    book = examination.book()
    if book.has("pcie.capabilities-hidden"):
        unanswered.append(("lspci.txt", "may not be read: run as root"))
    return HostFacts(host=host, book=book, unanswered=tuple(unanswered))


def check_hosts(hosts: Sequence[HostFacts], expected: Expected) -> tuple[Finding, ...]:
    """Findings of all hosts, the gravest and surest first; one for each code and subject."""
    found: dict[tuple[str, str], Finding] = {}
    for facts in hosts:
        for one in (*judge(facts.book, CAUSES).findings, *findings_on(facts, expected)):
            subject = (
                one.subject
                if facts.host in one.subject
                else f"{facts.host}, {one.subject}".removesuffix(", deployment")
            )
            _keep(found, one, subject)
    for one in odd_ones_out(hosts):
        _keep(found, one, one.subject)
    return gravest_first(found.values())


def _keep(found: dict[tuple[str, str], Finding], one: Finding, subject: str) -> None:
    key = (one.code, subject)
    if key not in found or found[key].confidence < one.confidence:
        found[key] = replace(one, subject=subject)


def could_not_look(hosts: Sequence[HostFacts]) -> Mapping[str, tuple[tuple[str, str], ...]]:
    """By host: (what, why) of each question without an answer."""
    return {facts.host: tuple((ABOUT.get(file, file), status) for file, status in facts.unanswered) for facts in hosts}
