"""A playbook: what an organisation wants of a contract, check by check; and the risk table that a comparison gives."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.core.errors import Problem, SpecError

if TYPE_CHECKING:
    from roadworthy.longdoc.cite import Citation

Severity = Literal["low", "medium", "high", "critical"]
Verdict = Literal["meets", "deviates", "unclear"]
Status = Literal["deviates", "missing", "unclear", "unverified", "unread", "meets", "absent"]

SEVERITIES: tuple[Severity, ...] = ("low", "medium", "high", "critical")
VERDICTS: tuple[Verdict, ...] = ("meets", "deviates", "unclear")

WEIGHT: Mapping[Status, int] = {
    "deviates": 3, "missing": 3, "unclear": 2, "unverified": 2, "unread": 2, "meets": 0, "absent": 0,
}  # fmt: skip
"""Of a status in the risk, which is this times the severity counted from 1: 0 to 12."""

MOST_CHECKS = 200
_KEYS = {"id", "topic", "wanted", "never", "severity", "required"}
_ID = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One position of a playbook.

    Args:
        topic: what it is about, as a lawyer would head it.
        wanted: the position to be found in the contract.
        never: what must not stand there; empty where nothing is ruled out.
        required: whether a contract that says nothing about it is a risk.
    """

    id: str
    topic: str
    wanted: str
    never: str = ""
    severity: Severity = "medium"
    required: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Playbook:
    """Checks in their order."""

    name: str
    checks: tuple[Check, ...]

    @property
    def digest(self) -> str:
        parts = [[one.id, one.topic, one.wanted, one.never] for one in self.checks]
        return hashlib.sha256(json.dumps(parts, ensure_ascii=False).encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """What the model says of one clause under one check.

    Args:
        citations: the words of the clause that it rests on; empty where they do not stand there.
    """

    check: str
    verdict: Verdict
    why: str
    section: str
    citations: tuple[Citation, ...] = ()

    @property
    def verified(self) -> bool:
        return bool(self.citations)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One check in the risk table. ``judgements`` are those that decided, verified ones first."""

    check: Check
    status: Status
    risk: int
    judgements: tuple[Judgement, ...]


def parse_playbook(data: object, source: str) -> Playbook:
    """A playbook of its mapping. Raises SpecError with every problem at once."""
    problems: list[Problem] = []
    entries = data.get("checks") if isinstance(data, dict) else data
    if not isinstance(entries, list) or not entries:
        raise SpecError(
            f"{source}: no checks, wanted a list of them under `checks`",
            hint="checks: [{id: cap, topic: Liability, wanted: capped at the fees of 12 months, severity: high}]",
        )
    if len(entries) > MOST_CHECKS:
        raise SpecError(f"{source}: {len(entries)} checks, wanted at most {MOST_CHECKS}", hint="make two playbooks")
    checks = [_check(entry, f"checks[{place}]", problems) for place, entry in enumerate(entries)]
    ids = [one.id for one in checks if one is not None]
    problems += [
        Problem(path=f"checks[{place}].id", seen=one, wanted="an id of its own")
        for place, one in enumerate(ids)
        if one in ids[:place]
    ]
    if problems:
        raise SpecError(f"{source}: {len(problems)} problem{'s' * (len(problems) > 1)}", problems=tuple(problems))
    name = data.get("name") if isinstance(data, dict) else None
    return Playbook(name=str(name or source), checks=tuple(one for one in checks if one is not None))


def _check(entry: Any, path: str, problems: list[Problem]) -> Check | None:
    if not isinstance(entry, dict):
        problems.append(Problem(path=path, seen=_seen(entry), wanted="a mapping with id, topic and wanted"))
        return None
    before = len(problems)

    def wrong(name: str, wanted: str) -> None:
        problems.append(Problem(path=f"{path}.{name}", seen=_seen(entry.get(name)), wanted=wanted))

    for name in entry:
        if name not in _KEYS:
            wrong(str(name), f"one of {', '.join(sorted(_KEYS))}")
    if not _ID.fullmatch(str(entry.get("id", ""))):
        wrong("id", "letters, digits, dot, dash and underscore")
    for name in ("topic", "wanted"):
        if not isinstance(entry.get(name), str) or not str(entry[name]).strip():
            wrong(name, "a text")
    if not isinstance(entry.get("never", ""), str):
        wrong("never", "a text")
    if entry.get("severity", "medium") not in list(SEVERITIES):
        wrong("severity", " | ".join(SEVERITIES))
    if not isinstance(entry.get("required", True), bool):
        wrong("required", "true or false")
    if len(problems) > before:
        return None
    return Check(
        id=str(entry["id"]), topic=" ".join(entry["topic"].split()), wanted=" ".join(entry["wanted"].split()),
        never=" ".join(entry.get("never", "").split()), severity=entry.get("severity", "medium"),
        required=entry.get("required", True),
    )  # fmt: skip


def _seen(value: object) -> str:
    """Never a whole list or mapping, which may stand for millions of entries."""
    return (
        str(value)[:60] if isinstance(value, (str, int, float, bool)) or value is None else f"a {type(value).__name__}"
    )


def risk_table(playbook: Playbook, judgements: Iterable[Judgement], *, all_read: bool) -> tuple[Row, ...]:
    """A row for each check, the greatest risk first.

    Args:
        all_read: whether every clause was compared; if not, silence does not show that something is missing.
    """
    by_check: dict[str, list[Judgement]] = {}
    for one in judgements:
        by_check.setdefault(one.check, []).append(one)
    rows = [_row(check, by_check.get(check.id, ()), all_read=all_read) for check in playbook.checks]
    return tuple(sorted(rows, key=lambda row: -row.risk))


def _row(check: Check, judgements: Sequence[Judgement], *, all_read: bool) -> Row:
    verified = [one for one in judgements if one.verified]
    status: Status = "missing" if check.required else "absent"
    deciding: Sequence[Judgement] = judgements
    if verified:
        found = {one.verdict for one in verified}
        status = next(verdict for verdict in ("deviates", "unclear", "meets") if verdict in found)
        deciding = sorted(verified, key=lambda one: one.verdict != status)
    elif judgements:
        status = "unverified"
    if not all_read and status in ("missing", "absent", "meets"):
        status = "unread"
    return Row(
        check=check, status=status, risk=WEIGHT[status] * (1 + SEVERITIES.index(check.severity)),
        judgements=tuple(deciding),
    )  # fmt: skip
