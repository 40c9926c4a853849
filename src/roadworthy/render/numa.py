"""Binding workers to the socket of their GPU, where it helps: several sockets, vLLM's own processes, GPUs.

vLLM starts each worker under `numactl` with the node of that worker's GPU. A wrapper around the whole server would put
every worker on one socket instead, and stops vLLM's own detection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.values import Emitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.render.placement import EnginePlace
    from roadworthy.render.values import RenderInput

SOURCE = "vllm.numa-bind"


def numa_flags(inputs: RenderInput, place: EnginePlace) -> Iterator[Emitted]:
    """``--numa-bind`` with the nodes that the document states; nothing where it says nothing or has one node only."""
    nodes: tuple[int, ...] = getattr(inputs.deployment.cluster, "gpu_numa_nodes", ())
    asked = inputs.deployment.engine.settings.get("numa_bind")
    if inputs.gpu.id == "cpu" or asked is False:
        return
    if len(set(nodes)) > 1:
        yield Emitted(kind="flag", name="--numa-bind", value=None, source=SOURCE,
                      why="each worker runs on the socket of its GPU; needs numactl and the right to set memory policy")  # fmt: skip
        mine = " ".join(str(nodes[device]) for device in place.devices)
        yield Emitted(kind="flag", name="--numa-bind-nodes", value=mine, source=SOURCE,
                      why="the NUMA node of each GPU of this engine, as cluster.gpu_numa_nodes states")  # fmt: skip
    elif asked is True:
        yield Emitted(kind="flag", name="--numa-bind", value=None, source=SOURCE,
                      why="fixed in the document: engine.settings; vLLM finds the nodes itself")  # fmt: skip
