"""Texts in, judgement out: scans, probes, joins, causes, in that order."""

from __future__ import annotations

import contextlib
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from roadworthy.diagnose.anatomy import host_of_file, time_of
from roadworthy.diagnose.causes import CAUSES
from roadworthy.diagnose.joins import JOINS
from roadworthy.diagnose.judge import Judgement, judge
from roadworthy.diagnose.metrics import series_clues
from roadworthy.diagnose.metrics.answers import AnswerReader, is_answer
from roadworthy.diagnose.probes import PROBES
from roadworthy.diagnose.scan import FileScan, thinned
from roadworthy.diagnose.signals import signal_index
from roadworthy.diagnose.values import Clue, ClueBook, Document

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from roadworthy.diagnose.metrics.series import Series

T = TypeVar("T")

DOCUMENT_LIMIT_BYTES = 512 * 1024
"""A file up to this size is also read as a whole by the probes; a longer one is a log."""

DOCUMENTS_MOST_BYTES = 48 * 2**20
"""Of documents kept for what follows from several together; those beyond are probed and let go."""

LOGS_PROBED_BYTES = 2 * 2**20
"""Of logs that are small enough to be probed as a whole too. Probes read a megabyte a second, scans eighty."""

LINES_LOOKED_AT = 40
LOG_SHARE = 0.6

CLUES_KEPT_WHOLE = 50_000
THINNED_TO = 6
"""From so many clues on, a file adds no more than the first and last few of each signal, and their count."""

SNIFFED = 4096
"""Characters of a file's head that tell what it is."""


def given(reader: Callable[[T], Iterable[Clue]], read: T) -> Iterator[Clue]:
    """What ``reader`` makes of ``read``. A damaged text that one reader trips over costs its further clues, not the
    incident: half lines, numbers with two points and tables with holes are what crashes leave."""
    with contextlib.suppress(ArithmeticError, LookupError, ValueError):
        yield from reader(read)


@dataclass(slots=True)
class Examination:
    """One incident as it is read. Feed it files, then ask for the book and the judgement."""

    documents: list[Document]
    clues: list[Clue]
    series: list[Series] = field(default_factory=list)
    kept_bytes: int = 0
    log_bytes: int = 0

    @classmethod
    def new(cls) -> Examination:
        return cls(documents=[], clues=[])

    def scan(self, file: str) -> FileScan:
        """A scan for one more file, to be fed with its chunks and handed to :meth:`finished`."""
        return FileScan(index=signal_index(), file=file, host=host_of_file(file))

    def add(self, clues: Iterable[Clue]) -> None:
        """Clues of a file that was scanned elsewhere, too large to be read as a whole."""
        self.clues += clues if len(self.clues) < CLUES_KEPT_WHOLE else thinned(clues, THINNED_TO)

    def finished(self, scan: FileScan, text: str | None) -> None:
        """Take the clues of a scan; ``text`` is the whole file where it is small enough."""
        self.add(scan.clues())
        if text is not None and is_log(text):
            self.log_bytes += len(text)
            text = text if self.log_bytes <= LOGS_PROBED_BYTES else None
        if text is not None:
            document = Document(file=scan.file, text=text, host=scan.host)
            self.kept_bytes += len(text)
            if self.kept_bytes <= DOCUMENTS_MOST_BYTES:
                self.documents.append(document)
            for probe in PROBES:
                self.clues += given(probe, document)

    def book(self) -> ClueBook:
        """Everything seen, with what follows from several clues together."""
        book = ClueBook(documents=tuple(self.documents))
        book.add(self.clues)
        book.add(series_clues(self.series))
        for join in JOINS:
            book.add(tuple(given(join, book)))
        return book


PAIRS = re.compile(r"[A-Za-z_][\w.-]*=\S+")


SAID = re.compile(r"(?:^|[\s\])])(?:INFO|WARN(?:ING)?|ERROR|DEBUG|CRITICAL|TRACE)\b|^\[?(?:rank|pod/)|pid=\d+\)")
"""How loggers begin a line that has no clock."""


def _said_by_a_logger(line: str) -> bool:
    if line[0] in "{|" or len(PAIRS.findall(line)) >= 3:
        return False
    return SAID.search(line[:100]) is not None or time_of(line[:100]) is not None


def is_log(text: str) -> bool:
    """Whether most lines begin with a clock or a level and go on in words, so that each can be read by itself.

    Probe output, scrapes and manifests have no clocks; access logs, whose rows make a table, are records of pairs.
    """
    lines = [line for line in text[: 64 * 1024].split("\n") if line.strip()]
    some = lines[:: max(1, len(lines) // LINES_LOOKED_AT)]
    told = sum(map(_said_by_a_logger, some))
    return len(lines) > LINES_LOOKED_AT and told >= LOG_SHARE * len(some)


def examine(texts: Mapping[str, str] | Iterable[tuple[str, str]]) -> tuple[ClueBook, Judgement]:
    """Judge texts by file name; the whole of :mod:`roadworthy.diagnose` for what fits into memory."""
    pairs = texts.items() if hasattr(texts, "items") else texts
    examination = Examination.new()
    for file, text in pairs:
        if is_answer(text[:SNIFFED].encode("utf-8", "replace")):
            examination.series += AnswerReader(file).feed(text.encode("utf-8", "replace"))
            continue
        scan = examination.scan(file)
        scan.feed(text.encode("utf-8", "replace"))
        examination.finished(scan, text if len(text) <= DOCUMENT_LIMIT_BYTES else None)
    book = examination.book()
    return book, judge(book, CAUSES)
