"""How to start the engines of a plan on this host: the twin, or real vLLM."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.engines.process import EngineCommand
from roadworthy.core.errors import ProbeError, Unsupported
from roadworthy.render.vllm_flags import serve_arguments

if TYPE_CHECKING:
    from roadworthy.plan.values import LayoutPlan
    from roadworthy.spec.values import Deployment, ModelRef

TWIN_START_TIMEOUT_S = 60.0
VLLM_START_TIMEOUT_S = 3600.0
"""Loading 800 GB of weights takes half an hour from a slow disk; an engine that ends fails the start at once anyway."""


def twin_command(*, name: str, config: Path, host: str, port: int, log: Path) -> EngineCommand:
    """A simulated engine: the twin over the model in ``config``, served by this Python."""
    return EngineCommand(
        name=name,
        argv=(
            sys.executable,
            "-m",
            "roadworthy.adapters.twin_server",
            "--config",
            str(config),
            "--host",
            host,
            "--port",
            str(port),
        ),
        url=f"http://{host}:{port}",
        log=log,
        start_timeout_s=TWIN_START_TIMEOUT_S,
    )


def vllm_program(given: str | None) -> str:
    """The ``vllm`` command: as given, beside this Python, or on PATH. Raises ProbeError when there is none."""
    beside = Path(sys.executable).parent / "vllm"
    found = given or (str(beside) if beside.is_file() else shutil.which("vllm"))
    if not found or not shutil.which(found):
        raise ProbeError(
            f"vllm: {given or 'no such command beside this Python or on PATH'}",
            hint="install it (`pip install vllm`; without a GPU `make vllm` in a checkout), or give --vllm PATH",
        )
    return found


def checkpoint_folder(ref: ModelRef, *, base: Path) -> str | None:
    """The local folder that ``ref`` names, or None when it names a catalog id for vLLM to look up in its own cache."""
    place = base / Path(ref.config).expanduser()
    if not place.exists():
        return None
    return str(place if place.is_dir() else place.parent)


def make_folder(folder: Path) -> None:
    """Make the folder of logs and twin configurations. Raises ProbeError when it cannot be."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProbeError(
            f"{folder}: cannot hold logs: {error.strerror or error}",
            hint="name another folder (--log-folder, --out)",
        ) from error


def require_devices(deployment: Deployment, chosen: LayoutPlan) -> None:
    """Raise when this host cannot hold the layout: engines over several hosts, or too few GPUs."""
    cluster = deployment.cluster
    if cluster.nodes > 1:
        raise Unsupported(
            f"cluster.nodes: {cluster.nodes}, but `up --engine vllm` starts engines on this host only",
            hint="start the twin (`--engine twin`), or name running engines under engine.endpoints and run `gateway`",
        )
    if cluster.gpu == "cpu":
        return
    present = sum(1 for device in Path("/dev").glob("nvidia[0-9]*") if device.name[6:].isdigit())
    wanted = chosen.layout.world_size * chosen.layout.replicas
    if present < wanted:
        raise ProbeError(
            f"this host shows {present} NVIDIA devices under /dev, {chosen.layout.label} wants {wanted}",
            hint="run it on the GPU host, or start the twin with --engine twin",
        )


def vllm_commands(
    deployment: Deployment,
    chosen: LayoutPlan,
    *,
    program: str,
    model: str,
    host: str,
    ports: Sequence[int],
    log_folder: Path,
) -> tuple[EngineCommand, ...]:
    """One ``vllm serve`` for each replica of ``chosen``, devices dealt out in order, data parallelism inside it."""
    devices = chosen.layout.world_size
    commands = []
    for index, port in enumerate(ports):
        name = f"engine-{index}"
        arguments = serve_arguments(
            chosen, model=model, served_name=deployment.model.served_name, host=host, port=port, data_parallel=True
        )
        env = {"VLLM_NO_USAGE_STATS": "1"}
        if deployment.cluster.gpu == "cpu":
            env |= _cpu_environment(index, len(ports), ranks=devices)
        else:
            env["CUDA_VISIBLE_DEVICES"] = ",".join(str(index * devices + device) for device in range(devices))
        commands.append(
            EngineCommand(
                name=name,
                argv=(program, *arguments),
                url=f"http://{host}:{port}",
                log=log_folder / f"{name}.log",
                start_timeout_s=VLLM_START_TIMEOUT_S,
                env=env,
            )
        )
    return tuple(commands)


def _cpu_environment(index: int, engines: int, *, ranks: int) -> dict[str, str]:
    """Deal the host's cores out, since vLLM would bind every engine to all of them.

    An engine of one rank keeps its core and its worker in one process: as two they wait for each other without
    sleeping, and on few cores take the server's time (with the tiny model on two: TPOT of 3.5 instead of 1.8 ms).
    """
    cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    share = max(1, len(cores) // engines)
    mine = cores[index * share : (index + 1) * share] or cores
    bound = {"VLLM_CPU_OMP_THREADS_BIND": ",".join(str(core) for core in mine)}
    if ranks > 1:
        return bound
    return {**bound, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "OMP_NUM_THREADS": str(max(1, len(mine) - 1))}
