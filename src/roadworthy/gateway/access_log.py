"""The access log: one line of JSON for each request, written by a thread so that a slow disk delays no token."""

from __future__ import annotations

import functools
import operator
import queue
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING

import msgspec

from roadworthy.core.errors import ProbeError
from roadworthy.gateway.data.record import RequestRecord

if TYPE_CHECKING:
    from collections.abc import Sequence


MOST_WAITING = 256
"""Batches that wait for the disk; more are dropped and counted."""

_encode = msgspec.json.Encoder().encode
_NAMES = tuple(name for name in RequestRecord.__struct_fields__ if name not in ("started_s", "trace"))
_values = operator.attrgetter(*_NAMES)


class AccessLog:
    """Writes records as lines. Fields are those of the record, with ``time``; None and what is not known are left out.

    Args:
        path: the file, appended to; ``-`` is stdout. ``reopen`` opens it anew, for programs that rotate logs.
        worker: which of several processes this is.

    Raises:
        ProbeError: the file cannot be opened.
    """

    def __init__(self, path: str, *, worker: str | None = None) -> None:
        self._path = path
        self._worker = worker
        self._file = self._open()
        self._batches: queue.Queue[bytes | None] = queue.Queue(MOST_WAITING)
        self._reopen = False
        self.dropped = 0
        self._thread = threading.Thread(target=self._write_all, name="access-log", daemon=True)
        self._thread.start()

    def write(self, records: Sequence[RequestRecord]) -> None:
        """Lines for ``records``, in order; returns at once."""
        offset_s = time.time() - time.monotonic()
        lines = b"".join(_line(record, offset_s, self._worker) for record in records)
        try:
            self._batches.put_nowait(lines)
        except queue.Full:
            self.dropped += len(records)

    def reopen(self) -> None:
        """Open the file anew before the next line: the old one was moved away."""
        self._reopen = True

    def close(self) -> None:
        """Write what waits, then close."""
        self._batches.put(None)
        self._thread.join(5)
        if self._file is not sys.stdout.buffer:
            self._file.close()

    def _open(self) -> IO[bytes]:
        if self._path == "-":
            return sys.stdout.buffer
        try:
            return Path(self._path).open("ab", buffering=0)
        except OSError as error:
            raise ProbeError(
                f"gateway.access_log: {self._path}: {error.strerror or error}", hint="give a path that can be written"
            ) from error

    def _write_all(self) -> None:
        while (lines := self._batches.get()) is not None:
            try:
                if self._reopen and self._path != "-":
                    self._reopen = False
                    fresh = self._open()
                    self._file.close()
                    self._file = fresh
                self._file.write(lines)
                self._file.flush()
            except (OSError, ProbeError):  # a full disk: the relay goes on, the loss is counted
                self.dropped += lines.count(b"\n")


def _line(record: RequestRecord, offset_s: float, worker: str | None) -> bytes:
    fields: dict[str, object] = {"time": time_text(record, offset_s)}
    if worker is not None:
        fields["worker"] = worker
    fields.update(profile(record))
    return _encode(fields) + b"\n"


def time_text(record: RequestRecord, offset_s: float) -> str:
    """When the request had been read, in UTC; ``offset_s`` leads from the record's clock to the epoch."""
    moment_s = record.started_s + offset_s
    return f"{_second_text(int(moment_s))}.{int(moment_s % 1 * 1000):03d}Z"


@functools.lru_cache(maxsize=64)
def _second_text(moment_s: int) -> str:
    """Most records of a batch began in the same few seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(moment_s))


def profile(record: RequestRecord) -> dict[str, object]:
    """A record as plain values, rounded to microseconds, without what is not known."""
    found: dict[str, object] = {}
    for name, value in zip(_NAMES, _values(record), strict=True):
        if value is None or value == "":
            continue
        found[name] = round(value, 6) if isinstance(value, float) else value
    if record.trace:
        found["trace_id"] = record.trace.partition("-")[0]
    return found
