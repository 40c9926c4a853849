"""Bytes of unknown kind to UTF-8 lines: byte-order marks, UTF-16 without one, colours, lines of JSON."""

from __future__ import annotations

import codecs
from collections.abc import Iterator

from roadworthy.adapters.incident.records import plain_line, without_colours

SNIFF_BYTES = 4096
BINARY_SHARE = 0.1
"""More control characters than this in the head, and it is no text."""

MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF32_LE, "utf-32"), (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"),
)  # fmt: skip


def encoding_of(head: bytes) -> str | None:
    """Name of the encoding of a file that starts with ``head``; None for what is no text."""
    for mark, name in MARKS:
        if head.startswith(mark):
            return name
    sample = head[:SNIFF_BYTES]
    if b"\0" in sample:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        if odd > 0.3 * len(sample) / 2 > even:
            return "utf-16-le"
        return "utf-16-be" if even > 0.3 * len(sample) / 2 > odd else None
    control = sum(byte < 32 and byte not in (9, 10, 12, 13, 27) for byte in sample)
    return "utf-8" if control <= BINARY_SHARE * max(1, len(sample)) else None


def as_utf8(chunks: Iterator[bytes], encoding: str) -> Iterator[bytes]:
    """``chunks`` in UTF-8; undecodable bytes become the replacement character, never an error."""
    if encoding == "utf-8":
        yield from chunks
        return
    decoder = codecs.getincrementaldecoder(encoding)("replace")
    for chunk in chunks:
        yield decoder.decode(chunk).encode()
    yield decoder.decode(b"", final=True).encode()


def unwrapped(chunk: bytes) -> bytes:
    """``chunk`` without colours, and with each line of a logger's JSON as plain text; other lines as they are."""
    chunk = without_colours(chunk)
    if chunk.lstrip(b" \t\r\n\x1e")[:1] != b"{":
        return chunk
    return b"\n".join(map(plain_line, chunk.split(b"\n")))
