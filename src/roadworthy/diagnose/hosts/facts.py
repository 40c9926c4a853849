"""What rules about a host share: what the document expects of it, its clues, and how a finding about it is made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.finding import Evidence, Finding
from roadworthy.diagnose.causes import CAUSES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.core.finding import Severity
    from roadworthy.diagnose.values import Clue, ClueBook

REMEDIES = {cause.code: cause.remedy for cause in CAUSES}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """What the document says of a host; None where nothing is known.

    Args:
        ports: on which engines and their ranks will listen.
        hcas: compute NICs as RDMA names them; empty where nothing says.
        roce_dscp: traffic class that the switches keep lossless.
        engine_version: for which start files are rendered.
    """

    gpus: int | None = None
    nics: int | None = None
    nic_gigabits_per_s: float | None = None
    ports: tuple[int, ...] = ()
    hcas: tuple[str, ...] = ()
    roce_dscp: int | None = None
    engine_version: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostFacts:
    """One host: its name, its clues, and the questions that had no answer, with the reason."""

    host: str
    book: ClueBook
    unanswered: tuple[tuple[str, str], ...] = ()


def gpus_of(book: ClueBook) -> dict[str, Clue]:
    """GPUs that a host lists, by number; empty where nothing lists any."""
    return {clue.value("gpu"): clue for clue in book.all("gpu.listed")}


def gravest_first(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """By severity, then the surest first, then by subject."""
    order = {"critical": 0, "warning": 1, "information": 2}
    return tuple(sorted(findings, key=lambda one: (order[one.severity], -one.confidence, one.subject)))


def finding(
    code: str,
    facts: HostFacts,
    clues: tuple[Clue, ...],
    diagnosis: str,
    *,
    severity: Severity = "warning",
    confidence: float = 0.8,
    subject: str = "",
) -> Finding:
    """A finding about ``facts.host`` with the remedy of its cause."""
    evidence = tuple(
        Evidence(file=line.file, line=line.number, text=line.text.strip()[:600])
        for clue in clues
        for line in clue.lines[:2]
    )
    return Finding(
        code=code,
        severity=severity,
        confidence=confidence,
        subject=", ".join(part for part in (facts.host, subject) if part),
        evidence=evidence[:8],
        diagnosis=diagnosis,
        remedy=REMEDIES[code],
    )
