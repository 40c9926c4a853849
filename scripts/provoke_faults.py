#!/usr/bin/env python3
"""Breaks real things on this machine and diagnoses what they print: vLLM on the CPU, shared memory, limits, ports.

    scripts/provoke_faults.py [NAME…]      all faults, or those named
    --keep DIR                             also keep each captured log as DIR/NAME/engine.log
    --list                                 names and the cause that each should lead to

Prints one line for each fault and exits 1 when a cause does not come first. Each fault has a time limit; what was
started is ended.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from roadworthy.adapters.ports import free_ports
from roadworthy.adapters.tiny_model import ensure_tiny_model
from roadworthy.diagnose.examine import examine

LIMIT_S = 180


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What is broken, how, and the root cause that the doctor should name (None: no finding, but symptoms)."""

    name: str
    wanted: str | None
    provoke: Callable[[Path], str]


def vllm() -> str:
    beside = Path(sys.executable).parent / "vllm"
    found = str(beside) if beside.is_file() else shutil.which("vllm")
    if found is None:
        raise SystemExit("no vllm command: run `make vllm`")
    return found


def output_of(command: list[str], *, limit_s: float = LIMIT_S, environment: dict[str, str] | None = None) -> str:
    """Everything that ``command`` prints until it ends; its whole process group is ended after ``limit_s``."""
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        start_new_session=True,
        env={**os.environ, **(environment or {})},
    )
    try:
        output, _ = process.communicate(timeout=limit_s)
    except subprocess.TimeoutExpired:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        output, _ = process.communicate()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return output.decode("utf-8", "replace")


def serve(folder: Path, *more: str, model: Path | None = None) -> list[str]:
    model = model or ensure_tiny_model(folder / "tiny")
    (port,) = free_ports("127.0.0.1", 1)
    return [
        vllm(),
        "serve",
        str(model),
        "--host",
        "127.0.0.1",
        "--port",
        str(port),
        "--enforce-eager",
        "--max-model-len",
        "512",
        "--gpu-memory-utilization",
        "0.1",
        *more,
    ]


def unknown_flag(folder: Path) -> str:
    return output_of(serve(folder, "--moe-capacity-factor", "1.25"))


def unknown_architecture(folder: Path) -> str:
    model = ensure_tiny_model(folder / "tiny")
    copy = folder / "odd"
    shutil.copytree(model, copy, dirs_exist_ok=True)
    config = json.loads((copy / "config.json").read_text())
    config["architectures"], config["model_type"] = ["HalcyonForCausalLM"], "halcyon"
    (copy / "config.json").write_text(json.dumps(config))
    return output_of(serve(folder, model=copy))


def heads_not_divisible(folder: Path) -> str:
    return output_of(serve(folder, "--tensor-parallel-size", "3"))


def kv_too_small(folder: Path) -> str:
    return output_of(serve(folder, "--max-model-len", "4096", "--kv-cache-memory-bytes", "65536"))


def damaged_weights(folder: Path) -> str:
    model = ensure_tiny_model(folder / "tiny")
    copy = folder / "cut"
    shutil.copytree(model, copy, dirs_exist_ok=True)
    for shard in copy.glob("*.safetensors"):
        shard.write_bytes(shard.read_bytes()[:4])
    return output_of(serve(folder, model=copy))


@contextlib.contextmanager
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server.getsockname()[1]


def port_taken(folder: Path) -> str:
    command = serve(folder)
    with taken_port() as port:
        command[command.index("--port") + 1] = str(port)
        return output_of(command)


@contextlib.contextmanager
def serving(
    folder: Path, *more: str, environment: dict[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], Path, str]]:
    """A vLLM that answers: its process, the file it logs to and its address; its whole group is ended."""
    command, log = serve(folder, *more), folder / "serve.log"
    address = f"http://127.0.0.1:{command[command.index('--port') + 1]}"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command, stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, **(environment or {})},
        )  # fmt: skip
    try:
        until = time.monotonic() + 2 * LIMIT_S
        while process.poll() is None and time.monotonic() < until:
            with contextlib.suppress(OSError):
                urllib.request.urlopen(f"{address}/health", timeout=5).close()
                break
            time.sleep(1)
        yield process, log, address
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def ask(address: str, tokens: int) -> None:
    body = json.dumps({"prompt": "count " * 40, "max_tokens": tokens, "ignore_eos": True}).encode()
    request = urllib.request.Request(f"{address}/v1/completions", body, {"content-type": "application/json"})
    with contextlib.suppress(OSError):
        urllib.request.urlopen(request, timeout=LIMIT_S).close()


def kv_blocks_run_out(folder: Path) -> str:
    """A pool that holds few sequences, and many long answers at once: the log, then /metrics while they wait."""
    with serving(folder, "--kv-cache-memory-bytes", KV_BYTES_FEW, "--max-num-seqs", "32") as (_, log, address):
        asked = [threading.Thread(target=ask, args=(address, 400), daemon=True) for _ in range(48)]
        for one in asked:
            one.start()
        scrape, until = "", time.monotonic() + LIMIT_S
        while time.monotonic() < until:
            time.sleep(1)
            with contextlib.suppress(OSError), urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
                scrape = answer.read().decode()
            preempted = re.search(r"num_preemptions_total\{[^}]*\} ([1-9][\d.]*)", scrape)
            full = re.search(r"kv_cache_usage_perc\{[^}]*\} (?:0\.9|1\.)", scrape)
            if preempted and full:
                break
        return log.read_text() + scrape


KV_BYTES_FEW = "1048576"


def worker_killed(folder: Path) -> str:
    """A worker of a two-rank engine is killed from outside while it serves: the log tells who, not why."""
    two_ranks = ("--tensor-parallel-size", "2", "--distributed-executor-backend", "mp")
    with serving(folder, *two_ranks, environment={"VLLM_CPU_OMP_THREADS_BIND": "0|1"}) as (engine, log, address):
        for pid in descendants(engine.pid):
            if b"Worker_TP1" in Path(f"/proc/{pid}/cmdline").read_bytes():
                os.kill(pid, signal.SIGKILL)
                break
        ask(address, 8)
        time.sleep(5)
        return log.read_text()


def descendants(pid: int) -> list[int]:
    """Processes that ``pid`` started, and theirs; none of a process that has ended."""
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        own = [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []
    return own + [later for child in own for later in descendants(child)]


SHM = """
import mmap, os
fd = os.open("/dev/shm/psm_roadworthy", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 96 << 20)
view = mmap.mmap(fd, 96 << 20)
view[:] = b"x" * (96 << 20)
"""


def small_shared_memory(_: Path) -> str:
    """A process in a mount namespace of its own whose /dev/shm has docker's 64 MB."""
    script = (
        "mount -t tmpfs -o size=64m tmpfs /dev/shm && df -h /dev/shm; "
        f"{sys.executable} -X faulthandler -c '{SHM}'; echo \"exit code $?\""
    )
    return output_of(["unshare", "--mount", "sh", "-c", script], limit_s=30)


def full_shared_memory(_: Path) -> str:
    """A large /dev/shm, in a namespace of its own, that dead processes left full."""
    script = (
        "mount -t tmpfs -o size=1100m tmpfs /dev/shm; cd /dev/shm; "
        "fallocate -l 700m psm_3f1a; fallocate -l 380m nccl-Qx81Zd; "
        f"{sys.executable} -X faulthandler -c '{SHM}'; echo \"exit code $?\"; df -h /dev/shm; ls -l /dev/shm"
    )
    return output_of(["unshare", "--mount", "sh", "-c", script], limit_s=60)


LOCK = """
import ctypes, mmap, os
libc = ctypes.CDLL(None, use_errno=True)
buffer = mmap.mmap(-1, 64 << 20)
held = (ctypes.c_char * (64 << 20)).from_buffer(buffer)
if libc.mlock(held, ctypes.c_size_t(64 << 20)):
    print("pinning the transfer buffer: mlock of 67108864 bytes failed:", os.strerror(ctypes.get_errno()))
"""


def low_memlock(_: Path) -> str:
    """A user's process may lock 64 KiB, and its transfer buffer needs 64 MiB."""
    python = Path(sys.base_prefix) / "bin" / "python3"
    script = f"ulimit -a | grep -i locked; {python} -c '{LOCK}'"
    return output_of(
        ["prlimit", "--memlock=65536:65536", "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
         "bash", "-c", script], limit_s=30,
    )  # fmt: skip


def raylet_killed(folder: Path) -> str:
    """The raylet of a small cluster is killed: what `ray start --block` says, and the control store's log."""
    ray = os.environ.get("RAY", "") or shutil.which("ray")
    if not ray:
        raise LookupError("no ray command: set RAY=/path/to/bin/ray")
    (port,) = free_ports("127.0.0.1", 1)
    said = folder / "ray-start.txt"
    with said.open("wb") as file:
        started = subprocess.Popen(
            [ray, "start", "--head", "--block", f"--port={port}", "--num-cpus=1", "--include-dashboard=false",
             f"--temp-dir={folder}/ray"],
            stdout=file, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        )  # fmt: skip
    try:
        until = time.monotonic() + 90
        while time.monotonic() < until and b"Ray runtime started" not in said.read_bytes():
            time.sleep(1)
        for pid in descendants(started.pid):
            if Path(f"/proc/{pid}/comm").read_text().strip() == "raylet":
                os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(subprocess.TimeoutExpired):
            started.wait(60)
        store = folder / "ray" / "session_latest" / "logs" / "gcs_server.out"
        return said.read_text() + (store.read_text()[-8_000:] if store.exists() else "")
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(started.pid, signal.SIGKILL)
        started.wait()


def gloo_peer_dead(_: Path) -> str:
    """Two ranks in a Gloo all-reduce, one of which kills itself."""
    program = (
        "import os, signal, torch, torch.distributed as d\n"
        "d.init_process_group('gloo')\n"
        "t = torch.ones(1 << 20)\n"
        "d.all_reduce(t)\n"
        "if d.get_rank() == 1:\n"
        "    raise RuntimeError('CUDA error: an illegal memory access was encountered')\n"
        "d.all_reduce(t)\n"
    )
    (port,) = free_ports("127.0.0.1", 1)
    outputs = []
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
            env={**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1",
                 "MASTER_PORT": str(port)},
        )
        for rank in range(2)
    ]  # fmt: skip
    for rank, process in enumerate(processes):
        try:
            said, _err = process.communicate(timeout=120)
        except subprocess.TimeoutExpired:
            process.kill()
            said, _err = process.communicate()
        outputs.append("".join(f"[rank{rank}]: {line}\n" for line in said.decode("utf-8", "replace").splitlines()))
    return "".join(outputs)


FAULTS = (
    Fault(name="unknown-flag", wanted="invalid-engine-flags", provoke=unknown_flag),
    Fault(name="unknown-architecture", wanted="model-arch-unsupported", provoke=unknown_architecture),
    Fault(name="heads-not-divisible", wanted="invalid-engine-flags", provoke=heads_not_divisible),
    Fault(name="kv-too-small", wanted="kv-cache-too-small", provoke=kv_too_small),
    Fault(name="damaged-weights", wanted="weights-corrupt", provoke=damaged_weights),
    Fault(name="port-taken", wanted=None, provoke=port_taken),
    Fault(name="kv-blocks-run-out", wanted="kv-cache-exhaustion", provoke=kv_blocks_run_out),
    Fault(name="worker-killed", wanted=None, provoke=worker_killed),
    Fault(name="full-shared-memory", wanted="shm-leak", provoke=full_shared_memory),
    Fault(name="low-memlock", wanted="memlock-limit", provoke=low_memlock),
    Fault(name="raylet-killed", wanted="ray-node-heartbeat-lost", provoke=raylet_killed),
    Fault(name="small-shared-memory", wanted="shm-too-small", provoke=small_shared_memory),
    Fault(name="gloo-peer-dead", wanted="peer-rank-crash", provoke=gloo_peer_dead),
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args()
    known = {fault.name: fault for fault in FAULTS}
    if given.list:
        print("\n".join(f"{fault.name:<24} {fault.wanted or 'symptoms only'}" for fault in FAULTS))
        return 0
    if unknown := set(given.names) - known.keys():
        print(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(known)}", file=sys.stderr)
        return 2
    missed = 0
    for name in given.names or known:
        with tempfile.TemporaryDirectory() as folder:
            try:
                log = known[name].provoke(Path(folder))
            except LookupError as error:
                print(f"skip {name:<24} {error}")
                continue
        log = log.replace(str(Path(sys.executable).parent.parent), "/venv")
        if given.keep:
            (given.keep / name).mkdir(parents=True, exist_ok=True)
            (given.keep / name / "engine.log").write_text(log)
        _, judged = examine({"engine.log": log})
        first = judged.findings[0].code if judged.findings else None
        missed += first != known[name].wanted
        print(
            f"{'ok  ' if first == known[name].wanted else 'MISS'} {name:<24} wanted {known[name].wanted}, named {first}"
        )
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
