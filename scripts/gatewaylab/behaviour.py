"""What a proxy does when something is wrong: clients that leave or do not read, engines that fail and come back."""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING, Any

from gatewaylab.lab import Engines, LabError, connect, failures, load, request, start_load
from gatewaylab.processes import connecting, wait_until

if TYPE_CHECKING:
    from gatewaylab.peers import Peer

GIVE_UP_S = 1.0
"""A connection still open this long after its client left counts as never closed."""

STALLED_CHUNKS, STALLED_CHUNK_BYTES = 54_000, 1000  # 54 MB
LOST_REQUESTS = 40
FAULTS = ("refuse", "500", "429", "refused_stream")
FAULTS_OF_OTHERS = ("500", "refused_stream")
IN_USE_WITHIN_S = 30.0
RECOVERY_LIMIT_S = 5.0


def stalled_reader(peer: Peer, engines: Engines, *, seconds: float) -> dict[str, float]:
    """Growth of memory behind a client that asks for 54 MB and does not read."""
    engines.calm()
    engines.set(rate=0, chunk_bytes=STALLED_CHUNK_BYTES)
    load(peer.port, core=None, connections=4, requests=40, stream=1, chunks=20)
    before, most, sent = peer.rss_bytes(), 0, engines.total("chunks_sent")
    with contextlib.closing(connect(peer.port)) as client:
        client.sendall(request("ll-stalled", stream=True, chunks=STALLED_CHUNKS))
        until_s = time.monotonic() + seconds
        while time.monotonic() < until_s:
            most = max(most, peer.rss_bytes())
            time.sleep(0.02)
        taken = (engines.total("chunks_sent") - sent) * STALLED_CHUNK_BYTES
    engines.calm()
    return {"growth_bytes": max(0, most - before), "taken_bytes": taken}


def _leave(client: socket.socket, *, reset: bool) -> int:
    """Close as a program that ends, or as one that is killed; when, in ns of CLOCK_MONOTONIC."""
    if reset:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    at_ns = time.monotonic_ns()
    client.close()
    return at_ns


def _noticed_after_s(engines: Engines, text: str, since: int, left_ns: int) -> float | None:
    """Seconds until the engine saw its connection of request ``text`` close."""
    found: list[dict[str, Any]] = []

    def closed() -> bool:
        found[:] = [one for one in engines.endings(since) if one["id"] == text and one["how"] == "left"]
        return bool(found)

    if not wait_until(closed, GIVE_UP_S):
        return None
    return float(max(0, found[0]["ended_ns"] - left_ns) / 1e9)


def cancel_waiting(peer: Peer, engines: Engines, *, repeats: int) -> list[float | None]:
    """The client leaves while the engine has said nothing: plain requests and streams, by close and by reset."""
    times = []
    for turn in range(repeats):
        engines.calm()
        engines.set(fault="hang")
        since, text = engines.ended(), f"ll-wait-{turn}"
        client = connect(peer.port)
        client.sendall(request(text, stream=turn % 2 == 0))
        if not wait_until(lambda: engines.total("in_flight") > 0, 5):
            raise LabError(f"{peer.name}: a request does not arrive at an engine that is silent")
        times.append(_noticed_after_s(engines, text, since, _leave(client, reset=turn % 4 > 1)))
        engines.set(fault="refuse")
    engines.calm()
    return times


def cancel_streaming(peer: Peer, engines: Engines, *, repeats: int) -> list[float | None]:
    """The client leaves in the middle of a stream."""
    times = []
    for turn in range(repeats):
        engines.calm()
        engines.set(rate=50)
        since, text = engines.ended(), f"ll-stream-{turn}"
        client = connect(peer.port)
        client.sendall(request(text, stream=True, chunks=500))
        seen = b""
        while b"data: " not in seen:
            part = client.recv(65536)
            if not part:
                raise LabError(f"{peer.name}: a stream ended before it began: {seen[:200]!r}")
            seen += part
        times.append(_noticed_after_s(engines, text, since, _leave(client, reset=turn % 2 == 1)))
        engines.set(fault="refuse")
    engines.calm()
    return times


def cancel_connecting(peer: Peer, engines: Engines, *, repeats: int) -> list[float | None] | None:
    """Clients leave while connecting to an engine takes for ever: seconds until those sockets are gone.

    None where the peer does not try to connect. Health checks connect as well, one to each engine at most.
    """
    assert peer.pid is not None
    clients_count, times = 12, []
    for turn in range(repeats):
        engines.calm()
        load(peer.port, core=None, connections=2, requests=20)
        engines.set(fault="no_accept")
        clients = [connect(peer.port) for _ in range(clients_count)]
        for at, client in enumerate(clients):
            client.sendall(request(f"ll-connect-{at}", stream=True))
        reached = wait_until(lambda: connecting(peer.pid or 0, engines.ports) >= clients_count, 0.5)
        left_ns = 0
        for client in clients:
            left_ns = _leave(client, reset=turn % 2 == 1)
        if not reached:
            engines.calm()
            return None
        gone = wait_until(lambda: connecting(peer.pid or 0, engines.ports) <= len(engines.ports), GIVE_UP_S)
        times.append((time.monotonic_ns() - left_ns) / 1e9 if gone else None)
        engines.calm()
        wait_until(lambda: load(peer.port, core=None, requests=8)["ok"] == 8, 10, every_s=0.05)
    return times


def lost(peer: Peer, engines: Engines, fault: str) -> int | None:
    """Of 40 requests, half of them streams, how many fail while one engine of four has ``fault``.

    None when the engine is not even used: a router may avoid it for long after the fault before.
    """
    engines.calm()
    port = engines.ports[1]
    engines.reset()

    def all_in_use() -> bool:
        return (
            load(peer.port, core=None, connections=8, requests=8)["ok"] == 8 and engines.of_port(port, "finished") > 0
        )

    if not wait_until(all_in_use, IN_USE_WITHIN_S, every_s=0.1):
        return None
    engines.set(port=port, fault=fault)
    missing = 0
    for stream in (0, 1):
        result = load(
            peer.port, core=None, connections=4, requests=LOST_REQUESTS // 2, stream=stream, chunks=5, timeout=10
        )
        missing += failures(result)
    engines.calm()
    return missing


def used_again_after_s(peer: Peer, engines: Engines, fault: str) -> float | None:
    """Seconds from the moment an engine is well again until it gets a request; None when beyond the limit."""
    port = engines.ports[1]
    engines.calm()
    engines.set(port=port, fault=fault)
    process = start_load(peer.port, core=None, connections=64, rate=200, duration=3 + RECOVERY_LIMIT_S, timeout=5)
    try:
        time.sleep(3)
        served = engines.of_port(port, "finished")
        engines.set(port=port, fault="none")
        well_s = time.monotonic()
        used = wait_until(lambda: engines.of_port(port, "finished") > served, RECOVERY_LIMIT_S, every_s=0.005)
        after_s = time.monotonic() - well_s
    finally:
        process.terminate()
        process.wait()
    engines.calm()
    return after_s if used else None
