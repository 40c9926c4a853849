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
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
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


SHM = """
import mmap, os
fd = os.open("/dev/shm/psm_roadworthy", os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 32 << 20)
view = mmap.mmap(fd, 32 << 20)
view[:] = b"x" * (32 << 20)
"""


def small_shared_memory(_: Path) -> str:
    """A process in a mount namespace of its own whose /dev/shm has 1 MB."""
    script = (
        "mount -t tmpfs -o size=1m tmpfs /dev/shm && df -h /dev/shm; "
        f"{sys.executable} -X faulthandler -c '{SHM}'; echo \"exit code $?\""
    )
    return output_of(["unshare", "--mount", "sh", "-c", script], limit_s=30)


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
            log = known[name].provoke(Path(folder))
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
