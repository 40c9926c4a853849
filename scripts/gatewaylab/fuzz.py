"""Malformed requests against the real gateway, judged by what comes out on both sides."""

from __future__ import annotations

import asyncio
import concurrent.futures
import itertools
import json
import multiprocessing
import re
import sys
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import uvloop

from gatewaylab.fuzz_cases import Case, make
from gatewaylab.fuzz_engine import StrictEngine
from gatewaylab.fuzz_parts import KEY, find_marker
from roadworthy.adapters.files import write_atomically
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.service import Gateway
from roadworthy.spec.values import Tenant

AT_ONCE = 24
PART = 50_000
TICK_S = 0.04
SILENT_TICKS = 15
"""A connection that says nothing for so many turns is waiting for more of a body: not answered, not closed. The event
loop accepts one connection a turn, so that one of ``AT_ONCE`` may wait as many turns of less than half a tick."""

SURE_TICKS = 250
STATUS = re.compile(rb"HTTP/1\.1 (\d{3}) [\x20-\x7e]*")
ALLOWED_5XX = frozenset({501, 505})


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: int
    marker: str | None
    closes: bool
    body: bytes


class NotHttp(Exception):
    """What the gateway wrote is not a sequence of whole answers."""


def read_answers(data: bytes, *, head_asked: bool = False) -> list[Answer]:
    """All answers in ``data``, read strictly. Raises NotHttp; an unfinished last answer is one, too."""
    answers: list[Answer] = []
    while data:
        head, blank, rest = data.partition(b"\r\n\r\n")
        if not blank:
            raise NotHttp(f"half a head: {data[:200]!r}")
        line, *lines = head.split(b"\r\n")
        status = STATUS.fullmatch(line)
        if status is None:
            raise NotHttp(f"no status line: {line[:100]!r}")
        headers = {name.lower(): value for name, _, value in (one.partition(b": ") for one in lines)}
        code = int(status[1])
        if code == 100:
            data = rest
            continue
        if headers.get(b"transfer-encoding") == b"chunked":
            body, data = _chunked(rest)
        elif b"content-length" not in headers:  # to a client of HTTP/1.0: until the connection ends
            body, data = rest, b""
        else:
            size = int(headers[b"content-length"])
            if head_asked and (not rest or rest.startswith(b"HTTP/1.1 ")):
                size = 0  # the answer to a HEAD has the length of what is left out
            body, data = rest[:size], rest[size:]
            if len(body) < size:
                raise NotHttp(f"half a body: {len(body)} of {size}")
        answers.append(
            Answer(
                status=code,
                marker=find_marker(body) if code == 200 else None,
                closes=headers.get(b"connection") == b"close",
                body=body,
            )
        )
    return answers


def _chunked(data: bytes) -> tuple[bytes, bytes]:
    body = b""
    while True:
        size, line, data = data.partition(b"\r\n")
        if not line:
            raise NotHttp("half a chunk")
        count = int(size, 16)
        if data[count : count + 2] != b"\r\n":
            raise NotHttp("a chunk without its end")
        body += data[:count]
        data = data[count + 2 :]
        if not count:
            return body, data


def judge(case: Case, data: bytes, *, closed: bool) -> str | None:
    """What is wrong with the gateway's answer to ``case``; None when nothing is."""
    try:
        answers = read_answers(data, head_asked=b"HEAD " in case.data)
    except (NotHttp, KeyError, ValueError) as error:
        return f"not HTTP: {error!r}"
    seen = [one.marker for one in answers if one.marker is not None]
    wanted = iter(case.markers)
    if not all(marker in wanted for marker in seen):
        return f"answers {seen} to requests {case.markers}"
    for at, one in enumerate(answers):
        if one.status >= 500 and one.status not in ALLOWED_5XX:
            return f"status {one.status}: {one.body[:200]!r}"
        if one.status >= 400:
            problem = _error_shape(one)
            if problem and b"HEAD " not in case.data:
                return problem
        if one.closes and at + 1 < len(answers):
            return "an answer behind the one that closes"
    if answers and answers[-1].closes and not closed:
        return "said that it closes and did not"
    if case.must_answer and seen != list(case.markers):
        return f"valid requests {case.markers}, answers {[(one.status, one.marker) for one in answers]}"
    if case.must_refuse:
        harmless = case.markers[:-2]
        if [one for one in seen if one not in harmless]:
            return f"must be refused, but was answered: {seen}"
        if not closed or not answers or answers[-1].status < 400:
            return f"must be refused and closed: {[one.status for one in answers]}, closed: {closed}"
    return None


def _error_shape(answer: Answer) -> str | None:
    try:
        error = json.loads(answer.body)["error"]
    except (ValueError, KeyError, TypeError):
        return f"an error in another shape: {answer.body[:200]!r}"
    if set(error) != {"message", "type", "code", "param", "hint"} or not error["code"]:
        return f"an error in another shape: {answer.body[:200]!r}"
    if KEY in str(error) or "127.0.0.1" in str(error):
        return f"an error that tells too much: {answer.body[:200]!r}"
    return None


class _Client(asyncio.Protocol):
    """Writes one case, collects what comes until the follower is answered, the end, or silence."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.data = b""
        self.closed = False
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._silent = 0
        self._timer: asyncio.TimerHandle | None = None
        self._follower = case.follower.encode()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        edges = (0, *self.case.pieces, len(self.case.data))
        self._pieces = [self.case.data[start:end] for start, end in itertools.pairwise(edges)]
        self._write()
        self._wait()

    def _wait(self) -> None:
        loop = asyncio.get_running_loop()
        self._due_s = loop.time() + TICK_S
        self._timer = loop.call_later(TICK_S, self._tick)

    def _write(self) -> None:
        if self._pieces and not self.transport.is_closing():
            self.transport.write(self._pieces.pop(0))
            if self._pieces:
                asyncio.get_running_loop().call_soon(self._write)

    def data_received(self, data: bytes) -> None:
        self.data += data
        self._silent = 0
        at = self.data.rfind(self._follower)
        if at >= 0 and (self.data.endswith(b"\r\n0\r\n\r\n") or self.data.endswith(b"}}")):
            self._finish()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 - asyncio's signature
        self.closed = True
        self._finish()

    def _tick(self) -> None:
        # a turn that comes late says that this process is busy, not that the gateway is silent
        self._silent += asyncio.get_running_loop().time() - self._due_s < TICK_S / 2
        waits = self.case.must_answer or self.case.must_refuse
        if self._silent > (SURE_TICKS if waits else SILENT_TICKS):
            self._finish()
        else:
            self._wait()

    def _finish(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if not self.done.done():
            self.done.set_result(None)


@dataclass(slots=True, kw_only=True)
class Outcome:
    """What a run found; ``problems`` with the seed of each."""

    cases: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    endings: Counter[str] = field(default_factory=Counter)
    problems: list[tuple[int | None, str, str]] = field(default_factory=list)
    seconds: float = 0.0

    def add(self, other: Outcome) -> None:
        self.cases += other.cases
        self.kinds += other.kinds
        self.endings += other.endings
        self.problems += other.problems

    def note(self, seed: int | None, name: str, what: str) -> None:
        if len(self.problems) < 1000:
            self.problems.append((seed, name, what))


async def _one(port: int, seed: int, outcome: Outcome) -> None:
    case = make(seed)
    loop = asyncio.get_running_loop()
    transport, client = await loop.create_connection(lambda: _Client(case), "127.0.0.1", port)
    try:
        await client.done
    finally:
        transport.abort()
    outcome.cases += 1
    outcome.kinds[case.name.partition("+")[0]] += 1
    problem = judge(case, client.data, closed=client.closed)
    answered = client.data.rfind(case.follower.encode()) >= 0
    outcome.endings["follower answered" if answered else "closed" if client.closed else "waiting for more"] += 1
    if problem is not None:
        outcome.note(seed, case.name, problem)


async def attack(seeds: Iterable[int]) -> Outcome:
    """Send the cases of ``seeds`` to a gateway of this process before a strict engine."""
    outcome = Outcome()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, context: outcome.note(None, "gateway", f"exception: {_told(context)}"))
    started_s = time.monotonic()
    async with StrictEngine() as engine:
        config = GatewayConfig(endpoints=(engine.url,), tenants=(Tenant(id="fuzz", key=KEY),))
        async with Gateway(config) as gateway:
            port = int(gateway.data_url.rsplit(":", 1)[1])
            left = iter(seeds)

            async def worker() -> None:
                for seed in left:
                    await _one(port, seed, outcome)

            await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
            await _check_end(gateway, engine, outcome)
    outcome.seconds = time.monotonic() - started_s
    return outcome


async def _check_end(gateway: Gateway, engine: StrictEngine, outcome: Outcome) -> None:
    """Nothing is left in flight, and the engine saw no more than the gateway sent."""
    for _ in range(250):
        status = gateway.status()
        if status.in_flight == 0 and status.client_connections == 0:
            break
        await asyncio.sleep(0.02)
    if status.in_flight or status.client_connections:
        outcome.note(
            None, "gateway", f"left over: {status.in_flight} requests, {status.client_connections} connections"
        )
    sent = sum(one.dispatched_total for one in status.endpoints)
    if engine.completions > sent:
        outcome.note(None, "engine", f"saw {engine.completions} requests, and the gateway sent {sent}")
    for problem in engine.problems:
        outcome.note(None, "engine", problem)


def _told(context: dict[str, Any]) -> str:
    import traceback

    error = context.get("exception")
    where = "".join(traceback.format_exception(error)) if error is not None else ""
    return f"{context.get('message')} {where}"


def run(seeds: Iterable[int]) -> Outcome:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(attack(seeds))


def run_parts(first: int, count: int, processes: int) -> Outcome:
    """The same cases, dealt out to processes with a gateway each, in parts of at most 50,000."""
    parts = [range(at, min(at + PART, first + count)) for at in range(first, first + count, PART)]
    whole = Outcome()
    started_s = time.monotonic()
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(processes, mp_context=context) as pool:
        for found in pool.map(run, parts):
            whole.add(found)
            print(f"{whole.cases:>9} requests, {len(whole.problems)} problems", file=sys.stderr, flush=True)
    whole.seconds = time.monotonic() - started_s
    return whole


def report(outcome: Outcome, folder: Path, out: Path | None = None) -> int:
    """Print what was found; cases that found something are kept below ``folder``, figures in ``out``. The exit code."""
    if out is not None:
        out.parent.mkdir(parents=True, exist_ok=True)
        figures = {
            "cases": outcome.cases,
            "kinds": len(outcome.kinds),
            "endings": dict(outcome.endings),
            "problems": len(outcome.problems),
            "seconds": round(outcome.seconds, 1),
        }
        write_atomically(out, json.dumps(figures, indent=2) + "\n")
    print(f"{outcome.cases} requests in {outcome.seconds:.0f} s, {outcome.cases / max(outcome.seconds, 1e-9):.0f}/s")
    print(", ".join(f"{name} {count}" for name, count in sorted(outcome.endings.items())))
    print(
        f"{len(outcome.kinds)} kinds: {', '.join(f'{name} {count}' for name, count in sorted(outcome.kinds.items()))}"
    )
    kinds = Counter(name for _, name, _ in outcome.problems)
    for seed, name, what in outcome.problems[:40]:
        print(f"problem: seed {seed} ({name}): {what[:600]}")
        if seed is not None:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{seed:x}.bin").write_bytes(make(seed).data)
    if outcome.problems:
        print(f"{len(outcome.problems)} problems: {dict(kinds)}; the requests are in {folder}")
        return 1
    print("no crash, no connection out of step, nothing at the engine that should not be there")
    return 0
