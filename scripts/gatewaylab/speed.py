"""CPU, delay and memory under load: each function measures one peer once; rounds are the caller's."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from gatewaylab.lab import Engines, LabError, failures, finish_load, load, start_load
from gatewaylab.processes import wait_until

if TYPE_CHECKING:
    from gatewaylab.peers import Peer

CONNECTIONS = 16
"""Closed-loop clients of the plain parts: enough to keep one core busy."""

CHUNK_STREAMS, CHUNK_RATE_PER_S = 512, 40
RELAY_STREAMS, RELAY_RATE_PER_S = 256, 250  # 64,000 chunks a second
TTFT_RATE_PER_S, FIRST_MS = 20, 20
ENDLESS_CHUNKS = 10_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Length:
    """How long one sample takes, in seconds."""

    plain_s: float = 2.0
    chunk_s: float = 2.5
    ttft_s: float = 3.0
    relay_s: float = 2.0
    warmup_s: float = 1.2
    ttft_chunks: str = "20:60"


QUICK = Length(plain_s=0.4, chunk_s=0.5, ttft_s=0.6, relay_s=0.5, warmup_s=0.0, ttft_chunks="3:9")


def plain(peer: Peer, engines: Engines, *, core: int, seconds: float, body_bytes: int) -> dict[str, float]:
    """CPU of a request that is answered as a whole, in microseconds."""
    engines.calm()
    load(peer.port, core=core, connections=CONNECTIONS, requests=200, body_bytes=body_bytes)
    before_s = peer.cpu_s()
    result = load(peer.port, core=core, connections=CONNECTIONS, duration=seconds, body_bytes=body_bytes)
    used_s = peer.cpu_s() - before_s
    _require_whole(peer, result)
    return {"cpu_us": used_s / result["ok"] * 1e6, "per_s": result["ok"] / result["duration_s"]}


def chunk(peer: Peer, engines: Engines, *, core: int, seconds: float, step: bool = False) -> dict[str, float]:
    """CPU of a relayed chunk while 512 streams run, in microseconds, and memory meanwhile.

    Each stream keeps its own time; with ``step`` all streams of an engine speak together, as when its step ends.
    """
    engines.calm()
    engines.set(rate=CHUNK_RATE_PER_S, step=int(step))
    process = start_load(
        peer.port, core=core, connections=CHUNK_STREAMS, stream=1, chunks=ENDLESS_CHUNKS, ramp=1, warmup=1.5,
        duration=600, drain=0, timeout=600,
    )  # fmt: skip
    try:
        if not wait_until(lambda: engines.total("in_flight") == CHUNK_STREAMS, 30, every_s=0.02):
            raise LabError(f"{peer.name}: {engines.total('in_flight')} of {CHUNK_STREAMS} streams run")
        time.sleep(0.7)
        started_s, chunks, before_s = time.monotonic(), engines.total("chunks_sent"), peer.cpu_s()
        time.sleep(seconds)
        used_s, relayed = peer.cpu_s() - before_s, engines.total("chunks_sent") - chunks
        per_s = relayed / (time.monotonic() - started_s)
        rss = peer.rss_bytes()
        process.terminate()
        result = finish_load(process)
    finally:
        process.kill()
        process.wait()
    delay = result["chunk_delay_s"]
    return {
        "cpu_us": used_s / relayed * 1e6, "per_s": per_s, "rss_bytes": rss, "delay_p50_s": delay["p50"],
        "delay_p99_s": delay["p99"],
    }  # fmt: skip


def ttft(peer: Peer, engines: Engines, *, core: int, length: Length, streams: int) -> dict[str, float]:
    """Time between client and engine, there and back, of the first chunk: p50 and p99 in seconds."""
    engines.calm()
    engines.set(rate=TTFT_RATE_PER_S, first_ms=FIRST_MS)
    result = load(
        peer.port, core=core, connections=streams, stream=1, chunks=length.ttft_chunks, ramp=1,
        warmup=length.warmup_s, duration=length.warmup_s + length.ttft_s, drain=30,
    )  # fmt: skip
    _require_whole(peer, result)
    return {"p50": result["transit_s"]["p50"], "p99": result["transit_s"]["p99"], "count": result["transit_s"]["count"]}


def relay(peer: Peer, engines: Engines, *, core: int, seconds: float) -> dict[str, float]:
    """64,000 chunks a second offered on 256 streams: how many come out, and how many in one read."""
    engines.calm()
    engines.set(rate=RELAY_RATE_PER_S)
    result = load(
        peer.port, core=core, connections=RELAY_STREAMS, stream=1, chunks=ENDLESS_CHUNKS, ramp=0.5, warmup=1,
        duration=1 + seconds, drain=0, timeout=600,
    )  # fmt: skip
    return {
        "chunks_per_read": result["chunks_per_read"],
        "per_s": result["chunks"] / (result["duration_s"] - 1),
        "delay_p99_s": result["chunk_delay_s"]["p99"],
    }


def _require_whole(peer: Peer, result: dict[str, Any]) -> None:
    """Figures of a run in which requests failed say nothing."""
    if failures(result):
        raise LabError(f"{peer.name}: {failures(result)} of {result['started']} requests failed: {result['failed']}")
