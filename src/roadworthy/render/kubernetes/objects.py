"""Parts that many objects share: names, labels, references, and text that Kubernetes itself expands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, comment_lines, said, settings_of, yaml_text
from roadworthy.render.names import GATEWAY_ADMIN_PORT, GATEWAY_PORT, object_name
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.render.values import Emitted, RenderInput

ENGINE_COMPONENT, GATEWAY_COMPONENT = "engine", "gateway"
ORIGINAL_NAME, MODEL_NAME = "roadworthy/deployment", "roadworthy/model"
GIB = 2**30


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """What the objects of one deployment are called."""

    deployment: str
    namespace: str

    @property
    def engine(self) -> str:
        return f"{self.deployment}-engine"

    @property
    def gateway(self) -> str:
        return f"{self.deployment}-gateway"

    @property
    def model_cache(self) -> str:
        return f"{self.deployment}-model"


def names_of(inputs: RenderInput) -> Names:
    """Names that Kubernetes takes; the document's own are kept in annotations."""
    return Names(deployment=object_name(inputs.deployment.name), namespace=inputs.deployment.kubernetes.namespace)


def head(
    inputs: RenderInput,
    *,
    api: str,
    kind: str,
    name: str,
    component: str,
    annotations: Mapping[str, Node] | None = None,
    more_labels: Mapping[str, Node] | None = None,
) -> dict[str, Node]:
    """``apiVersion``, ``kind`` and ``metadata`` of one object."""
    names = names_of(inputs)
    return {
        "apiVersion": api,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": said(names.namespace, "kubernetes.namespace"),
            "labels": labels(inputs, component, more_labels or {}),
            "annotations": {**original_names(inputs), **(annotations or {})},
        },
    }


def queue_label(inputs: RenderInput) -> dict[str, Node]:
    """Kueue's label, where the document names a queue."""
    queue = inputs.deployment.kubernetes.queue
    why = "kubernetes.queue: all pods are admitted together, or none; half an engine would hold GPUs idle"
    return {"kueue.x-k8s.io/queue-name": said(queue, why, source="k8s.gang")} if queue else {}


def labels(inputs: RenderInput, component: str, more: Mapping[str, Node] | None = None) -> Node:
    """Labels by which Services, policies and monitors find pods."""
    found: dict[str, Node] = {"app.kubernetes.io/part-of": "roadworthy", **selector(inputs, component)}
    return said({**found, **(more or {})}, "what selectors look for")


def selector(inputs: RenderInput, component: str) -> dict[str, Node]:
    """The two labels that tell pods of one component of one deployment."""
    return {"app.kubernetes.io/instance": names_of(inputs).deployment, "app.kubernetes.io/component": component}


def original_names(inputs: RenderInput) -> dict[str, Node]:
    """Names as the document has them: an object's own may hold only a-z, 0-9 and dashes."""
    return {
        ORIGINAL_NAME: said(inputs.deployment.name, "the name before it was made one that Kubernetes takes"),
        MODEL_NAME: said(inputs.deployment.model.served_name, "what requests put into `model`"),
    }


def literal(text: str) -> str:
    """``text`` for a field in which Kubernetes expands ``$(NAME)``: nothing in it is expanded."""
    return text.replace("$", "$$")


def env(name: str, value: str, why: str, *, source: str = "") -> Node:
    return {"name": name, "value": said(value, why, source=source, name=name)}


def env_from_field(name: str, path: str, why: str, *, source: str = "") -> Node:
    return {
        "name": name,
        "valueFrom": said({"fieldRef": {"fieldPath": path}}, why, source=source, name=name, shown=path),
    }


def env_from_secret(name: str, secret: str, key: str, why: str, *, optional: bool = False) -> Node:
    reference: dict[str, Node] = {"name": secret, "key": key}
    if optional:
        reference["optional"] = said(True, "a public model needs none")
    return {"name": name, "valueFrom": said({"secretKeyRef": reference}, why, name=name, shown=f"{key} of {secret}")}


def gibibytes(size_bytes: int) -> str:
    """A size as Kubernetes writes it, rounded up to whole GiB."""
    return f"{-(-size_bytes // GIB)}Gi"


def gateway_port(inputs: RenderInput) -> int:
    return inputs.deployment.gateway.port or GATEWAY_PORT


def gateway_admin_port(inputs: RenderInput) -> int:
    return inputs.deployment.gateway.admin_port or GATEWAY_ADMIN_PORT


def manifest_file(
    path: str, *objects: Node, header: str, extra: tuple[Emitted, ...] = (), remarks: str = ""
) -> Artifact:
    """A file of objects. ``remarks`` go below as comments: what was left out, and what one may add."""
    settings = tuple(setting for one in objects for setting in settings_of(one))
    text = yaml_text(*objects, header=header) + ("\n" + comment_lines(remarks) if remarks else "")
    return Artifact(path=path, text=text, settings=(*settings, *extra))
