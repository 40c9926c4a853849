"""Binding workers to the socket of their GPU, where it helps: several sockets, vLLM's own processes, GPUs.

vLLM starts each worker under `numactl` with the node of that worker's GPU. A wrapper around the whole server would put
every worker on one socket instead, and stops vLLM's own detection.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.emit import flag

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.render.placement import EnginePlace
    from roadworthy.render.values import Emitted, RenderInput

SOURCE = "vllm.numa-bind"


def numa_flags(inputs: RenderInput, place: EnginePlace) -> Iterator[Emitted]:
    """``--numa-bind`` with the nodes that the document states; nothing where it states none or a single one.

    ``engine.settings.numa_bind`` says otherwise: false for never, true for vLLM's own detection.
    """
    sockets = inputs.deployment.cluster.gpu_numa_nodes
    asked = inputs.deployment.engine.settings.get("numa_bind")
    if inputs.gpu.id == "cpu" or asked is False:
        return
    if len(set(sockets)) > 1:
        yield flag(
            "--numa-bind", None,
            "each worker runs on the socket of its GPU; needs numactl and the right to set a memory policy", SOURCE,
        )  # fmt: skip
        mine = " ".join(str(sockets[device]) for device in place.devices)
        yield flag(
            "--numa-bind-nodes", mine, "the NUMA node of each GPU, as the host numbers them", SOURCE
        )  # fmt: skip
    elif asked is True:
        yield flag("--numa-bind", None, "fixed in the document; vLLM finds the nodes itself", "engine.settings")
