"""What /proc tells of a process and its children: CPU time, memory, descriptors, sockets that are connecting."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_INODE = re.compile(r"\bino:(\d+)")


def cores() -> tuple[int, int]:
    """The core of what is measured, and the one of engine and load generator: the last and the first we may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[-1], allowed[0]


def tree(pid: int) -> list[int]:
    """``pid`` and all that descends from it, those that are gone left out."""
    found = [pid]
    for one in found:
        with contextlib.suppress(OSError):
            for children in Path(f"/proc/{one}/task").glob("*/children"):
                found += [int(child) for child in children.read_text().split()]
    return found


def cpu_s(pid: int) -> float:
    """User and system time of ``pid`` and its children, dead ones included."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{one}/stat").read_text().rpartition(")")[2].split()
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS_PER_S


def rss_bytes(pid: int) -> int:
    """Resident memory of ``pid`` and its children; pages they share are counted once a process."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{one}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) * 1024
    return total


def descriptors(pid: int) -> int:
    """Open files of ``pid`` and its children."""
    total = 0
    for one in tree(pid):
        with contextlib.suppress(OSError):
            total += len(os.listdir(f"/proc/{one}/fd"))  # noqa: PTH208 - names only
    return total


def connecting(pid: int, ports: Sequence[int]) -> int:
    """How many sockets of ``pid`` and its children wait for an answer to their connect to one of ``ports``."""
    inodes = set()
    for one in tree(pid):
        for entry in Path(f"/proc/{one}/fd").iterdir():
            with contextlib.suppress(OSError):
                inodes.add(str(entry.readlink()).removeprefix("socket:[").rstrip("]"))
    # the kernel selects: after a load /proc/net/tcp holds thousands of closed connections, and reading it takes long
    among = " or ".join(f"dport = :{port}" for port in ports)
    done = subprocess.run(
        ["ss", "-Htne", "state", "syn-sent", f"( {among} )"], capture_output=True, text=True, check=True
    )
    return sum(found in inodes for found in _INODE.findall(done.stdout))


def wait_until(condition: Callable[[], bool], within_s: float, every_s: float = 0.002) -> bool:
    """Whether ``condition`` held before ``within_s`` had passed."""
    deadline = time.monotonic() + within_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(every_s)
    return True


@contextlib.contextmanager
def running(
    command: Sequence[str],
    *,
    core: int | None = None,
    log: Path | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[subprocess.Popen[bytes]]:
    """``command`` as a process, on one core if asked; ended with its children when the block is left."""
    pinned = [*(("taskset", "-c", str(core)) if core is not None else ()), *command]
    with contextlib.ExitStack() as stack:
        out = stack.enter_context(log.open("wb")) if log is not None else subprocess.DEVNULL
        process = subprocess.Popen(
            pinned, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
        try:
            yield process
        finally:
            end(process)


def end(process: subprocess.Popen[bytes], grace_s: float = 5) -> None:
    """Stop a process that leads its own group, and its group with it."""
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace_s)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
