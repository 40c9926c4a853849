"""Clues to causes: scores by evidence, lets a cause explain its consequences away, orders what is left.

A cause's signs are independent witnesses: the score is one minus the product of what each leaves open. Signs against
it multiply that down. From the strongest down, each accepted cause takes the clues that it explains away from the
others, so that a watchdog timeout stops speaking for anything once a dead GPU is found.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.finding import Evidence, Finding

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from roadworthy.diagnose.cause import Cause, Sign
    from roadworthy.diagnose.values import Clue, ClueBook

FINDING_CONFIDENCE = 0.5
"""From here on a cause is called a finding; below it is a note."""

NOTE_CONFIDENCE = 0.15
UNNEEDED_CEILING = 0.35
"""A cause that lacks what it needs stays below this."""

EXPLAINED_SHARE = 0.15
"""What a clue is still worth once another cause explains it."""

MAIN_WEIGHT = 0.4
"""From this weight on a sign is shown from several places."""

CLUES_ELSEWHERE = 3
EVIDENCE_LINES = 14
LINES_PER_SIGN = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Hypothesis:
    """A cause with what was seen for and against it."""

    cause: Cause
    score: float
    seen: tuple[tuple[Sign, Clue], ...]
    more: tuple[Clue, ...] = ()
    refuted_by: tuple[tuple[Sign, Clue], ...] = ()
    explained_by: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """Findings best first, and what stayed below them."""

    findings: tuple[Finding, ...]
    notes: tuple[Hypothesis, ...]


def judge(book: ClueBook, causes: Iterable[Cause]) -> Judgement:
    """Rank ``causes`` by what ``book`` holds."""
    known = tuple(causes)
    open_ones = {cause.code: _weigh(book, cause, explained=frozenset()) for cause in known}
    accepted: list[Hypothesis] = []
    explained: set[str] = set()
    beaten: dict[str, str] = {}
    while open_ones:
        best = max(open_ones.values(), key=_order)
        del open_ones[best.cause.code]
        if best.score < FINDING_CONFIDENCE:
            open_ones[best.cause.code] = best
            break
        if best.cause.code in beaten:
            continue
        accepted.append(best)
        explained |= _names(book, best.cause.explains)
        for code in best.cause.beats:
            beaten.setdefault(code, best.cause.code)
        for code, other in list(open_ones.items()):
            open_ones[code] = _weigh(book, other.cause, explained=explained)
    kept = [one for one in accepted if one.cause.code not in beaten or _stands_alone(one, accepted)]
    notes = [one for one in open_ones.values() if one.score >= NOTE_CONFIDENCE]
    notes += [one for one in accepted if one not in kept]
    return Judgement(
        findings=tuple(finding_of(one) for one in sorted(kept, key=lambda one: -one.score)),
        notes=tuple(sorted(notes, key=lambda one: -one.score)),
    )


def _stands_alone(one: Hypothesis, accepted: Sequence[Hypothesis]) -> bool:
    """A cause that was accepted before the one that beats it is a consequence all the same."""
    return not any(one.cause.code in other.cause.beats for other in accepted)


def _order(one: Hypothesis) -> tuple[float, float]:
    """By score; among near equals the one that was seen first."""
    times = [clue.time_s for _, clue in one.seen if clue.time_s is not None]
    return (round(one.score, 2), -min(times, default=float("inf")))


def _names(book: ClueBook, patterns: Collection[str]) -> set[str]:
    seen = book.names()
    found = set()
    for pattern in patterns:
        found |= {name for name in seen if name.startswith(pattern[:-1])} if pattern.endswith("*") else {pattern}
    return found


def _weigh(book: ClueBook, cause: Cause, *, explained: Collection[str]) -> Hypothesis:
    seen = tuple((sign, clue) for sign in cause.signs if (clue := book.first(sign.clue)) is not None)
    more = tuple(
        clue for sign, first in seen if sign.weight >= MAIN_WEIGHT for clue in _elsewhere(book.all(sign.clue), first)
    )
    against = tuple((sign, clue) for sign in cause.against if (clue := book.first(sign.clue)) is not None)
    left_open = 1.0
    for sign, clue in seen:
        left_open *= 1 - sign.weight * (EXPLAINED_SHARE if clue.name in explained else 1.0)
    score = 1 - left_open
    for sign, _ in against:
        score *= 1 - sign.weight
    if cause.needs and not book.has(*cause.needs):
        score = min(score, UNNEEDED_CEILING)
    return Hypothesis(cause=cause, score=score, seen=seen, more=more, refuted_by=against)


def _elsewhere(clues: Sequence[Clue], first: Clue) -> list[Clue]:
    """A few more clues of the same name, from other files, hosts and ranks: they show how far it reaches."""
    places = {(first.lines[0].file, first.host, first.rank)}
    found: list[Clue] = []
    for clue in clues:
        place = (clue.lines[0].file, clue.host, clue.rank)
        if place not in places and len(found) < CLUES_ELSEWHERE:
            places.add(place)
            found.append(clue)
    return found


def finding_of(one: Hypothesis) -> Finding:
    """The hypothesis as people and programs read it."""
    strongest = max(one.seen, key=lambda pair: pair[0].weight)[1]
    return Finding(
        code=one.cause.code, severity=one.cause.severity, confidence=round(min(one.score, 0.99), 2),
        subject=subject_of(one, strongest), evidence=evidence_of(one), diagnosis=diagnosis_of(one),
        remedy=one.cause.remedy,
    )  # fmt: skip


def subject_of(one: Hypothesis, strongest: Clue) -> str:
    """Host, rank and device that the strongest clues name; ``deployment`` when none does."""
    clues = [strongest, *(clue for _, clue in one.seen)]
    if strongest.value("who"):
        return strongest.value("who")
    host = next((clue.host for clue in clues if clue.host), None)
    rank = strongest.rank
    device = next((clue.value(key) for clue in clues for key in ("device", "bus", "gpu") if clue.value(key)), "")
    parts = [host or "", f"rank {rank}" if rank is not None else "", device]
    return ", ".join(part for part in parts if part) or "deployment"


def diagnosis_of(one: Hypothesis) -> str:
    said: list[str] = []
    for sign, clue in sorted(one.seen, key=lambda pair: -pair[0].weight):
        if sign.says:
            sentence = _filled(sign.says, clue)
            if sentence not in said:
                said.append(sentence)
    return " ".join([f"{one.cause.title}: {one.cause.tells}", *said])


class _Values(dict[str, str]):
    def __missing__(self, key: str) -> str:
        return "?"


def _filled(template: str, clue: Clue) -> str:
    values = _Values(
        host=clue.host or "one host", rank="?" if clue.rank is None else str(clue.rank), times_seen=str(clue.count)
    )
    values.update(clue.values)
    return template.format_map(values)


def evidence_of(one: Hypothesis) -> tuple[Evidence, ...]:
    """Quoted lines, the strongest signs first, each line once."""
    quoted: list[Evidence] = []
    clues = [clue for _, clue in sorted(one.seen, key=lambda pair: -pair[0].weight)]
    for clue in (*clues, *one.more):
        for line in clue.lines[:LINES_PER_SIGN]:
            entry = Evidence(file=line.file, line=line.number, text=line.text.strip()[:600])
            if entry not in quoted:
                quoted.append(entry)
    return tuple(quoted[:EVIDENCE_LINES])
