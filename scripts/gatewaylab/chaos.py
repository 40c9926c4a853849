"""Two real vLLM engines and a gateway of two workers under everything that goes wrong in a bad week.

Engines are killed and frozen, the gateway reads its document again and is replaced, clients leave: every request is
accounted for, and only killed engines break streams.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import yaml

from gatewaylab.lab import ROOT, LabError, build, failures, finish_load, start_load
from gatewaylab.peers import wait_for
from gatewaylab.processes import running, wait_until
from gatewaylab.soak import NEVER, status
from gatewaylab.vllm import RealEngine
from roadworthy.adapters.files import write_atomically
from roadworthy.adapters.ports import free_ports

FROZEN_S = 4.0
BETWEEN_S = 3.0
AFTERWARDS_S = 5.0
IDLE_WITHIN_S = 5.0
ENGINE_ENDINGS = frozenset({"engine_error", "engine_timeout", "no_engine"})
LOADS: tuple[tuple[str, dict[str, float | str]], ...] = (
    ("streams", {"connections": 5, "stream": 1, "chunks": "8:60", "leave_share": 0.15, "seed": 1}),
    ("plain", {"connections": 2, "chunks": "4:30", "leave_share": 0.1, "seed": 2}),
)


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def document(folder: Path, engines: Sequence[RealEngine], gateway: int, admin: int) -> Path:
    path = folder / "chaos.yaml"
    mapping = {
        "model": {"config": "tiny", "served_name": "tiny"},
        "engine": {"endpoints": [{"url": engine.url} for engine in engines]},
        "tenants": [{"id": "chaos", "key": "sk-bench"}],
        "gateway": {"port": gateway, "admin_port": admin, "workers": 2},
    }
    path.write_text(yaml.safe_dump(mapping), encoding="utf-8")
    return path


class Troubles:
    """What happens, and when: a share of the run's time each."""

    def __init__(self, engines: Sequence[RealEngine], gateway_pid: int) -> None:
        self.first, self.second = engines
        self.gateway_pid = gateway_pid
        self.done: list[str] = []

    def plan(self) -> list[tuple[float, str, Callable[[], None]]]:
        return [
            (0.06, "the document is read again", lambda: os.kill(self.gateway_pid, signal.SIGHUP)),
            (0.12, "the second engine is killed and started again", lambda: self.restart(self.second)),
            (0.50, "the first engine freezes", lambda: self.freeze(self.first, self.second)),
            (0.60, "the gateway is replaced", lambda: os.kill(self.gateway_pid, signal.SIGUSR2)),
            (0.68, "the document is read again", lambda: os.kill(self.gateway_pid, signal.SIGHUP)),
            (0.75, "the first engine is killed and started again", lambda: self.restart(self.first, needs=self.second)),
        ]

    def restart(self, engine: RealEngine, needs: RealEngine | None = None) -> None:
        if needs is not None:
            needs.wait_healthy()
        engine.kill()
        engine.start()

    def freeze(self, engine: RealEngine, needs: RealEngine) -> None:
        needs.wait_healthy()
        engine.signal(signal.SIGSTOP)
        time.sleep(FROZEN_S)
        engine.signal(signal.SIGCONT)

    def run(self, seconds: float) -> None:
        started_s = time.monotonic()
        for share, what, act in self.plan():
            # an engine that took long to start moves what follows, not on top of each other
            time.sleep(max(BETWEEN_S, started_s + share * seconds - time.monotonic()))
            act()
            self.done.append(what)
            say(f"{time.monotonic() - started_s:6.1f} s  {what}")
        time.sleep(max(AFTERWARDS_S, started_s + seconds - time.monotonic()))


def read_log(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def settled_lines(path: Path) -> int:
    """Lines of the access log once it has at least one and no more come: it is written in batches."""
    seen = [-1, 0]
    while seen[-1] != seen[-2] or not seen[-1]:
        time.sleep(1.0)
        seen.append(len(read_log(path)) if path.exists() else 0)
    return seen[-1]


def account(results: dict[str, dict[str, Any]], log: Sequence[dict[str, Any]], killed: frozenset[str]) -> list[str]:
    """What does not add up between the clients and the access log, and what broke without a killed engine."""
    problems = []
    started = sum(one["started"] for one in results.values())
    ok = sum(one["ok"] for one in results.values())
    left = sum(sum(one["left"].values()) for one in results.values())
    failed = sum(failures(one) for one in results.values())
    endings = Counter(str(line["ending"]) for line in log)
    if not started - left <= len(log) <= started:
        problems.append(f"{started} requests sent, {left} of them left by their client; the log has {len(log)} lines")
    if not ok <= endings["ok"] <= ok + left:
        problems.append(f"{ok} whole answers arrived, {left} clients left; the log has {endings['ok']} ok")
    broken = [line for line in log if line["ending"] in ENGINE_ENDINGS]
    if failed > len(broken):
        problems.append(f"{failed} requests failed at the clients, {len(broken)} in the log: {dict(endings)}")
    problems += [f"broken without a killed engine: {line}" for line in broken if line.get("endpoint") not in killed]
    if strange := set(endings) - ENGINE_ENDINGS - {"ok", "client_left"}:
        problems.append(f"endings {strange}: {dict(endings)}")
    for name, one in results.items():
        problems += [f"{name}: {one['failed'][kind]} x {kind}" for kind in NEVER if one["failed"][kind]]
    return problems


def main(seconds: float, out: Path | None) -> int:
    """Run the chaos for ``seconds``; the exit code."""
    cores = sorted(os.sched_getaffinity(0))
    first_port, second_port, gateway, admin = free_ports("127.0.0.1", 4)
    with tempfile.TemporaryDirectory(prefix="chaos-") as name:
        folder = Path(name)
        engines = [
            RealEngine(port=first_port, folder=folder, cores=str(cores[0])),
            RealEngine(port=second_port, folder=folder, cores=str(cores[-1])),
        ]
        try:
            build()
            for engine in engines:
                engine.start()
            say("starting two vLLM engines")
            for engine in engines:
                engine.wait_healthy()
            problems, figures = attack(engines, folder, gateway, admin, seconds)
        except LabError as error:
            say(f"error: {error}")
            return 3
        finally:
            for engine in engines:
                engine.stop()
    where = out or ROOT / "build" / "bench" / "chaos.json"
    where.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(where, json.dumps({**figures, "problems": problems}, indent=2) + "\n")
    print(json.dumps(figures, indent=2))
    for problem in problems:
        print(f"problem: {problem}")
    if not problems:
        print("every request accounted for, nothing broken beyond the killed engines, engines idle")
    return 1 if problems else 0


def attack(
    engines: list[RealEngine], folder: Path, gateway: int, admin: int, seconds: float
) -> tuple[list[str], dict[str, Any]]:
    log, access = folder / "gateway.log", folder / "access.jsonl"
    command = [
        sys.executable, "-m", "roadworthy", "gateway", str(document(folder, engines, gateway, admin)),
        "--access-log", str(access),
    ]  # fmt: skip
    with running(command, log=log) as process:
        wait_for("the gateway", gateway, process, log, model="tiny", echo=0, timeout=60)
        before = settled_lines(access)
        troubles = Troubles(engines, process.pid)
        loads = {
            key: start_load(gateway, core=None, duration=3600, drain=90, timeout=120, model="tiny", echo=0, **options)
            for key, options in LOADS
        }
        try:
            troubles.run(seconds)  # longer, where engines take long to start
            for load in loads.values():
                load.send_signal(signal.SIGUSR1)
            results = {key: finish_load(load, within_s=seconds + 180) for key, load in loads.items()}
        finally:
            for load in loads.values():
                load.kill()
                load.wait()
        return judge(engines, results, access, admin, before, troubles, process, log)


def judge(
    engines: list[RealEngine],
    results: dict[str, dict[str, Any]],
    access: Path,
    admin: int,
    before: int,
    troubles: Troubles,
    process: subprocess.Popen[bytes],
    log: Path,
) -> tuple[list[str], dict[str, Any]]:
    problems = []
    if not wait_until(lambda: status(admin)["in_flight"] == 0, 15, every_s=0.1):
        problems.append(f"{status(admin)['in_flight']} requests are left at the gateway")
    for engine in engines:
        engine.wait_healthy()
        if not wait_until(lambda one=engine: one.requests() == 0, IDLE_WITHIN_S, every_s=0.1):  # type: ignore[misc]
            problems.append(f"{engine.requests()} requests are left at {engine.url}")
    started = sum(one["started"] for one in results.values())
    wait_until(lambda: len(read_log(access)) - before >= started, 3, every_s=0.2)  # written in batches
    lines = read_log(access)[before:]
    problems += account(results, lines, frozenset(engine.url for engine in engines if engine.killed))
    if process.poll() is not None:
        problems.append(f"the gateway ended with {process.returncode}")
    if "Traceback" in (words := log.read_text(errors="replace")):
        problems.append(f"the gateway wrote: {words[-1500:]}")
    figures = {
        "requests": started,
        "ok": sum(one["ok"] for one in results.values()),
        "left_by_client": sum(sum(one["left"].values()) for one in results.values()),
        "failed": sum(failures(one) for one in results.values()),
        "log_endings": dict(Counter(str(line["ending"]) for line in lines)),
        "attempts": sum(int(line.get("attempts", 0)) for line in lines),
        "by_engine": dict(Counter(str(line.get("endpoint", "none")) for line in lines)),
        "troubles": troubles.done,
    }
    return problems, figures
