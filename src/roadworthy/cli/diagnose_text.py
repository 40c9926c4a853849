"""The incident as text, for a terminal or as Markdown for a ticket: findings, remedy and its risk, reach, timeline."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.causes import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.timeline import Event, Reach
    from roadworthy.diagnose.verdict import Verdict

EVIDENCE_SHOWN = 6
EVENTS_SHOWN = 20
SKIPPED_SHOWN = 20
NAMES_SHOWN = 12


def plain_report(
    verdict: Verdict, events: Sequence[Event], reached: Reach, skipped: Sequence[tuple[str, str]], *, read: str
) -> Iterator[str]:
    """Lines for a terminal. ``read`` says what was looked at."""
    if verdict.status == "healthy":
        yield f"No fault found in {read}."
    elif verdict.status == "insufficient" and verdict.symptoms:
        yield "Something broke, but what is here does not say why."
        for clue in verdict.symptoms:
            for line in clue.lines[:1]:
                yield f"  seen: {line.file}:{line.number}: {line.text.strip()[:160]}"
    elif verdict.status == "insufficient":
        yield "Nothing here could be read, so nothing can be said."
    for number, finding in enumerate(verdict.findings, 1):
        if number > 1:
            yield ""
        yield from _finding(number, finding)
    if verdict.status != "healthy":
        yield from ("", *_reach(reached)) if reached.hosts or reached.ranks else ()
        yield from ("", "Timeline:", *(f"  {_event(one)}" for one in _shown(events))) if events else ()
    for title, lines in (
        ("Weaker", [f"{note.code} ({note.confidence:.0%}): {note.text}" for note in verdict.notes]),
        ("Capture next", list(verdict.capture_next)),
        ("Not read", [f"{name}: {reason}" for name, reason in skipped[:SKIPPED_SHOWN]]),
    ):
        if lines:
            yield from ("", f"{title}:", *(f"  {line}" for line in lines))
    if len(skipped) > SKIPPED_SHOWN:
        yield f"  and {len(skipped) - SKIPPED_SHOWN} more (--json)"


def _finding(number: int, finding: Finding) -> Iterator[str]:
    yield f"{number}. {finding.code}  ({finding.severity}, {finding.confidence:.0%})  {finding.subject}"
    yield f"   {finding.diagnosis}"
    yield "   Evidence:"
    for one in finding.evidence[:EVIDENCE_SHOWN]:
        yield f"     {one.file}:{one.line}: {one.text[:200]}"
    if len(finding.evidence) > EVIDENCE_SHOWN:
        yield f"     and {len(finding.evidence) - EVIDENCE_SHOWN} more (--json)"
    cause = cause_of(finding.code)
    if cause is not None:
        yield f"   Confirm: {cause.confirm}"
    yield f"   Remedy: {finding.remedy}"
    if cause is not None and cause.risk:
        yield f"   Risk of the remedy: {cause.risk}"


def _reach(reached: Reach) -> Iterator[str]:
    when = f", {reached.first} to {reached.last} UTC" if reached.first else ""
    yield f"How far it reached: {reached.symptom_lines:,} lines of symptoms{when}"
    if reached.hosts:
        yield f"  hosts: {_some(reached.hosts)}"
    if reached.ranks:
        yield f"  ranks: {_some([str(one) for one in reached.ranks])}"
    if reached.quiet_hosts:
        yield f"  read and quiet: {_some(reached.quiet_hosts)}"


def _some(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def _shown(events: Sequence[Event]) -> list[Event]:
    """The first events, and those of the cause wherever they stand."""
    causal = [one for one in events if one.first_cause]
    others = [one for one in events if not one.first_cause][: max(0, EVENTS_SHOWN - len(causal))]
    return [one for one in events if one in causal[:EVENTS_SHOWN] or one in others]


def place_of_event(one: Event) -> str:
    """Host and rank of an event, a dash where neither is known."""
    return " ".join(part for part in (one.host, f"rank {one.rank}" if one.rank is not None else "") if part) or "-"


def _event(one: Event) -> str:
    mark = "* " if one.first_cause else "  "
    note = f" ({one.note})" if one.note else ""
    return f"{mark}{one.when}  {place_of_event(one)}  {one.what}{note}  {one.file}:{one.line}"


def markdown_report(
    verdict: Verdict, events: Sequence[Event], reached: Reach, skipped: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Lines of Markdown; what logs wrote stands in code, where it cannot become markup."""
    yield f"# Diagnosis: {verdict.status}"
    for number, finding in enumerate(verdict.findings, 1):
        yield from _markdown_finding(number, finding)
    if verdict.status != "healthy" and (reached.hosts or reached.ranks):
        first, *rest = _reach(reached)
        yield from ("", "## Reach", "", first, "", *(f"- {_code(line.strip())}" for line in rest))
    if verdict.status != "healthy" and events:
        yield from (
            "",
            "## Timeline",
            "",
            "| when (UTC where dated) | where | what | evidence |",
            "| --- | --- | --- | --- |",
        )
        for one in _shown(events):
            what = f"**{one.what}**" if one.first_cause else one.what
            note = f" ({one.note})" if one.note else ""
            yield f"| {one.when}{note} | {_cell(place_of_event(one))} | {what} | {_cell(f'{one.file}:{one.line}')} |"
    for title, lines in (
        ("Weaker", [f"{note.code} ({note.confidence:.0%}): {_code(note.text)}" for note in verdict.notes]),
        ("Capture next", list(verdict.capture_next)),
        ("Not read", [f"{_code(name)}: {_code(reason)}" for name, reason in skipped]),
    ):
        if lines:
            yield from ("", f"## {title}", "", *(f"- {line}" for line in lines))


def _markdown_finding(number: int, finding: Finding) -> Iterator[str]:
    yield from ("", f"## {number}. {finding.code} ({finding.confidence:.0%}, {_code(finding.subject)})", "")
    yield from (finding.diagnosis, "")
    for one in finding.evidence:
        yield f"    {one.file}:{one.line}: {one.text}"
    cause = cause_of(finding.code)
    if cause is not None:
        yield from ("", f"**Confirm.** {cause.confirm}")
    yield from ("", f"**Remedy.** {finding.remedy}")
    if cause is not None and cause.risk:
        yield from ("", f"**Risk of the remedy.** {cause.risk}")


def _code(text: str) -> str:
    """``text`` as code, whatever backticks it holds."""
    fence = "`" * (1 + max((len(run) for run in re.findall(r"`+", text)), default=0))
    return f"{fence}{text}{fence}" if len(fence) == 1 else f"{fence} {text} {fence}"


def _cell(text: str) -> str:
    return _code(text.replace("|", "\\|"))
