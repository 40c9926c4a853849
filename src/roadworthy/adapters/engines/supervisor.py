"""Keeps a set of engines running: all healthy before service starts, each restarted with back-off when it dies.

An engine that dies before it was ever healthy is a wrong setting, not bad luck: the start fails at once with the end
of its log. One that dies later, or is silent for two minutes, is restarted after 1, 2, 4, … 30 s; a minute of health
resets the back-off. Two minutes, because a busy API process of vLLM may leave ``/health`` alone for seconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from roadworthy.adapters.engines.process import EngineCommand, EngineProcess, answers_health, log_tail
from roadworthy.core.errors import ProbeError

Phase = Literal["starting", "healthy", "restarting", "stopped"]

FIRST_BACKOFF_S, LONGEST_BACKOFF_S, SETTLED_AFTER_S = 1.0, 30.0, 60.0
PROBE_INTERVAL_S = 0.25
WATCH_INTERVAL_S, SILENT_LIMIT_S = 5.0, 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineStatus:
    """One engine as the terminal and the console show it. ``pid`` is None while it is not running."""

    name: str
    url: str
    phase: Phase
    pid: int | None
    restarts: int
    note: str = ""


def backoff_s(failures: int) -> float:
    """Seconds to wait before start number ``failures`` + 1; ``failures`` counts from 1."""
    return min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(failures - 1, 10))


class Supervisor:
    """Runs ``commands``; ``on_change`` hears every new status and must not block."""

    def __init__(
        self,
        commands: Sequence[EngineCommand],
        *,
        on_change: Callable[[EngineStatus], None] = lambda _: None,
    ) -> None:
        self._commands = tuple(commands)
        self._on_change = on_change
        self._running: dict[str, EngineProcess] = {}
        self._status = {
            command.name: EngineStatus(name=command.name, url=command.url, phase="stopped", pid=None, restarts=0)
            for command in self._commands
        }
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def statuses(self) -> tuple[EngineStatus, ...]:
        return tuple(self._status.values())

    async def start(self) -> None:
        """Start every engine and return when all are healthy.

        Raises ProbeError with the end of the log of the first engine that fails; the others are stopped by ``stop``,
        which the caller owes on every way out.
        """
        for command in self._commands:
            command.log.unlink(missing_ok=True)
        gates = [asyncio.create_task(self._first_start(command)) for command in self._commands]
        try:
            await asyncio.gather(*gates)
        finally:
            for gate in gates:
                gate.cancel()
            await asyncio.gather(*gates, return_exceptions=True)
        self._tasks = [asyncio.create_task(self._keep_running(command)) for command in self._commands]

    async def stop(self, grace_s: float = 10.0) -> None:
        """Stop watching, then end every process group; returns when none is left."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        running, self._running = dict(self._running), {}
        await asyncio.gather(*(engine.stop(grace_s) for engine in running.values()))
        for command in self._commands:
            if command.name in running:
                self._set(command, "stopped", pid=None)

    async def _first_start(self, command: EngineCommand) -> None:
        engine = await self._spawn(command, "starting")
        exited = asyncio.create_task(engine.wait())
        try:
            async with asyncio.timeout(command.start_timeout_s):
                while not await answers_health(command.url):
                    if exited.done():
                        raise _failed(command, f"ended with {_ending(exited.result())} before it was healthy")
                    await asyncio.wait([exited], timeout=PROBE_INTERVAL_S)
        except TimeoutError:
            raise _failed(command, f"not healthy after {command.start_timeout_s:.0f} s") from None
        finally:
            exited.cancel()
        self._set(command, "healthy", pid=engine.pid)

    async def _keep_running(self, command: EngineCommand) -> None:
        loop = asyncio.get_running_loop()
        failures = 0
        while True:
            healthy_since = loop.time()
            why = await self._until_it_fails(command, self._running[command.name])
            await self._running.pop(command.name).stop(grace_s=1.0)
            failures = 1 if loop.time() - healthy_since > SETTLED_AFTER_S else failures + 1
            while not await self._restart(command, failures, why):
                failures, why = failures + 1, "did not start again"

    async def _until_it_fails(self, command: EngineCommand, engine: EngineProcess) -> str:
        """Watch a healthy engine; returns, in words, how it ended or that it hangs."""
        loop = asyncio.get_running_loop()
        exited = asyncio.create_task(engine.wait())
        answered_s = loop.time()
        try:
            while True:
                await asyncio.wait([exited], timeout=WATCH_INTERVAL_S)
                if exited.done():
                    return f"ended with {_ending(exited.result())}"
                if await answers_health(command.url):
                    answered_s = loop.time()
                elif loop.time() - answered_s > SILENT_LIMIT_S:
                    return f"did not answer /health for {loop.time() - answered_s:.0f} s"
        finally:
            exited.cancel()

    async def _restart(self, command: EngineCommand, failures: int, why: str) -> bool:
        """One start after the back-off; True once the engine is healthy, False when it ended before that."""
        wait_s = backoff_s(failures)
        restarts = self._status[command.name].restarts + 1
        self._set(command, "restarting", pid=None, restarts=restarts, note=f"{why}; next start in {wait_s:.0f} s")
        await asyncio.sleep(wait_s)
        try:
            engine = await self._spawn(command, "restarting")
        except ProbeError:
            return False
        exited = asyncio.create_task(engine.wait())
        try:
            while not exited.done():
                if await answers_health(command.url):
                    self._set(command, "healthy", pid=engine.pid)
                    return True
                await asyncio.wait([exited], timeout=PROBE_INTERVAL_S)
        finally:
            exited.cancel()
        await self._running.pop(command.name).stop(grace_s=1.0)
        return False

    async def _spawn(self, command: EngineCommand, phase: Phase) -> EngineProcess:
        engine = await EngineProcess.spawn(command)
        self._running[command.name] = engine
        self._set(command, phase, pid=engine.pid)
        return engine

    def _set(
        self, command: EngineCommand, phase: Phase, *, pid: int | None, restarts: int | None = None, note: str = ""
    ) -> None:
        before = self._status[command.name]
        status = EngineStatus(
            name=command.name,
            url=command.url,
            phase=phase,
            pid=pid,
            restarts=before.restarts if restarts is None else restarts,
            note=note,
        )
        self._status[command.name] = status
        self._on_change(status)


def _ending(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _failed(command: EngineCommand, what: str) -> ProbeError:
    tail = log_tail(command.log)
    shown = f"\n{tail}" if tail else " (it printed nothing)"
    return ProbeError(f"{command.name} at {command.url}: {what}{shown}", hint=f"the whole log is {command.log}")
