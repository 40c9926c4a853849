"""Whether the ledger says what was delivered: thousands of requests, clients that leave, a worker killed with -9.

Two workers share one SQLite file: ledger, limits and journals. Clients count every token they get; afterwards each of
their requests is looked up in the ledger.

- A request that ended on a worker that lived: billed is delivered.
- A stream that was in flight on the killed worker: delivered <= billed <= delivered + one event.
- What the killed worker held of a tenant's limit comes back when its lease runs out, and not before.
- Two workers let in no more than one limit's worth.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import uvloop
import yaml

from gatewaylab.lab import LabError, build, engines
from gatewaylab.ledger_clients import MODEL, Connection, Crowd, Plan, Seen, plans
from gatewaylab.processes import running, wait_until
from roadworthy.adapters.ports import free_ports

KEY, HOLDER_KEY, NARROW_KEY = "sk-check", "sk-holder", "sk-narrow"
CLIENTS = 48
EVENT_TOKENS = 1  # of the fake engine
LEASE_TTL_S = 6.0
HOLDERS, HOLD_TOKENS = 8, 1_000_000
NARROW_RPM = 40
SERVES_WITHIN_S = 60.0
SETTLES_WITHIN_S = 30.0
PROBE_EVERY_S = 0.05


def say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What was found. ``problems`` are sentences; none means that all limits were kept."""

    requests: int = 0
    left: int = 0
    killed_in_flight: int = 0
    difference_tokens: int = 0
    delivered_tokens: int = 0
    admitted_of_limit: str = ""
    lease_back_s: float | None = None
    problems: list[str] = field(default_factory=list)


def document(folder: Path, ports: tuple[int, ...], *, engine_ports: tuple[int, ...], shared_url: str | None) -> Path:
    gateway: dict[str, Any] = {
        "port": ports[0], "admin_port": ports[1], "workers": 2, "state_url": "sqlite:///ledger.db",
    }  # fmt: skip
    if shared_url is not None:
        gateway["shared_url"] = shared_url
    value = {
        "model": {"config": "tiny", "served_name": MODEL},
        "engine": {"endpoints": [{"url": f"http://127.0.0.1:{port}"} for port in engine_ports]},
        "tenants": [
            {"id": "check", "key": KEY, "tpm": 1_000_000_000, "daily_tokens": 1_000_000_000},
            {"id": "holder", "key": HOLDER_KEY, "concurrency": HOLDERS},
            {"id": "narrow", "key": NARROW_KEY, "rpm": NARROW_RPM},
        ],
        "gateway": gateway,
        "governance": {"billing": "exact", "lease_ttl": f"{LEASE_TTL_S:g}s"},
    }
    path = folder / "ledger-check.yaml"
    path.write_text(yaml.safe_dump(value, sort_keys=False), encoding="utf-8")
    return path


class Service:
    """The running gateway: two workers and their supervisor."""

    def __init__(self, port: int, admin_port: int, database: Path) -> None:
        self.port, self._admin_port, self._database = port, admin_port, database

    def status(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"http://127.0.0.1:{self._admin_port}/api/status", timeout=20) as answer:
            value: dict[str, Any] = json.load(answer)
        return value

    def workers(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.status()["workers"]
        return found

    def rows(self) -> dict[str, tuple[str, int, str]]:
        """By request id: tenant, output tokens, ending."""
        with contextlib.closing(sqlite3.connect(f"file:{self._database}?mode=ro", uri=True)) as database:
            found = database.execute("SELECT request_id, tenant_id, output_tokens, ending FROM ledger").fetchall()
        return {request_id: (tenant, tokens, ending) for request_id, tenant, tokens, ending in found}


@contextlib.contextmanager
def serving(folder: Path, spec: Path, ports: tuple[int, ...]) -> Iterator[Service]:
    log = folder / "gateway.log"
    ready = folder / "ready.json"
    command = [sys.executable, "-m", "roadworthy", "gateway", str(spec), "--ready-file", str(ready), "--drain", "20"]
    environment = {"PYTHONWARNINGS": "ignore", "XDG_STATE_HOME": str(folder)}
    with running(command, log=log, environment=environment) as process:
        if not wait_until(lambda: ready.exists() or process.poll() is not None, SERVES_WITHIN_S, every_s=0.05):
            raise LabError(f"the gateway does not serve: {log.read_text()[-1500:]}")
        if process.poll() is not None:
            raise LabError(f"the gateway ended: {log.read_text()[-1500:]}")
        yield Service(ports[0], ports[1], folder / "ledger.db")
        process.send_signal(signal.SIGTERM)
        process.wait(60)


# the parts


async def one_limits_worth(port: int, outcome: Outcome) -> None:
    """Ask for far more than the limit over many connections, which the kernel spreads over both workers."""
    asked = 3 * NARROW_RPM
    crowd = Crowd(port=port)
    started_s = time.monotonic()
    plan = Plan(key=NARROW_KEY, stream=False, tokens=5)
    await asyncio.gather(*(crowd.run(iter([plan]), 1) for _ in range(asked)))
    took_s = time.monotonic() - started_s
    admitted = sum(seen.status == 200 for seen in crowd.seen)
    most = NARROW_RPM + int(took_s * NARROW_RPM / 60) + 1
    outcome.admitted_of_limit = f"{admitted} of {asked}, {NARROW_RPM} a minute"
    if not NARROW_RPM <= admitted <= most:
        outcome.problems.append(f"two workers let in {admitted} of a limit of {NARROW_RPM} to {most} requests")


class Holders:
    """Long streams that fill one tenant's limit, and a probe that tells when a place is free."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.tasks: list[asyncio.Task[Seen]] = []
        self._connections: list[Connection] = []

    async def start(self) -> None:
        for _ in range(HOLDERS):
            connection = Connection(self._port)
            self._connections.append(connection)
            plan = Plan(key=HOLDER_KEY, stream=True, tokens=HOLD_TOKENS)
            self.tasks.append(asyncio.create_task(connection.ask(plan)))

    async def free(self) -> bool:
        connection = Connection(self._port)
        seen = await connection.ask(Plan(key=HOLDER_KEY, stream=False, tokens=1))
        connection.close()
        return seen.status == 200

    @property
    def running(self) -> int:
        return sum(not task.done() for task in self.tasks)

    async def stop(self) -> list[Seen]:
        for connection in self._connections:
            connection.leave()
        return await asyncio.gather(*self.tasks)


async def kill_one(service: Service, crowd: Crowd, holders: Holders, outcome: Outcome) -> None:
    """When half of the requests are over, kill the worker with the most in flight; watch when its lease comes back."""
    await crowd.reached.wait()
    workers = await asyncio.to_thread(service.workers)
    victim = max(workers, key=lambda one: int(one["in_flight"]))
    before = holders.running
    killed_s = time.monotonic()
    os.kill(int(victim["pid"]), signal.SIGKILL)
    say(f"killed worker {victim['id']} with {victim['in_flight']} requests in flight, after {len(crowd.seen)}")
    await asyncio.sleep(0.5)
    lost = before - holders.running
    if not lost:
        say("none of the holders was at the killed worker: its lease is not watched")
        return
    while time.monotonic() - killed_s < 3 * LEASE_TTL_S:
        if await holders.free():
            outcome.lease_back_s = time.monotonic() - killed_s
            break
        await asyncio.sleep(PROBE_EVERY_S)
    # renewed every third of its life, so at the kill between two thirds and all of it was left
    back_s = outcome.lease_back_s
    if back_s is None or back_s > LEASE_TTL_S + 2.0:
        outcome.problems.append(f"the killed worker's lease of {LEASE_TTL_S:g} s came back after {back_s} s")
    elif back_s < LEASE_TTL_S * 2 / 3 - 0.5:
        outcome.problems.append(f"the killed worker's lease came back after {back_s:.2f} s, before it had run out")


async def drive(service: Service, count: int, outcome: Outcome, rng: Random) -> list[Seen]:
    await one_limits_worth(service.port, outcome)
    holders = Holders(service.port)
    await holders.start()
    await asyncio.sleep(0.3)
    crowd = Crowd(port=service.port, half=count // 2)
    killer = asyncio.create_task(kill_one(service, crowd, holders, outcome))
    # a few more than one in ten leave: some of them are cut by the kill before they can
    await crowd.run(plans(count, count // 10 + CLIENTS // 2, rng, key=KEY), CLIENTS)
    await killer
    return [*crowd.seen, *await holders.stop()]


# the comparison


def compare(seen: list[Seen], rows: dict[str, tuple[str, int, str]], outcome: Outcome) -> None:
    """Look every request up. A request without an id got nothing of an answer, so nothing was delivered; its row, if
    there is one, is among those that nobody asks for."""
    unasked = {request_id: row for request_id, row in rows.items() if row[0] != "narrow"}
    for one in seen:
        row = unasked.pop(one.request_id, None) if one.request_id else None
        billed, ending = (row[1], row[2]) if row is not None else (0, "")
        if one.status not in (0, 200):
            outcome.problems.append(f"request {one.request_id} was answered {one.status}")
        difference = billed - one.tokens
        if ending == "worker_died":
            outcome.killed_in_flight += 1
            difference -= min(max(difference, 0), EVENT_TOKENS)
        elif not one.whole and not one.left:
            outcome.problems.append(f"request {one.request_id} was cut, and its row says {ending or 'nothing'}")
        outcome.delivered_tokens += one.tokens
        outcome.difference_tokens += abs(difference)
        if difference:
            outcome.problems.append(f"request {one.request_id} ({ending}): delivered {one.tokens}, billed {billed}")
    for request_id, (tenant, tokens, ending) in unasked.items():
        # clients of these left or were cut before the head of an answer reached them, or were the lease's probe
        if tokens > (EVENT_TOKENS if ending == "worker_died" else 0) and tenant != "holder":
            outcome.difference_tokens += tokens
            outcome.problems.append(f"request {request_id} ({ending}): nobody got it, billed {tokens}")


def check(count: int, *, shared_url: str | None = None, seed: int = 5) -> Outcome:
    """Run all of it. Raises LabError when something it needs does not work."""
    build()
    outcome = Outcome(requests=count)
    with tempfile.TemporaryDirectory(prefix="ledger-check-") as name:
        folder = Path(name)
        found = free_ports("127.0.0.1", 7)
        ports, engine_ports, control = found[:2], found[2:6], found[6]
        spec = document(folder, ports, engine_ports=engine_ports, shared_url=shared_url)
        with engines(engine_ports, control, core=None, log=folder / "engine.log") as lab:
            lab.set(rate=200, first_ms=3)
            with serving(folder, spec, ports) as service:
                with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                    seen = runner.run(drive(service, count, outcome, Random(seed)))
                if not wait_until(lambda: service.status()["in_flight"] == 0, SETTLES_WITHIN_S, every_s=0.2):
                    outcome.problems.append("requests are in flight long after the last client")
            compare(seen, service.rows(), outcome)
    outcome.left = sum(one.left for one in seen)
    if outcome.left < count // 10:
        outcome.problems.append(f"{outcome.left} clients left, wanted {count // 10}")
    if not outcome.killed_in_flight:
        outcome.problems.append("no stream was in flight on the worker that was killed")
    return outcome


def main(count: int, shared_url: str | None) -> int:
    started_s = time.monotonic()
    try:
        outcome = check(count, shared_url=shared_url)
    except LabError as error:
        say(f"error: {error}")
        return 3
    for problem in outcome.problems[:20]:
        say(f"problem: {problem}")
    if outcome.problems[20:]:
        say(f"and {len(outcome.problems) - 20} more")
    lease = "not watched" if outcome.lease_back_s is None else f"after {outcome.lease_back_s:.1f} s of {LEASE_TTL_S:g}"
    say(
        f"{outcome.requests} requests, {outcome.left} left early, {outcome.killed_in_flight} in flight on the killed "
        f"worker; {outcome.delivered_tokens} tokens delivered; limit: {outcome.admitted_of_limit}; the killed worker's "
        f"lease came back {lease}; {time.monotonic() - started_s:.0f} s"
    )
    print(json.dumps({"requests": outcome.requests, "difference_tokens": outcome.difference_tokens}))
    return 1 if outcome.problems else 0
