"""From samples of rounds to the table, its limits, and the document build/bench/gateway.json."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

MB = 10**6
Rounds = Mapping[str, Mapping[str, Sequence[Mapping[str, float]]]]
"""Samples by part, then by peer, one a round; a peer that was not measured is missing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One line of the table: what was measured against what was promised. ``met`` None: not measured."""

    name: str
    measured: float | None
    limit: float
    unit: str = ""

    @property
    def met(self) -> bool | None:
        return None if self.measured is None else self.measured <= self.limit

    def as_json(self) -> dict[str, Any]:
        return {"name": self.name, "measured": self.measured, "limit": self.limit, "unit": self.unit, "met": self.met}


def median_of(samples: Sequence[Mapping[str, float]], field: str) -> float:
    return statistics.median(sample[field] for sample in samples)


def ratio(rounds: Rounds, part: str, peer: str, other: str, field: str = "cpu_us") -> float | None:
    """The median over rounds of ``peer``'s figure divided by ``other``'s in the same round."""
    samples = rounds.get(part, {})
    if not samples.get(peer) or not samples.get(other):
        return None
    pairs = zip(samples[peer], samples[other], strict=True)
    ratios = [one[field] / two[field] for one, two in pairs if two[field]]  # a quick look may find no CPU time at all
    return statistics.median(ratios) if ratios else None


def added(rounds: Rounds, part: str, peer: str, field: str) -> float | None:
    """The median over rounds of what ``peer`` adds to the direct way in the same round."""
    samples = rounds.get(part, {})
    if not samples.get(peer) or not samples.get("direct"):
        return None
    pairs = zip(samples[peer], samples["direct"], strict=True)
    return statistics.median(one[field] - two[field] for one, two in pairs)


def beyond(rounds: Rounds, part: str, peer: str, other: str, field: str) -> float | None:
    """The median over rounds of how much more ``peer`` has than ``other`` in the same round."""
    samples = rounds.get(part, {})
    if not samples.get(peer) or not samples.get(other):
        return None
    return statistics.median(one[field] - two[field] for one, two in zip(samples[peer], samples[other], strict=True))


def cost(rounds: Rounds, part: str, peer: str = "roadworthy") -> dict[str, Any] | None:
    """``{cpu_us, x_nginx, x_vllm_router}`` of a part."""
    samples = rounds.get(part, {})
    if not samples.get(peer):
        return None
    return {
        "cpu_us": round(median_of(samples[peer], "cpu_us"), 2),
        "x_nginx": rounded(ratio(rounds, part, peer, "nginx")),
        "x_vllm_router": rounded(ratio(rounds, part, peer, "vllm_router")),
        "peers_cpu_us": {name: round(median_of(found, "cpu_us"), 2) for name, found in samples.items()},
        "rounds": len(samples[peer]),
    }


def rounded(value: float | None, digits: int = 3) -> float | None:
    return None if value is None else round(value, digits)


def worst(times: Iterable[float | None] | None) -> float | None:
    """The longest; infinity when one never came; None when nothing was measured."""
    found = list(times or ())
    return max(float("inf") if one is None else one for one in found) if found else None


def speed_limits(rounds: Rounds) -> list[Limit]:
    """Limits on ratios, delays and joined chunks."""
    relay = rounds.get("relay", {}).get("roadworthy")
    joined = median_of(relay, "chunks_per_read") if relay else None

    def of_router(name: str, part: str, limit: float, peer: str = "roadworthy") -> Limit:
        return Limit(name=f"{name}, x vllm-router", measured=ratio(rounds, part, peer, "vllm_router"), limit=limit)

    limits = [
        of_router("plain request", "plain", 0.6),
        of_router("plain request with governance", "plain", 0.9, "governed"),
        of_router("64 KiB prompt", "plain_64k", 1.0),
        of_router("chunk at 512 streams", "chunk_512", 1.0),
        of_router("chunk at 512 streams with governance", "chunk_512", 1.0, "governed"),
        Limit(name="chunks per read, 64,000/s offered on 256 streams", measured=joined, limit=1.1),
    ]
    for streams in (64, 512):
        part = f"ttft_{streams}"
        p50 = added(rounds, part, "roadworthy", "p50")
        p99 = beyond(rounds, part, "roadworthy", "vllm_router", "p99")
        limits += [
            Limit(name=f"TTFT added, p50 at {streams} streams", measured=p50, limit=0.0004, unit="s"),
            Limit(name=f"TTFT p99 beyond vllm-router's at {streams} streams", measured=p99, limit=0.001, unit="s"),
        ]
    return limits


def behaviour_limits(found: Mapping[str, Any]) -> list[Limit]:
    """Limits on memory, leaving clients, failing engines."""
    limits = []
    rss = found.get("rss_bytes", {})
    for name, field, limit in (
        ("RSS idle", "idle", 80 * MB),
        ("RSS at 512 streams", "streams_512", 130 * MB),
        ("RSS growth behind a client that does not read 54 MB", "stalled_reader_growth", 2 * MB),
    ):
        if field in rss:
            limits.append(Limit(name=name, measured=rss[field], limit=limit, unit="bytes"))
    for phase, times in found.get("cancel_s", {}).items():
        limits.append(
            Limit(name=f"engine connection closed, client left {phase}", measured=worst(times), limit=0.1, unit="s")
        )
    for fault, count in found.get("lost_of_40", {}).items():
        limits.append(Limit(name=f"requests lost of 40, one of four engines: {fault}", measured=count, limit=0))
    for fault, after_s in found.get("used_again_s", {}).items():
        limits.append(
            Limit(name=f"recovered engine used again after {fault}", measured=worst([after_s]), limit=2.0, unit="s")
        )
    return limits


def shown(value: float | None, unit: str) -> str:
    """A figure for people."""
    if value is None:
        return "not measured"
    if value == float("inf"):
        return "never"
    if unit == "s":
        return f"{value * 1000:.2f} ms"
    if unit == "bytes":
        return f"{value / MB:.1f} MB"
    return f"{value:g}" if value == int(value) else f"{value:.3f}"


def table(limits: Sequence[Limit]) -> str:
    width = max(len(limit.name) for limit in limits)
    words = {True: "ok", False: "missed", None: "not measured"}
    lines = [f"{'':{width}}  {'measured':>12}  {'limit':>9}"]
    for limit in limits:
        measured, most = shown(limit.measured, limit.unit), shown(limit.limit, limit.unit)
        lines.append(f"{limit.name:{width}}  {measured:>12}  {most:>9}  {words[limit.met]}")
    return "\n".join(lines)


COST_ROWS = (
    ("plain", "plain request, 300 B"),
    ("plain_64k", "plain request, 64 KiB"),
    ("chunk_512", "chunk at 512 streams"),
    ("chunk_512_steps", "  all speaking at once"),
)


def cost_table(rounds: Rounds) -> str:
    """CPU of each peer in microseconds, medians over the rounds, and ours as a multiple of the others'."""
    peers = ("roadworthy", "governed", "nginx", "vllm_router")
    heads = ("roadworthy", "with governance", "nginx", "vllm-router", "x nginx", "x vllm-router")
    lines = [f"{'CPU time, us':24}" + "".join(f"{head:>16}" for head in heads)]
    for part, label in COST_ROWS:
        samples = rounds.get(part, {})
        figures = [median_of(samples[peer], "cpu_us") if samples.get(peer) else None for peer in peers]
        figures += [ratio(rounds, part, "roadworthy", other) for other in ("nginx", "vllm_router")]
        lines.append(f"{label:24}" + "".join(f"{'-' if one is None else format(one, '.2f'):>16}" for one in figures))
    return "\n".join(lines)
