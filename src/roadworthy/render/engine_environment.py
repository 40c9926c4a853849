"""The environment of an engine on one host, each variable with its reason. Only names that the engine, NCCL or Gloo
read; nothing of the allocator, and no NCCL tuning, because the defaults are right and the usual recipes are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.values import Emitted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.render.placement import EnginePlace
    from roadworthy.render.values import RenderInput, Scalar

READY_TIMEOUT_S, PIPELINE_TIMEOUT_S = 3600, 1800


def engine_variables(inputs: RenderInput, place: EnginePlace, *, host: int, ray: bool) -> tuple[Emitted, ...]:
    """Variables of the engine at ``place`` on ``host``, in a stable order."""
    return (
        *_network(inputs, place, host=host, ray=ray),
        *_devices(inputs, place, ray=ray),
        *_engine(inputs, ray=ray),
    )


def _network(inputs: RenderInput, place: EnginePlace, *, host: int, ray: bool) -> Iterator[Emitted]:  # noqa: ARG001
    if inputs.gpu.id != "cpu":
        yield _variable("NCCL_DEBUG", "WARN", "errors and the version, without the noise of INFO", "nccl.DEBUG")
    if len(place.hosts) == 1 and not ray:
        return
    yield _variable(
        "VLLM_HOST_IP", AtStart.OWN_ADDRESS, "this host's own address; left to itself vLLM follows the default route",
        "env.VLLM_HOST_IP",
    )  # fmt: skip
    if inputs.gpu.id != "cpu":
        yield _variable(
            "NCCL_SOCKET_IFNAME", AtStart.EXACT_INTERFACE,
            "where NCCL's ranks find each other; '=' keeps it from taking names that only begin so", "nccl.SOCKET_IFNAME",
        )  # fmt: skip
    yield _variable("GLOO_SOCKET_IFNAME", AtStart.INTERFACE, "Gloo carries the coordination between hosts", "env.gloo")


def _devices(inputs: RenderInput, place: EnginePlace, *, ray: bool) -> Iterator[Emitted]:
    if place.shares_host and inputs.gpu.id != "cpu" and not ray:
        yield _variable(
            "CUDA_VISIBLE_DEVICES", ",".join(str(device) for device in place.devices),
            "this engine's share of the host's GPUs", "env.CUDA_VISIBLE_DEVICES",
        )  # fmt: skip


def _engine(inputs: RenderInput, *, ray: bool) -> Iterator[Emitted]:
    layout = inputs.chosen.layout
    yield _variable(
        "VLLM_ENGINE_READY_TIMEOUT_S", READY_TIMEOUT_S, "loading from shared storage outlasts the default of 600 s",
        "env.timeouts",
    )  # fmt: skip
    if layout.pp > 1:
        yield _variable(
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS", PIPELINE_TIMEOUT_S,
            "a step through a pipeline of long prompts may outlast the default of 300 s", "env.timeouts",
        )  # fmt: skip
    if ray and layout.dp > 1 and layout.tp * layout.pp > inputs.deployment.cluster.gpus_per_node:
        yield _variable(
            "VLLM_RAY_DP_PACK_STRATEGY", "span", "a data-parallel rank is larger than a host; strict would keep it on one",
            "vllm.ray-dp",
        )  # fmt: skip
    yield _variable("VLLM_NO_USAGE_STATS", 1, "the engine reports nothing to the outside")
    if inputs.deployment.model.config.startswith("/"):
        yield _variable("HF_HUB_OFFLINE", 1, "the checkpoint is on this host; nothing is fetched", "k8s.pvc-nfs")


def _variable(name: str, value: Scalar, why: str, source: str = "") -> Emitted:
    return Emitted(kind="variable", name=name, value=value, why=why, source=source)
