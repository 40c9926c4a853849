"""RayService: Ray Serve LLM runs the engine. Its arguments are the engine's own flags as keyword arguments."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from roadworthy.render.at_start import AtStart
from roadworthy.render.commented_yaml import Node, Text, said, yaml_text
from roadworthy.render.kubernetes.engine_pod import model_folder
from roadworthy.render.kubernetes.objects import ENGINE_COMPONENT, head, manifest_file, names_of, queue_label
from roadworthy.render.kubernetes.ray_image import RAY_VERSION

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.render.engine_lines import ServeLine
    from roadworthy.render.values import Artifact, Emitted, RenderInput

API = "ray.io/v1"
RAY_LLM_VLLM = "0.29.0"
"""The vLLM that `ray[llm]` 2.60.0 pins (its package metadata)."""
NOT_PASSED = frozenset(
    {
        "--served-model-name", "--host", "--port", "--shutdown-timeout", "--fail-on-environ-validation",
        "--distributed-executor-backend", "--data-parallel-backend", "--data-parallel-size-local",
    }
)  # fmt: skip
"""Ray Serve LLM sets these itself, or has its own server in front."""


def ray_service_artifact(inputs: RenderInput, line: ServeLine, *, cluster_spec: Mapping[str, Node]) -> Artifact:
    """``rayservice.yaml``."""
    spec: dict[str, Node] = {
        "serveConfigV2": said(Text(text=serve_config(inputs, line)), "the application; the engine's flags are in it"),
        "upgradeStrategy": {"type": said("None", "a second cluster beside the first would need as many GPUs again")},
        "rayClusterConfig": cluster_spec,
    }
    name = names_of(inputs).engine
    return manifest_file(
        "rayservice.yaml",
        {
            **head(
                inputs,
                api=API,
                kind="RayService",
                name=name,
                component=ENGINE_COMPONENT,
                more_labels=queue_label(inputs),
            ),
            "spec": spec,
        },
        header=_header(inputs),
        remarks="Not passed on, because Ray Serve LLM sets them or has its own server: "
        + ", ".join(sorted(NOT_PASSED)),
    )


def serve_config(inputs: RenderInput, line: ServeLine) -> str:
    """The Serve application as text: `ray.serve.llm` with one model."""
    layout = inputs.chosen.layout
    kwargs = {
        keyword(setting): said(_value(setting), setting.why)
        for setting in line.arguments
        if setting.name not in NOT_PASSED
    }
    data_parallel = layout.dp > 1
    config: dict[str, Node] = {
        "model_loading_config": {
            "model_id": inputs.deployment.model.served_name,
            "model_source": said(model_folder(inputs, line), "the checkpoint on the mounted volume"),
        },
        "engine_kwargs": kwargs,
    }
    if not data_parallel:
        config["deployment_config"] = {
            "num_replicas": said(layout.replicas, "engines; a fixed number, since nodes do not come and go"),
            "max_ongoing_requests": said(_most(inputs), "above --max-num-seqs, so that the engine's own queue decides"),
        }
    builder = "build_dp_openai_app" if data_parallel else "build_openai_app"
    arguments: dict[str, Node] = {"llm_config": config} if data_parallel else {"llm_configs": [config]}
    application: dict[str, Node] = {
        "name": "llm",
        "import_path": said(
            f"ray.serve.llm:{builder}", "data-parallel ranks start as a gang" if data_parallel else "one app, one model"
        ),
        "route_prefix": "/",
        "args": arguments,
    }
    return yaml_text({"applications": [application]})


def keyword(setting: Emitted) -> str:
    """``--no-enable-x`` and ``--enable-x`` are one keyword with two values."""
    return setting.name.removeprefix("--").removeprefix("no-").replace("-", "_")


def _value(setting: Emitted) -> Node:
    if setting.value is None:
        return not setting.name.startswith("--no-")
    if isinstance(setting.value, AtStart):
        return str(setting.value)
    if isinstance(setting.value, str) and setting.value[:1] in "{[":
        try:
            parsed: Node = json.loads(setting.value)
        except ValueError:
            return setting.value
        return parsed
    return setting.value


def _most(inputs: RenderInput) -> int:
    found = inputs.chosen.settings.get("max_num_seqs")
    value = found.value if found is not None else None
    return 2 * int(value) if isinstance(value, int) and not isinstance(value, bool) else 512


def _header(inputs: RenderInput) -> str:
    return "\n".join(
        [
            f"{inputs.deployment.model.served_name}, {inputs.chosen.layout.label}, by Ray Serve LLM. Either this or "
            "raycluster.yaml, not both.",
            f"ray[llm] {RAY_VERSION} pins vLLM {RAY_LLM_VLLM}; this plan is for {inputs.deployment.engine.version}: an "
            "image with both is not one that Ray tests.",
            "It needs ray[serve,llm] beside ray[default]. Prefer the lws target, or raycluster.yaml, which runs vLLM's "
            "own server.",
            "Clients reach it at the Service NAME-serve-svc, port 8000; its metrics are Ray's, not vLLM's /metrics.",
        ]
    )
