"""The incident as one self-contained page: findings, timeline, reach, what to capture."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

from roadworthy.bench.report_page import notes, page, paragraph, table
from roadworthy.diagnose.causes import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.timeline import Event, Reach
    from roadworthy.diagnose.verdict import Verdict

STYLE = (
    "pre.evidence{white-space:pre-wrap;overflow-wrap:anywhere;font-size:.82rem;border-left:3px solid;"
    "padding-left:.7rem}"
)
STATUS = {
    "findings": "Cause found",
    "healthy": "No fault found",
    "insufficient": "Something broke; what is here does not say why",
}  # fmt: skip


def incident_page(verdict: Verdict, events: Sequence[Event], reached: Reach, *, read: str) -> str:
    """The whole page. ``read`` says what was looked at."""
    return page(
        "Incident report", _body(verdict, events, reached), subtitle=f"{STATUS[verdict.status]}. {read}", style=STYLE
    )


def _body(verdict: Verdict, events: Sequence[Event], reached: Reach) -> Iterator[str]:
    for number, finding in enumerate(verdict.findings, 1):
        yield from _finding(number, finding)
    if reached.hosts or reached.ranks:
        yield "<h2>How far it reached</h2>"
        ranks = ", ".join(map(str, reached.ranks)) or "none named"
        yield paragraph(
            f"Hosts: {', '.join(reached.hosts) or 'none named'}. Ranks: {ranks}. "
            f"{reached.symptom_lines:,} lines of symptoms{_span(reached)}. "
            f"Read and quiet: {', '.join(reached.quiet_hosts) or 'none'}.",
            "note",
        )
    if events:
        yield "<h2>Timeline</h2>"
        rows = [_row(one) for one in events]
        yield table(("when", "host", "rank", "what", "where", "text"), rows)
    if verdict.notes:
        yield "<h2>Weaker</h2>"
        yield notes(f"{note.code} ({note.confidence:.0%}): {note.text}" for note in verdict.notes)
    if verdict.capture_next:
        yield "<h2>Capture next</h2>"
        yield notes(verdict.capture_next)


def _span(reached: Reach) -> str:
    return f", {reached.first} to {reached.last} UTC" if reached.first else ""


def _row(one: Event) -> tuple[str, ...]:
    note = "no year" if one.clock == "without a year" else one.note
    when = f"{one.when} ({note})" if note else one.when
    what = ("first cause: " if one.first_cause else "") + one.what
    return (when, one.host, "" if one.rank is None else str(one.rank), what, f"{one.file}:{one.line}", one.text)


def _finding(number: int, finding: Finding) -> Iterator[str]:
    cause = cause_of(finding.code)
    yield f"<h2>{number}. {escape(finding.code)}</h2>"
    yield paragraph(f"{finding.severity}, {finding.confidence:.0%} sure, {finding.subject}", "note")
    yield paragraph(finding.diagnosis, "")
    quoted = "\n".join(f"{one.file}:{one.line}: {one.text}" for one in finding.evidence)
    yield f'<pre class="evidence">{escape(quoted)}</pre>'
    yield f"<p><strong>Remedy.</strong> {escape(finding.remedy)}</p>"
    if cause is not None:
        yield f"<p><strong>Confirm.</strong> {escape(cause.confirm)}</p>"
        if cause.risk:
            yield f"<p><strong>Risk of the remedy.</strong> {escape(cause.risk)}</p>"
