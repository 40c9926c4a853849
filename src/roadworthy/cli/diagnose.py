"""`roadworthy diagnose`: names the cause from logs, probe output, metrics; sends nothing anywhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from roadworthy.cli.diagnose_sources import Sources, fetch, source_options

if TYPE_CHECKING:
    from roadworthy.adapters.incident.read import Reading
    from roadworthy.diagnose.timeline import Event, Reach
    from roadworthy.diagnose.values import ClueBook
    from roadworthy.diagnose.verdict import Verdict


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
    report = Report(
        verdict=verdict, events=timeline(book, causal), reached=reach(book), skipped=tuple(reading.skipped),
        files=reading.files, bytes=reading.bytes,
    )  # fmt: skip
    if redact:
        from roadworthy.diagnose.redact import Redactor

        report = Redactor(hosts=book.hosts(), files=_files(book, report)).value(report)
    if html_file is not None:
        from roadworthy.adapters.files import write_atomically
        from roadworthy.cli.diagnose_html import incident_page

        page = incident_page(report.verdict, report.events, report.reached, read=f"{report.read} read.")
        write_atomically(html_file, page)
        click.echo(f"wrote {html_file}", err=True)
    if as_json:
        from roadworthy.cli.output import print_json

        print_json(document_of(report))
    else:
        _print(report, markdown=markdown)
    return 1 if verdict.findings else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """All that is told of an incident, in whatever form."""

    verdict: Verdict
    events: tuple[Event, ...]
    reached: Reach
    skipped: tuple[tuple[str, str], ...]
    files: int
    bytes: int

    @property
    def read(self) -> str:
        return f"{self.files:,} files ({self.bytes / 1e6:,.1f} MB)"


def _print(report: Report, *, markdown: bool) -> None:
    from roadworthy.cli.diagnose_text import markdown_report, plain_report

    if markdown:
        lines = markdown_report(report.verdict, report.events, report.reached, report.skipped)
    else:
        lines = plain_report(report.verdict, report.events, report.reached, report.skipped, read=report.read)
    click.echo("\n".join(printable(line) for line in lines))


def _files(book: ClueBook, report: Report) -> set[str]:
    named = {line.file for clue in book.all("*") for line in clue.lines}
    return named | {one.file for one in book.documents} | {name for name, _ in report.skipped}


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


def document_of(report: Report) -> dict[str, object]:
    """The pinned JSON, with what to do about each finding beside it."""
    from roadworthy.diagnose.causes import cause_of

    verdict = report.verdict
    causes = {finding.code: cause_of(finding.code) for finding in verdict.findings}
    return {
        "status": verdict.status,
        "findings": verdict.findings,
        "notes": verdict.notes,
        "capture_next": verdict.capture_next,
        "actions": [
            {"code": code, "confirm": cause.confirm, "remedy": cause.remedy, "risk": cause.risk}
            for code, cause in causes.items()
            if cause is not None
        ],
        "symptoms": [
            {"what": clue.name, "file": line.file, "line": line.number, "text": line.text.strip()[:600]}
            for clue in verdict.symptoms
            for line in clue.lines[:1]
        ],
        "timeline": report.events,
        "reach": report.reached,
        "read": {"files": report.files, "bytes": report.bytes},
        "skipped": [{"file": name, "reason": reason} for name, reason in report.skipped],
    }


def printable(line: str) -> str:
    """``line`` without what would steer a terminal: logs are written by others."""
    return "".join(letter if letter == "\t" or letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in line)


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
