#!/usr/bin/env python3
"""Write catalog/environment.json: the environment variables that NCCL, Ray and PyTorch read, from their own binaries.

A name that a library looks up stands in its binary in full. What stands there too and is no variable (names of log
categories, of enumeration values) is left out by the patterns below; a name kept by mistake does no harm, because the
lists only say which names nobody reads. Wheels are downloaded without their requirements (380 MB, 80 MB) into a folder
below build/; PyTorch is the installed one. vLLM's list is taken by extract_flags.py from its own code. With --check
nothing is written, and a difference is exit code 1.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "src" / "roadworthy" / "catalog" / "environment.json"
NCCL_VERSIONS = ("2.30.7", "2.32.3")
RAY_VERSION = "2.60.0"

NCCL_NO_VARIABLE = re.compile(
    r"NCCL_(LOG|PARAM_(FLAG|TYPE)|CRYPT|DEV_WORK|ENCRYPTION|GIN_CONNECTION|GIN_TYPE_|NET_DEVICE|SYMK|THREAD_THRESHOLDS"
    r"|CFT_(NONE|MULTIMEM|TEAM)|NET_MERGE_POLICY_|IB_RAIL_POLICY_|PROFILER_THREAD|SIGNAL_NONE|IPC_|.*_DEFAULT$"
    r"|.*GPU_CONTEXT_(MAX_SIZE|VERSION)$).*"
    r"|NCCL_(ALL|ALLOC|ALLOC_HOST|BOOTSTRAP|CALL|CFT|COLL|DESTROY|ENV|GRAPH|INIT|NVLS|P2P|PROFILE|PROXY|RAS|REG|SHM|SIGNAL"
    r"|TUNING)"
)
RAY_NO_VARIABLE = re.compile(r"RAY_(.*_(CHANNEL|KEY|PLACEHOLDER|PREFIX|NAMESPACE|FAILED)|.*FAILURE|KILL|NODEH|RAYLH)")
TORCH_NAME = re.compile(r"(GLOO|TORCH|TORCH_NCCL|PYTORCH|TORCHINDUCTOR|TORCHDYNAMO)_[A-Z0-9_]+")
TORCH_CUDA_ONLY = (  # read by the CUDA library, which a CPU build does not carry; PyTorch's own documentation
    "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_DESYNC_DEBUG", "TORCH_NCCL_ENABLE_MONITORING", "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_NCCL_ENABLE_TIMING", "TORCH_NCCL_AVOID_RECORD_STREAMS",
    "TORCH_NCCL_USE_COMM_NONBLOCKING",
    "TORCH_NCCL_HIGH_PRIORITY", "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC", "TORCH_NCCL_COORD_CHECK_MILSEC",
    "TORCH_NCCL_PROPAGATE_ERROR", "TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK", "TORCH_NCCL_CUDA_EVENT_CACHE",
    "TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_LOG_CPP_STACK_ON_UNCLEAN_SHUTDOWN", "TORCH_NCCL_RETHROW_CUDA_ERRORS",
    "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_NO_CUDA_MEMORY_CACHING", "PYTORCH_NVML_BASED_CUDA_CHECK",
)  # fmt: skip


def strings(path: Path, pattern: str) -> set[str]:
    """Every NUL-terminated text of the file that matches ``pattern`` whole."""
    return {
        found.decode() for found in re.findall(rb"(?<![\x21-\x7e])(" + pattern.encode() + rb")\x00", path.read_bytes())
    }


def wheel(name: str, version: str) -> Path:
    """The folder that the published wheel unpacks to."""
    folder = ROOT / "build" / f"{name}-{version}"
    if folder.is_dir():
        return folder
    (ROOT / "build").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / "build") as scratch:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        subprocess.run([*command, "--dest", scratch, f"{name}=={version}"], check=True)
        unpacked = Path(scratch) / "unpacked"
        with zipfile.ZipFile(next(Path(scratch).glob("*.whl"))) as archive:
            archive.extractall(unpacked)
        unpacked.rename(folder)
    return folder


def nccl() -> Iterator[str]:
    for version in NCCL_VERSIONS:
        library = next(wheel("nvidia-nccl-cu13", version).rglob("libnccl.so.2"))
        yield from strings(library, "NCCL_[A-Z0-9_]+")


def ray() -> Iterator[str]:
    folder = wheel("ray", RAY_VERSION)
    for name in ("gcs_server", "raylet", "_raylet.so"):
        for path in folder.rglob(name):
            if path.is_file():
                yield from strings(path, "RAY_[A-Za-z0-9_]+")
    for path in folder.rglob("*.py"):
        yield from re.findall(r"""["'](RAY_[A-Za-z0-9_]+)["']""", path.read_text(encoding="utf-8", errors="replace"))


def torch() -> Iterator[str]:
    spec = importlib.util.find_spec("torch")
    assert spec is not None, "PyTorch is not installed: make vllm"
    assert spec.submodule_search_locations is not None
    folder = Path(next(iter(spec.submodule_search_locations)))
    for path in folder.glob("lib/libtorch*.so"):
        yield from strings(path, "(?:GLOO|TORCH|PYTORCH)_[A-Z0-9_]+")
    for path in folder.rglob("*.py"):
        for name in re.findall(r"""["']([A-Z0-9_]+)["']""", path.read_text(encoding="utf-8", errors="replace")):
            if TORCH_NAME.fullmatch(name):
                yield name
    yield from TORCH_CUDA_ONLY


def main() -> int:
    owners = {
        "nccl": (
            [f"NCCL {one}" for one in NCCL_VERSIONS],
            {name for name in nccl() if not NCCL_NO_VARIABLE.fullmatch(name)},
        ),
        "ray": ([f"Ray {RAY_VERSION}"], {name for name in ray() if not RAY_NO_VARIABLE.fullmatch(name)}),
        "torch": ([f"PyTorch {importlib.metadata.version('torch').split('+')[0]}"], set(torch())),
    }
    document = {owner: {"read_from": read, "names": sorted(names)} for owner, (read, names) in owners.items()}
    text = json.dumps(document, indent=0) + "\n"
    same = OUT.exists() and OUT.read_text(encoding="utf-8") == text
    if not same and "--check" not in sys.argv:
        OUT.write_text(text, encoding="utf-8")
    print(", ".join(f"{owner}: {len(entry['names'])}" for owner, entry in document.items()), file=sys.stderr)
    return 0 if same or "--check" not in sys.argv else 1


if __name__ == "__main__":
    sys.exit(main())
