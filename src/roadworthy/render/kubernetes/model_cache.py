"""The checkpoint's volume: a claim that all nodes share and a job that fills it once, or a folder on every node."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.plan.weights import checkpoint_totals
from roadworthy.render.at_start import AtStart
from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.engine_lines import model_argument
from roadworthy.render.kubernetes.objects import (
    GIB,
    env,
    env_from_secret,
    gibibytes,
    head,
    labels,
    literal,
    manifest_file,
    names_of,
)

if TYPE_CHECKING:
    from roadworthy.render.values import Artifact, RenderInput

MODEL_MOUNT = "/models"
COMPONENT = "model"
ROOM_RATIO = 1.15
"""Beside the weights a checkpoint holds its tokenizer, code and an index; a new revision is loaded beside the old."""
DOWNLOAD_HOURS = 24
HUB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*/[A-Za-z0-9][A-Za-z0-9_.-]*")


def model_volume(inputs: RenderInput) -> Node:
    """The volume as a pod names it."""
    path = inputs.deployment.kubernetes.model_path
    if path:
        source: dict[str, Node] = {
            "path": said(path, "kubernetes.model_path: the same folder on every node", source="k8s.pvc-nfs"),
            "type": said("Directory", "a node without it starts no pod, instead of an empty folder"),
        }
        return {"name": "model", "hostPath": source}
    claim: dict[str, Node] = {
        "claimName": names_of(inputs).model_cache,
        "readOnly": said(True, "the job that fills it is the only writer"),
    }
    return {"name": "model", "persistentVolumeClaim": claim}


def fetchable(inputs: RenderInput) -> str | None:
    """The hub id that a download can fetch, or None for a checkpoint of one's own."""
    model = model_argument(inputs)
    return None if isinstance(model, AtStart) or not HUB_ID.fullmatch(model) else model


def model_cache_artifact(inputs: RenderInput) -> Artifact | None:
    """The claim and the job that fills it; None where every node has the checkpoint in a folder."""
    if inputs.deployment.kubernetes.model_path:
        return None
    hub_id = fetchable(inputs)
    objects = [_claim(inputs), *([_download(inputs, hub_id)] if hub_id else [])]
    lines = ["The checkpoint's volume. Several nodes read it at once, so its storage must allow that (ReadWriteMany)."]
    if hub_id:
        lines.append("The job fills it once; engines wait for nothing, so let it complete before they start.")
    else:
        lines.append(
            "The checkpoint is not one of the hub's: copy it there yourself, into the folder that `serve` names."
        )
    lines.append("Faster: a copy on each node's own NVMe; set kubernetes.model_path to that folder.")
    return manifest_file("model-cache.yaml", *objects, header="\n".join(lines))


def _claim(inputs: RenderInput) -> Node:
    weights_bytes = checkpoint_totals(inputs.model).bytes
    site = inputs.deployment.kubernetes
    spec: dict[str, Node] = {
        "accessModes": said(["ReadWriteMany"], "the job writes, every engine pod reads", source="k8s.pvc-nfs"),
        "resources": {
            "requests": {
                "storage": said(
                    gibibytes(max(round(weights_bytes * ROOM_RATIO), GIB)),
                    f"{weights_bytes:,} bytes of weights and some room",
                    source="k8s.pvc-nfs",
                )
            }
        },
    }
    if site.storage_class:
        spec["storageClassName"] = said(site.storage_class, "kubernetes.storage_class")
    name = names_of(inputs).model_cache
    return {**head(inputs, api="v1", kind="PersistentVolumeClaim", name=name, component=COMPONENT), "spec": spec}


def _download(inputs: RenderInput, hub_id: str) -> Node:
    names, site = names_of(inputs), inputs.deployment.kubernetes
    image = site.image or f"vllm/vllm-openai:v{inputs.deployment.engine.version}"
    container: dict[str, Node] = {
        "name": "download",
        "image": said(image, "the engine's image has the hub's client"),
        "command": said(["hf", "download"], "resumes where it stopped"),
        "args": [
            literal(hub_id),
            said("--local-dir", "plain files, as `vllm serve` reads them"),
            literal(f"{MODEL_MOUNT}/{hub_id}"),
        ],
        "env": [
            env("HF_HUB_DISABLE_TELEMETRY", "1", "reports nothing to the outside"),
            env_from_secret(
                "HF_TOKEN",
                site.hugging_face_secret,
                "token",
                "by reference: the token is in no manifest",
                optional=True,
            ),
        ],
        "resources": said(
            {"requests": {"cpu": "2", "memory": "8Gi"}, "limits": {"cpu": "4", "memory": "16Gi"}}, "network bound"
        ),
        "securityContext": {"allowPrivilegeEscalation": said(False, "it only writes files")},
        "volumeMounts": [{"name": "model", "mountPath": said(MODEL_MOUNT, "where engines find it")}],
    }
    pod: dict[str, Node] = {
        "restartPolicy": said("OnFailure", "a broken connection is tried again"),
        "automountServiceAccountToken": said(False, "it asks the API server for nothing"),
        "containers": [container],
        "volumes": [{"name": "model", "persistentVolumeClaim": {"claimName": names.model_cache}}],
    }
    spec: dict[str, Node] = {
        "backoffLimit": said(20, "a download of a terabyte meets a few broken connections"),
        "activeDeadlineSeconds": said(DOWNLOAD_HOURS * 3600, "a day, then it is a fault"),
        "template": {"metadata": {"labels": labels(inputs, COMPONENT)}, "spec": pod},
    }
    name = f"{names.model_cache}-download"
    return {**head(inputs, api="batch/v1", kind="Job", name=name, component=COMPONENT), "spec": spec}
