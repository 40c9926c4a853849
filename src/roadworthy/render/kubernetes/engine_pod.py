"""The pod that runs one host's part of an engine.

Arguments and variables come from the engine's lines; this spells what is filled in at start as Kubernetes does, and
adds what a container needs beside them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.engine_lines import words
from roadworthy.render.kubernetes.gateway_document import checkpoint_folder
from roadworthy.render.kubernetes.model_cache import MODEL_MOUNT, model_volume
from roadworthy.render.kubernetes.objects import ENGINE_COMPONENT, env, env_from_field, labels, literal, original_names
from roadworthy.render.kubernetes.pod_sizes import resources, shared_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from roadworthy.render.engine_lines import ServeLine
    from roadworthy.render.values import Emitted, RenderInput

START_BUDGET_S = 3600
"""How long a start may take: loading takes tens of minutes, from shared storage more."""
GRACE_S = 60
"""Beyond the time that requests get to end."""
POD_INTERFACE = "eth0"
"""What the first interface of a pod is called by every common CNI."""
CONTAINER = "vllm"
CPU_REPOSITORY = "public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo"
"""Where vLLM publishes its images for CPUs."""
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?:/[A-Za-z0-9][A-Za-z0-9_.-]*)?")
NODE_PRODUCTS = {
    "H100-80GB": "NVIDIA-H100-80GB-HBM3",
    "H200-141GB": "NVIDIA-H200",
    "B200-180GB": "NVIDIA-B200",
    "A100-80GB": "NVIDIA-A100-SXM4-80GB",
    "A100-40GB": "NVIDIA-A100-SXM4-40GB",
    "L40S-48GB": "NVIDIA-L40S",
    "L4-24GB": "NVIDIA-L4",
}
"""What GPU feature discovery writes into ``nvidia.com/gpu.product``: the driver's name with dashes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """How a launcher says what differs from pod to pod, in the form that Kubernetes expands.

    Args:
        flags: value of a flag by name; None drops the flag.
    """

    master_address: str
    flags: dict[str, str | None]


def spans_nodes(line: ServeLine) -> bool:
    return line.nodes > 1


def network_of(inputs: RenderInput, line: ServeLine) -> str:
    """``host``, ``secondary`` or ``pod``."""
    asked = inputs.deployment.kubernetes.network
    return asked or ("host" if spans_nodes(line) and inputs.gpu.id != "cpu" else "pod")


def uses_rdma(inputs: RenderInput, line: ServeLine) -> bool:
    return spans_nodes(line) and inputs.gpu.id != "cpu" and network_of(inputs, line) != "pod"


def image_of(inputs: RenderInput) -> Node:
    chosen = inputs.deployment.kubernetes.image
    if chosen:
        return said(chosen, "kubernetes.image", source="k8s.image-v0.6.3")
    version = inputs.deployment.engine.version
    repository = CPU_REPOSITORY if inputs.gpu.id == "cpu" else "vllm/vllm-openai"
    return said(
        f"{repository}:v{version}", "the version that the plan is for; pin its digest", source="k8s.image-v0.6.3"
    )


def model_folder(inputs: RenderInput, line: ServeLine) -> str:
    """Where the checkpoint lies in the pod."""
    model = line.model
    if isinstance(model, AtStart) or not HUB_ID.fullmatch(model):
        return checkpoint_folder(inputs)
    return f"{MODEL_MOUNT}/{model}"


def arguments(inputs: RenderInput, line: ServeLine, spelling: Spelling) -> list[Node]:
    """Arguments of ``vllm``, each word an item of its own: no shell reads them."""
    found: list[Node] = [
        "serve",
        said(
            model_folder(inputs, line), "the checkpoint on the mounted volume: nothing is fetched", source="k8s.pvc-nfs"
        ),
    ]
    for setting in line.arguments:
        found += _words(setting, spelling)
    return found


def _words(setting: Emitted, spelling: Spelling) -> list[Node]:
    name, why = setting.name, setting.why
    if name in spelling.flags:
        value = spelling.flags[name]
        spelt: tuple[str, ...] = () if value is None else (name, value)
    elif setting.value == AtStart.MASTER_ADDRESS:
        spelt = (name, spelling.master_address)
    elif name == "--host":
        spelt, why = (name, "0.0.0.0"), "the gateway calls from another pod; the network policy says who may"
    else:
        spelt = tuple(literal(word) for word in words(setting))
    if not spelt:
        return []
    shown = " ".join(spelt[1:]) or spelt[0].partition("=")[2] or None
    return [said(spelt[0], why, source=setting.source, name=name, shown=shown), *spelt[1:]]


def variables(inputs: RenderInput, line: ServeLine) -> list[Node]:
    """Environment of the container; what a device plugin or the kubelet sets is left to them."""
    found: list[Node] = []
    for setting in line.variables:
        spelt = _variable(inputs, line, setting)
        if spelt is not None:
            found.append(spelt)
    if not any(setting.name == "HF_HUB_OFFLINE" for setting in line.variables):
        found.append(env("HF_HUB_OFFLINE", "1", "the checkpoint is mounted; nothing is fetched", source="k8s.pvc-nfs"))
    return found


def _variable(inputs: RenderInput, line: ServeLine, setting: Emitted) -> Node | None:
    name, value = setting.name, setting.value
    if name == "CUDA_VISIBLE_DEVICES":
        return None  # the device plugin sets it
    if value == AtStart.OWN_ADDRESS:
        return env_from_field(name, "status.podIP", setting.why, source=setting.source)
    if value in (AtStart.INTERFACE, AtStart.EXACT_INTERFACE):
        interface = _interface(inputs, line)
        if interface is None:
            return None
        exact = "=" if value == AtStart.EXACT_INTERFACE else ""
        return env(name, exact + interface, setting.why, source=setting.source)
    if name == "NCCL_IB_HCA" and network_of(inputs, line) != "host":
        return None  # a pod sees the devices that it was given, and those only
    return env(name, literal(str(value)), setting.why, source=setting.source)


def _interface(inputs: RenderInput, line: ServeLine) -> str | None:
    return inputs.deployment.cluster.interface if network_of(inputs, line) == "host" else POD_INTERFACE


def left_out(inputs: RenderInput, line: ServeLine) -> str:
    """Remarks on what the pod does not carry, and why."""
    remarks = []
    for setting in line.variables:
        if setting.name == "CUDA_VISIBLE_DEVICES":
            remarks.append("CUDA_VISIBLE_DEVICES: left out, the device plugin sets it for each pod.")
        elif setting.value in (AtStart.INTERFACE, AtStart.EXACT_INTERFACE) and _interface(inputs, line) is None:
            remarks.append(
                f"{setting.name}: left out, the document has no cluster.interface and a host's interface is called "
                "differently from rack to rack; NCCL and Gloo then choose one."
            )
        elif setting.name == "NCCL_IB_HCA" and network_of(inputs, line) != "host":
            remarks.append("NCCL_IB_HCA: left out, a pod sees only the RDMA devices that it was given.")
    return "\n".join(remarks)


def stop_seconds(line: ServeLine) -> int:
    """How long requests get to end, as the engine's own line says."""
    found = next((one.value for one in line.arguments if one.name == "--shutdown-timeout"), None)
    return int(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else 120


def pod_spec(
    inputs: RenderInput,
    line: ServeLine,
    *,
    container: Callable[[dict[str, Node]], dict[str, Node]],
    name: str = CONTAINER,
) -> dict[str, Node]:
    """A pod spec; ``container`` adds command and arguments to what every launcher shares."""
    network = network_of(inputs, line)
    spec: dict[str, Node] = {
        "terminationGracePeriodSeconds": said(
            stop_seconds(line) + GRACE_S, "--shutdown-timeout and a minute: requests end before the kill",
            source="k8s.probes",
        ),
        "enableServiceLinks": said(
            False, "or a Service whose name begins with vllm puts VLLM_PORT and the like into the environment"
        ),
        "automountServiceAccountToken": said(False, "the engine asks the API server for nothing"),
        **_host_network(network),
        **placement(inputs),
    }  # fmt: skip
    if inputs.deployment.kubernetes.pull_secret:
        secret = inputs.deployment.kubernetes.pull_secret
        spec["imagePullSecrets"] = said([{"name": secret}], "kubernetes.pull_secret")
    shared: dict[str, Node] = {
        "name": name,
        "image": image_of(inputs),
        "imagePullPolicy": said("IfNotPresent", "a tag or digest that does not move is pulled once a node"),
    }
    filled = container(shared)
    filled |= {
        "resources": resources(inputs, line, rdma=uses_rdma(inputs, line)),
        "securityContext": _security(inputs, line),
        "volumeMounts": [
            {
                "name": "model",
                "mountPath": said(MODEL_MOUNT, "the checkpoint"),
                "readOnly": said(True, "nobody changes weights under a running engine"),
            },
            {"name": "shm", "mountPath": said("/dev/shm", "queues between the engine's processes", source="k8s.shm")},
        ],
    }
    spec["containers"] = [filled]
    spec["volumes"] = [model_volume(inputs), shared_memory()]
    return spec


def pod_metadata(inputs: RenderInput, line: ServeLine, *, role: str) -> dict[str, Node]:
    """Labels and annotations of an engine pod."""
    annotations = original_names(inputs)
    networks = inputs.deployment.kubernetes.networks
    if network_of(inputs, line) == "secondary" and networks:
        annotations["k8s.v1.cni.cncf.io/networks"] = said(
            networks, "kubernetes.networks: one secondary network for each NIC", source="k8s.rdma-missing"
        )
    return {"labels": labels(inputs, ENGINE_COMPONENT, {"roadworthy/role": role}), "annotations": annotations}


def probes() -> dict[str, Node]:
    """Probes of a container that answers HTTP."""
    period_s = 10
    return {
        "startupProbe": {
            "httpGet": said({"path": "/health", "port": "http"}, "200 once the model is loaded", source="k8s.probes"),
            "periodSeconds": said(period_s, "soon known once it is up"),
            "timeoutSeconds": said(5, "a busy event loop answers late"),
            "failureThreshold": said(
                START_BUDGET_S // period_s, "an hour: loading takes tens of minutes, from shared storage more"
            ),
        },
        "readinessProbe": {
            "httpGet": said({"path": "/health", "port": "http"}, "503 when the engine core is dead"),
            "periodSeconds": said(5, "the gateway looks every second by itself; this is for the Service"),
            "timeoutSeconds": said(5, "a busy event loop answers late"),
            "failureThreshold": said(3, "one late answer is no outage"),
        },
        "livenessProbe": {
            "httpGet": said({"path": "/health", "port": "http"}, "a server that hangs and never exits"),
            "periodSeconds": said(30, "seldom: a restart costs a whole load"),
            "timeoutSeconds": said(30, "late is not dead"),
            "failureThreshold": said(10, "five minutes without one answer"),
        },
    }


def http_port(line: ServeLine) -> list[Node]:
    return [{"name": "http", "containerPort": said(line.place.port, "--port: OpenAI routes, /health and /metrics")}]


def _host_network(network: str) -> dict[str, Node]:
    if network != "host":
        return {}
    return {
        "hostNetwork": said(
            True,
            "RDMA over the host's NICs without secondary networks; one such pod a node, and its ports are the host's",
            source="k8s.hostNetwork",
        ),
        "dnsPolicy": said("ClusterFirstWithHostNet", "or the leader's name does not resolve", source="k8s.hostNetwork"),
    }


def placement(inputs: RenderInput) -> dict[str, Node]:
    """Which nodes: those with the GPU of the plan; empty for an engine on CPUs."""
    if inputs.gpu.id == "cpu":
        return {}
    site = inputs.deployment.kubernetes
    product = site.gpu_product or NODE_PRODUCTS.get(inputs.gpu.id)
    found: dict[str, Node] = {}
    if product:
        found["nodeSelector"] = {
            "nvidia.com/gpu.product": said(
                product, "the GPU that the plan is for, as GPU feature discovery labels it", source="k8s.nodeSelector"
            )
        }
    found["tolerations"] = [
        {
            "key": said(site.gpu_resource, "GPU nodes are usually tainted with it", source="k8s.nodeSelector"),
            "operator": "Exists",
            "effect": "NoSchedule",
        }
    ]
    return found


def _security(inputs: RenderInput, line: ServeLine) -> Node:
    added: list[Node] = []
    if uses_rdma(inputs, line):
        added.append(
            said("IPC_LOCK", "RDMA registers memory, which locks it", source="k8s.ipc-lock", name="capability IPC_LOCK")
        )
    if any(setting.name == "--numa-bind" for setting in line.arguments):
        added.append(
            said("SYS_NICE", "--numa-bind sets memory policies", source="k8s.ipc-lock", name="capability SYS_NICE")
        )
    found: dict[str, Node] = {
        "allowPrivilegeEscalation": said(False, "never privileged: device plugins bring the devices"),
        "seccompProfile": {"type": said("RuntimeDefault", "the runtime's own filter of system calls")},
    }
    if added:
        found["capabilities"] = {"add": added}
    return found


def same_but(lines: Iterable[ServeLine], *names: str) -> bool:
    """Whether the lines differ in nothing but the flags called ``names``, so that one template stands for all."""
    forms = {(line.model, tuple(one for one in line.arguments if one.name not in names), line.serves) for line in lines}
    return len(forms) <= 1
