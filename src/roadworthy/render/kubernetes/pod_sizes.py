"""How much of a node an engine pod asks for. Requests equal limits, so that the pod is the last to be evicted."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.kubernetes.objects import GIB, gibibytes

if TYPE_CHECKING:
    from roadworthy.render.engine_lines import ServeLine
    from roadworthy.render.values import RenderInput

SHARED_MEMORY_BYTES = 32 * GIB
BASE_CPUS, CPUS_PER_GPU = 8, 8
BASE_MEMORY_BYTES, MEMORY_PER_GPU_BYTES = 64 * GIB, 32 * GIB
SCRATCH_BYTES = 100 * GIB
CPU_ENGINE_MEMORY_BYTES = 16 * GIB


def resources(inputs: RenderInput, line: ServeLine, *, rdma: bool) -> Node:
    """Equal requests and limits."""
    site = inputs.deployment.kubernetes
    gpus = 0 if inputs.gpu.id == "cpu" else len(line.place.devices)
    wanted: dict[str, Node] = {
        "cpu": said(str(site.pod_cpus or BASE_CPUS + CPUS_PER_GPU * gpus), _cpu_why(inputs), source="k8s.resources"),
        "memory": said(gibibytes(memory_bytes(inputs, gpus)), _memory_why(inputs), source="k8s.resources"),
        "ephemeral-storage": said(gibibytes(SCRATCH_BYTES), "compiled kernels and logs", source="k8s.resources"),
    }
    if gpus:
        wanted[site.gpu_resource] = said(str(gpus), f"layout {inputs.chosen.layout.label}: {gpus} of each node's GPUs")
    if rdma:
        wanted[site.rdma_resource] = said(
            str(site.rdma_count),
            "puts /dev/infiniband into the pod; without it NCCL falls back to TCP; the name is your device plugin's",
            source="k8s.rdma-missing",
        )
    return said(
        {"requests": wanted, "limits": wanted},
        "requests equal limits (Guaranteed): the last to be evicted, and no neighbour takes the memory",
        source="k8s.resources",
    )


def memory_bytes(inputs: RenderInput, gpus: int) -> int:
    """Host memory of a pod: the document's, or by its GPUs, with what the engine offloads and /dev/shm."""
    site = inputs.deployment.kubernetes
    if site.pod_memory_bytes:
        return site.pod_memory_bytes
    if not gpus:
        return CPU_ENGINE_MEMORY_BYTES + SHARED_MEMORY_BYTES
    offload = inputs.deployment.engine.settings.get("cpu_offload_gb")
    swapped = int(offload * GIB * gpus) if isinstance(offload, (int, float)) and not isinstance(offload, bool) else 0
    return BASE_MEMORY_BYTES + MEMORY_PER_GPU_BYTES * gpus + SHARED_MEMORY_BYTES + swapped


def shared_memory() -> Node:
    """The volume behind /dev/shm, which is 64 MiB otherwise."""
    return {
        "name": "shm",
        "emptyDir": {
            "medium": said("Memory", "the container's own 64 MiB are too small; goes with the pod", source="k8s.shm"),
            "sizeLimit": said(gibibytes(SHARED_MEMORY_BYTES), "counts against the memory limit", source="k8s.shm"),
        },
    }


def _cpu_why(inputs: RenderInput) -> str:
    if inputs.deployment.kubernetes.pod_cpus:
        return "kubernetes.pod_cpus"
    return "a core for each process and threads to spare: 8, and 8 for each GPU"


def _memory_why(inputs: RenderInput) -> str:
    if inputs.deployment.kubernetes.pod_memory_bytes:
        return "kubernetes.pod_memory"
    return "processes of each GPU 32, loading 64, /dev/shm 32 GiB; a start, look at the working set"
