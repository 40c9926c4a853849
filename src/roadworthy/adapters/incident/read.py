"""Reads an incident into an examination: each source scanned as it streams by, small ones kept whole for the probes."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from roadworthy.adapters.incident.encodings import SNIFF_BYTES, as_utf8, encoding_of, unwrapped
from roadworthy.adapters.incident.parallel import PARALLEL_FROM_BYTES, scan_pieces
from roadworthy.adapters.incident.sources import READ_ERRORS, Source, at_line_ends, chunks, sources
from roadworthy.adapters.processes import cores
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.examine import DOCUMENT_LIMIT_BYTES, Examination


@dataclass(slots=True)
class Reading:
    """What was read: how many files and bytes, and what was left out and why."""

    examination: Examination
    files: int = 0
    bytes: int = 0
    skipped: list[tuple[str, str]] = field(default_factory=list)


Progress = Callable[[Reading, str], None]
"""Hears of each chunk: the state so far and the file."""


def read_incident(paths: Sequence[Path], *, progress: Progress | None = None) -> Reading:
    """Read everything under ``paths``. Raises ProbeError for a path that is not there."""
    reading = Reading(examination=Examination.new())

    def skip(name: str, reason: str) -> None:
        reading.skipped.append((name, reason))

    for source in sources(paths, skip):
        try:
            _read(source, reading, progress)
        except (ProbeError, *READ_ERRORS) as error:
            skip(source.name, str(error))
    return reading


def _read(source: Source, reading: Reading, progress: Progress | None) -> None:
    stream = chunks(source)
    first = next(stream, b"")
    encoding = encoding_of(first[:SNIFF_BYTES])
    if encoding is None:
        reading.skipped.append((source.name, "not text"))
        return
    if (
        encoding == "utf-8"
        and source.path is not None
        and source.path.stat().st_size >= PARALLEL_FROM_BYTES
        and cores() > 1
    ):
        _read_in_pieces(source.path, source.name, reading, progress)
        return
    scan = reading.examination.scan(source.name)
    kept: list[bytes] | None = []
    size = 0
    # Decoding can leave a chunk that ends inside a line.
    for chunk in at_line_ends(as_utf8(itertools.chain([first], stream), encoding)):
        plain = unwrapped(chunk)
        size += len(plain)
        reading.bytes += len(chunk)
        scan.feed(plain)
        if kept is not None:
            kept = [*kept, plain] if size <= DOCUMENT_LIMIT_BYTES else None
        if progress is not None:
            progress(reading, source.name)
    reading.files += 1
    text = b"".join(kept).decode("utf-8", "replace") if kept is not None else None
    reading.examination.finished(scan, text)


def _read_in_pieces(path: Path, name: str, reading: Reading, progress: Progress | None) -> None:
    def read(size: int) -> None:
        reading.bytes += size
        if progress is not None:
            progress(reading, name)

    reading.examination.add(scan_pieces(path, name, read=read))
    reading.files += 1
