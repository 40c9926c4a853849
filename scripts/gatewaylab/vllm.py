"""Real vLLM engines on the CPU, with the tiny random-weight model: started, killed, frozen, started again."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from gatewaylab.lab import LabError
from gatewaylab.processes import end, wait_until
from roadworthy.adapters.tiny_model import ensure_tiny_model

STARTS_WITHIN_S = 300.0
_GAUGE = re.compile(r"^vllm:num_requests_(?:running|waiting)\{[^}]*\} (\S+)$", re.MULTILINE)


def vllm_program() -> str:
    """The engine's command. Raises LabError."""
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if not found:
        raise LabError("no vllm command: run `make vllm`")
    return found


@dataclass(slots=True, kw_only=True)
class RealEngine:
    """One engine process at a fixed port. ``killed`` counts the times that it was killed."""

    port: int
    folder: Path
    cores: str
    killed: int = 0
    process: subprocess.Popen[bytes] | None = field(default=None, repr=False)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Begin to start; ``wait_healthy`` says when it serves."""
        model = ensure_tiny_model(self.folder / "tiny")
        command = [
            vllm_program(), "serve", str(model), "--served-model-name", "tiny", "--host", "127.0.0.1",
            "--port", str(self.port),
            "--max-model-len", "4096", "--max-num-seqs", "16", "--enforce-eager",
            "--kv-cache-memory-bytes", str(256 * 2**20),
        ]  # fmt: skip
        variables = {"VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1", "VLLM_CPU_OMP_THREADS_BIND": self.cores}
        with (self.folder / f"vllm-{self.port}.log").open("ab") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, env={**os.environ, **variables}, start_new_session=True
            )

    def healthy(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def wait_healthy(self) -> None:
        assert self.process is not None
        process = self.process
        if not wait_until(lambda: self.healthy() or process.poll() is not None, STARTS_WITHIN_S, every_s=0.25):
            raise LabError(f"vLLM at {self.url} does not serve within {STARTS_WITHIN_S:g} s")
        if process.poll() is not None:
            log = (self.folder / f"vllm-{self.port}.log").read_text(errors="replace")
            raise LabError(f"vLLM ended with {process.returncode}: {log[-2000:]}")

    def kill(self) -> None:
        """All of its processes at once, as the kernel does when memory runs out."""
        self.signal(signal.SIGKILL)
        assert self.process is not None
        self.process.wait()
        self.killed += 1

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, number)

    def requests(self) -> int:
        """Running and waiting by the engine's own count."""
        with urllib.request.urlopen(f"{self.url}/metrics", timeout=20) as answer:
            return int(sum(float(value) for value in _GAUGE.findall(answer.read().decode())))

    def stop(self) -> None:
        if self.process is not None:
            self.signal(signal.SIGCONT)
            end(self.process, grace_s=20)
