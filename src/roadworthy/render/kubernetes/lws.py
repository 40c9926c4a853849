"""LeaderWorkerSet: one group of pods for each engine, started by vLLM itself. The default on Kubernetes.

A group is an engine: its leader answers HTTP, its workers only compute, and all of them live and die together. What
differs from pod to pod is expanded by the kubelet from variables that the controller sets, so no shell is needed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import Unsupported
from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.engine_lines import ServeLine, launch
from roadworthy.render.kubernetes.engine_pod import (
    Spelling,
    arguments,
    http_port,
    left_out,
    pod_metadata,
    pod_spec,
    probes,
    same_but,
    variables,
)
from roadworthy.render.kubernetes.engine_service import engine_service
from roadworthy.render.kubernetes.objects import ENGINE_COMPONENT, head, literal, manifest_file, names_of, queue_label
from roadworthy.render.kubernetes.surroundings import surroundings

if TYPE_CHECKING:
    from roadworthy.render.values import Artifact, RenderInput

API = "leaderworkerset.x-k8s.io/v1"
LEADER = Spelling(
    master_address="$(LWS_LEADER_ADDRESS)",
    flags={"--nnodes": "$(LWS_GROUP_SIZE)", "--node-rank": "$(LWS_WORKER_INDEX)"},
)
START_RANK = "--data-parallel-start-rank"
OF_EACH_NODE = ("--node-rank", START_RANK)
EXCLUSIVE = "leaderworkerset.sigs.k8s.io/exclusive-topology"


def lws_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """The LeaderWorkerSet with everything around it."""
    lines = group_lines(inputs)
    addresses = tuple(
        f"http://{pod_name(inputs, replica, line.node_rank)}.{names_of(inputs).engine}:{line.place.port}"
        for replica in range(inputs.chosen.layout.replicas)
        for line in lines
        if line.serves
    )
    workload = manifest_file(
        "leaderworkerset.yaml",
        leader_worker_set(inputs),
        header=_header(inputs, lines),
        remarks=_remarks(inputs, lines),
    )
    return (workload, engine_service(inputs, lines[0]), *surroundings(inputs, engines=addresses, launcher="lws"))


def group_lines(inputs: RenderInput) -> tuple[ServeLine, ...]:
    """The lines of one group; every replica has the same. Raises Unsupported where its workers are not alike."""
    lines = tuple(line for line in launch(inputs).lines if line.replica == 0)
    if not same_but(lines[1:], *OF_EACH_NODE):
        raise Unsupported(
            "the workers of a group start differently, and a LeaderWorkerSet has one template for all of them",
            hint="use --target vllm, or leave the load-balancing settings out of engine.settings",
        )
    return lines


def pod_name(inputs: RenderInput, replica: int, node_rank: int) -> str:
    """What the controller calls a pod: the leader by its group, workers by their index behind it."""
    group = f"{names_of(inputs).engine}-{replica}"
    return group if node_rank == 0 else f"{group}-{node_rank}"


def leader_worker_set(inputs: RenderInput) -> Node:
    """The object itself."""
    lines, names, site = group_lines(inputs), names_of(inputs), inputs.deployment.kubernetes
    annotations: dict[str, Node] = {}
    if site.topology_key:
        annotations[EXCLUSIVE] = said(
            site.topology_key, "kubernetes.topology_key: a group stays within one domain, alone", source="k8s.gang"
        )
    template: dict[str, Node] = {
        "size": said(len(lines), "nodes of one engine", source="k8s.raycluster"),
        "restartPolicy": said(
            "RecreateGroupOnPodRestart", "ranks that lost one of them wait for ever: start the whole group again",
            source="k8s.raycluster",
        ),
        "leaderTemplate": _template(inputs, lines[0], role="leader"),
        "workerTemplate": _template(inputs, lines[-1], role="worker" if len(lines) > 1 else "leader"),
    }  # fmt: skip
    spec: dict[str, Node] = {
        "replicas": said(
            inputs.chosen.layout.replicas, "engines; more of them is how this scales, never more nodes in one",
            source="k8s.autoscale",
        ),
        "startupPolicy": said(
            "LeaderCreated", "workers start with the leader: it waits for them before it loads", source="k8s.gang"
        ),
        "rolloutStrategy": {
            "type": "RollingUpdate",
            "rollingUpdateConfiguration": {
                "maxUnavailable": said(1, "one engine at a time, and all its pods together"),
                "maxSurge": said(0, "there are no spare GPUs for another group"),
            },
        },
        "networkConfig": {"subdomainPolicy": said("Shared", "one headless Service names every pod")},
        "leaderWorkerTemplate": template,
    }  # fmt: skip
    return {
        **head(
            inputs, api=API, kind="LeaderWorkerSet", name=names.engine, component=ENGINE_COMPONENT,
            annotations=annotations, more_labels=queue_label(inputs),
        ),
        "spec": spec,
    }  # fmt: skip


def _template(inputs: RenderInput, line: ServeLine, *, role: str) -> Node:
    def container(shared: dict[str, Node]) -> dict[str, Node]:
        filled = {**shared, **_command(inputs, line), "env": variables(inputs, line)}
        if line.serves:
            filled |= {"ports": http_port(line), **probes()}
        return filled

    return {
        "metadata": pod_metadata(inputs, line, role="leader" if line.serves else role),
        "spec": pod_spec(inputs, line, container=container),
    }


def _command(inputs: RenderInput, line: ServeLine) -> dict[str, Node]:
    """``vllm`` with its arguments; a shell only where a number must be computed, and then it reads no argument."""
    local = next((one.value for one in line.arguments if one.name == "--data-parallel-size-local"), None)
    if line.nodes == 1 or local is None:
        return {
            "command": said(["vllm"], "instead of the image's entry point; no shell reads what follows"),
            "args": arguments(inputs, line, LEADER),
        }
    without_rank = Spelling(master_address=LEADER.master_address, flags={**LEADER.flags, START_RANK: None})
    script = f'exec vllm "$@" {START_RANK} "$((LWS_WORKER_INDEX * {int(str(local))}))"'
    return {
        "command": said(
            ["/bin/sh", "-c", literal(script), "vllm"],
            "the first data-parallel rank of a pod is its index times those of a pod",
        ),
        "args": arguments(inputs, line, without_rank),
    }


def _header(inputs: RenderInput, lines: tuple[ServeLine, ...]) -> str:
    layout = inputs.chosen.layout
    return "\n".join(
        [
            f"{inputs.deployment.model.served_name}: {layout.label}.",
            f"Groups: {layout.replicas}, one for each engine; pods in a group: {len(lines)}, one for each node.",
            "Needs the LeaderWorkerSet controller (0.6 or newer; checked against the schema of 0.10).",
            "LWS_LEADER_ADDRESS, LWS_GROUP_SIZE and LWS_WORKER_INDEX are set by it in every pod.",
        ]
    )


def _remarks(inputs: RenderInput, lines: tuple[ServeLine, ...]) -> str:
    remarks = [left_out(inputs, lines[0])]
    if len(lines) > 1:
        if not inputs.deployment.kubernetes.topology_key:
            remarks.append(
                "To keep a group within one fast network domain, set kubernetes.topology_key: it becomes the\n"
                f"annotation {EXCLUSIVE}. It also keeps other groups out of it."
            )
        if not inputs.deployment.kubernetes.queue:
            remarks.append(
                "Pods that are scheduled one by one can hold GPUs and wait for each other. Gang admission: set\n"
                "kubernetes.queue (Kueue's LocalQueue), or use the scheduler of Volcano or KAI."
            )
    return "\n".join(remark for remark in remarks if remark)
