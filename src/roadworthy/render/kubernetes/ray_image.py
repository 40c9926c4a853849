"""The image that KubeRay needs: vLLM's with Ray added, the same on every node."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.commented_yaml import Node, said
from roadworthy.render.values import Artifact, Emitted

if TYPE_CHECKING:
    from roadworthy.render.values import RenderInput

RAY_VERSION = "2.60.0"


def ray_image(inputs: RenderInput) -> Node:
    """The image's name; what Ray and vLLM are in it stands in ``ray.Dockerfile``."""
    chosen = inputs.deployment.kubernetes.ray_image
    why = (
        "kubernetes.ray_image" if chosen else "to be built from ray.Dockerfile and pushed; official images have no Ray"
    )
    version = inputs.deployment.engine.version
    return said(chosen or f"vllm-ray:v{version}-ray{RAY_VERSION}", why, source="ray.version")


def ray_dockerfile(inputs: RenderInput) -> Artifact:
    """``ray.Dockerfile``."""
    base = inputs.deployment.kubernetes.image or f"vllm/vllm-openai:v{inputs.deployment.engine.version}"
    text = f"""\
# vLLM's image with Ray. Ray and Python must be the same on every node: use this image everywhere.
FROM {base}
RUN pip install --no-cache-dir "ray[default]=={RAY_VERSION}"
# fails the build, not the start, when the two do not go together
RUN python3 -c "import ray, vllm; assert ray.__version__ == '{RAY_VERSION}', ray.__version__"
ENTRYPOINT []
"""
    setting = Emitted(
        kind="command",
        name="ray.Dockerfile",
        value=f"ray[default]=={RAY_VERSION}",
        why="official vLLM images hold no Ray; the version equals rayVersion",
        source="ray.version",
    )
    return Artifact(path="ray.Dockerfile", text=text, settings=(setting,))
