"""Bytes of unknown kind to UTF-8 lines: byte-order marks, UTF-16 without one, container and journal JSON."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator
from typing import Any

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
    """Lines of journald's and container runtimes' JSON as plain text with time and host; other lines as they are."""
    if chunk.lstrip()[:1] != b"{":
        return chunk
    return b"\n".join(_plain(line) for line in chunk.split(b"\n"))


def _plain(line: bytes) -> bytes:
    if not line.startswith(b"{"):
        return line
    try:
        record: Any = json.loads(line)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    text = _journal(record) if "MESSAGE" in record else _container(record) if "log" in record else None
    return line if text is None else text.replace("\n", " ").encode("utf-8", "replace")


def _journal(record: dict[str, Any]) -> str:
    message = record["MESSAGE"]
    if isinstance(message, list):  # journald gives bytes that are not UTF-8 as numbers
        message = bytes(byte for byte in message if isinstance(byte, int) and 0 <= byte < 256).decode(
            "utf-8", "replace"
        )
    unit = record.get("SYSLOG_IDENTIFIER") or record.get("_COMM") or "-"
    stamp = record.get("__REALTIME_TIMESTAMP")
    when = _iso(int(stamp) / 1e6) if isinstance(stamp, str) and stamp.isdigit() else ""
    return f"{when} {record.get('_HOSTNAME', '-')} {unit}: {message}".lstrip()


def _container(record: dict[str, Any]) -> str | None:
    return (
        f"{record.get('time', '')} {str(record['log']).rstrip()}".lstrip() if isinstance(record["log"], str) else None
    )


def _iso(seconds: float) -> str:
    from datetime import UTC, datetime

    return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
