"""The whole of bench-gateway: starts the peers, runs the rounds, judges, writes."""

from __future__ import annotations

import argparse
import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from gatewaylab import behaviour, report, speed
from gatewaylab.lab import ROOT, Engines, LabError, build, engines
from gatewaylab.peers import Peer, Ports, nginx, roadworthy, vllm_router
from gatewaylab.processes import cores
from roadworthy.adapters.files import write_atomically

COMPARED = ("plain", "plain_64k", "chunk_512", "chunk_512_steps", "ttft_64", "ttft_512", "relay")
ALONE = ("memory", "cancel", "failover")
PARTS = (*COMPARED, *ALONE)
DOCUMENT = ROOT / "examples" / "bench-gateway.yaml"

GOVERNED = {
    "weight": 2, "rpm": 100_000_000, "tpm": 1_000_000_000_000, "daily_tokens": 1_000_000_000_000, "concurrency": 4096,
    "kv_quota": "4TiB",
}  # fmt: skip
"""Limits that are all counted and never reached. The governed gateway also writes its access log and the ledger, and
counts every stream exactly."""

NEIGHBOURS = 1000
"""Tenants beside the one that asks."""


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def documents(ports: Ports, folder: Path) -> tuple[Path, Path]:
    """The document as shipped, its ports moved if asked; and one whose tenant has every limit."""
    mapping: dict[str, Any] = yaml.safe_load(DOCUMENT.read_text(encoding="utf-8"))
    plain = DOCUMENT
    mapping["engine"]["endpoints"] = [{"url": f"http://127.0.0.1:{port}"} for port in ports.engines]
    if ports != Ports():
        mapping["gateway"].update(port=ports.gateway, admin_port=ports.admin)
        plain = folder / "plain.yaml"
        plain.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    mapping["gateway"].update(port=ports.governed, admin_port=ports.governed_admin)
    mapping["gateway"]["state_url"] = "sqlite:///governed.db"  # beside the document
    mapping["tenants"] = [{**tenant, **GOVERNED} for tenant in mapping["tenants"]]
    mapping["tenants"] += [{"id": f"t{at}", "key": f"sk-neighbour-{at}", **GOVERNED} for at in range(NEIGHBOURS)]
    governed = folder / "governed.yaml"
    governed.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    return plain, governed


@contextlib.contextmanager
def peers(ports: Ports, options: argparse.Namespace, folder: Path, core: int) -> Iterator[list[Peer]]:
    """Everything that is compared, ready to serve. The gateway is started last, so that it is idle when first seen."""
    plain, governed = documents(ports, folder)
    with contextlib.ExitStack() as stack:
        found = [Peer(name="direct", port=ports.engines[0])]
        for name, reference in (("nginx", nginx), ("vllm_router", vllm_router)):
            if name in options.without:
                continue
            try:
                found.append(stack.enter_context(reference(ports, core=core, folder=folder)))
            except LabError as error:
                say(f"warning: goes on without {name}: {error}")
        found.append(stack.enter_context(roadworthy(plain, ports.gateway, core=core, folder=folder)))
        if "governed" not in options.without:
            found.append(
                stack.enter_context(
                    roadworthy(
                        governed,
                        ports.governed,
                        core=core,
                        folder=folder,
                        name="governed",
                        arguments=("--access-log", str(folder / "access.jsonl")),
                    )
                )
            )
        yield found


def sample(part: str, peer: Peer, lab: Engines, core: int, length: speed.Length) -> dict[str, float]:
    if part == "plain":
        return speed.plain(peer, lab, core=core, seconds=length.plain_s, body_bytes=300)
    if part == "plain_64k":
        return speed.plain(peer, lab, core=core, seconds=length.plain_s, body_bytes=64 * 1024)
    if part == "chunk_512":
        return speed.chunk(peer, lab, core=core, seconds=length.chunk_s)
    if part == "chunk_512_steps":
        return speed.chunk(peer, lab, core=core, seconds=length.chunk_s, step=True)
    if part == "relay":
        return speed.relay(peer, lab, core=core, seconds=length.relay_s)
    return speed.ttft(peer, lab, core=core, length=length, streams=int(part.removeprefix("ttft_")))


def before_other_work() -> str:
    """Have this process, and so all that it starts, run before whatever else the machine does; niceness would count
    within one session only. What waits for a core makes batches: its delays look worse and its costs better than
    they are. Needs root; says what came of it."""
    try:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(1))
    except OSError:
        return "shared"
    return "realtime"


@contextlib.contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait for another measurement of this checkout to end: two at once spoil each other."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "gateway.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            say("another bench-gateway is running: waiting for it")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def takes_part(part: str, peer: Peer) -> bool:
    """Direct has no CPU to compare; governance is measured where it costs: at the request, and at the chunk that is
    counted."""
    if peer.name == "governed":
        return part in ("plain", "chunk_512")
    return peer.name != "direct" or part.startswith("ttft") or part == "relay"


def compare(
    parts: list[str], found: list[Peer], lab: Engines, core: int, rounds: int, length: speed.Length
) -> dict[str, dict[str, list[dict[str, float]]]]:
    """All peers in turn, part by part, round by round: neighbours in time meet the same machine."""
    samples: dict[str, dict[str, list[dict[str, float]]]] = {part: {} for part in parts}
    for turn in range(rounds):
        for part in parts:
            line = []
            for peer in found[turn % len(found) :] + found[: turn % len(found)]:
                if not takes_part(part, peer):
                    continue
                one = sample(part, peer, lab, core, length)
                samples[part].setdefault(peer.name, []).append(one)
                figure = next(iter(one.items()))
                line.append(f"{peer.name} {figure[1]:.4g}")
            say(f"round {turn + 1}/{rounds} {part:10} {figure[0]}: {', '.join(line)}")
    return samples


def behave(parts: list[str], found: list[Peer], lab: Engines, *, quick: bool) -> dict[str, dict[str, Any]]:
    """What each peer does when something is wrong."""
    results: dict[str, dict[str, Any]] = {}
    for peer in found:
        if peer.name in ("direct", "governed"):
            continue
        ours = peer.name == "roadworthy"
        if quick and not ours:
            continue
        one: dict[str, Any] = results.setdefault(peer.name, {})
        if "memory" in parts:
            one["stalled_reader"] = behaviour.stalled_reader(peer, lab, seconds=0.5 if quick else 3)
        if "cancel" in parts:
            repeats = 2 if quick else (20 if ours else 5)
            one["cancel_s"] = {
                "while connecting": behaviour.cancel_connecting(peer, lab, repeats=1 if quick else 3),
                "before the first byte": behaviour.cancel_waiting(peer, lab, repeats=repeats),
                "in mid-stream": behaviour.cancel_streaming(peer, lab, repeats=repeats),
            }
        if "failover" in parts:
            faults = ("500",) if quick else behaviour.FAULTS if ours else behaviour.FAULTS_OF_OTHERS
            one["lost_of_40"] = {fault: behaviour.lost(peer, lab, fault) for fault in faults}
            if ours:
                one["used_again_s"] = {fault: behaviour.used_again_after_s(peer, lab, fault) for fault in faults}
        say(f"{peer.name}: {json.dumps(one)}")
    return results


def ttft_added(samples: report.Rounds, part: str) -> dict[str, Any]:
    """p50 and p99 of the gateway, and of the others by name."""
    of = {
        peer: {field: report.rounded(report.added(samples, part, peer, field), 6) for field in ("p50", "p99")}
        for peer in samples[part]
        if peer != "direct"
    }
    return {**of.pop("roadworthy", {}), **of}


def document(samples: report.Rounds, behaviours: dict[str, dict[str, Any]], idle_bytes: int) -> dict[str, Any]:
    """The JSON as pinned, and everything else that was measured."""
    ours = behaviours.get("roadworthy", {})
    rss: dict[str, float] = {"idle": idle_bytes}
    if chunk := samples.get("chunk_512", {}).get("roadworthy"):
        rss["streams_512"] = report.median_of(chunk, "rss_bytes")
    if "stalled_reader" in ours:
        rss["stalled_reader_growth"] = ours["stalled_reader"]["growth_bytes"]
    ttft = {
        part.replace("ttft", "streams"): ttft_added(samples, part)
        for part in ("ttft_64", "ttft_512")
        if part in samples
    }
    found = {**ours, "rss_bytes": rss}
    limits = report.speed_limits(samples) + report.behaviour_limits(found)
    return {
        "plain": report.cost(samples, "plain"),
        "plain_64k": report.cost(samples, "plain_64k"),
        "chunk_512": report.cost(samples, "chunk_512"),
        "chunk_512_steps": report.cost(samples, "chunk_512_steps"),
        "ttft_added_s": ttft,
        "rss_bytes": rss,
        "governance": report.cost(samples, "plain", "governed"),
        "governance_chunk_512": report.cost(samples, "chunk_512", "governed"),
        "relay_64000_per_s": {
            peer: {field: report.median_of(found_samples, field) for field in found_samples[0]}
            for peer, found_samples in samples.get("relay", {}).items()
        },
        "behaviour": behaviours,
        "limits": [limit.as_json() for limit in limits if limit.measured is not None],
        "rounds": samples,
    }


def main(options: argparse.Namespace) -> int:
    parts = [part for part in PARTS if not options.only or part in options.only]
    length = speed.QUICK if options.quick else speed.Length()
    rounds = 1 if options.quick else options.rounds
    ports = Ports.free() if options.free_ports else Ports().moved(options.port_offset)
    core, lab_core = cores()
    started_s = time.monotonic()
    scheduling = "shared" if options.shared or options.quick else before_other_work()
    try:
        build()
        with (
            contextlib.nullcontext() if options.quick else alone(ROOT / "build" / "bench"),
            tempfile.TemporaryDirectory(prefix="bench-gateway-") as name,
            engines(ports.engines, ports.control, core=lab_core, log=Path(name) / "engine.log") as lab,
            peers(ports, options, Path(name), core) as found,
        ):
            ours = next(peer for peer in found if peer.name == "roadworthy")
            idle_bytes = ours.rss_bytes()
            compared = [part for part in parts if part in COMPARED]
            samples = compare(compared, found, lab, lab_core, rounds, length)
            behaviours = behave(parts, found, lab, quick=options.quick)
    except LabError as error:
        say(f"error: {error}")
        return 3
    result = {**document(samples, behaviours, idle_bytes), "scheduling": scheduling}
    out = options.out or ROOT / "build" / "bench" / "gateway.json"
    out.parent.mkdir(parents=True, exist_ok=True)
    # no number is infinite in JSON
    write_atomically(out, json.dumps(result, indent=2).replace("Infinity", "null") + "\n")
    if compared:
        print(report.cost_table(samples), end="\n\n")
    limits = [report.Limit(**{k: v for k, v in one.items() if k != "met"}) for one in result["limits"]]
    print(report.table(limits))
    say(f"{time.monotonic() - started_s:.0f} s; core {core} measured, core {lab_core} for the lab, {scheduling}; {out}")
    if options.quick:
        return 0
    if any(limit.met is False for limit in limits):
        return 1
    names = {peer.name for peer in found}
    return 0 if names >= {"nginx", "vllm_router"} - set(options.without) else 3
