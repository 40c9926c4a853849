"""The answer to "why did it break": findings, healthy, or what to capture next."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.judge import Hypothesis, Judgement
    from roadworthy.diagnose.values import Clue, ClueBook

Status = Literal["findings", "healthy", "insufficient"]

SYMPTOMS = (
    "collective.watchdog-*",
    "collective.peer-closed",
    "collective.remote-error",
    "collective.desync",
    "engine.start-failed",
    "engine.fatal",
    "engine.worker-died",
    "engine.stalled",
    "engine.execute-timeout",
    "engine.unreachable",
    "gateway.failures",
    "cache.collapsed",
    "ray.actor-died",
    "k8s.crash-loop",
    "process.segfault",
    "process.bus-error",
    "process.killed",
    "memory.cuda-oom",
    "cuda.launch-failure",
    "startup.timeout",
    "rdma.completion-error",
    "rdma.modify-qp-failed",
    "rdma.retry-exceeded",
    "kv-transfer.*",
    "nccl.wrong-results",
)
"""Clues that say that something broke, without saying why."""

USUAL_CAPTURE = (
    "the logs of every rank from two minutes before the first error (`kubectl logs --previous`, `docker logs -t`)",
    "`dmesg -T` of every host",
    "`roadworthy check --capture DIR` on every host",
    "two scrapes of the engine's /metrics a minute apart",
)
MOST_NOTES = 8
MOST_CAPTURES = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """Something weaker than a finding."""

    code: str
    confidence: float
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """What `diagnose` answers. ``symptoms`` are what broke where no cause was found."""

    status: Status
    findings: tuple[Finding, ...]
    notes: tuple[Note, ...]
    capture_next: tuple[str, ...]
    symptoms: tuple[Clue, ...] = ()


def verdict_of(book: ClueBook, judgement: Judgement, *, read_anything: bool = True) -> Verdict:
    """Status, notes and what to capture; ``read_anything`` is False when no input held readable text."""
    symptoms = book.all(*SYMPTOMS)
    notes = tuple(_note(one) for one in judgement.notes[:MOST_NOTES])
    if judgement.findings:
        return Verdict(status="findings", findings=judgement.findings, notes=notes, capture_next=())
    if symptoms or not read_anything:
        return Verdict(
            status="insufficient", findings=(), notes=notes, capture_next=_captures(judgement), symptoms=symptoms[:5]
        )
    return Verdict(status="healthy", findings=(), notes=notes, capture_next=())


def _note(one: Hypothesis) -> Note:
    quoted = next((clue.lines[0] for _, clue in one.seen if clue.lines), None)
    where = f" ({quoted.file}:{quoted.number}: {quoted.text.strip()[:160]})" if quoted is not None else ""
    return Note(code=one.cause.code, confidence=round(one.score, 2), text=f"perhaps {one.cause.title.lower()}{where}")


def _captures(judgement: Judgement) -> tuple[str, ...]:
    wanted = [command for one in judgement.notes[:3] for command in one.cause.capture]
    return tuple(dict.fromkeys((*wanted, *USUAL_CAPTURE)))[:MOST_CAPTURES]
