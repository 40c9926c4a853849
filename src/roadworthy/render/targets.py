"""Every target by name. A target is a function from what is deployed to files; it reads nothing else.

Each is imported when it is asked for, so that one target does not pay for the others.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from roadworthy.core.errors import Unsupported

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.render.values import Artifact, RenderInput

    Target = Callable[[RenderInput], tuple[Artifact, ...]]

TARGETS: dict[str, str] = {
    "vllm": "roadworthy.render.scripts:vllm_target",
    "ray": "roadworthy.render.ray_scripts:ray_target",
    "systemd": "roadworthy.render.systemd_units:systemd_target",
    "host-prep": "roadworthy.render.host_prep:host_prep_target",
    "lws": "roadworthy.render.kubernetes.lws:lws_artifacts",
    "kuberay": "roadworthy.render.kubernetes.kuberay:kuberay_artifacts",
    "check": "roadworthy.render.kubernetes.node_check:node_check_artifacts",
    "gateway-api": "roadworthy.render.kubernetes.gateway_api:gateway_api_artifacts",
    "envoy": "roadworthy.render.services.envoy:envoy_artifacts",
    "prometheus": "roadworthy.render.services.prometheus:prometheus_artifacts",
    "grafana": "roadworthy.render.services.grafana:grafana_artifacts",
}
"""Name -> ``module:function``."""


def target(name: str) -> Target:
    """The function of the target called ``name``. Raises Unsupported with the names there are."""
    if name not in TARGETS:
        from difflib import get_close_matches

        close = get_close_matches(name, TARGETS, n=1)
        raise Unsupported(
            f"--target {name!r}: not a target",
            hint=f"did you mean {close[0]}?" if close else "one of " + ", ".join([*TARGETS, "all"]),
        )
    module, _, function = TARGETS[name].partition(":")
    found: Target = getattr(importlib.import_module(module), function)
    return found
