"""A gateway under clients that leave or read slowly and engines that fail: nothing may grow or get lost."""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from gatewaylab.lab import ROOT, Engines, LabError, build, engines, failures, finish_load, start_load
from gatewaylab.peers import Peer, roadworthy
from gatewaylab.processes import descriptors, wait_until
from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.ports import free_ports

GROWTH_LIMIT_BYTES = 1_000_000
SHORT_GROWTH_LIMIT_BYTES = 2_000_000
LONG_S = 300.0
"""Growth over the whole run, by the fitted slope, that is still read as none: the allocator's own steps. A short run
has fewer requests to blame and more of the warm-up in it."""

WARM_UP_SHARE = 0.3
SAMPLE_S = 0.5
SETTLE_S = 15.0

LOADS: tuple[tuple[str, dict[str, float | str]], ...] = (
    ("streams", {"connections": 256, "rate": 40, "stream": 1, "chunks": "5:60", "leave_share": 0.3, "seed": 1}),
    ("plain", {"connections": 64, "rate": 80, "body_bytes": 2000, "leave_share": 0.1, "seed": 2}),
    ("fresh", {"connections": 32, "rate": 20, "stream": 1, "chunks": "1:10", "fresh": 1, "leave_share": 0.2,
    "seed": 3}),
    ("large", {"connections": 8, "rate": 3, "body_bytes": 300_000, "seed": 4}),
    ("slow", {"connections": 8, "slow": 8, "slow_bytes": 6000, "stream": 1, "chunks": "20:60", "seed": 5}),
)  # fmt: skip
"""What runs at the same time, each in a load generator of its own."""

NEVER = ("connect", "reset", "truncated", "timed_out", "bad_answer", "wrong_answer", "no_done")
"""How no request may end, whatever the engines do."""

TROUBLES = ("refuse", "500", "refuse", "die", "refused_stream", "429", "early_close")
_METRIC = re.compile(r'^roadworthy_gateway_requests_total\{.*outcome="(\w+)".*\} (\S+)$', re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    at_s: float
    rss_bytes: int
    descriptors: int


def slope_bytes_per_s(samples: Sequence[Sample]) -> float:
    """Theil-Sen: the median of the slopes between all pairs of samples; a single jump does not move it."""
    slopes = [
        (two.rss_bytes - one.rss_bytes) / (two.at_s - one.at_s)
        for one, two in itertools.combinations(samples, 2)
        if two.at_s > one.at_s
    ]
    return statistics.median(slopes)


def thinned(samples: Sequence[Sample], most: int = 400) -> Sequence[Sample]:
    return samples[:: max(1, len(samples) // most)]


def document(folder: Path, ports: Sequence[int], gateway: int, admin: int) -> Path:
    mapping = yaml.safe_load((ROOT / "examples" / "bench-gateway.yaml").read_text(encoding="utf-8"))
    mapping["engine"]["endpoints"] = [{"url": f"http://127.0.0.1:{port}"} for port in ports]
    mapping["gateway"].update(port=gateway, admin_port=admin)
    path = folder / "soak.yaml"
    path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    return path


def outcomes(admin: int) -> dict[str, int]:
    """Requests that are over by how they ended, as the gateway counts them."""
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    found: Counter[str] = Counter()
    for outcome, value in _METRIC.findall(text):
        found[outcome] += int(float(value))
    return dict(found)


def log_endings(path: Path, wanted: dict[str, int]) -> dict[str, int]:
    """How the requests of the access log ended; waits for what the metrics count, since lines come in batches."""

    def read() -> dict[str, int]:
        return dict(Counter(str(json.loads(line)["ending"]) for line in path.read_text().splitlines()))

    wait_until(lambda: read() == wanted, 5, every_s=0.2)
    return read()


def status(admin: int) -> dict[str, Any]:
    with urllib.request.urlopen(f"http://127.0.0.1:{admin}/api/status", timeout=10) as answer:
        value: dict[str, Any] = json.load(answer)
    return value


@contextlib.contextmanager
def loads(port: int, seconds: float) -> Iterator[dict[str, subprocess.Popen[str]]]:
    processes = {
        name: start_load(port, core=None, duration=seconds, drain=30, timeout=30, **options) for name, options in LOADS
    }
    try:
        yield processes
    finally:
        for process in processes.values():
            process.kill()
            process.wait()


def trouble(lab: Engines, turn: int) -> None:
    """One engine fails for half a second, in another way each time; the engines take turns."""
    port = lab.ports[turn % len(lab.ports)]
    lab.set(port=port, fault=TROUBLES[turn % len(TROUBLES)])
    time.sleep(0.5)
    lab.set(port=port, fault="none")


def watch(peer: Peer, lab: Engines, seconds: float) -> list[Sample]:
    """Samples while the loads run, with a trouble every few seconds."""
    assert peer.pid is not None
    samples: list[Sample] = []
    started_s = time.monotonic()
    every_s = max(3.0, seconds / 60)
    turn = 0
    while (at_s := time.monotonic() - started_s) < seconds:
        samples.append(Sample(at_s=at_s, rss_bytes=peer.rss_bytes(), descriptors=descriptors(peer.pid)))
        if at_s > (turn + 1) * every_s and at_s < seconds - 2:
            trouble(lab, turn)
            turn += 1
        time.sleep(SAMPLE_S)
    return samples


def quiet_descriptors(peer: Peer) -> int:
    """Descriptors when nothing is asked: the least seen while probes come and go."""
    assert peer.pid is not None
    seen = []
    for _ in range(20):
        seen.append(descriptors(peer.pid))
        time.sleep(0.1)
    return min(seen)


def account(results: dict[str, dict[str, Any]], gateway: dict[str, int], lab: Engines) -> list[str]:
    """What does not add up between the clients, the gateway and the engines."""
    problems = []
    started = sum(one["started"] for one in results.values())
    ok = sum(one["ok"] for one in results.values())
    left = sum(sum(one["left"].values()) + one["failed"]["abandoned"] for one in results.values())
    failed = sum(failures(one) - one["failed"]["abandoned"] for one in results.values())
    counted = sum(gateway.values())
    # a client that left may have been heard or not, and may have left behind a whole answer
    if not started - left <= counted <= started:
        problems.append(f"{started} requests sent, {left} of them left by their client; the gateway counts {counted}")
    if not ok <= gateway.get("ok", 0) <= ok + left:
        problems.append(
            f"{ok} whole answers arrived, {left} clients left; the gateway counts {gateway.get('ok', 0)} ok"
        )
    faulted = lab.total("faulted")
    if failed > faulted:
        problems.append(f"{failed} requests failed, and the engines failed only {faulted}")
    if gateway.get("ok", 0) > lab.total("finished"):
        problems.append(f"the gateway counts {gateway.get('ok', 0)} ok, the engines finished {lab.total('finished')}")
    for name, one in results.items():
        problems += [f"{name}: {one['failed'][kind]} x {kind}" for kind in NEVER if one["failed"][kind]]
    return problems


def settled(admin: int, lab: Engines) -> bool:
    now = status(admin)
    return now["in_flight"] == 0 and now["client_connections"] == 0 and lab.total("in_flight") == 0


def judge(
    samples: Sequence[Sample],
    before: int,
    after: int,
    results: dict[str, dict[str, Any]],
    gateway: dict[str, int],
    lab: Engines,
) -> tuple[list[str], dict[str, Any]]:
    kept = [one for one in samples if one.at_s >= WARM_UP_SHARE * samples[-1].at_s]
    slope = slope_bytes_per_s(thinned(kept))
    growth = slope * (kept[-1].at_s - kept[0].at_s)
    problems = account(results, gateway, lab)
    if growth > (GROWTH_LIMIT_BYTES if samples[-1].at_s >= LONG_S else SHORT_GROWTH_LIMIT_BYTES):
        problems.append(
            f"memory grows: {slope:.0f} bytes a second, {growth / 1e6:.1f} MB over {kept[-1].at_s - kept[0].at_s:.0f} s"
        )
    if after > before:
        problems.append(f"descriptors: {before} before, {after} after")
    figures = {
        "seconds": round(samples[-1].at_s, 1),
        "rss_first_bytes": kept[0].rss_bytes,
        "rss_last_bytes": kept[-1].rss_bytes,
        "rss_slope_bytes_per_s": round(slope, 1),
        "rss_growth_bytes": round(growth),
        "descriptors_before": before,
        "descriptors_most": max(one.descriptors for one in samples),
        "descriptors_after": after,
        "requests": sum(one["started"] for one in results.values()),
        "ok": sum(one["ok"] for one in results.values()),
        "left_by_client": sum(sum(one["left"].values()) for one in results.values()),
        "failed_by_engines": sum(failures(one) for one in results.values()),
        "gateway_outcomes": gateway,
        "engines": {name: lab.total(name) for name in ("requests", "finished", "left", "faulted", "secrets")},
        "problems": problems,
    }
    return problems, figures


def main(seconds: float, out: Path | None) -> int:
    """Run the soak for ``seconds``; the exit code."""
    try:
        build()
        with tempfile.TemporaryDirectory(prefix="soak-") as name:
            folder = Path(name)
            *ports, control, gateway, admin = free_ports("127.0.0.1", 7)
            with (
                engines(ports, control, core=None, log=folder / "engine.log") as lab,
                roadworthy(
                    document(folder, ports, gateway, admin),
                    gateway,
                    core=None,
                    folder=folder,
                    arguments=("--access-log", str(folder / "access.jsonl")),
                ) as peer,
            ):
                lab.calm()
                before = quiet_descriptors(peer)
                lab.reset()
                first = outcomes(admin)
                with loads(gateway, seconds) as processes:
                    samples = watch(peer, lab, seconds)
                    results = {key: finish_load(process) for key, process in processes.items()}
                if not wait_until(lambda: settled(admin, lab), SETTLE_S, every_s=0.1):
                    raise LabError(f"requests are left: {status(admin)['in_flight']} at the gateway, {lab.state()}")
                told = log_endings(folder / "access.jsonl", outcomes(admin))
                counted = {key: value - first.get(key, 0) for key, value in outcomes(admin).items()}
                # connections to engines that nobody uses are closed after some seconds
                wait_until(lambda: quiet_descriptors(peer) <= before, SETTLE_S, every_s=0.1)
                problems, figures = judge(samples, before, quiet_descriptors(peer), results, counted, lab)
                if told != outcomes(admin):
                    problems.append(f"the access log has {told}, the metrics count {outcomes(admin)}")
            words = (folder / "roadworthy.log").read_text(errors="replace")
            if "Traceback" in words:
                problems.append(f"the gateway wrote: {words[-1500:]}")
    except LabError as error:
        print(f"error: {error}", file=sys.stderr)
        return 3
    where = out or ROOT / "build" / "bench" / "soak.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(where, json.dumps(figures, indent=2) + "\n")
    print(json.dumps({key: value for key, value in figures.items() if key != "problems"}, indent=2))
    for problem in problems:
        print(f"problem: {problem}")
    if not problems:
        print(
            f"{figures['requests']} requests in {seconds:.0f} s: memory and descriptors level, every one accounted for"
        )
    return 1 if problems else 0
