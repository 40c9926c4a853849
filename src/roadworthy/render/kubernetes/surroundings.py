"""What every launcher on Kubernetes needs around its engines, and how to apply it all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.engine_lines import launch
from roadworthy.render.kubernetes.engine_pod import network_of
from roadworthy.render.kubernetes.gateway_workload import gateway_artifacts
from roadworthy.render.kubernetes.guide import guide
from roadworthy.render.kubernetes.model_cache import model_cache_artifact
from roadworthy.render.kubernetes.network_policy import disruption_artifact, network_policy_artifact
from roadworthy.render.kubernetes.objects import manifest_file

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.render.values import Artifact, RenderInput


def surroundings(inputs: RenderInput, *, engines: Sequence[str], launcher: str) -> tuple[Artifact, ...]:
    """Namespace, checkpoint, gateway, policies, budgets, and a guide that says in which order.

    Args:
        engines: URL of every port that answers, as the gateway's pods call it.
        launcher: ``lws`` or ``kuberay``: the guide names its files.
    """
    first = launch(inputs).lines[0]
    cache = model_cache_artifact(inputs)
    files = (
        namespace_artifact(inputs),
        *((cache,) if cache else ()),
        *gateway_artifacts(inputs, engines),
        network_policy_artifact(
            inputs,
            host_network=network_of(inputs, first) == "host",
            engine_port=first.place.port,
            operator=launcher == "kuberay",
        ),
        disruption_artifact(inputs, pods_of_an_engine=first.nodes),
    )
    return (*files, guide(inputs, files, launcher=launcher))


def namespace_artifact(inputs: RenderInput) -> Artifact:
    """``namespace.yaml``, the same in every folder of manifests."""
    return manifest_file("namespace.yaml", _namespace(inputs), header="Where everything goes.")


def _namespace(inputs: RenderInput) -> Node:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": said(inputs.deployment.kubernetes.namespace, "kubernetes.namespace")},
    }
