"""A Service for the engines' HTTP ports: for people and probes. The gateway names each engine by itself."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import said
from roadworthy.render.kubernetes.objects import ENGINE_COMPONENT, head, manifest_file, names_of, selector

if TYPE_CHECKING:
    from roadworthy.render.commented_yaml import Node
    from roadworthy.render.engine_lines import ServeLine
    from roadworthy.render.values import Artifact, RenderInput


def engine_service(inputs: RenderInput, line: ServeLine) -> Artifact:
    """``engine-service.yaml``: one name for every pod that answers."""
    spec: dict[str, Node] = {
        "selector": said(
            {**selector(inputs, ENGINE_COMPONENT), "roadworthy/role": "leader"},
            "pods that answer; workers only compute",
        ),
        "ports": [{"name": "http", "port": said(line.place.port, "--port"), "targetPort": "http"}],
    }
    name = f"{names_of(inputs).engine}-http"
    return manifest_file(
        "engine-service.yaml",
        {**head(inputs, api="v1", kind="Service", name=name, component=ENGINE_COMPONENT), "spec": spec},
        header="To look at engines by hand. Clients use the gateway, which knows keys and load.",
    )
