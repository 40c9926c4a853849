"""Bytes to text and back, and pieces of text that know where each of their characters stands in the file.

A setting may sit in a shell word, inside a quoted string, inside a YAML block: every reader works on a ``Piece``, whose
text is already unquoted and unindented, and asks it for places in the file only when it reports one.
"""

from __future__ import annotations

import codecs
import re
from bisect import bisect_right
from dataclasses import dataclass, field

MAX_LINE_CHARS = 200_000
"""A longer line is data, not a setting; it is left out and said so."""

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_BINARY_MAGIC = (
    b"\x7fELF",
    b"\x89PNG",
    b"PK\x03\x04",
    b"\x1f\x8b",
    b"%PDF",
    b"GIF8",
    b"\xff\xd8\xff",
    b"BZh",
    b"\xfd7zXZ",
)


class NotText(Exception):
    """The bytes are no text; the message says what they look like."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """A file as text, and what is needed to write it back byte for byte where nothing changed."""

    text: str
    encoding: str
    bom: bytes = b""

    def encode(self, text: str) -> bytes:
        """``text`` in the file's own encoding, with the mark it began with."""
        return self.bom + text.encode(self.encoding, "surrogatepass" if self.encoding.startswith("utf") else "strict")


def decode(data: bytes) -> Decoded:
    """Text of a file, by its byte order mark, else UTF-8, else UTF-16 by its zero bytes, else Latin-1.

    Raises:
        NotText: it holds what no text holds.
    """
    for bom, encoding in _BOMS:
        if data.startswith(bom):
            try:
                return Decoded(text=data[len(bom) :].decode(encoding), encoding=encoding, bom=bom)
            except UnicodeDecodeError as error:
                raise NotText(f"starts as {encoding}, is broken at byte {error.start + len(bom)}") from error
    if data.startswith(_BINARY_MAGIC):
        raise NotText("a binary file")
    if b"\0" in data:
        return _without_mark(data)
    try:
        return Decoded(text=data.decode("utf-8"), encoding="utf-8")
    except UnicodeDecodeError:
        text = data.decode("latin-1")
    control = sum(text.count(chr(code)) for code in range(32) if code not in (9, 10, 12, 13, 27))
    if control > len(text) // 50:
        raise NotText("a binary file")
    return Decoded(text=text, encoding="latin-1")


def _without_mark(data: bytes) -> Decoded:
    sample = data[:4096]
    even, odd = sample[0::2].count(0), sample[1::2].count(0)
    for zeros, others, encoding in ((odd, even, "utf-16-le"), (even, odd, "utf-16-be")):
        if len(data) % 2 == 0 and zeros > len(sample) // 4 and others * 8 <= zeros:
            try:
                return Decoded(text=data.decode(encoding), encoding=encoding)
            except UnicodeDecodeError:
                break
    raise NotText("a binary file (zero bytes)")


@dataclass(frozen=True, slots=True)
class Piece:
    """Some text out of the file. ``segments`` pairs a position in ``text`` with its offset in the file, rising."""

    text: str
    segments: tuple[tuple[int, int], ...] = ((0, 0),)
    _starts: list[int] = field(init=False, repr=False, compare=False, default_factory=list)

    def __post_init__(self) -> None:
        self._starts.extend(position for position, _ in self.segments)

    def at(self, position: int) -> int:
        """Offset in the file of the character at ``position`` (its length gives the place after the last)."""
        if position and position == len(self.text):
            return self.at(position - 1) + 1
        start, offset = self.segments[bisect_right(self._starts, position) - 1]
        return offset + position - start

    def slice(self, start: int, end: int) -> Piece:
        """The part from ``start`` up to ``end``."""
        builder = PieceBuilder()
        builder.add_from(self, start, end)
        return builder.build(self.at(start))


class PieceBuilder:
    """Collects text with its places."""

    __slots__ = ("_length", "_segments", "_texts")

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._segments: list[tuple[int, int]] = []
        self._length = 0

    def add(self, text: str, offset: int) -> None:
        """``text``, whose first character stands at ``offset``."""
        if not text:
            return
        self._segments.append((self._length, offset))
        self._texts.append(text)
        self._length += len(text)

    def add_from(self, piece: Piece, start: int, end: int) -> None:
        """The part of another piece, with its places."""
        if start >= end:
            return
        segments, starts = piece.segments, piece._starts
        index = bisect_right(starts, start) - 1
        self._segments.append((self._length, segments[index][1] + start - segments[index][0]))
        for position, offset in segments[index + 1 :]:
            if position >= end:
                break
            self._segments.append((self._length + position - start, offset))
        self._texts.append(piece.text[start:end])
        self._length += end - start

    def __len__(self) -> int:
        return self._length

    def build(self, where: int) -> Piece:
        """The piece; ``where`` is its offset if it is empty."""
        return Piece("".join(self._texts), tuple(self._segments) or ((0, where),))


class LineTable:
    """Line numbers, 1-based, by offset. A line ends at a line feed, a carriage return or both."""

    __slots__ = ("starts",)

    def __init__(self, text: str) -> None:
        self.starts = [0, *(match.end() for match in re.finditer(r"\r\n|\r|\n", text))]

    def line(self, offset: int) -> int:
        return bisect_right(self.starts, offset)

    def column(self, offset: int) -> int:
        return offset - self.starts[self.line(offset) - 1]


def without_huge_lines(text: str) -> tuple[str, tuple[int, ...]]:
    """``text`` with lines too long to be settings blanked (same length), and the numbers of those lines."""
    if len(text) <= MAX_LINE_CHARS:
        return text, ()
    lines = re.split(r"(\r\n|\r|\n)", text)
    huge = [index for index in range(0, len(lines), 2) if len(lines[index]) > MAX_LINE_CHARS]
    for index in huge:
        lines[index] = " " * len(lines[index])
    return "".join(lines), tuple(index // 2 + 1 for index in huge)
