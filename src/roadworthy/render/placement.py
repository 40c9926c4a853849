"""Which hosts, GPUs and ports each engine of a layout gets.

An engine is one replica: one `vllm serve` with all its ranks. It takes whole hosts, or an even part of one host; vLLM's
own multi-node start knows nothing else, because every host of an engine must hold the same number of its ranks.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.core.errors import Infeasible

if TYPE_CHECKING:
    from roadworthy.plan.values import Layout
    from roadworthy.render.values import RenderInput
    from roadworthy.spec.values import ClusterSpec, Deployment

ENGINE_PORT, MASTER_PORT = 8000, 29501
"""vLLM's defaults: of `--port`, and of `--master-port`."""
PORT_BASES = (ENGINE_PORT, 8100, 8200, 8300)
_URL = re.compile(r"(?P<scheme>https?)://(?P<host>\[[^]]+\]|[^:/]+)(?::(?P<port>\d+))?")
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginePlace:
    """Where one replica runs.

    Args:
        hosts: ranks of the hosts it takes; the first is its head.
        devices: GPUs it takes on each of them, as the host numbers them.
        shares_host: other engines run on the same host.
        port: of its HTTP server; ``master_port`` is where its ranks meet.
        address: of its head as ``engine.endpoints`` gives it; empty where the document names none.
    """

    replica: int
    hosts: tuple[int, ...]
    devices: tuple[int, ...]
    shares_host: bool
    port: int
    master_port: int
    address: str = ""

    @property
    def head(self) -> int:
        return self.hosts[0]


def why_not_placed(layout: Layout, cluster: ClusterSpec) -> str:
    """Why the engines of ``layout`` cannot be laid out evenly over the hosts; empty when they can."""
    world, host = layout.world_size, cluster.gpus_per_node
    if world <= host and host % world:
        return f"engines of {world} GPUs do not fill hosts of {host}"
    if world > host and world % host:
        return f"an engine of {world} GPUs does not take whole hosts of {host}"
    ranks = layout.tp * layout.pp
    if world > host and ranks <= host and host % ranks:
        return f"data-parallel ranks of {ranks} GPUs do not fill hosts of {host}"
    if world > host and ranks > host and ranks % host:
        return f"data-parallel ranks of {ranks} GPUs do not take whole hosts of {host}"
    return ""


def place_engines(inputs: RenderInput) -> tuple[EnginePlace, ...]:
    """Every engine with its place, in order of replica. Raises Infeasible where hosts would be shared unevenly."""
    layout, cluster = inputs.chosen.layout, inputs.deployment.cluster
    reason = why_not_placed(layout, cluster)
    if reason:
        raise Infeasible(
            f"{layout.label} on {cluster.nodes} x {cluster.gpus_per_node} GPUs: {reason}",
            hint="choose another split with --layout; `roadworthy plan --all` lists them",
        )
    addresses = _endpoints(inputs.deployment, layout.replicas)
    base = _port_base(inputs.deployment, max(1, cluster.gpus_per_node // layout.world_size))
    places = []
    for replica in range(layout.replicas):
        hosts, first_device, slot = _seat(replica, layout.world_size, cluster.gpus_per_node)
        count = min(layout.world_size, cluster.gpus_per_node)
        address, port = addresses[replica] if addresses else ("", base + slot)
        places.append(
            EnginePlace(
                replica=replica,
                hosts=hosts,
                devices=tuple(range(first_device, first_device + count)),
                shares_host=layout.world_size < cluster.gpus_per_node,
                port=port,
                master_port=_master_port(inputs.deployment) + 10 * slot,
                address=address,
            )
        )
    return tuple(places)


def _seat(replica: int, world: int, gpus_per_node: int) -> tuple[tuple[int, ...], int, int]:
    """Hosts, first device on them, and the engine's number on its host."""
    if world >= gpus_per_node:
        span = world // gpus_per_node
        return tuple(range(replica * span, (replica + 1) * span)), 0, 0
    each = gpus_per_node // world
    return (replica // each,), replica % each * world, replica % each


def _endpoints(deployment: Deployment, replicas: int) -> tuple[tuple[str, int], ...]:
    """Addresses of ``engine.endpoints`` when there is one for each replica; none otherwise."""
    given = deployment.engine.endpoints
    if len(given) != replicas:
        return ()
    found = []
    for endpoint in given:
        parts = _URL.match(endpoint.url)
        if parts is None:
            return ()
        host, port = parts["host"].strip("[]"), parts["port"] or (443 if parts["scheme"] == "https" else 80)
        found.append(("" if host in LOOPBACK else host, int(port)))
    return tuple(found)


def _master_port(deployment: Deployment) -> int:
    given = deployment.engine.settings.get("master_port")
    return given if isinstance(given, int) and not isinstance(given, bool) else MASTER_PORT


def _port_base(deployment: Deployment, engines: int) -> int:
    """A first port such that the gateway can run on the same host."""
    taken = {deployment.gateway.port, deployment.gateway.admin_port}
    free = (base for base in PORT_BASES if not taken & set(range(base, base + engines)))
    return next(free, PORT_BASES[-1] + 100)
