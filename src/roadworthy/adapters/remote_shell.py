"""One program on another host, through whatever gives a shell there, and gone when we are.

The shell reads a script from its standard input, which then stays open: a lifeline. When it ends, because we closed it,
were interrupted or killed, or the connection broke, the script ends the program. `timeout` ends it too, if it is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from shlex import quote
from typing import IO

from roadworthy.core.errors import SpecError
from roadworthy.diagnose.hosts.fabric.inventory import FOLDERS

SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10", "-o", "ServerAliveInterval=5", "-T", "{host}")
"""How a host is reached unless the caller says otherwise; the name of the host takes the place of ``{host}``."""

SHELL = ("sh", "-s")
LOOPBACK = ("localhost", "127.0.0.1", "::1")

CODE = re.compile(r"^@@@ ended (\d+)$")
READY = re.compile(r"^@@@ ready(?: (\d+))?$")
CLOSING_S = 5.0
OUTPUT_MOST = 200_000
"""Characters kept of one program; perftest prints about 2,000."""


def reach(host: str, way: Sequence[str] = SSH) -> list[str]:
    """The command line that gives a POSIX shell on ``host``: for this one without ssh, unless another way is given.

    Raises SpecError for a name that would be an option.
    """
    if way is SSH and host in (*LOOPBACK, socket.gethostname()):
        return list(SHELL)
    return through(host, way)


def through(host: str, way: Sequence[str] = SSH) -> list[str]:
    """The same, whichever host it is."""
    if host.startswith("-") or not host:
        raise SpecError(f"{host!r} is no host name", hint="give names or addresses as ssh knows them")
    return [*(part.replace("{host}", host) for part in way), *SHELL]


def script_of(
    argv: Sequence[str],
    environment: Mapping[str, str],
    *,
    limit_s: float,
    listens_on: int | None = None,
    reads: str = "",
) -> str:
    """The script. It says ``@@@ ready`` once the program listens on ``listens_on`` (above 0), and ``@@@ ended N`` last.
    ``reads`` is what the program gets on its standard input. Raises ValueError when it holds the script's own end mark.
    """
    settings = "".join(f"export {name}={quote(value)}; " for name, value in environment.items())
    program = " ".join(quote(word) for word in argv)
    watch = WATCH.format(port=f"{listens_on:04X}") if listens_on else ""
    if END in reads.splitlines():
        raise ValueError(f"a text with a line {END} cannot be sent")
    return SCRIPT.format(
        folders=":".join(FOLDERS), settings=settings, limit=max(1, int(limit_s)), program=program, watch=watch,
        end=END, reads=reads if not reads or reads.endswith("\n") else reads + "\n",
    )  # fmt: skip


END = "ROADWORTHY_END"
SCRIPT = """\
roadworthy_ends() {{  # what is left of session $1, in whatever process group
  for stat in /proc/[0-9]*/stat; do
    read -r line <"$stat" 2>/dev/null || continue
    pid=${{stat#/proc/}}; pid=${{pid%/stat}}
    session=$1
    set -- ${{line##*) }}
    [ "$4" = "$session" ] && kill "$pid"
    set -- "$session"
  done
}}
roadworthy_measures() {{
  PATH="$PATH:{folders}"; {settings}
  exec 3<&0
  limited=; command -v timeout >/dev/null 2>&1 && limited="timeout -k 2 {limit}"
  command -v setsid >/dev/null 2>&1 && limited="setsid $limited"
  $limited {program} 3<&- 2>&1 <<'{end}' &
{reads}{end}
  work=$!
  ( while read -r _; do :; done <&3; kill "$work"; roadworthy_ends "$work" ) >/dev/null 2>&1 &
  lifeline=$!
  {watch}
  wait "$work"
  code=$?
  roadworthy_ends "$work" 2>/dev/null
  echo "@@@ ended $code"
  kill "$lifeline" 2>/dev/null
}}
roadworthy_measures; exit 0
"""
WATCH = """( n=0; while [ $n -lt 600 ] && kill -0 "$work" 2>/dev/null; do
    grep -qi ":{port} 0*:0000 0A" /proc/net/tcp /proc/net/tcp6 2>/dev/null && {{ echo "@@@ ready"; exit 0; }}
    n=$((n+1)); sleep 0.1
  done ) 3<&- &"""


class Programs:
    """Every program that was started and not closed yet, so that an interrupt ends them all."""

    def __init__(self) -> None:
        self.stopped = False
        self._running: set[RemoteProgram] = set()
        self._lock = threading.Lock()

    @contextlib.contextmanager
    def started(self, command: Sequence[str], script: str, *, most: int = OUTPUT_MOST) -> Iterator[RemoteProgram]:
        """A program that ends with the block, or with :meth:`close_all`. Raises FileNotFoundError as it does."""
        program = RemoteProgram(command, script, most=most)
        with self._lock:
            self._running.add(program)
        try:
            if self.stopped:
                program.close()
            yield program
        finally:
            program.close()
            with self._lock:
                self._running.discard(program)

    def close_all(self) -> None:
        """End what runs, and what is started from now on."""
        self.stopped = True
        with self._lock:
            running = list(self._running)
        for program in running:
            program.let_go()
        for program in running:
            program.close()


class RemoteProgram:
    """A program that runs on ``host``; use it as a context manager, so that it is ended on every way out."""

    def __init__(self, command: Sequence[str], script: str, *, most: int = OUTPUT_MOST) -> None:
        """Start it, and keep ``most`` characters of what it prints. Raises FileNotFoundError when the way to the host
        is not installed here."""
        self._most = most
        self.ready_port: int | None = None
        self.code: int | None = None
        self._lines: list[str] = []
        self._kept = 0
        self._changed = threading.Condition()
        self._ended = False
        self._is_ready = False
        self._process = subprocess.Popen(
            list(command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C is ours to handle: it must not take the lifeline's end from us
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        with contextlib.suppress(BrokenPipeError):
            stdin = self._stdin()
            stdin.write(script.encode())
            stdin.flush()

    def __enter__(self) -> RemoteProgram:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def text(self) -> str:
        """What it printed so far, without our marks."""
        with self._changed:
            return "".join(f"{line}\n" for line in self._lines)

    def wait_ready(self, limit_s: float) -> bool:
        """Whether it is ready for the other side within ``limit_s``; False too when it ended before."""
        return self._wait(lambda: self._is_ready or self._ended or self.code is not None, limit_s) and self._is_ready

    def wait(self, limit_s: float) -> bool:
        """Whether it ended within ``limit_s``."""
        return self._wait(lambda: self._ended or self.code is not None, limit_s)

    def let_go(self) -> None:
        """Tell it to end, without waiting."""
        with contextlib.suppress(BrokenPipeError, ValueError):
            self._stdin().close()

    def close(self) -> None:
        """End it wherever it runs, and wait for the shell to go. Safe to call again."""
        self.let_go()
        try:
            self._process.wait(CLOSING_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(CLOSING_S)
        if self._process.stdout is not None and not self._reader.is_alive():
            self._process.stdout.close()

    def _stdin(self) -> IO[bytes]:
        assert self._process.stdin is not None
        return self._process.stdin

    def _wait(self, done: Callable[[], bool], limit_s: float) -> bool:
        until = time.monotonic() + limit_s
        with self._changed:
            while not done():
                left = until - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(left)
        return True

    def _read(self) -> None:
        assert self._process.stdout is not None
        for raw in self._process.stdout:
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            with self._changed:
                if found := CODE.match(line):
                    self.code = int(found[1])
                elif found := READY.match(line):
                    self._is_ready, self.ready_port = True, int(found[1]) if found[1] else None
                elif self._kept < self._most:
                    self._kept += len(line)
                    self._lines.append(line)
                self._changed.notify_all()
        with self._changed:
            self._ended = True
            self._changed.notify_all()
