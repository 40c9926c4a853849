"""`roadworthy diagnose`: names the cause from logs, probe output, metrics; sends nothing anywhere."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.diagnose_sources import Sources, fetch, source_options

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.adapters.incident.read import Reading
    from roadworthy.core.finding import Finding
    from roadworthy.diagnose.redact import Redactor
    from roadworthy.diagnose.verdict import Verdict

EVIDENCE_SHOWN = 6


@click.command()
@click.argument("paths", nargs=-1, metavar="[FILE|FOLDER|ARCHIVE]…", type=click.Path(path_type=Path))
@source_options
@click.option(
    "--keep", type=click.Path(path_type=Path), metavar="FOLDER", help="Keep what was fetched, to diagnose it elsewhere."
)
@click.option("--redact", is_flag=True, help="Replace hosts, addresses, keys and prompt text, for sharing.")
@click.option("--html", "html_file", type=click.Path(path_type=Path), help="Write the incident as one HTML page.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@click.option("--markdown", is_flag=True, help="Print the report as Markdown.")
def command(
    paths: tuple[Path, ...], keep: Path | None, redact: bool, html_file: Path | None, as_json: bool, markdown: bool,
    **named: Any,
) -> int:  # fmt: skip
    """Name the root cause from logs, probe output and metrics, with evidence and remedy."""
    from roadworthy.diagnose.causes import CAUSES
    from roadworthy.diagnose.judge import judge
    from roadworthy.diagnose.timeline import reach, timeline
    from roadworthy.diagnose.verdict import verdict_of

    reading = _read(paths, Sources(**named), keep)
    book = reading.examination.book()
    verdict = verdict_of(book, judge(book, CAUSES), read_anything=reading.files > 0)
    causal = {(one.file, one.line) for one in verdict.findings[0].evidence} if verdict.findings else set()
    events, reached = timeline(book, causal), reach(book)
    document = document_of(verdict, reading) | {"timeline": events, "reach": reached}
    shown = _plain(verdict, reading) if not markdown else _markdown(verdict)
    redactor = _redactor(book.hosts()) if redact else None
    if html_file is not None:
        from roadworthy.adapters.files import write_atomically
        from roadworthy.cli.diagnose_html import incident_page

        read = f"{reading.files:,} files, {reading.bytes / 1e6:,.1f} MB read."
        text = incident_page(verdict, events, reached, read=read)
        write_atomically(html_file, redactor(text) if redactor else text)
        click.echo(f"wrote {html_file}", err=True)
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(_redacted(document, redactor) if redactor else document)
    else:
        text = "\n".join(shown)
        click.echo(redactor(text) if redactor else text)
    return 1 if verdict.findings else 0


def _read(paths: tuple[Path, ...], sources: Sources, keep: Path | None) -> Reading:
    """Everything that was named, files and live sources alike."""
    import time

    from roadworthy.adapters.incident.fetched import fetching
    from roadworthy.adapters.incident.read import read_incident
    from roadworthy.cli.output import say

    if not (paths or sources):
        raise click.UsageError(
            "give files, a folder or an archive, or one of --ssh, --kube, --metrics, --gateway, --prometheus"
        )
    with _Progress() as progress:
        if not sources:
            if keep is not None:
                raise click.UsageError("--keep keeps what is fetched: name a live source too")
            return read_incident(paths, progress=progress.update)
        with fetching(keep) as fetched:
            fetch(sources, fetched, now_s=time.time(), say=say, alone=not paths)
            reading = read_incident([*paths, fetched.folder], progress=progress.update)
    if keep is not None:
        say(f"kept {fetched.files} files in {keep}")
    return reading


def _redactor(hosts: Iterable[str]) -> Redactor:
    from roadworthy.diagnose.redact import Redactor

    return Redactor(hosts=hosts)


def _redacted(value: object, redactor: Redactor) -> object:
    from roadworthy.cli.output import plain

    value = plain(value)
    if isinstance(value, str):
        return redactor(value)
    if isinstance(value, list):
        return [_redacted(item, redactor) for item in value]
    if isinstance(value, dict):
        return {key: _redacted(item, redactor) for key, item in value.items()}
    return value


def document_of(verdict: Verdict, reading: Reading) -> dict[str, object]:
    """The pinned JSON."""
    return {
        "status": verdict.status,
        "findings": verdict.findings,
        "notes": verdict.notes,
        "capture_next": verdict.capture_next,
        "symptoms": [
            {"what": clue.name, "file": line.file, "line": line.number, "text": line.text.strip()[:600]}
            for clue in verdict.symptoms
            for line in clue.lines[:1]
        ],
        "read": {"files": reading.files, "bytes": reading.bytes},
        "skipped": [{"file": name, "reason": reason} for name, reason in reading.skipped],
    }


class _Progress:
    """Megabytes read and the file, on a terminal's stderr only."""

    def __init__(self) -> None:
        import sys

        self._shown = sys.stderr.isatty()
        self._last_bytes = 0

    def __enter__(self) -> _Progress:
        return self

    def update(self, reading: Reading, file: str) -> None:
        if self._shown and reading.bytes - self._last_bytes > 32 * 2**20:
            self._last_bytes = reading.bytes
            click.echo(f"\r{reading.bytes / 1e6:,.0f} MB read, {file[-60:]:<60}", err=True, nl=False)

    def __exit__(self, *_: object) -> None:
        if self._last_bytes:
            click.echo("\r" + " " * 90 + "\r", err=True, nl=False)


def _plain(verdict: Verdict, reading: Reading) -> list[str]:
    lines: list[str] = []
    if verdict.status == "healthy":
        lines.append(f"No fault found in {reading.files} files ({reading.bytes / 1e6:,.1f} MB).")
    elif verdict.status == "insufficient":
        lines.append("Something broke, but what is here does not say why.")
        lines += [
            f"  seen: {line.file}:{line.number}: {line.text.strip()[:160]}"
            for clue in verdict.symptoms
            for line in clue.lines[:1]
        ]
    for number, finding in enumerate(verdict.findings, 1):
        lines += ["", *_finding(number, finding)]
    if verdict.notes:
        lines += ["", "Weaker:"] + [f"  {note.code} ({note.confidence:.0%}): {note.text}" for note in verdict.notes]
    if verdict.capture_next:
        lines += ["", "Capture next:"] + [f"  {command}" for command in verdict.capture_next]
    if reading.skipped:
        lines += ["", "Not read:"] + [f"  {name}: {reason}" for name, reason in reading.skipped[:20]]
    return lines[1:] if lines and not lines[0] else lines


def _finding(number: int, finding: Finding) -> list[str]:
    lines = [
        f"{number}. {finding.code}  ({finding.severity}, {finding.confidence:.0%})  {finding.subject}",
        f"   {finding.diagnosis}",
        "   Evidence:",
    ]
    lines += [f"     {one.file}:{one.line}: {one.text[:200]}" for one in finding.evidence[:EVIDENCE_SHOWN]]
    if len(finding.evidence) > EVIDENCE_SHOWN:
        lines.append(f"     and {len(finding.evidence) - EVIDENCE_SHOWN} more (--json)")
    return [*lines, f"   Remedy: {finding.remedy}"]


def _markdown(verdict: Verdict) -> list[str]:
    lines = [f"# Diagnosis: {verdict.status}"]
    for number, finding in enumerate(verdict.findings, 1):
        lines += [
            "",
            f"## {number}. {finding.code} ({finding.confidence:.0%}, {finding.subject})",
            "",
            finding.diagnosis,
            "",
        ]
        lines += [f"    {one.file}:{one.line}: {one.text}" for one in finding.evidence]
        lines += ["", f"**Remedy.** {finding.remedy}"]
    if verdict.notes:
        lines += ["", "## Weaker", ""] + [
            f"- {note.code} ({note.confidence:.0%}): {note.text}" for note in verdict.notes
        ]
    if verdict.capture_next:
        lines += ["", "## Capture next", ""] + [f"- {command}" for command in verdict.capture_next]
    return lines
