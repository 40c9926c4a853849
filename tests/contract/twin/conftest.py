"""Twin servers as processes, for tests that speak HTTP to them."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from roadworthy.adapters.ports import free_ports
from support.twin import config, step_time

if TYPE_CHECKING:
    from roadworthy.twin.config import TwinConfig

START_LIMIT_S = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinServer:
    """A running twin."""

    url: str
    process: subprocess.Popen[str]

    def metric(self, name: str) -> float:
        """The value of a metric with one sample; NaN when it is not there."""
        for line in httpx.get(f"{self.url}/metrics").text.splitlines():
            if line.startswith((f"{name} ", name + "{")):
                return float(line.rsplit(" ", 1)[1])
        return float("nan")


def twin_argv(config_file: Path, port: int) -> list[str]:
    """The command line that starts a twin."""
    return [
        sys.executable, "-m", "roadworthy.adapters.twin_server", "--config", str(config_file), "--port", str(port),
    ]  # fmt: skip


@pytest.fixture(scope="session")
def start_twin(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[TwinConfig], TwinServer]]:
    """Start a twin and wait until it serves; all are stopped at the end of the run."""
    started: list[subprocess.Popen[str]] = []

    def start(twin: TwinConfig) -> TwinServer:
        (port,) = free_ports("127.0.0.1", 1)
        file = tmp_path_factory.mktemp("twin") / "twin.json"
        file.write_text(twin.to_json())
        process = subprocess.Popen(
            twin_argv(file, port), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        started.append(process)
        url = f"http://127.0.0.1:{port}"
        deadline = time.monotonic() + START_LIMIT_S
        while True:
            try:
                httpx.get(f"{url}/health", timeout=1)
                return TwinServer(url=url, process=process)
            except httpx.TransportError:
                if process.poll() is not None or time.monotonic() > deadline:
                    process.kill()
                    pytest.fail(f"the twin did not start: {process.communicate()[1]}")
                time.sleep(0.02)

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.fixture(scope="session")
def twin(start_twin: Callable[[TwinConfig], TwinServer]) -> TwinServer:
    """A twin with a token every 2 ms."""
    return start_twin(
        config(step_time=step_time(step_s=0.002), max_model_len=4096, kv_blocks=2001, engine_version="0.32.0")
    )
