"""Target ``ray``: a Ray cluster for each engine, and the one `vllm serve` line that uses it.

vLLM needs no Ray; this is for those who run it anyway. An engine over several hosts gets a cluster of its own hosts, so
that one engine's Ray can be restarted without the others. Engines that share a host share its one-host cluster.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.emit import variable
from roadworthy.render.engine_environment import network_variables
from roadworthy.render.engine_lines import Launch, ServeLine, known_at_start, launch
from roadworthy.render.ray_readme import readme
from roadworthy.render.script_parts import environment, header, memory_lock, search_path, settle_host
from roadworthy.render.scripts import arguments, engine_script
from roadworthy.render.values import Artifact, Emitted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from roadworthy.render.values import RenderInput
    from roadworthy.spec.values import Scalar

RAY_PORT = 6379
LOOPBACK = "127.0.0.1"
FROM_THE_DAEMON = ("NCCL_", "GLOO_")
"""Workers have these from the Ray of their own host, where the names of its NICs are right."""
OBJECT_STORE_BYTES = 2 * 2**30
"""vLLM passes tensors by NCCL and its own queues; Ray's default would be 30 % of the host's memory."""

HEALTH = (
    variable(
        "RAY_health_check_timeout_ms", 30_000, "a host busy loading weights answers late; the default is 10 s",
        "ray.heartbeat_timeout",
    ),
    variable(
        "RAY_health_check_failure_threshold", 10,
        "checks missed in a row before a host counts as lost; the default is 5", "ray.num_heartbeats_timeout",
    ),
)  # fmt: skip
"""Read where the head starts; on the other hosts they do nothing."""


def ray_target(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``node-N.sh`` starts Ray on a host, ``serve-R.sh`` engine R on the first of its hosts."""
    plan = launch(inputs, backend="ray")
    files: list[Artifact] = []
    for line in _clusters(plan):
        files += [_daemon(inputs, line, host) for host in line.place.hosts]
    files += [_serve(inputs, plan, line) for line in plan.lines]
    return (*files, Artifact(path="README.md", text=readme(inputs, plan)))


def _clusters(plan: Launch) -> tuple[ServeLine, ...]:
    """One line of each Ray cluster: the first engine on each set of hosts."""
    return tuple({line.place.hosts: line for line in reversed(plan.lines)}.values())[::-1]


def _daemon(inputs: RenderInput, line: ServeLine, host: int) -> Artifact:
    head = host == line.place.head
    variables = (*network_variables(inputs, line.place, host=host, ray=True), *(HEALTH if head else ()))
    flags = tuple(_start_flags(inputs, line, head=head))
    known = _known(inputs, line, host)
    role = "head" if head else "worker"
    parts = [
        header(inputs, f"Ray {role} on host {host}, for the engines of hosts {_listed(line.place.hosts)}"),
        settle_host((*variables, *flags), known, model=None),
        environment(variables),
        memory_lock() if len(line.place.hosts) > 1 and inputs.gpu.id != "cpu" else "",
        f'{arguments(flags)}\n{search_path("ray")}exec ray start "${{args[@]}}"\n',
    ]
    return Artifact(
        path=f"node-{host}.sh",
        text="\n".join(part for part in parts if part),
        mode=0o755,
        node=host,
        settings=(*variables, *flags),
    )


def _known(inputs: RenderInput, line: ServeLine, host: int) -> Mapping[AtStart, str]:
    """What is known of ``host``; on a cluster of one host the head is next door."""
    known = known_at_start(inputs, line.place, host=host)
    return {AtStart.MASTER_ADDRESS: LOOPBACK, **known} if line.nodes == 1 else known


def _listed(hosts: tuple[int, ...]) -> str:
    return ", ".join(str(host) for host in hosts)


def _start_flags(inputs: RenderInput, line: ServeLine, *, head: bool) -> Iterator[Emitted]:
    source = "ray.start-head"
    if head:
        yield ray_flag("--head", None, "this host keeps the cluster's state; losing it ends the engine", source)
        yield ray_flag("--port", RAY_PORT, "where the other hosts join", source)
        yield ray_flag(
            "--dashboard-host", "127.0.0.1", "whoever reaches the dashboard can run code, so nobody else does", source
        )
    else:
        yield ray_flag("--address", AtStart.RAY_ADDRESS, "the head, on the engine's first host", source)
    if len(line.place.hosts) > 1 or inputs.deployment.cluster.hosts:
        yield ray_flag(
            "--node-ip-address", AtStart.OWN_ADDRESS,
            "the same address as VLLM_HOST_IP; the first one of `hostname -I` may be a bridge or a storage NIC",
            "ray.start-worker-ip",
        )  # fmt: skip
    gpus = 0 if inputs.gpu.id == "cpu" else inputs.deployment.cluster.gpus_per_node
    yield ray_flag("--num-gpus", gpus, "GPUs that Ray may hand out on this host", source)
    yield ray_flag(
        "--object-store-memory", OBJECT_STORE_BYTES, "vLLM hardly uses it; the default is 30 % of memory", source
    )
    yield ray_flag("--disable-usage-stats", None, "Ray reports nothing to the outside", source)
    yield ray_flag("--block", None, "stays in the foreground, so that a supervisor sees it end", source)


def ray_flag(name: str, value: Scalar, why: str, source: str = "") -> Emitted:
    """A flag of `ray start`: not one of the engine, so it is listed as part of a command."""
    return Emitted(kind="command", name=name, value=value, why=why, source=source)


def _serve(inputs: RenderInput, plan: Launch, line: ServeLine) -> Artifact:
    address = variable("RAY_ADDRESS", AtStart.RAY_ADDRESS, "this engine's Ray cluster and no other that runs here")
    own = tuple(one for one in line.variables if not one.name.startswith(FROM_THE_DAEMON))
    line = replace(line, variables=(address, *own), known=_known(inputs, line, line.host))
    return Artifact(
        path=f"serve-{line.replica}.sh",
        text=engine_script(inputs, plan, line),
        mode=0o755,
        node=line.host,
        settings=(*line.variables, *line.arguments),
    )
