"""Binding, signals and the end of one twin process."""

from __future__ import annotations

import asyncio
import signal
import socket
import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import uvicorn
import uvloop

from roadworthy.adapters.twin_server.app import build_app
from roadworthy.core.errors import ProbeError

if TYPE_CHECKING:
    from collections.abc import Generator

    from roadworthy.twin.config import TwinConfig

GRACE_S = 1
"""How long streams under way may go on after a signal; vLLM, too, cuts them off."""


def bind(host: str, port: int) -> socket.socket:
    """A listening socket. Raises ProbeError when the port is taken or the host is not ours."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
        listener = socket.socket(family, socket.SOCK_STREAM)
    except OSError as error:
        raise ProbeError(f"twin: cannot listen on {host}: {error.strerror or error}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(2048)
    except OSError as error:
        listener.close()
        raise ProbeError(
            f"twin: port {port} on {host} cannot be used: {error.strerror or error}",
            hint=f"see who has it with `ss -ltnp sport = :{port}`, or ask for port 0 to get a free one",
        ) from error
    listener.setblocking(False)
    return listener


def serve(config: TwinConfig, host: str, port: int) -> None:
    """Serve until SIGTERM or SIGINT. Raises ProbeError when it cannot listen."""
    listener = bind(host, port)
    with listener, asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(_serve(config, listener, host))


async def _serve(config: TwinConfig, listener: socket.socket, host: str) -> None:
    loop = asyncio.get_running_loop()
    settings = uvicorn.Config(
        build_app(config, loop),
        http="httptools",
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        headers=[("server", "roadworthy-twin (simulated)")],
        timeout_graceful_shutdown=GRACE_S,
        timeout_keep_alive=75,
    )
    server = _Server(
        settings, f"twin of {config.models[0]} ({config.label}) at http://{host}:{listener.getsockname()[1]}"
    )
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, server.stop)
    await server.serve(sockets=[listener])


class _Server(uvicorn.Server):
    """uvicorn that leaves signals to us, so that being stopped is exit 0, and says when it is ready."""

    def __init__(self, config: uvicorn.Config, name: str) -> None:
        super().__init__(config)
        self._name = name

    def stop(self) -> None:
        self.should_exit = True

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets=sockets)
        print(f"{self._name} is ready", file=sys.stderr, flush=True)
