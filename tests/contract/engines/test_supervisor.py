"""Engines as real processes: health-gated, restarted with back-off, and never left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

from roadworthy.adapters.engines import supervisor as supervisor_module
from roadworthy.adapters.engines.process import EngineCommand
from roadworthy.adapters.engines.supervisor import EngineStatus, Supervisor, backoff_s
from roadworthy.adapters.ports import free_ports
from roadworthy.core.errors import ProbeError

SERVER = """
import http.server, subprocess, sys, pathlib
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200); self.end_headers()
    def log_message(self, *args): pass
if len(sys.argv) > 2:
    worker = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    pathlib.Path(sys.argv[2]).write_text(str(worker.pid))
http.server.HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def engine(
    tmp_path: Path, *, code: str = SERVER, extra: tuple[str, ...] = (), start_timeout_s: float = 30
) -> EngineCommand:
    (port,) = free_ports("127.0.0.1", 1)
    return EngineCommand(
        name="engine-0",
        argv=(sys.executable, "-c", textwrap.dedent(code), str(port), *extra),
        url=f"http://127.0.0.1:{port}",
        log=tmp_path / "engine-0.log",
        start_timeout_s=start_timeout_s,
    )


def alive(pid: int) -> bool:
    """Whether the process exists and is not a zombie waiting to be collected."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def until(condition: Callable[[], bool]) -> None:
    """Wait for ``condition``; the test's own timeout bounds it."""
    while not condition():
        await asyncio.sleep(0.02)


def test_start_returns_when_healthy_and_stop_leaves_nothing(tmp_path: Path) -> None:
    async def scenario() -> int:
        supervisor = Supervisor([engine(tmp_path)])
        await supervisor.start()
        (status,) = supervisor.statuses
        assert status.phase == "healthy"
        assert status.pid is not None
        await supervisor.stop()
        assert supervisor.statuses[0].phase == "stopped"
        return status.pid

    assert not alive(asyncio.run(scenario()))


def test_a_worker_that_outlives_the_engine_is_killed_with_its_group(tmp_path: Path) -> None:
    worker_file = tmp_path / "worker.pid"

    async def scenario() -> None:
        supervisor = Supervisor([engine(tmp_path, extra=(str(worker_file),))])
        await supervisor.start()
        worker = int(worker_file.read_text())
        assert alive(worker)
        await supervisor.stop()
        await until(lambda: not alive(worker))

    asyncio.run(scenario())


def test_an_engine_that_ends_before_it_is_healthy_fails_the_start_with_its_log(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([engine(tmp_path, code="import sys; sys.exit('tp 3 does not divide 8 heads')")])
        try:
            with pytest.raises(ProbeError, match="tp 3 does not divide 8 heads"):
                await supervisor.start()
        finally:
            await supervisor.stop()

    asyncio.run(scenario())


def test_an_engine_that_never_answers_is_given_up_after_its_time(tmp_path: Path) -> None:
    async def scenario() -> None:
        supervisor = Supervisor([engine(tmp_path, code="import time; time.sleep(600)", start_timeout_s=0.5)])
        try:
            with pytest.raises(ProbeError, match="not healthy after"):
                await supervisor.start()
        finally:
            await supervisor.stop()
        assert supervisor.statuses[0].pid is None

    asyncio.run(scenario())


def test_a_program_that_does_not_exist_is_named(tmp_path: Path) -> None:
    command = EngineCommand(
        name="engine-0",
        argv=(str(tmp_path / "absent"),),
        url="http://127.0.0.1:1",
        log=tmp_path / "engine-0.log",
        start_timeout_s=1,
    )

    async def scenario() -> None:
        supervisor = Supervisor([command])
        with pytest.raises(ProbeError, match="absent"):
            await supervisor.start()
        await supervisor.stop()

    asyncio.run(scenario())


def replaced_after(number: signal.Signals, tmp_path: Path) -> list[EngineStatus]:
    """Every status from start to stop of an engine that got ``number`` once healthy, and was replaced."""
    seen: list[EngineStatus] = []

    async def scenario() -> None:
        supervisor = Supervisor([engine(tmp_path)], on_change=seen.append)
        await supervisor.start()
        first = supervisor.statuses[0].pid
        assert first is not None
        os.kill(first, number)
        await until(lambda: supervisor.statuses[0].phase == "healthy" and supervisor.statuses[0].pid != first)
        assert not alive(first)
        await supervisor.stop()

    asyncio.run(scenario())
    return seen


def test_a_killed_engine_comes_back_after_the_back_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_BACKOFF_S", 0.05)
    seen = replaced_after(signal.SIGKILL, tmp_path)
    assert [status.phase for status in seen] == [
        "starting", "healthy", "restarting", "restarting", "healthy", "stopped",
    ]  # fmt: skip
    assert "signal 9" in seen[2].note
    assert seen[-1].restarts == 1


def test_a_frozen_engine_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor_module, "FIRST_BACKOFF_S", 0.05)
    monkeypatch.setattr(supervisor_module, "WATCH_INTERVAL_S", 0.05)
    monkeypatch.setattr(supervisor_module, "SILENT_LIMIT_S", 0.2)
    seen = replaced_after(signal.SIGSTOP, tmp_path)
    assert any("did not answer /health" in status.note for status in seen)


def test_the_back_off_doubles_up_to_half_a_minute() -> None:
    assert [backoff_s(failures) for failures in (1, 2, 3, 4, 5, 6, 60)] == [1, 2, 4, 8, 16, 30, 30]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux ends a child with its parent")
def test_engines_end_when_the_supervising_process_is_killed_outright(tmp_path: Path) -> None:
    pid_file = tmp_path / "engine.pid"
    parent_code = f"""
    import asyncio, pathlib, sys
    from roadworthy.adapters.engines.process import EngineCommand, EngineProcess
    async def main():
        engine = await EngineProcess.spawn(EngineCommand(
            name="e", argv=(sys.executable, "-c", "import time; time.sleep(600)"), url="http://127.0.0.1:1",
            log=pathlib.Path({str(tmp_path / "log")!r}), start_timeout_s=1))
        pathlib.Path({str(pid_file)!r}).write_text(str(engine.pid))
        print("ready", flush=True)
        await asyncio.sleep(600)
    asyncio.run(main())
    """
    with subprocess.Popen([sys.executable, "-c", textwrap.dedent(parent_code)], stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        child = int(pid_file.read_text())
        parent.kill()
    with contextlib.suppress(ProcessLookupError):
        asyncio.run(until(lambda: not alive(child)))
