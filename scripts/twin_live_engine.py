"""A vLLM on the CPU that has a core of the machine for itself, as far as the machine has two."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from roadworthy.adapters.tiny_model import CONFIG, ensure_tiny_model
from support.vllm_process import RunningEngine, running_vllm

SETTINGS = {"max_num_seqs": 32, "max_num_batched_tokens": 2048, "max_model_len": 4096}
"""As :func:`running_vllm` and ``ARGUMENTS`` say it, for the twin."""
ARGUMENTS = (
    "--load-format", "dummy", "--max-num-batched-tokens", "2048", "--kv-cache-memory-bytes", str(2 * 2**30),
    "--no-async-scheduling",
)  # fmt: skip
SHAPE = {
    "hidden_size": 512, "intermediate_size": 1536, "num_hidden_layers": 4, "num_attention_heads": 8,
    "num_key_value_heads": 4,
}  # fmt: skip
QUIET_CORES, QUIET_WAIT_S = 0.2, 120.0


@contextlib.contextmanager
def timed_engine() -> Iterator[RunningEngine]:
    """vLLM with :func:`small_model`, its core alone on the first core of the machine; this process moves away."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model = small_model(folder / "small")
        with running_vllm(folder, ARGUMENTS, environment=alone(), model=model) as engine:
            pin(engine.pid)
            yield engine


def small_model(folder: Path) -> Path:
    """The tiny model with more in it: steps of several milliseconds, in which the engine computes for most of the time.
    In those of the tiny one Python looks after it for longer, and the server's streams are as much work again."""
    ensure_tiny_model(folder)
    (folder / "model.safetensors").unlink()
    (folder / "config.json").write_text(json.dumps({**CONFIG, **SHAPE}), encoding="utf-8")
    return folder


def alone() -> dict[str, str]:
    """What makes the engine compute with one thread on the first core, if there is another one for all the rest, and
    its core and its worker one process: as two they wait for each other without sleeping, and on few cores take the
    time of the server that is to be measured."""
    cores = sorted(os.sched_getaffinity(0))
    bound = {"VLLM_CPU_OMP_THREADS_BIND": str(cores[0]), "OMP_NUM_THREADS": "1"} if len(cores) > 1 else {}
    return {"VLLM_ENABLE_V1_MULTIPROCESSING": "0", **bound}


def pin(server: int) -> None:
    """The thread that schedules and computes alone on the first core of the machine; the threads beside it, the server,
    and this process, which sends the load, away from there."""
    cores = sorted(os.sched_getaffinity(0))
    if len(cores) > 1:
        root = psutil.Process(server)
        for process in (root, *root.children(recursive=True)):
            for thread in process.threads():
                computes = process != root and thread.id == process.pid
                os.sched_setaffinity(thread.id, cores[:1] if computes else cores[1:])
        os.sched_setaffinity(0, cores[1:])


def wait_for_quiet() -> float:
    """Wait until other work leaves the machine nearly alone, ``QUIET_WAIT_S`` at most; the share of a core that it
    still takes. An engine on the CPU is timed: whatever else runs is in its times."""
    until_s, busy, said = time.monotonic() + QUIET_WAIT_S, 0.0, False
    while True:
        before = cpu_times()
        time.sleep(2.0)
        busy_s, all_s = (after - earlier for after, earlier in zip(cpu_times(), before, strict=True))
        busy = busy_s / all_s * (os.cpu_count() or 1) if all_s else 0.0
        if busy <= QUIET_CORES or time.monotonic() > until_s:
            break
        if not said:
            print(f"other work takes {busy:.2f} cores: waiting for it to end ...", file=sys.stderr, flush=True)
            said = True
    if busy > QUIET_CORES:
        print(f"other work still takes {busy:.2f} cores; its share is in every time below", file=sys.stderr)
    return busy


def cpu_times() -> tuple[float, float]:
    """(busy, all) ticks of all cores since the machine started; zeros where there is no /proc."""
    try:
        ticks = [int(word) for word in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return 0.0, 0.0
    return float(sum(ticks) - ticks[3] - ticks[4]), float(sum(ticks))
