"""Listening sockets, bound before anything is served so that a taken port is one clear message."""

from __future__ import annotations

import errno
import socket

from roadworthy.core.errors import ProbeError, SpecError

BACKLOG = 1024


def listener(host: str, port: int, *, what: str, shared: bool = False) -> socket.socket:
    """A bound, listening, non-blocking TCP socket. ``what`` names it in messages; port 0 takes a free one.

    ``shared`` lets other sockets of this user listen on the same port (SO_REUSEPORT): the kernel spreads connections
    over them, and each keeps those that it was given.

    Raises:
        SpecError: the host is no address of this machine.
        ProbeError: the port is taken or may not be used.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except OSError as error:
        raise SpecError(
            f"{what}: host {host!r} is not known: {error.strerror or error}",
            hint="127.0.0.1 serves this machine only, 0.0.0.0 every IPv4 address of it",
        ) from error
    listening = socket.socket(family, kind, protocol)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
        listening.setblocking(False)
    except OSError as error:
        listening.close()
        if error.errno == errno.EADDRNOTAVAIL:
            raise SpecError(
                f"{what}: {host} is not an address of this machine",
                hint="127.0.0.1 serves this machine only, 0.0.0.0 every IPv4 address of it",
            ) from error
        raise ProbeError(
            f"{what}: port {port} on {host} cannot be used: {error.strerror or error}",
            hint=f"see who has it with `ss -ltnp sport = :{port}`, or give another port (0 takes a free one)",
        ) from error
    return listening


def url_of(listening: socket.socket, scheme: str = "http") -> str:
    """``scheme://host:port`` under which the socket is reached from this machine."""
    host, port = listening.getsockname()[:2]
    wildcards = {"0.0.0.0": "127.0.0.1", "::": "::1"}
    host = wildcards.get(host, host)
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
