"""The environment of an engine on one host, each variable with its reason. Only names that the engine, NCCL or Gloo
read; nothing of the allocator, and no NCCL tuning, because the defaults are right and the usual recipes are not.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.emit import variable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.render.placement import EnginePlace
    from roadworthy.render.values import Emitted, RenderInput

READY_TIMEOUT_S, PIPELINE_TIMEOUT_S = 3600, 1800
ECN_CAPABLE = 2
"""Low two bits of a traffic class: the sender takes part in congestion notification (RFC 3168, ECT(0))."""


def engine_variables(inputs: RenderInput, place: EnginePlace, *, host: int, ray: bool) -> tuple[Emitted, ...]:
    """Variables of the engine at ``place`` on ``host``, in a stable order."""
    return (
        *network_variables(inputs, place, host=host, ray=ray),
        *_devices(inputs, place, ray=ray),
        *_timeouts(inputs, ray=ray),
        *_quiet(inputs),
    )


def network_variables(inputs: RenderInput, place: EnginePlace, *, host: int, ray: bool) -> Iterator[Emitted]:
    """What every process of a host needs to find the others; with Ray the daemon of the host passes it on.

    Ray and vLLM must agree on a host's address. On a single host they do when both are left to find it; a loopback
    address Ray would replace by another.
    """
    cluster, gpus = inputs.deployment.cluster, inputs.gpu.id != "cpu"
    if len(place.hosts) == 1 and not (ray and cluster.hosts):
        yield from _alone(inputs)
        return
    yield variable(
        "VLLM_HOST_IP",
        AtStart.OWN_ADDRESS,
        "this host's own address; left to itself vLLM follows the default route",
        "env.VLLM_HOST_IP",
    )
    yield variable(
        "GLOO_SOCKET_IFNAME",
        AtStart.INTERFACE,
        "Gloo carries the coordination between hosts on the CPU side",
        "env.gloo",
    )
    if gpus:
        yield variable(
            "NCCL_SOCKET_IFNAME",
            AtStart.EXACT_INTERFACE,
            "where NCCL's ranks find each other; '=' is an exact match, without it names that begin so match too",
            "nccl.SOCKET_IFNAME",
        )
        yield from _fabric(inputs, (cluster.hosts[host].hcas if cluster.hosts else ()) or cluster.hcas)
        yield from _alone(inputs)


def _fabric(inputs: RenderInput, hcas: tuple[str, ...]) -> Iterator[Emitted]:
    cluster = inputs.deployment.cluster
    if hcas:
        yield variable(
            "NCCL_IB_HCA",
            "=" + ",".join(hca if ":" in hca else f"{hca}:1" for hca in hcas),
            "the compute NICs and no others; '=' keeps mlx5_1 from taking mlx5_10 as well",
            "nccl.IB_HCA",
        )
    if cluster.fabric == "ethernet" and cluster.roce_dscp is not None:
        yield variable(
            "NCCL_IB_TC",
            cluster.roce_dscp << 2 | ECN_CAPABLE,
            f"traffic class of DSCP {cluster.roce_dscp} with ECN; the switches must map the same DSCP",
            "nccl.IB_SL",
        )


def _alone(inputs: RenderInput) -> Iterator[Emitted]:
    if inputs.gpu.id != "cpu":
        yield variable("NCCL_DEBUG", "WARN", "errors and the version, without the noise of INFO", "nccl.DEBUG")


def _devices(inputs: RenderInput, place: EnginePlace, *, ray: bool) -> Iterator[Emitted]:
    if place.shares_host and inputs.gpu.id != "cpu" and not ray:
        yield variable(
            "CUDA_VISIBLE_DEVICES",
            ",".join(str(device) for device in place.devices),
            "this engine's share of the host's GPUs",
            "env.CUDA_VISIBLE_DEVICES",
        )


def _timeouts(inputs: RenderInput, *, ray: bool) -> Iterator[Emitted]:
    layout = inputs.chosen.layout
    yield variable(
        "VLLM_ENGINE_READY_TIMEOUT_S",
        READY_TIMEOUT_S,
        "loading from shared storage outlasts the default of 600 s",
        "env.timeouts",
    )
    if layout.pp > 1:
        yield variable(
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS",
            PIPELINE_TIMEOUT_S,
            "a step of long prompts through a pipeline may outlast the default of 300 s",
            "env.timeouts",
        )
    if ray and layout.dp > 1 and layout.tp * layout.pp > inputs.deployment.cluster.gpus_per_node:
        yield variable(
            "VLLM_RAY_DP_PACK_STRATEGY",
            "span",
            "a data-parallel rank is larger than a host, which the default of strict refuses",
            "vllm.ray-dp",
        )


def _quiet(inputs: RenderInput) -> Iterator[Emitted]:
    yield variable("VLLM_NO_USAGE_STATS", 1, "the engine reports nothing to the outside")
    if inputs.deployment.model.config.startswith("/"):
        yield variable("HF_HUB_OFFLINE", 1, "the checkpoint is on this host; nothing is fetched", "k8s.pvc-nfs")
