"""Signals in logs: literals find the few lines that matter, patterns read them. Constant memory, any size of log.

A signal names literals, one of which any line that carries it must contain. Searching bytes for literals is fast, so
lines that nobody asked for are never decoded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from roadworthy.diagnose.anatomy import writer_of
from roadworthy.diagnose.values import Clue, Line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

KEEP_CLUES = 200
"""Clues kept of one signal in one file; more are counted. The first are the ones that can be a cause."""

LINE_LIMIT_BYTES = 4096
"""A longer line is cut around the literal: some loggers print a whole prompt."""

FOLLOWING_LINES = 8
"""Lines after the hit that a ``multiline`` signal reads too."""


@dataclass(frozen=True)
class Signal:
    """One message that means something.

    Args:
        name: of the clue it gives, ``producer.what-happened``.
        literals: any of these must be in the line, letter for letter.
        pattern: searched in the line, and in the lines after it when ``multiline``; named groups become values. Empty:
            the literal is enough.
        unless: text that takes the meaning away.
    """

    name: str
    literals: tuple[str, ...]
    pattern: str = ""
    unless: str = ""
    multiline: bool = False

    @cached_property
    def compiled(self) -> re.Pattern[str]:
        return re.compile(self.pattern, re.DOTALL if self.multiline else 0)

    @cached_property
    def excluded(self) -> re.Pattern[str]:
        return re.compile(self.unless)

    def read(self, text: str) -> Mapping[str, str] | None:
        """Values of a line that carries the signal, None when it does not."""
        if self.unless and self.excluded.search(text):
            return None
        if not self.pattern:
            return {}
        found = self.compiled.search(text)
        return None if found is None else {key: value for key, value in found.groupdict().items() if value is not None}


def signal(name: str, literals: str, pattern: str = "", *, unless: str = "", multiline: bool = False) -> Signal:
    """A signal; ``literals`` are parted by `` | ``."""
    return Signal(name=name, literals=tuple(literals.split(" | ")), pattern=pattern, unless=unless, multiline=multiline)


class SignalIndex:
    """Signals by literal, so that a hit is read by those alone that could mean it."""

    def __init__(self, signals: Iterable[Signal]) -> None:
        self.by_literal: dict[bytes, list[Signal]] = defaultdict(list)
        for one in signals:
            for literal in one.literals:
                self.by_literal[literal.encode()].append(one)

    def hits(self, chunk: bytes) -> Iterator[tuple[int, bytes]]:
        """(offset, literal) of each line that holds a literal; a line comes once for each literal."""
        for literal in self.by_literal:
            at = chunk.find(literal)
            while at >= 0:
                yield at, literal
                end = chunk.find(b"\n", at)
                if end < 0:
                    break
                at = chunk.find(literal, end)


@dataclass(slots=True)
class FileScan:
    """The scan of one file, fed with chunks that end at a line's end.

    Args:
        host: that the file's name tells; a line's own word comes before it.
    """

    index: SignalIndex
    file: str
    host: str | None = None
    lines_read: int = 0
    _seen: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    _clues: dict[str, list[Clue]] = field(default_factory=lambda: defaultdict(list))

    def feed(self, chunk: bytes) -> None:
        counted_to, line_number = 0, self.lines_read + 1
        for at, literal in sorted(self.index.hits(chunk)):
            start = chunk.rfind(b"\n", 0, at) + 1
            if start > counted_to:
                line_number += chunk.count(b"\n", counted_to, start)
                counted_to = start
            self._read(chunk, start, at, literal, line_number)
        self.lines_read = line_number - 1 + chunk.count(b"\n", counted_to)

    def _read(self, chunk: bytes, start: int, at: int, literal: bytes, number: int) -> None:
        text = ""
        for one in self.index.by_literal[literal]:
            kept = self._clues[one.name]
            if kept and kept[-1].lines[0].number == number:
                continue  # another literal of the same signal in the same line
            if self._seen[one.name] >= KEEP_CLUES:
                self._seen[one.name] += 1
                continue
            text = text or _line_at(chunk, start, at)
            whole = _lines_from(chunk, start) if one.multiline else text
            values = one.read(whole)
            if values is None:
                continue
            self._seen[one.name] += 1
            writer = writer_of(text)
            kept.append(
                Clue(
                    name=one.name, lines=(Line(file=self.file, number=number, text=text),), values=values,
                    host=writer.host or self.host, rank=writer.rank, time_s=writer.time_s,
                )
            )  # fmt: skip

    def clues(self) -> tuple[Clue, ...]:
        """What was found; the first clue of a signal carries the count of all."""
        found: list[Clue] = []
        for name, kept in self._clues.items():
            if kept:
                found += [replace(kept[0], count=self._seen[name]), *kept[1:]]
        return tuple(found)


def _line_at(chunk: bytes, start: int, at: int) -> str:
    end = chunk.find(b"\n", at)
    end = len(chunk) if end < 0 else end
    if end - start > LINE_LIMIT_BYTES:
        start = max(start, at - LINE_LIMIT_BYTES // 2)
        end = min(end, start + LINE_LIMIT_BYTES)
    return chunk[start:end].decode("utf-8", "replace").rstrip("\r")


def _lines_from(chunk: bytes, start: int) -> str:
    end = start
    for _ in range(FOLLOWING_LINES):
        after = chunk.find(b"\n", end)
        if after < 0 or after - start > LINE_LIMIT_BYTES:
            end = min(len(chunk), start + LINE_LIMIT_BYTES)
            break
        end = after + 1
    return chunk[start:end].decode("utf-8", "replace")
