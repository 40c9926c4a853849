"""Runs a program that answers with text, into a file, in bounded time and size; nothing of it outlives us."""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, TypeVar

from roadworthy.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Work = TypeVar("Work")
Outcome = TypeVar("Outcome")

PIECE_BYTES = 256 * 1024
SAID_MOST_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a program ended. ``said``: the last line of its stderr; ``cut``: why its output was not taken to the end."""

    code: int
    said: str
    cut: str = ""


class Programs:
    """Those that run now; :meth:`stop` ends them all, whoever waits for them."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self._stopped = False

    def run_into(
        self, command: Sequence[str], sink: Callable[[bytes], object], *, stdin: bytes = b"", limit_s: float,
        most_bytes: int,
    ) -> Ended:  # fmt: skip
        """Run ``command`` and give its stdout to ``sink`` piece by piece.

        Raises:
            ProbeError: it is not installed, or cannot be started.
        """
        with tempfile.TemporaryFile() as asked, tempfile.TemporaryFile() as errors:
            asked.write(stdin)
            asked.seek(0)
            process = self._started(command, asked, errors)
            try:
                cut = _pump(process, sink, limit_s, most_bytes)
            finally:
                with self._lock:
                    self._running.discard(process)
            errors.seek(0, os.SEEK_END)
            errors.seek(max(0, errors.tell() - SAID_MOST_BYTES))
            said = errors.read().decode("utf-8", "replace").strip().splitlines()
        return Ended(code=process.returncode, said=said[-1].strip() if said else "", cut=cut)

    def _started(self, command: Sequence[str], asked: IO[bytes], errors: IO[bytes]) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise ProbeError(f"{command[0]}: not asked any more")
            try:
                process = subprocess.Popen(
                    command, stdin=asked, stdout=subprocess.PIPE, stderr=errors, start_new_session=True
                )
            except FileNotFoundError as error:
                raise ProbeError(
                    f"{command[0]} is not installed here", hint="save its output to files on a host that has it"
                ) from error
            except OSError as error:
                raise ProbeError(f"{command[0]} cannot be started: {error.strerror or error}") from error
            self._running.add(process)
            return process

    def stop(self) -> None:
        """End every program that runs, and start none any more."""
        with self._lock:
            self._stopped = True
            running = tuple(self._running)
        for process in running:
            _kill(process)


def each_at_once(
    function: Callable[[Work], Outcome], items: Sequence[Work], *, most: int, programs: Programs | None = None
) -> list[Outcome]:
    """``function`` of each of ``items``, ``most`` at once; interrupted, it ends what runs and starts no more."""
    pool = ThreadPoolExecutor(max_workers=most)
    try:
        return list(pool.map(function, items))
    except BaseException:
        if programs is not None:
            programs.stop()
        raise
    finally:
        pool.shutdown(cancel_futures=True)


def _pump(process: subprocess.Popen[bytes], sink: Callable[[bytes], object], limit_s: float, most_bytes: int) -> str:
    late = threading.Event()

    def stop() -> None:
        late.set()
        _kill(process)

    timer = threading.Timer(limit_s, stop)
    timer.daemon = True
    timer.start()
    size, cut = 0, ""
    output: IO[bytes] = process.stdout  # type: ignore[assignment]
    try:
        while piece := os.read(output.fileno(), PIECE_BYTES):
            size += len(piece)
            sink(piece)
            if size > most_bytes:
                cut = f"cut after {size:,} bytes"
                break
        else:
            process.wait()
    finally:  # whatever went wrong on our side: its group ends with it
        timer.cancel()
        _kill(process)
        process.wait()
        output.close()
    return f"not done within {limit_s:g} s" if late.is_set() else cut


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.returncode is None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
