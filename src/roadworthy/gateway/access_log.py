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
        lines = log_lines(records, offset_s, self._worker)
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


def log_lines(records: Sequence[RequestRecord], offset_s: float, worker: str | None = None) -> bytes:
    """``time`` and ``profile`` of each of ``records`` as a line of JSON; ``offset_s`` leads from their clock to the
    epoch.

    Names of tenants, models and engines come again and again, and are quoted once; the rest is one template. That
    costs a fifth of an encoder's way by a dict, in the process that relays.
    """
    own = "" if worker is None else f'"worker":{_quoted(worker)},'
    lines, told_s, second = [], -1, ""
    for one in records:
        moment_s = one.started_s + offset_s
        whole_s = int(moment_s)
        if whole_s != told_s:
            told_s, second = whole_s, _second_text(whole_s)
        ttft_s, itl_s = one.ttft_s, one.itl_p99_s
        lines.append(
            _LINE
            % (
                second,
                int((moment_s - whole_s) * 1000),
                own,
                f'"request_id":"{one.request_id}",' if one.request_id else "",  # ours: nothing in it to be quoted
                _names(
                    one.tenant_id, one.operation, one.model, one.endpoint, one.decision, one.by, one.ending,
                    one.status, one.stream, one.attempts,
                ),
                one.request_bytes,
                one.response_bytes,
                "" if ttft_s is None else f'"ttft_s":{ttft_s:.6f},',
                one.duration_s,
                one.waited_s,
                "" if itl_s is None else f'"itl_p99_s":{itl_s:.6f},',
                one.prompt_tokens,
                one.output_tokens,
                one.cached_tokens,
                "true" if one.tokens_estimated else "false",
                "" if one.queue_s is None and one.prefill_s is None and one.decode_s is None else _phases(one),
                one.kv_blocks_estimate,
                "" if one.io_wait_s is None else f',"io_wait_s":{one.io_wait_s:.6f}',
                _place(one.queue_class, one.borrowed, one.why),
                f',"trace_id":"{one.trace.partition("-")[0]}"' if one.trace else "",
            )
        )  # fmt: skip
    return "".join(lines).encode()


_LINE = (
    '{"time":"%s.%03dZ",%s%s%s"request_bytes":%d,"response_bytes":%d,%s"duration_s":%.6f,"waited_s":%.6f,'
    '%s"prompt_tokens":%d,"output_tokens":%d,"cached_tokens":%d,"tokens_estimated":%s,%s"kv_blocks_estimate":%d%s%s%s}\n'
)


@functools.lru_cache(maxsize=1024)
def _names(
    tenant_id: str, operation: str, model: str, endpoint: str, decision: str, by: str, ending: str, status: int,
    stream: bool, attempts: int,
) -> str:  # fmt: skip
    """From ``tenant_id`` to ``attempts``, with a comma behind each."""
    names = (
        ("tenant_id", tenant_id), ("operation", operation), ("model", model), ("endpoint", endpoint),
        ("decision", decision), ("by", by), ("ending", ending),
    )  # fmt: skip
    texts = "".join([f'"{name}":{_quoted(text)},' for name, text in names if text])
    return f'{texts}"status":{status},"stream":{"true" if stream else "false"},"attempts":{attempts},'


@functools.lru_cache(maxsize=1024)
def _place(queue_class: str, borrowed: bool, why: str) -> str:
    """From ``queue_class`` to ``why``, with a comma before each."""
    text = f',"queue_class":{_quoted(queue_class)}' if queue_class else ""
    text += ',"borrowed":true' if borrowed else ',"borrowed":false'
    return text + (f',"why":{_quoted(why)}' if why else "")


def _phases(record: RequestRecord) -> str:
    """What the engine told of its phases, with a comma behind each."""
    phases = (("queue_s", record.queue_s), ("prefill_s", record.prefill_s), ("decode_s", record.decode_s))
    return "".join([f'"{name}":{value:.6f},' for name, value in phases if value is not None])


def _quoted(text: str) -> str:
    return _encode(text).decode()


def time_text(record: RequestRecord, offset_s: float) -> str:
    """When the request had been read, in UTC; ``offset_s`` leads from the record's clock to the epoch."""
    moment_s = record.started_s + offset_s
    return f"{_second_text(int(moment_s))}.{int((moment_s - int(moment_s)) * 1000):03d}Z"


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
