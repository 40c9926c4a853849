"""Server-sent events as the relay sees them: where one ends, what the first says, what the last counted.

The relay passes bytes on as they are; these functions only look. Line ends may be LF, CRLF or CR, an event may hold
comments and several ``data:`` lines, and a read may end anywhere.
"""

from __future__ import annotations

import json
import re

BLANK_LINE = re.compile(rb"\r\n\r\n|\n\n|\r\r|\n\r\n|\r\n\n")
_LINE = re.compile(rb"\r\n|\n|\r")


def end_of_last_event(data: bytes) -> int:
    """The offset just after the last complete event of ``data``; 0 when none is complete."""
    if data.endswith((b"\n\n", b"\r\n\r\n")):
        return len(data)
    end = 0
    for blank in BLANK_LINE.finditer(data):
        end = blank.end()
    return end


def first_event(data: bytes) -> bytes | None:
    """The ``data:`` payload of the first complete event that has one; None while there is none.

    Events of comments only (vLLM's ``--sse-keep-alive-interval``) are passed over.
    """
    start = 0
    for blank in BLANK_LINE.finditer(data):
        payload = payload_of(data[start : blank.start()])
        if payload is not None:
            return payload
        start = blank.end()
    return None


def payload_of(event: bytes) -> bytes | None:
    """The ``data:`` lines of one event, joined; None when it has none."""
    lines = [line[5:].removeprefix(b" ") for line in _LINE.split(event) if line.startswith(b"data:")]
    return b"\n".join(lines) if lines else None


def error_status(payload: bytes) -> int | None:
    """The status that an event's error carries, as in ``{"error": {..., "code": 503}}``; None if it is no error.

    An error without a usable number counts as 500.
    """
    if b'"error"' not in payload:
        return None
    try:
        value = json.loads(payload)
    except ValueError:
        return None
    error = value.get("error") if isinstance(value, dict) else None
    if not isinstance(error, dict):
        return None
    code = error.get("code")
    return code if isinstance(code, int) and 400 <= code <= 599 else 500


def without_private_text(data: bytes) -> tuple[bytes, bool]:
    """Whole events with their errors scrubbed of addresses and paths, and whether one of them was an error."""
    from roadworthy.gateway.data.errors import scrubbed

    out, start, failed = [], 0, False
    for blank in BLANK_LINE.finditer(data):
        event, start = data[start : blank.end()], blank.end()
        payload = payload_of(event)
        if payload is not None and error_status(payload) is not None:
            failed = True
            event = scrubbed(event)
        out.append(event)
    return b"".join(out) + data[start:], failed
