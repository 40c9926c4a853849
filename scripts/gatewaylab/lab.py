"""tools/loadlab from Python: built when it is needed, its engine driven, its load generator run."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gatewaylab.processes import running, wait_until

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "build" / "loadlab"
KEY = "sk-bench"
MODEL = "fake-model"
START_LIMIT_S = 60.0


class LabError(Exception):
    """Something the measurement needs does not work; says what."""


def build() -> None:
    """Compile engine and load generator. Raises LabError with the compiler's words."""
    done = subprocess.run(
        ["make", "--silent", "-C", str(ROOT / "tools" / "loadlab"), f"OUT={BUILD}"],
        capture_output=True, text=True, check=False, env={**os.environ, "MAKEFLAGS": ""},
    )  # fmt: skip
    if done.returncode:
        raise LabError(f"tools/loadlab does not build: {done.stderr.strip()[-2000:]}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engines:
    """A running fake engine: four ports of one process, and its control port."""

    ports: tuple[int, ...]
    control: int
    pid: int

    def _ask(self, target: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self.control}{target}", timeout=20) as answer:
            value: dict[str, Any] = json.load(answer)
        return value

    def set(self, port: int | None = None, **settings: float | str) -> None:
        """Change options of one port, or of all."""
        query = [f"port={port}"] if port is not None else []
        self._ask("/set?" + "&".join([*query, *(f"{name}={value}" for name, value in settings.items())]))

    def state(self) -> dict[str, Any]:
        return self._ask("/state")

    def total(self, name: str) -> int:
        """A count summed over the ports."""
        return sum(int(port[name]) for port in self.state()["ports"])

    def of_port(self, port: int, name: str) -> int:
        return next(int(one[name]) for one in self.state()["ports"] if one["port"] == port)

    def endings(self, since: int) -> list[dict[str, Any]]:
        """How completion requests ended, from the ``since``-th on."""
        found: list[dict[str, Any]] = self._ask(f"/endings?since={since}")["endings"]
        return found

    def ended(self) -> int:
        return int(self.state()["ended"])

    def reset(self) -> None:
        self._ask("/reset")

    def calm(self) -> None:
        """No faults, answers at once; and no request left from before."""
        self.set(fault="none", health=200, first_ms=0, rate=50, step=0, chunk_bytes=256, die_after=3)
        if not wait_until(lambda: self.total("in_flight") == 0, 10):
            raise LabError(f"requests are left at the engines: {self.state()}")


@contextlib.contextmanager
def engines(ports: Sequence[int], control: int, *, core: int | None, log: Path) -> Iterator[Engines]:
    """Fake engines on ``ports``."""
    command = [str(BUILD / "engine"), "--ports", ",".join(map(str, ports)), "--control", str(control)]
    with running(command, core=core, log=log) as process:
        if not wait_until(lambda: b"ready" in log.read_bytes() or process.poll() is not None, 10) or process.poll():
            raise LabError(f"the fake engine did not start: {log.read_text().strip()}")
        yield Engines(ports=tuple(ports), control=control, pid=process.pid)


def load_command(port: int, **options: float | str) -> list[str]:
    """The load generator's command line; ``body_bytes=300`` becomes ``--body-bytes 300``."""
    named = {"key": KEY, "model": MODEL, **options}
    words = [word for name, value in named.items() for word in (f"--{name.replace('_', '-')}", str(value))]
    return [str(BUILD / "load"), "--port", str(port), *words]


def start_load(port: int, *, core: int | None, **options: float | str) -> subprocess.Popen[str]:
    """A load generator that runs beside; ``finish_load`` reads what it measured."""
    pinned = ["taskset", "-c", str(core)] if core is not None else []
    return subprocess.Popen([*pinned, *load_command(port, **options)], stdout=subprocess.PIPE, text=True)


def finish_load(process: subprocess.Popen[str], within_s: float = 120) -> dict[str, Any]:
    out, _ = process.communicate(timeout=within_s)
    if process.returncode:
        raise LabError(f"the load generator failed with {process.returncode}")
    result: dict[str, Any] = json.loads(out)
    return result


def load(port: int, *, core: int | None, **options: float | str) -> dict[str, Any]:
    """Run the load generator to its end."""
    return finish_load(start_load(port, core=core, **options), within_s=900)


def failures(result: dict[str, Any]) -> int:
    """Requests of a load that neither ended well nor were left on purpose."""
    left: dict[str, int] = result["left"]
    return int(result["started"]) - int(result["ok"]) - sum(left.values())


def request(text: str, *, stream: bool, chunks: int = 10) -> bytes:
    """One completion request as bytes; ``text`` begins with ``ll-`` to be found at the engine."""
    body = json.dumps(
        {"model": MODEL, "stream": stream, "max_tokens": chunks, "messages": [{"role": "user", "content": text}]}
    ).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n"
    return f"{head}Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=10)


def status_of(port: int, path: str = "/v1/models") -> int:
    """The status of a GET with the key; 0 when there is no answer."""
    asked = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers={"Authorization": f"Bearer {KEY}"})
    try:
        with urllib.request.urlopen(asked, timeout=5) as answer:
            status: int = answer.status
            return status
    except urllib.error.HTTPError as error:
        error.close()
        return int(error.code)
    except OSError:
        return 0
