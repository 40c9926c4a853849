"""What is measured: the gateway, and beside it nginx and vllm-router in front of the same engines."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from gatewaylab.lab import ROOT, LabError, load, status_of
from gatewaylab.processes import cpu_s, rss_bytes, running, wait_until
from roadworthy.adapters.ports import free_ports

ROUTER_PACKAGE = "vllm-router==0.1.17"
ROUTER_HOME = ROOT / "build" / "vllm-router"
SERVES_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """One way from the load generator to the engines. ``pid`` is None for the direct one."""

    name: str
    port: int
    pid: int | None = None

    def cpu_s(self) -> float:
        return cpu_s(self.pid) if self.pid is not None else 0.0

    def rss_bytes(self) -> int:
        return rss_bytes(self.pid) if self.pid is not None else 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ports:
    """All ports of a measurement; the gateway's and the engines' are those of examples/bench-gateway.yaml."""

    engines: tuple[int, ...] = (18001, 18002, 18003, 18004)
    control: int = 18000
    gateway: int = 19000
    admin: int = 19001
    nginx: int = 19002
    router: int = 19003
    router_metrics: int = 19004
    governed: int = 19005
    governed_admin: int = 19006

    @classmethod
    def free(cls) -> Ports:
        """Ports that nothing listens on now."""
        others = [name for name in cls.__slots__ if name != "engines"]
        found = free_ports("127.0.0.1", 4 + len(others))
        return cls(engines=found[:4], **dict(zip(others, found[4:], strict=True)))

    def moved(self, by: int) -> Ports:
        values = {name: getattr(self, name) + by for name in self.__slots__ if name != "engines"}
        return Ports(engines=tuple(port + by for port in self.engines), **values)


def wait_for(
    name: str, port: int, process: subprocess.Popen[bytes], log: Path, *, timeout: float = 2, **options: float | str
) -> None:
    """Return once a completion through ``port`` succeeds; ``options`` are the load generator's."""

    def served() -> bool:
        if process.poll() is not None:
            raise LabError(f"{name} ended with {process.returncode}: {log.read_text(errors='replace')[-1500:]}")
        return status_of(port) == 200 and load(port, core=None, requests=1, timeout=timeout, **options)["ok"] == 1

    if not wait_until(served, SERVES_WITHIN_S, every_s=0.1):
        raise LabError(f"{name} does not serve within {SERVES_WITHIN_S:g} s: {log.read_text(errors='replace')[-1500:]}")


@contextlib.contextmanager
def roadworthy(
    document: Path,
    port: int,
    *,
    core: int | None,
    folder: Path,
    name: str = "roadworthy",
    arguments: Sequence[str] = (),
) -> Iterator[Peer]:
    """The gateway of this checkout, as a user starts it."""
    log = folder / f"{name}.log"
    command = [sys.executable, "-m", "roadworthy", "gateway", str(document), *arguments]
    with running(command, core=core, log=log, environment={"PYTHONWARNINGS": "ignore"}) as process:
        wait_for(name, port, process, log)
        yield Peer(name=name, port=port, pid=process.pid)


@contextlib.contextmanager
def nginx(ports: Ports, *, core: int, folder: Path) -> Iterator[Peer]:
    """Debian's nginx as a plain proxy: one worker, kept connections, nothing buffered, no log."""
    program = shutil.which("nginx", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if program is None:
        raise LabError("nginx is not installed; on Debian: apt-get install nginx-light")
    servers = "\n".join(f"    server 127.0.0.1:{port};" for port in ports.engines)
    config = folder / "nginx.conf"
    config.write_text(
        f"""daemon off; worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/nginx-error.log;
worker_rlimit_nofile 65536;
events {{ worker_connections 8192; }}
http {{
  access_log off; client_max_body_size 64m; client_body_buffer_size 256k; keepalive_requests 1000000000;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
  uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  upstream engines {{
{servers}
    keepalive 1024; keepalive_requests 1000000000;
  }}
  server {{
    listen 127.0.0.1:{ports.nginx} backlog=4096;
    location / {{
      proxy_pass http://engines; proxy_http_version 1.1; proxy_set_header Connection ""; proxy_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"""
    )
    log = folder / "nginx.log"
    with running([program, "-c", str(config), "-p", str(folder)], core=core, log=log) as process:
        wait_for("nginx", ports.nginx, process, log)
        yield Peer(name="nginx", port=ports.nginx, pid=process.pid)


def install_router() -> Path:
    """vllm-router in an environment of its own below build/. Raises LabError."""
    program = ROUTER_HOME / "bin" / "vllm-router"
    if program.exists():
        return program
    print(f"installing {ROUTER_PACKAGE} into {ROUTER_HOME}", file=sys.stderr)
    python = ROUTER_HOME / "bin" / "python"
    for command in (
        [sys.executable, "-m", "venv", str(ROUTER_HOME)],
        [str(python), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", ROUTER_PACKAGE],
    ):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            raise LabError(f"{ROUTER_PACKAGE} could not be installed: {done.stderr.strip()[-500:]}")
    return program


@contextlib.contextmanager
def vllm_router(ports: Ports, *, core: int, folder: Path) -> Iterator[Peer]:
    """vLLM's Rust router, as its own readme starts it."""
    command = [
        str(install_router()), "--host", "127.0.0.1", "--port", str(ports.router), "--policy", "round_robin",
        "--prometheus-port", str(ports.router_metrics), "--log-level", "error", "--worker-urls",
        *(f"http://127.0.0.1:{port}" for port in ports.engines),
    ]  # fmt: skip
    log = folder / "vllm-router.log"
    with running(command, core=core, log=log) as process:
        wait_for("vllm-router", ports.router, process, log)
        yield Peer(name="vllm_router", port=ports.router, pid=process.pid)
