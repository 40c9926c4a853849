"""Target ``check``: `roadworthy check` on every GPU node, as a DaemonSet whose logs are the captures.

The pod asks for no GPU, so it runs beside engines and takes none from them. The host's root is mounted read-only, and
what belongs to the host is asked in there; limits and shared memory are the pod's, given as an engine's pod gets them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.core.errors import Unsupported
from roadworthy.render.commented_yaml import Node, Text, said
from roadworthy.render.engine_lines import launch
from roadworthy.render.kubernetes.engine_pod import image_of, network_of, placement
from roadworthy.render.kubernetes.objects import (
    env,
    env_from_field,
    head,
    labels,
    manifest_file,
    names_of,
    original_names,
    selector,
)
from roadworthy.render.kubernetes.pod_sizes import shared_memory
from roadworthy.render.kubernetes.surroundings import namespace_artifact
from roadworthy.render.markdown import code
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

COMPONENT = "check"
HOST_ROOT = "/host"
SCRIPT_FOLDER, SCRIPT = "/roadworthy", "check.sh"
DONE = "/tmp/whole"
RUN = f"sh {SCRIPT_FOLDER}/{SCRIPT}; touch {DONE}; exec sleep infinity"
CAPABILITIES = (
    ("SYS_CHROOT", "questions about the host are asked in its root"),
    ("SYSLOG", "reads the kernel's messages: Xid errors, links that went down"),
    ("IPC_LOCK", "as an engine's pod has it"),
)


def node_check_artifacts(inputs: RenderInput) -> tuple[Artifact, ...]:
    """``namespace.yaml``, ``check.yaml`` and the page that says which two commands judge it.

    Raises Unsupported when the caller gave no script to run.
    """
    if not inputs.check_script:
        raise Unsupported("target check: no script to run on the nodes", hint="`roadworthy render` brings it")
    header = (
        "Asks every GPU node what `roadworthy check` asks a host, once, and keeps the answer in the pod's log.\n"
        "It changes nothing on a node. Delete it when the logs are collected: kubectl delete -f check.yaml"
    )
    return (
        namespace_artifact(inputs),
        manifest_file("check.yaml", _script(inputs), _daemon_set(inputs), header=header, remarks=_REMARKS),
        Artifact(path="README.md", text=_readme(inputs)),
    )


def _name(inputs: RenderInput) -> str:
    return f"{names_of(inputs).deployment}-check"


def _script(inputs: RenderInput) -> Node:
    return {
        **head(inputs, api="v1", kind="ConfigMap", name=_name(inputs), component=COMPONENT),
        "data": {SCRIPT: said(Text(text=inputs.check_script), "what `roadworthy check --script` prints")},
    }


def _daemon_set(inputs: RenderInput) -> Node:
    metadata = {"labels": labels(inputs, COMPONENT), "annotations": original_names(inputs)}
    spec: dict[str, Node] = {
        "selector": {"matchLabels": said(selector(inputs, COMPONENT), "its own pods")},
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": said("100%", "nodes do not wait for each other")},
        },
        "template": {"metadata": metadata, "spec": _pod(inputs)},
    }
    return {
        **head(inputs, api="apps/v1", kind="DaemonSet", name=_name(inputs), component=COMPONENT),
        "spec": spec,
    }


def _pod(inputs: RenderInput) -> dict[str, Node]:
    site, where = inputs.deployment.kubernetes, placement(inputs)
    spec: dict[str, Node] = {
        "terminationGracePeriodSeconds": said(1, "once it has asked it only sleeps"),
        "automountServiceAccountToken": said(False, "it asks the API server for nothing"),
        "enableServiceLinks": said(False, "variables of Services would stand among the engine's"),
        **_network(inputs),
    }
    if "nodeSelector" in where:
        spec["nodeSelector"] = where["nodeSelector"]
    spec["tolerations"] = [
        {"operator": said("Exists", "also nodes that are tainted or cordoned: those are the ones to look at")}
    ]
    if site.pull_secret:
        spec["imagePullSecrets"] = said([{"name": site.pull_secret}], "kubernetes.pull_secret")
    spec["containers"] = [_container(inputs)]
    spec["volumes"] = [
        {"name": "script", "configMap": {"name": _name(inputs)}},
        {"name": "tmp", "emptyDir": {"sizeLimit": said("16Mi", "one empty file")}},
        {"name": "host", "hostPath": {"path": said("/", "tools and files of the node"), "type": "Directory"}},
        shared_memory(),
    ]
    return spec


def _network(inputs: RenderInput) -> dict[str, Node]:
    """On the host's network its NICs are seen; also where engines use secondary networks, whose NICs are the host's."""
    if network_of(inputs, launch(inputs).lines[0]) == "pod":
        return {}
    return {
        "hostNetwork": said(
            True, "the node's NICs, addresses and ports are what is asked for", source="k8s.hostNetwork"
        ),
        "dnsPolicy": said("ClusterFirstWithHostNet", "names as engines resolve them", source="k8s.hostNetwork"),
    }


def _container(inputs: RenderInput) -> dict[str, Node]:
    variables = [
        env("ROADWORTHY_ROOT", HOST_ROOT, "where the host's root is mounted"),
        env_from_field("ROADWORTHY_NODE", "spec.nodeName", "whose answers they are, in a log of many"),
    ]
    if inputs.gpu.id != "cpu":
        variables += [
            env("NVIDIA_VISIBLE_DEVICES", "all", "nvidia-smi sees every GPU, and none is taken from an engine"),
            env("NVIDIA_DRIVER_CAPABILITIES", "utility", "nvidia-smi and no more"),
        ]
    return {
        "name": COMPONENT,
        "image": image_of(inputs),
        "imagePullPolicy": said("IfNotPresent", "the engine's image, so that pulling it here saves it later"),
        "command": said(["sh", "-c", RUN], "asks once, then sleeps: a DaemonSet starts again what ends"),
        "env": variables,
        "readinessProbe": {
            "exec": said({"command": ["test", "-e", DONE]}, "ready when every question has its answer"),
            "periodSeconds": said(2, "it takes a minute or two"),
        },
        "resources": said(
            {"requests": {"cpu": "100m", "memory": "128Mi"}},
            "small, and no GPU: it runs beside engines; a limit of its own would be taken for an engine's",
        ),
        "securityContext": {
            "runAsUser": said(0, "device files, kernel messages and PCIe are root's"),
            "allowPrivilegeEscalation": said(False, "it needs no more than it has"),
            "readOnlyRootFilesystem": said(True, "it writes one file in /tmp"),
            "seccompProfile": {"type": said("RuntimeDefault", "the runtime's own filter of system calls")},
            "capabilities": {
                "drop": said(["ALL"], "all that a runtime gives by default"),
                "add": [said(name, why, name=f"capability {name}") for name, why in CAPABILITIES],
            },
        },
        "volumeMounts": [
            {"name": "script", "mountPath": SCRIPT_FOLDER, "readOnly": True},
            {"name": "tmp", "mountPath": "/tmp"},
            {
                "name": "host",
                "mountPath": HOST_ROOT,
                "readOnly": said(True, "nothing on the node is changed"),
                "recursiveReadOnly": said("IfPossible", "also what is mounted below it, where the kernel can"),
            },
            {"name": "shm", "mountPath": said("/dev/shm", "as an engine's pod gets it", source="k8s.shm")},
        ],
    }


_REMARKS = """\
Left out: SYS_ADMIN, without which `lspci` does not show ACS: run `roadworthy check` on the node for that question.
Left out: requests for GPUs and RDMA devices. They would be taken from engines; the host's root shows the devices."""


def _readme(inputs: RenderInput) -> str:
    names = names_of(inputs)
    chosen = ",".join(f"{label}={value}" for label, value in selector(inputs, COMPONENT).items())
    return _TEXT.format(
        name=code(inputs.deployment.name), namespace=names.namespace, check=_name(inputs), selector=chosen
    )


_TEXT = """\
# Checking the nodes of {name}

`roadworthy check` on every GPU node, before engines start or while they run. The pods ask for no GPU, mount the node's
root read-only and change nothing. The namespace must let them: a node's root and network are what the pod security
level `privileged` allows.

```sh
kubectl apply -f namespace.yaml -f check.yaml
kubectl -n {namespace} rollout status daemonset/{check} --timeout=10m   # ready: every question has its answer
```

Then two commands, on any machine that has the document:

```sh
kubectl -n {namespace} logs -l {selector} --tail=-1 --prefix > check.log
roadworthy check DOCUMENT --from check.log
```

`--tail=-1` is needed: with a selector kubectl shows ten lines otherwise. A node whose pod still asks is judged by what
it has said; the rest stands under "could not look". `roadworthy check --from -` reads a pipe. Keep the log: any later
version judges it again.

To ask again: `kubectl -n {namespace} rollout restart daemonset/{check}`. To end: `kubectl delete -f check.yaml`.
"""
