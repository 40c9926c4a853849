"""docs/concepts/gateway-numbers.md, from what was measured last: gateway, soak, fuzz and chaos.json of build/bench."""

from __future__ import annotations

import json
import platform
import textwrap
from pathlib import Path
from typing import Any

from gatewaylab.lab import ROOT
from gatewaylab.report import MB, Limit, shown

PAGE = ROOT / "docs" / "concepts" / "gateway-numbers.md"
FOLDER = ROOT / "build" / "bench"
WIDTH = 118

METHOD = """\
## How it is measured

- Engine and load generator are [tools/loadlab](../../tools/loadlab/README.md), written in C: they cost a fraction of
  what they measure. They share one core, the proxy under test has another to itself.
- CPU time is that of the proxy's processes, from `/proc`, divided by what they relayed. nginx (Debian's, one worker,
  kept connections, nothing buffered, no log) and vllm-router 0.1.17 (`--policy round_robin`) stand before the same
  engines. A ratio is the median over rounds of the ratios within a round.
- A stamp in each answer tells the time between client and engine without the engine's own. TTFT added is that of the
  proxy less that of a direct connection in the same round.
- Where it may, the measurement runs before all other work of the machine. A proxy that waits for its core finds
  several chunks at once: its delays look worse than they are, and its cost a chunk looks better.
"""

AGAIN = """\
## Again

```
make bench-gateway   # about six minutes; nginx from Debian, vllm-router from PyPI
make soak            # ten minutes
make fuzz            # a million malformed requests
make chaos           # two minutes, and the starts of real engines
scripts/gateway-numbers
```
"""

COSTS = (
    ("plain", "plain request, 300 B"),
    ("governance", "the same, with quotas, limits and access log"),
    ("plain_64k", "plain request, 64 KiB"),
    ("chunk_512", "streamed chunk, 512 streams at 40 a second, each in its own time"),
    ("chunk_512_steps", "streamed chunk, 512 streams, all of an engine at once"),
)


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def read(name: str) -> dict[str, Any] | None:
    path = FOLDER / f"{name}.json"
    if not path.exists():
        return None
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def row(*cells: str) -> str:
    return f"| {' | '.join(cells)} |"


def paragraph(text: str) -> str:
    return textwrap.fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False) + "\n"


def costs(found: dict[str, Any]) -> str:
    lines = [row("CPU time, us", "roadworthy", "nginx", "vllm-router", "x nginx", "x vllm-router"), row(*["---"] * 6)]
    for part, label in COSTS:
        if one := found.get(part):
            peers = one["peers_cpu_us"]
            figures = [
                one["cpu_us"],
                peers.get("nginx"),
                peers.get("vllm_router"),
                one["x_nginx"],
                one["x_vllm_router"],
            ]
            lines.append(row(label, *("-" if figure is None else f"{figure:.2f}" for figure in figures)))
    return "\n".join(lines) + "\n"


def limits(found: dict[str, Any]) -> str:
    lines = [row("", "measured", "limit", ""), row(*["---"] * 4)]
    words = {True: "ok", False: "missed", None: "not measured"}
    for one in found["limits"]:
        limit = Limit(name=one["name"], measured=one["measured"], limit=one["limit"], unit=one["unit"])
        # what never came is infinite, and no number in JSON
        measured = "never" if one["measured"] is None else shown(limit.measured, limit.unit)
        lines.append(row(limit.name, measured, shown(limit.limit, limit.unit), words[one["met"]]))
    return "\n".join(lines) + "\n"


def others(found: dict[str, Any]) -> str:
    """What nginx and vllm-router do in the same situations."""
    lines = []
    for peer, name in (("nginx", "nginx"), ("vllm_router", "vllm-router")):
        one = found["behaviour"].get(peer, {})
        if reader := one.get("stalled_reader"):
            taken, growth = (reader[field] / MB for field in ("taken_bytes", "growth_bytes"))
            lines.append(f"- {name} takes {taken:.0f} of the 54 MB from the engine and grows by {growth:.1f} MB")
        if lost := {fault: count for fault, count in one.get("lost_of_40", {}).items() if count}:
            told = ", ".join(f"{count} ({fault})" for fault, count in lost.items())
            lines.append(f"- {name} loses of 40 requests, with one of four engines failing: {told}")
    return "\n".join(["For comparison:", "", *lines]) + "\n" if lines else ""


def soaked(found: dict[str, Any]) -> str:
    first, last = (found[f"rss_{when}_bytes"] / MB for when in ("first", "last"))
    verdict = f"Problems: {found['problems']}" if found["problems"] else (
        "Clients, metrics, access log and engines agree on every request."
    )  # fmt: skip
    return "## Soak\n\n" + paragraph(
        f"""{found["requests"]:,} requests in {found["seconds"]:.0f} s; {found["left_by_client"]:,} were left
        by their client in some phase, engines failed {found["engines"]["faulted"]:,} times. Memory:
        {first:.1f} MB after the warm-up,
        {last:.1f} MB at the end, fitted slope {found["rss_slope_bytes_per_s"]:.0f} bytes a second. Descriptors:
        {found["descriptors_before"]} before, {found["descriptors_after"]} after. {verdict}"""
    )


def fuzzed(found: dict[str, Any]) -> str:
    return "## Malformed requests\n\n" + paragraph(
        f"""{found["cases"]:,} requests of {found["kinds"]} kinds, each followed by a marked one on the same connection:
        {found["problems"]} problems. A problem is a traceback, an answer to another's request, an ambiguous
        request that is answered, or a header or field at the engine that must not arrive there."""
    )


def chaotic(found: dict[str, Any]) -> str:
    return "## Chaos on real vLLM\n\n" + paragraph(
        f"""{found["requests"]:,} requests on two vLLM CPU engines: {found["ok"]:,} whole, {found["left_by_client"]:,}
        left by their client, {found["failed"]} broken, all on engines that were killed. Meanwhile:
        {", ".join(found["troubles"])}."""
    )


def write() -> Path:
    """The page, from what is there."""
    bench, soak, fuzz, chaos = (read(name) for name in ("gateway", "soak", "fuzz", "chaos"))
    parts = [
        "# The gateway in numbers\n",
        paragraph(
            f"""Written by `scripts/gateway-numbers` from what `make bench-gateway`, `make soak`, `make fuzz` and
            `make chaos` measured on {processor()}. Absolute figures are that machine's; the ratios are what
        carries over."""
        ),
        METHOD,
    ]
    if bench:
        parts += ["## CPU\n", costs(bench), "## Limits\n", limits(bench), others(bench)]
    parts += [tell(found) for tell, found in ((soaked, soak), (fuzzed, fuzz), (chaotic, chaos)) if found]
    PAGE.write_text("\n".join([part for part in parts if part] + [AGAIN]), encoding="utf-8")
    return PAGE
