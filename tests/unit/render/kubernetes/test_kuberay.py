"""KubeRay: the head runs Ray and then vLLM, on a node with GPUs, in an image that says that it must be built."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from roadworthy.render.engine_lines import launch
from roadworthy.render.kubernetes.ray_image import RAY_VERSION
from roadworthy.render.kubernetes.ray_service import NOT_PASSED
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, V4_ON_32_H100, flags, render_input, rendered


def clusters(document: str, layout: str | None = None) -> list[Any]:
    return list(yaml.safe_load_all(rendered("kuberay", render_input(document, layout))["raycluster.yaml"].text))


def containers(cluster: Any) -> tuple[Any, Any]:
    groups = [cluster["spec"]["headGroupSpec"], *cluster["spec"].get("workerGroupSpecs", [])]
    return tuple(group["template"]["spec"]["containers"][0] for group in groups)  # type: ignore[return-value]


def serve_config(document: str, layout: str | None = None) -> Any:
    service = yaml.safe_load(rendered("kuberay", render_input(document, layout))["rayservice.yaml"].text)
    (application,) = yaml.safe_load(service["spec"]["serveConfigV2"])["applications"]
    return application


def test_each_engine_has_a_cluster_of_its_own_with_a_fixed_number_of_nodes() -> None:
    found = clusters(V4_ON_32_H100, "2 x TP8 PP2")
    assert [one["metadata"]["name"] for one in found] == ["v4-engine-0", "v4-engine-1"]
    for cluster in found:
        (workers,) = cluster["spec"]["workerGroupSpecs"]
        assert workers["replicas"] == workers["minReplicas"] == workers["maxReplicas"] == 1


def test_an_engine_on_one_node_has_no_workers() -> None:
    (first, *_) = clusters(LLAMA_ON_8_H100, "8 x TP1")
    assert "workerGroupSpecs" not in first["spec"]


def test_the_head_starts_vllm_itself_and_the_annotation_lets_it() -> None:
    (cluster,) = clusters(V4_ON_32_H100, "TP8 DP4 EP32")
    head, worker = containers(cluster)
    assert cluster["metadata"]["annotations"]["ray.io/overwrite-container-cmd"] == "true"
    assert kubelet(head["command"][2]).endswith('exec "$@"\n')
    assert head["args"][:2] == ["vllm", "serve"]
    assert "KUBERAY_GEN_RAY_START_CMD" in worker["command"][2]
    assert "args" not in worker


def test_the_line_is_the_ray_line_of_the_engine() -> None:
    inputs = render_input(V4_ON_32_H100, "TP8 DP4 EP32")
    (line,) = launch(inputs, backend="ray").lines
    head, _ = containers(clusters(V4_ON_32_H100, "TP8 DP4 EP32")[0])
    assert list(flags(tuple(head["args"]))) == [setting.name for setting in line.arguments]
    assert not {"--nnodes", "--node-rank", "--headless"} & set(head["args"])
    assert flags(tuple(head["args"]))["--distributed-executor-backend"] == "ray"


def test_ray_is_the_same_in_image_and_cluster_and_the_image_is_named_as_one_to_build() -> None:
    files = rendered("kuberay", render_input(V4_ON_32_H100))
    (first, *_) = clusters(V4_ON_32_H100)
    assert first["spec"]["rayVersion"] == RAY_VERSION
    assert f"ray[default]=={RAY_VERSION}" in files["ray.Dockerfile"].text
    assert "FROM vllm/vllm-openai:v0.33.0" in files["ray.Dockerfile"].text
    for container in containers(first):
        assert container["image"] == f"vllm-ray:v0.33.0-ray{RAY_VERSION}"
    assert "official vLLM images hold no Ray" in files["raycluster.yaml"].text


def test_start_parameters_are_strings() -> None:
    (first, *_) = clusters(V4_ON_32_H100)
    for group in (first["spec"]["headGroupSpec"], *first["spec"]["workerGroupSpecs"]):
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
        assert group["rayStartParams"]["num-gpus"] == "8"


def test_every_node_has_gpus_rdma_locked_memory_shared_memory_and_its_own_address() -> None:
    (cluster,) = clusters(V4_ON_32_H100, "TP8 DP4 EP32")
    for container in containers(cluster):
        assert container["resources"]["requests"] == container["resources"]["limits"]
        assert container["resources"]["limits"]["nvidia.com/gpu"] == "8"
        assert "rdma/hca_shared_devices_a" in container["resources"]["limits"]
        assert "IPC_LOCK" in container["securityContext"]["capabilities"]["add"]
        assert any(mount["mountPath"] == "/dev/shm" for mount in container["volumeMounts"])
        variables = {one["name"]: one for one in container["env"]}
        assert variables["VLLM_HOST_IP"]["valueFrom"] == {"fieldRef": {"fieldPath": "status.podIP"}}


def test_the_head_is_ready_when_the_engine_answers_and_workers_are_not_asked() -> None:
    head, worker = containers(clusters(V4_ON_32_H100, "TP8 DP4 EP32")[0])
    assert head["readinessProbe"]["httpGet"] == {"path": "/health", "port": "http"}
    assert head["startupProbe"]["periodSeconds"] * head["startupProbe"]["failureThreshold"] >= 3600
    assert "readinessProbe" not in worker


def kubelet(text: str) -> str:
    """What of a command's text Kubernetes leaves after its own expansion."""
    return text.replace("$$", "$")


def test_the_heads_script_starts_ray_waits_for_every_gpu_and_hands_over_its_arguments(tmp_path: Path) -> None:
    """Run for real with stand-ins for `ray`, `python3` and `vllm`."""
    head, _ = containers(clusters(V4_ON_32_H100, "TP8 DP4 EP32")[0])
    for name, body in {
        "ray": 'echo "ray $*"',
        "python3": "cat >gpus.py; echo waited",
        "vllm": 'printf "vllm"; printf " <%s>" "$@"; echo',
    }.items():
        program = tmp_path / name
        program.write_text(f"#!/bin/sh\n{body}\n")
        program.chmod(0o755)
    hostile = ["vllm", "serve", "$(reboot)", "a b", '"; exit 1; "']
    command = [kubelet(word) for word in head["command"]]
    done = subprocess.run(
        [*command, *hostile], cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBERAY_GEN_RAY_START_CMD": "ray start --head --block --num-gpus=8"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        "ray start --head --num-gpus=8", "waited", 'vllm <serve> <$(reboot)> <a b> <"; exit 1; ">',
    ]  # fmt: skip
    assert 'get("GPU", 0) < 32' in (tmp_path / "gpus.py").read_text()


def test_the_workers_script_becomes_rays_own_start(tmp_path: Path) -> None:
    _, worker = containers(clusters(V4_ON_32_H100, "TP8 DP4 EP32")[0])
    (tmp_path / "ray").write_text('#!/bin/sh\necho "ray $*"\n')
    (tmp_path / "ray").chmod(0o755)
    done = subprocess.run(
        [kubelet(word) for word in worker["command"]], capture_output=True, text=True, timeout=60, check=True,
        env={"PATH": f"{tmp_path}:/usr/bin:/bin", "KUBERAY_GEN_RAY_START_CMD": "ray start --address=h:6379 --block"},
    )  # fmt: skip
    assert done.stdout == "ray start --address=h:6379 --block\n"


def test_the_gateway_calls_each_head_by_its_service() -> None:
    files = rendered("kuberay", render_input(V4_ON_32_H100, "2 x TP8 PP2"))
    config = next(one for one in yaml.safe_load_all(files["gateway.yaml"].text) if one["kind"] == "ConfigMap")
    urls = [one["url"] for one in yaml.safe_load(config["data"]["roadworthy.yaml"])["engine"]["endpoints"]]
    assert urls == ["http://v4-engine-0-head-svc:8000", "http://v4-engine-1-head-svc:8000"]


def test_ray_serve_gets_the_engines_flags_as_keywords() -> None:
    arguments = serve_config(V4_ON_32_H100, "2 x TP8 PP2")
    (config,) = arguments["args"]["llm_configs"]
    kwargs = config["engine_kwargs"]
    assert arguments["import_path"] == "ray.serve.llm:build_openai_app"
    assert config["model_loading_config"] == {
        "model_id": "deepseek-ai/DeepSeek-V4-Pro", "model_source": "/models/deepseek-ai/DeepSeek-V4-Pro",
    }  # fmt: skip
    assert config["deployment_config"]["num_replicas"] == 2
    assert (kwargs["tensor_parallel_size"], kwargs["pipeline_parallel_size"]) == (8, 2)
    assert kwargs["trust_remote_code"] is True
    assert kwargs["enable_flashinfer_autotune"] is False


def test_ray_serve_starts_data_parallel_ranks_as_a_gang() -> None:
    arguments = serve_config(V4_ON_32_H100, "TP8 DP4 EP32")
    assert arguments["import_path"] == "ray.serve.llm:build_dp_openai_app"
    kwargs = arguments["args"]["llm_config"]["engine_kwargs"]
    assert (kwargs["data_parallel_size"], kwargs["enable_expert_parallel"]) == (4, True)


def test_json_settings_become_mappings_and_nothing_ray_sets_is_passed() -> None:
    document = V4_ON_32_H100 + (
        "engine: {settings: {enable_eplb: true, eplb_config: '{\"num_redundant_experts\": 32}'}}\n"
    )
    kwargs = serve_config(document, "TP8 DP4 EP32")["args"]["llm_config"]["engine_kwargs"]
    assert kwargs["eplb_config"] == {"num_redundant_experts": 32}
    assert not {name.removeprefix("--").replace("-", "_") for name in NOT_PASSED} & kwargs.keys()


def test_the_file_says_which_vllm_ray_was_tested_with() -> None:
    text = rendered("kuberay", render_input(K3_ON_32_H200))["rayservice.yaml"].text
    assert "pins vLLM 0.29.0; this plan is for 0.33.0" in text


@pytest.mark.parametrize("name", ["raycluster.yaml", "rayservice.yaml"])
def test_settings_are_told_for_explain(name: str) -> None:
    artifact = rendered("kuberay", render_input(V4_ON_32_H100))[name]
    assert all(setting.why for setting in artifact.settings)
    assert any("rayVersion" in setting.name for setting in artifact.settings)
    assert json.dumps([setting.name for setting in artifact.settings])


def test_the_operator_gets_through_the_network_policy() -> None:
    """It asks the head for Ray's and Serve's state; without it a RayService would never be ready."""
    for target, expected in (("kuberay", 1), ("lws", 0)):
        text = rendered(target, render_input(V4_ON_32_H100))["network-policy.yaml"].text
        engines = next(iter(yaml.safe_load_all(text)))
        peers = [peer for rule in engines["spec"]["ingress"] for peer in rule["from"]]
        operators = [
            peer
            for peer in peers
            if peer.get("podSelector", {}).get("matchLabels") == {"app.kubernetes.io/name": "kuberay-operator"}
        ]
        assert len(operators) == expected
