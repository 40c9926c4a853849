"""TCP ports of this host: a free one, or a clear word that one is taken."""

from __future__ import annotations

import socket

from roadworthy.core.errors import ProbeError


def free_ports(host: str, count: int) -> tuple[int, ...]:
    """``count`` different ports that nothing listens on now; held together so that none repeats."""
    listeners: list[socket.socket] = []
    try:
        for _ in range(count):
            listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
            listeners.append(listener)
            listener.bind((host, 0))
        return tuple(listener.getsockname()[1] for listener in listeners)
    finally:
        for listener in listeners:
            listener.close()


def require_free(host: str, port: int, *, what: str) -> None:
    """Raise ProbeError when ``port`` is taken; port 0 always passes."""
    if port == 0:
        return
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, port))
        except OSError as error:
            raise ProbeError(
                f"{what}: port {port} on {host} cannot be used: {error.strerror or error}",
                hint=f"see who has it with `ss -ltnp sport = :{port}`, or ask for port 0 to get a free one",
            ) from error
