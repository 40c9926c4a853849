"""The roadworthy gateway: its pods, its Service, and the document that they read."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from roadworthy import __version__
from roadworthy.render.commented_yaml import Node, Text, said
from roadworthy.render.kubernetes.gateway_document import gateway_document, key_variables, left_out, secret_key
from roadworthy.render.kubernetes.model_cache import MODEL_MOUNT, model_volume
from roadworthy.render.kubernetes.objects import (
    GATEWAY_COMPONENT,
    env_from_secret,
    gateway_admin_port,
    gateway_port,
    head,
    labels,
    manifest_file,
    names_of,
    selector,
)
from roadworthy.render.values import Artifact
from roadworthy.spec.values import looks_like_a_path

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import RenderInput

FOLDER, DOCUMENT = "/etc/roadworthy", "roadworthy.yaml"
DRAIN_S = 120
LISTED = 20
USER = 10001
IMAGE = f"roadworthy-gateway:{__version__}"


def gateway_artifacts(inputs: RenderInput, engines: Sequence[str]) -> tuple[Artifact, ...]:
    """``gateway.yaml`` and the Dockerfile of its image."""
    objects = (_config(inputs, engines), _workload(inputs), _service(inputs))
    remarks = "\n".join(left_out(inputs))
    return (
        manifest_file("gateway.yaml", *objects, header=_header(inputs), remarks=remarks),
        Artifact(path="gateway.Dockerfile", text=_DOCKERFILE),
    )


def _header(inputs: RenderInput) -> str:
    site = inputs.deployment.kubernetes
    lines = ["The gateway that clients talk to, in front of every engine of this deployment."]
    if not site.gateway_image:
        lines.append(
            f"Image: build gateway.Dockerfile, push it, and name it in kubernetes.gateway_image ({IMAGE} here)."
        )
    tenants = key_variables(inputs)
    if tenants:
        keys = " ".join(f"--from-file={secret_key(tenant, variable)}=FILE" for tenant, variable in tenants[:LISTED])
        lines.append("Keys of the tenants, each in a file without a line break at its end:")
        more = f" ... and {len(tenants) - LISTED} more" if len(tenants) > LISTED else ""
        command = shlex.join(["kubectl", "-n", site.namespace, "create", "secret", "generic", site.tenant_secret])
        lines.append(f"  {command} {keys}{more}")
    else:
        lines.append("The document names no tenant: anyone who reaches the gateway may use it.")
    return "\n".join(lines)


def _config(inputs: RenderInput, engines: Sequence[str]) -> Node:
    name = names_of(inputs).gateway
    return {
        **head(inputs, api="v1", kind="ConfigMap", name=name, component=GATEWAY_COMPONENT),
        "data": {
            DOCUMENT: said(Text(text=gateway_document(inputs, engines)), "what the gateway reads; no key is in it")
        },
    }


def _workload(inputs: RenderInput) -> Node:
    names, site = names_of(inputs), inputs.deployment.kubernetes
    spec: dict[str, Node] = {
        "replicas": said(site.gateway_replicas, "one may stop while another serves; each counts limits by itself"),
        "selector": {"matchLabels": said(selector(inputs, GATEWAY_COMPONENT), "its own pods")},
        "strategy": {
            "rollingUpdate": {
                "maxUnavailable": said(0, "a new one is ready before an old one goes"),
                "maxSurge": said(1, "one at a time"),
            }
        },
        "template": {
            "metadata": {"labels": labels(inputs, GATEWAY_COMPONENT)},
            "spec": _pod(inputs),
        },
    }
    return {
        **head(inputs, api="apps/v1", kind="Deployment", name=names.gateway, component=GATEWAY_COMPONENT),
        "spec": spec,
    }


def _pod(inputs: RenderInput) -> Node:
    names, site = names_of(inputs), inputs.deployment.kubernetes
    pod: dict[str, Node] = {
        "terminationGracePeriodSeconds": said(DRAIN_S + 30, "--drain and half a minute"),
        "enableServiceLinks": said(False, "Services do not belong into its environment"),
        "automountServiceAccountToken": said(False, "it asks the API server for nothing"),
        "securityContext": {
            "runAsNonRoot": said(True, "it needs no right on the node"),
            "runAsUser": said(USER, "as gateway.Dockerfile has it"),
            "seccompProfile": {"type": said("RuntimeDefault", "the runtime's own filter of system calls")},
        },
        "topologySpreadConstraints": [
            {
                "maxSkew": said(1, "losing a node loses one gateway"),
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "ScheduleAnyway",
                "labelSelector": {"matchLabels": selector(inputs, GATEWAY_COMPONENT)},
            }
        ],
    }
    if site.pull_secret:
        pod["imagePullSecrets"] = said([{"name": site.pull_secret}], "kubernetes.pull_secret")
    pod["containers"] = [_container(inputs)]
    volumes: list[Node] = [{"name": "document", "configMap": said({"name": names.gateway}, "the document")}]
    if looks_like_a_path(inputs.deployment.model.config):
        volumes.append(model_volume(inputs))
    pod["volumes"] = volumes
    return pod


def _container(inputs: RenderInput) -> Node:
    site = inputs.deployment.kubernetes
    data, admin = gateway_port(inputs), gateway_admin_port(inputs)
    container: dict[str, Node] = {
        "name": "gateway",
        "image": said(
            site.gateway_image or IMAGE, "kubernetes.gateway_image" if site.gateway_image else "to be pushed"
        ),
        "command": said(["roadworthy"], "no shell reads what follows"),
        "args": [
            "gateway",
            said(f"{FOLDER}/{DOCUMENT}", "from the ConfigMap"),
            said(
                "--admin-host=0.0.0.0",
                "probes and Prometheus reach the admin port, which has no key",
                name="--admin-host",
                shown="0.0.0.0",
            ),
            *_access_log(inputs),
            said(f"--drain={DRAIN_S}", "streams in progress may end", name="--drain", shown=DRAIN_S),
        ],
        "ports": [
            {"name": "http", "containerPort": said(data, "OpenAI routes")},
            {
                "name": "admin",
                "containerPort": said(admin, "health, metrics, status; kept inside by the network policy"),
            },
        ],
    }
    if inputs.deployment.tenants:
        container["env"] = [
            env_from_secret(
                variable,
                site.tenant_secret,
                secret_key(tenant, variable),
                f"key of a tenant, by reference",  # noqa: F541
            )
            for tenant, variable in key_variables(inputs)
        ]
    return container | {
        "resources": _resources(inputs),
        "securityContext": {
            "allowPrivilegeEscalation": said(False, "it needs no right on the node"),
            "readOnlyRootFilesystem": said(True, "it writes no file"),
            "capabilities": {"drop": said(["ALL"], "its ports are above 1024")},
        },
        "readinessProbe": {
            "httpGet": said({"path": "/readyz", "port": "admin"}, "200 while a healthy engine can take a request"),
            "periodSeconds": said(2, "out of the Service soon after its last engine is gone"),
        },
        "livenessProbe": {
            "httpGet": said({"path": "/healthz", "port": "admin"}, "the process; engines do not matter here"),
            "periodSeconds": said(10, "a restart is cheap, and cuts its streams"),
            "failureThreshold": said(6, "a minute without an answer"),
        },
        "volumeMounts": _mounts(inputs),
    }


def _resources(inputs: RenderInput) -> Node:
    workers = inputs.deployment.gateway.workers
    size: dict[str, Node] = {"cpu": str(workers), "memory": f"{512 * workers}Mi"}
    why = "an event loop uses one core and no more: a core and half a GiB for each worker (gateway.workers)"
    return said({"requests": size, "limits": size}, why)


def _access_log(inputs: RenderInput) -> list[Node]:
    if inputs.deployment.gateway.access_log is None:
        return []
    return [
        said("--access-log=-", "a line of JSON for each request, to standard output", name="--access-log", shown="-")
    ]


def _mounts(inputs: RenderInput) -> list[Node]:
    mounts: list[Node] = [{"name": "document", "mountPath": said(FOLDER, "the document"), "readOnly": True}]
    if looks_like_a_path(inputs.deployment.model.config):
        why = "the document names a checkpoint of your own: its config.json must be there for the gateway too"
        mounts.append({"name": "model", "mountPath": said(MODEL_MOUNT, why), "readOnly": True})
    return mounts


def _service(inputs: RenderInput) -> Node:
    spec: dict[str, Node] = {
        "selector": said(selector(inputs, GATEWAY_COMPONENT), "the gateway's pods"),
        "ports": [
            {"name": "http", "port": said(80, "what routes and clients inside name"), "targetPort": "http"},
        ],
    }
    name = names_of(inputs).gateway
    return {**head(inputs, api="v1", kind="Service", name=name, component=GATEWAY_COMPONENT), "spec": spec}


_DOCKERFILE = f"""\
# The gateway's image. Build it beside a wheel of roadworthy: python -m build --wheel --outdir .
FROM python:3.12-slim
COPY roadworthy-*.whl /tmp/
RUN pip install --no-cache-dir "$(ls /tmp/roadworthy-*.whl)[gateway]" && rm /tmp/roadworthy-*.whl \\
 && useradd --uid {USER} --no-create-home roadworthy
# by number, so that runAsNonRoot can be checked
USER {USER}
ENTRYPOINT ["roadworthy"]
"""
