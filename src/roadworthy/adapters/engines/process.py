"""One engine process: its own process group, its own log file, and no life after ours."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from roadworthy.core.errors import ProbeError

_PR_SET_PDEATHSIG = 1
_LOG_TAIL_BYTES = 16 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineCommand:
    """How to start one engine.

    Args:
        name: short and unique within a deployment, such as ``engine-0``.
        argv: program and arguments.
        env: variables added to ours.
        url: where it will answer, ``http://host:port``.
        log: file that gets both its streams, truncated at each start of ``up``.
        start_timeout_s: how long ``/health`` may take to say 200 the first time.
    """

    name: str
    argv: tuple[str, ...]
    url: str
    log: Path
    start_timeout_s: float
    env: Mapping[str, str] = field(default_factory=dict)


class EngineProcess:
    """A running engine. Leaves no orphan: the group is killed on ``stop``, and Linux ends it when we are killed."""

    def __init__(self, command: EngineCommand, process: asyncio.subprocess.Process) -> None:
        self._command = command
        self._process = process

    @classmethod
    async def spawn(cls, command: EngineCommand) -> EngineProcess:
        """Start ``command``. Raises ProbeError when the program or the log cannot be opened."""
        try:
            with command.log.open("ab") as log:
                process = await asyncio.create_subprocess_exec(
                    *command.argv,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **command.env},
                    start_new_session=True,  # Ctrl-C in the terminal reaches us alone; we stop engines in order
                    preexec_fn=die_with_parent if sys.platform == "linux" else None,
                )
        except OSError as error:
            raise ProbeError(
                f"{command.name}: cannot start: {error.filename or command.argv[0]}: {error.strerror or error}",
                hint="check that the program exists and that the log folder can be written",
            ) from error
        return cls(command, process)

    @property
    def pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        """Exit code; negative is the signal that ended it."""
        return await self._process.wait()

    async def stop(self, grace_s: float) -> None:
        """Ask the group to end, wait ``grace_s``, then kill what is left of it."""
        self._signal_group(signal.SIGTERM)
        try:
            await asyncio.wait_for(self._process.wait(), grace_s)
        except TimeoutError:
            pass
        finally:
            # also after a clean exit: a worker that outlived its parent must not keep device memory
            self._signal_group(signal.SIGKILL)
            await self._process.wait()

    def _signal_group(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, number)


def die_with_parent() -> None:
    """In the child, before exec: ask the kernel for SIGTERM when the parent dies, however it dies."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)


def log_tail(log: Path, lines: int = 12) -> str:
    """The last ``lines`` lines of a log; empty when there is none."""
    try:
        with log.open("rb") as file:
            file.seek(0, os.SEEK_END)
            file.seek(max(0, file.tell() - _LOG_TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return ""
    return "\n".join(text.splitlines()[-lines:])


async def answers_health(url: str, timeout_s: float = 2.0) -> bool:
    """Whether ``GET /health`` says 200 within ``timeout_s``."""
    parts = urlsplit(url)
    host, port = parts.hostname or "127.0.0.1", parts.port or 80
    writer: asyncio.StreamWriter | None = None
    try:
        async with asyncio.timeout(timeout_s):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(f"GET /health HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n\r\n".encode())
            status = await reader.readline()
            return status.split()[1:2] == [b"200"]
    except (OSError, TimeoutError, ValueError):
        return False
    finally:
        if writer is not None:
            writer.close()
