"""KubeRay: a RayCluster for each engine whose head runs `vllm serve`, and a RayService for Ray Serve LLM.

A RayCluster by itself starts an idle Ray. Here the head's container starts Ray and then becomes vLLM, so that a dead
engine ends the container and the operator makes a new one. Official vLLM images hold no Ray: a Dockerfile
for one that does comes along, and both files name the image that is built from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, Text, said
from roadworthy.render.engine_lines import ServeLine, launch
from roadworthy.render.kubernetes.engine_pod import (
    Spelling,
    arguments,
    http_port,
    left_out,
    pod_metadata,
    pod_spec,
    probes,
    variables,
)
from roadworthy.render.kubernetes.engine_service import engine_service
from roadworthy.render.kubernetes.objects import ENGINE_COMPONENT, head, literal, manifest_file, names_of, queue_label
from roadworthy.render.kubernetes.ray_image import RAY_VERSION, ray_dockerfile, ray_image
from roadworthy.render.kubernetes.ray_service import ray_service_artifact
from roadworthy.render.kubernetes.surroundings import surroundings

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.render.values import Artifact, RenderInput

API = "ray.io/v1"
OVERWRITE = "ray.io/overwrite-container-cmd"
RAY_PORTS: tuple[Node, ...] = (
    {"name": "gcs", "containerPort": said(6379, "where Ray's nodes join")},
    {"name": "dashboard", "containerPort": said(8265, "Ray's status; the operator asks it")},
)
WITHOUT_ADDRESS = Spelling(master_address="", flags={})
START = """\
# Ray opens many connections; a node may allow fewer
ulimit -n 65536 || true
# KubeRay's own `ray start`, which would keep this shell for itself with --block
eval "${{KUBERAY_GEN_RAY_START_CMD//--block/}}"
# vLLM counts GPUs once: wait until every node has joined
python3 - <<'PYTHON'
import time
import ray
ray.init(address="auto", logging_level="ERROR")
while ray.cluster_resources().get("GPU", 0) < {gpus}:
    time.sleep(5)
PYTHON
exec "$@"
"""


def kuberay_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``raycluster.yaml``, ``rayservice.yaml``, the image's Dockerfile, and everything around them."""
    heads = launch(inputs, backend="ray").lines
    clusters = [ray_cluster(inputs, line) for line in heads]
    engines = tuple(f"http://{_cluster_name(inputs, line)}-head-svc:{line.place.port}" for line in heads)
    return (
        manifest_file("raycluster.yaml", *clusters, header=_header(inputs), remarks=left_out(inputs, heads[0])),
        ray_service_artifact(inputs, heads[0], cluster_spec=_cluster_spec(inputs, heads[0], serves=False)),
        ray_dockerfile(inputs),
        engine_service(inputs, heads[0]),
        *surroundings(inputs, engines=engines, launcher="kuberay"),
    )


def ray_cluster(inputs: RenderInput, line: ServeLine) -> Node:
    """The cluster of one engine."""
    annotations: dict[str, Node] = {
        OVERWRITE: said("true", "our command starts Ray and then vLLM; without it the cluster stays idle")
    }
    name = _cluster_name(inputs, line)
    return {
        **head(
            inputs,
            api=API,
            kind="RayCluster",
            name=name,
            component=ENGINE_COMPONENT,
            annotations=annotations,
            more_labels=queue_label(inputs),
        ),
        "spec": _cluster_spec(inputs, line, serves=True),
    }


def _cluster_name(inputs: RenderInput, line: ServeLine) -> str:
    return f"{names_of(inputs).engine}-{line.replica}"


def _cluster_spec(inputs: RenderInput, line: ServeLine, *, serves: bool) -> dict[str, Node]:
    workers = len(line.place.hosts) - 1
    gpus = len(line.place.devices)
    spec: dict[str, Node] = {
        "rayVersion": said(
            RAY_VERSION, "equal to the Ray in the image; the operator chooses its probes by it", source="k8s.rayVersion"
        ),
        "headGroupSpec": {
            "rayStartParams": _start_params(gpus, head=True),
            "template": _template(
                inputs, line, role="leader", container=_head(inputs, line) if serves else _serve_head
            ),
        },
    }
    if workers:
        spec["workerGroupSpecs"] = [
            {
                "groupName": "workers",
                "replicas": said(workers, "the engine's other nodes", source="k8s.autoscale"),
                "minReplicas": said(workers, "a TP, PP or EP group cannot lose one", source="k8s.autoscale"),
                "maxReplicas": said(workers, "nor take one more", source="k8s.autoscale"),
                "rayStartParams": _start_params(gpus, head=False),
                "template": _template(inputs, line, role="worker", container=_worker if serves else _plain),
            }
        ]
    return spec


def _start_params(gpus: int, *, head: bool) -> dict[str, Node]:
    params: dict[str, Node] = {
        "num-gpus": said(str(gpus), "a string, as all of these; the same as the limit", source="k8s.head-8-gpu"),
        "disable-usage-stats": said("true", "reports nothing to the outside"),
    }
    if head:
        params["dashboard-host"] = said("0.0.0.0", "the operator's probes ask it; the network policy keeps others out")
    return params


def _template(
    inputs: RenderInput,
    line: ServeLine,
    *,
    role: str,
    container: Callable[[dict[str, Node]], dict[str, Node]],
) -> Node:
    def filled(shared: dict[str, Node]) -> dict[str, Node]:
        return container({**shared, "image": ray_image(inputs), "env": variables(inputs, line)})

    name = "ray-head" if role == "leader" else "ray-worker"
    return {
        "metadata": pod_metadata(inputs, line, role=role),
        "spec": pod_spec(inputs, line, container=filled, name=name),
    }


def _head(inputs: RenderInput, line: ServeLine) -> Callable[[dict[str, Node]], dict[str, Node]]:
    def filled(shared: dict[str, Node]) -> dict[str, Node]:
        script = START.format(gpus=inputs.chosen.layout.world_size)
        return {
            **shared,
            "command": said(
                ["/bin/bash", "-ec", Text(text=literal(script)), "start"],
                "Ray, then vLLM on a node with GPUs (else it takes small-GPU defaults); the script reads no argument",
                source="ray.driver-node",
            ),
            "args": ["vllm", *arguments(inputs, line, WITHOUT_ADDRESS)],
            "ports": [*http_port(line), *RAY_PORTS],
            **probes(),
        }

    return filled


def _worker(shared: dict[str, Node]) -> dict[str, Node]:
    script = 'ulimit -n 65536 || true\neval "exec ${KUBERAY_GEN_RAY_START_CMD}"\n'
    return {
        **shared,
        "command": said(
            ["/bin/bash", "-ec", Text(text=literal(script))], "KubeRay's own `ray start`; vLLM places its actors"
        ),
    }


def _plain(shared: dict[str, Node]) -> dict[str, Node]:
    """A Ray node as KubeRay starts it; Ray Serve runs the engine."""
    return shared


def _serve_head(shared: dict[str, Node]) -> dict[str, Node]:
    serve: Node = {"name": "serve", "containerPort": said(8000, "Ray Serve; the operator's Service looks for the name")}
    return {**shared, "ports": [serve, *RAY_PORTS]}


def _header(inputs: RenderInput) -> str:
    return "\n".join(
        [
            f"{inputs.deployment.model.served_name}, {inputs.chosen.layout.label}: a RayCluster for each engine.",
            f"Needs KubeRay 1.7 and an image with vLLM {inputs.deployment.engine.version} and Ray {RAY_VERSION}, see",
            "ray.Dockerfile: official vLLM images hold no Ray since 0.18. Prefer the lws target: it needs neither.",
            "Losing the head ends the engine; GCS fault tolerance does not keep a vLLM engine alive.",
            "Ray does not repeat vLLM's metrics: scrape port http, and Ray's own 8080 if you want that too.",
        ]
    )
