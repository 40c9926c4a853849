"""TCP ports of this host that nothing listens on."""

from __future__ import annotations

import socket


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
