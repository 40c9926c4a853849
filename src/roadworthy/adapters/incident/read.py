"""Reads an incident into an examination: each source scanned as it streams by, small ones kept whole for the probes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from roadworthy.adapters.incident.encodings import SNIFF_BYTES, as_utf8, encoding_of, unwrapped
from roadworthy.adapters.incident.fetched import NOT_LOOKED_AT
from roadworthy.adapters.incident.parallel import PARALLEL_FROM_BYTES, scan_pieces
from roadworthy.adapters.incident.places import place_of
from roadworthy.adapters.incident.records import Form, form_of
from roadworthy.adapters.incident.sources import LINE_MOST_BYTES, READ_ERRORS, Source, at_line_ends, sources, unpacked
from roadworthy.adapters.incident.yaml_items import YamlItems
from roadworthy.adapters.processes import cores
from roadworthy.core.errors import ProbeError
from roadworthy.diagnose.arrays import ArrayObjects
from roadworthy.diagnose.examine import DOCUMENT_LIMIT_BYTES, Examination
from roadworthy.diagnose.metrics.answers import AnswerReader, is_answer

if TYPE_CHECKING:
    from roadworthy.diagnose.scan import FileScan

POINTS_MOST = 5_000_000
"""Of all series together: 80 MB."""


@dataclass(slots=True)
class Reading:
    """What was read: how many files, bytes and points of series, and what was left out and why."""

    examination: Examination
    files: int = 0
    bytes: int = 0
    points: int = 0
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
    stream = unpacked(source)
    first = next(stream, b"")
    if source.name.rsplit("/", 1)[-1] == NOT_LOOKED_AT:
        _missed(first, reading)
    elif is_answer(first[:SNIFF_BYTES]):
        _read_answer(source, itertools.chain([first], stream), reading, progress)
    elif (form := form_of(first[:SNIFF_BYTES])) is not None:
        _read_records(source, form, itertools.chain([first], stream), reading, progress)
    elif (encoding := encoding_of(first[:SNIFF_BYTES])) is None:
        reading.skipped.append((source.name, "not text"))
    elif encoding == "utf-8" and _is_large(source) and cores() > 1:
        _read_in_pieces(source, reading, progress)
    else:
        _read_text(source, itertools.chain([first], stream), encoding, reading, progress)


def _is_large(source: Source) -> bool:
    return source.path is not None and source.path.stat().st_size >= PARALLEL_FROM_BYTES


def _read_text(
    source: Source, stream: Iterator[bytes], encoding: str, reading: Reading, progress: Progress | None
) -> None:
    scan = reading.examination.scan(source.name)
    scan.host = place_of(source.name)
    kept: list[bytes] | None = []
    size = 0
    # Decoding can leave a chunk that ends inside a line.
    for chunk in at_line_ends(as_utf8(at_line_ends(stream, most_bytes=LINE_MOST_BYTES), encoding)):
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


def _read_answer(source: Source, stream: Iterator[bytes], reading: Reading, progress: Progress | None) -> None:
    """An answer of a Prometheus: series instead of lines."""
    reader = AnswerReader(source.name, name=PurePosixPath(source.name).stem)
    try:
        for piece in stream:
            reading.bytes += len(piece)
            for one in reader.feed(piece):
                reading.points += len(one.values)
                if reading.points > POINTS_MOST:
                    raise ProbeError(f"more than {POINTS_MOST:,} points in all: ask for a shorter time or fewer series")
                reading.examination.series.append(one)
            if progress is not None:
                progress(reading, source.name)
    finally:
        reading.files += 1
    if not reader.finished():
        reading.skipped.append((source.name, "the answer breaks off; what is there was read"))


def _read_records(
    source: Source, form: Form, stream: Iterator[bytes], reading: Reading, progress: Progress | None
) -> None:
    """Records in an array: each as its plain lines. A line is numbered as the record's own where records stand on lines
    of their own, else by the record's place in the file."""
    scan = reading.examination.scan(source.name)
    objects = YamlItems() if form.yaml else ArrayObjects(form.key)
    scan.host = place_of(source.name)
    kept: list[bytes] = []
    size = last = 0
    for piece in stream:
        reading.bytes += len(piece)
        size += len(piece)
        if form.keep_text and size <= DOCUMENT_LIMIT_BYTES:
            kept.append(piece)
        last = _feed_records(scan, form, objects.feed(piece), last)
        if progress is not None:
            progress(reading, source.name)
    if isinstance(objects, YamlItems):
        _feed_records(scan, form, objects.end(), last)
    reading.files += 1
    if not objects.finished():
        reading.skipped.append((source.name, "the records break off; what is there was read"))
    whole = form.keep_text and size <= DOCUMENT_LIMIT_BYTES
    reading.examination.finished(scan, b"".join(kept).decode("utf-8", "replace") if whole else None)


def _feed_records(scan: FileScan, form: Form, records: Iterator[tuple[object, int]], last: int) -> int:
    """Feed the plain lines of ``records``; the line of the last that stood on lines of its own."""
    plain: list[bytes] = []
    for record, line in records:
        lines = [one.encode("utf-8", "replace") for one in form.lines(record)]
        if line > last:
            scan.feed(_ended(plain))
            plain = []
            last = line - 1
            for one in lines:
                scan.lines_read = line - 1
                scan.feed(one + b"\n")
        else:
            plain += lines
    scan.feed(_ended(plain))
    return last


def _ended(lines: list[bytes]) -> bytes:
    return b"\n".join([*lines, b""])


def _missed(first: bytes, reading: Reading) -> None:
    """What an earlier run, on another machine perhaps, could not look at."""
    try:
        listed: object = json.loads(first)
    except ValueError:
        listed = None
    for one in listed if isinstance(listed, list) else ():
        if isinstance(one, dict):
            reading.skipped.append((str(one.get("what", "?")), f"could not look: {one.get('reason', '?')}"))


def _read_in_pieces(source: Source, reading: Reading, progress: Progress | None) -> None:
    def read(size: int) -> None:
        reading.bytes += size
        if progress is not None:
            progress(reading, source.name)

    assert source.path is not None
    reading.examination.add(scan_pieces(source.path, source.name, read=read))
    reading.files += 1
