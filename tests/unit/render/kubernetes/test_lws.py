"""The LeaderWorkerSet: one group an engine, started by vLLM, with what a pod needs and nothing that a shell reads."""

from __future__ import annotations

import re
from typing import Any

import pytest
import yaml

from roadworthy.render.at_start import AtStart
from roadworthy.render.engine_lines import launch
from roadworthy.render.kubernetes.objects import GIB
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, TINY, V4_ON_32_H100, flags, render_input, rendered


def group(document: str, layout: str | None = None) -> Any:
    return yaml.safe_load(rendered("lws", render_input(document, layout))["leaderworkerset.yaml"].text)


def templates(document: str, layout: str | None = None) -> tuple[Any, Any]:
    found = group(document, layout)["spec"]["leaderWorkerTemplate"]
    return found["leaderTemplate"], found["workerTemplate"]


def container(template: Any) -> Any:
    (only,) = template["spec"]["containers"]
    return only


def env(template: Any) -> dict[str, Any]:
    return {one["name"]: one.get("value", one.get("valueFrom")) for one in container(template)["env"]}


def kubernetes(**keys: object) -> str:
    import json

    return f"kubernetes: {json.dumps(keys)}\n"


def test_a_group_is_an_engine_and_replicas_are_engines() -> None:
    spec = group(V4_ON_32_H100, "2 x TP8 PP2")["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (2, 2)
    spec = group(V4_ON_32_H100, "TP8 DP4 EP32")["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (1, 4)
    spec = group(LLAMA_ON_8_H100, "8 x TP1")["spec"]
    assert (spec["replicas"], spec["leaderWorkerTemplate"]["size"]) == (8, 1)


def test_ranks_find_each_other_by_what_the_controller_sets() -> None:
    for template in templates(V4_ON_32_H100, "TP8 DP4 EP32"):
        found = flags(tuple(container(template)["args"]))
        assert found["--nnodes"] == "$(LWS_GROUP_SIZE)"
        assert found["--node-rank"] == "$(LWS_WORKER_INDEX)"
        assert found["--master-addr"] == "$(LWS_LEADER_ADDRESS)"


def test_workers_compute_and_the_leader_answers() -> None:
    leader, worker = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    assert "--headless" in container(worker)["args"]
    assert "--headless" not in container(leader)["args"]
    assert {"startupProbe", "readinessProbe", "livenessProbe", "ports"} <= container(leader).keys()
    assert not {"startupProbe", "readinessProbe", "livenessProbe", "ports"} & container(worker).keys()
    assert leader["metadata"]["labels"]["roadworthy/role"] == "leader"
    assert worker["metadata"]["labels"]["roadworthy/role"] == "worker"


def test_no_flag_of_the_engines_own_line_is_lost_or_added() -> None:
    inputs = render_input(V4_ON_32_H100, "TP8 DP4 EP32")
    line = launch(inputs).lines[0]
    leader, _ = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    assert list(flags(tuple(container(leader)["args"]))) == [setting.name for setting in line.arguments]


def test_a_group_lives_and_dies_together() -> None:
    found = group(V4_ON_32_H100)["spec"]
    assert found["leaderWorkerTemplate"]["restartPolicy"] == "RecreateGroupOnPodRestart"
    assert found["startupPolicy"] == "LeaderCreated"


def test_a_start_may_take_an_hour_and_a_stop_as_long_as_requests_do() -> None:
    leader, _ = templates(V4_ON_32_H100 + "engine: {settings: {shutdown_timeout: 600}}\n")
    probe = container(leader)["startupProbe"]
    assert probe["periodSeconds"] * probe["failureThreshold"] >= 3600
    assert leader["spec"]["terminationGracePeriodSeconds"] > 600


def test_requests_equal_limits_so_that_the_pod_is_guaranteed() -> None:
    for template in templates(V4_ON_32_H100, "TP8 DP4 EP32"):
        resources = container(template)["resources"]
        assert resources["requests"] == resources["limits"]
        assert resources["limits"]["nvidia.com/gpu"] == "8"
        assert {"cpu", "memory", "ephemeral-storage", "rdma/hca_shared_devices_a"} <= resources["limits"].keys()


def test_memory_counts_shared_memory_and_offload() -> None:
    def memory_gib(document: str) -> int:
        leader, _ = templates(document, "TP8 DP4 EP32")
        return int(container(leader)["resources"]["limits"]["memory"].removesuffix("Gi"))

    plain = memory_gib(V4_ON_32_H100)
    assert memory_gib(V4_ON_32_H100 + "engine: {settings: {cpu_offload_gb: 4}}\n") == plain + 8 * 4
    assert memory_gib(V4_ON_32_H100 + kubernetes(pod_memory="1TiB")) == 1024
    assert plain * GIB > 32 * GIB


def test_rdma_asks_for_its_device_and_the_right_to_lock_memory_and_never_for_privilege() -> None:
    leader, _ = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    security = container(leader)["securityContext"]
    assert security["capabilities"]["add"] == ["IPC_LOCK"]
    assert security["allowPrivilegeEscalation"] is False
    assert "privileged" not in security


def test_an_engine_on_one_node_needs_neither_rdma_nor_the_hosts_network() -> None:
    leader, _ = templates(LLAMA_ON_8_H100)
    assert "hostNetwork" not in leader["spec"]
    assert "capabilities" not in container(leader)["securityContext"]
    assert not any("rdma" in name for name in container(leader)["resources"]["limits"])


def test_the_host_network_comes_with_its_dns_policy() -> None:
    leader, _ = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    assert leader["spec"]["hostNetwork"] is True
    assert leader["spec"]["dnsPolicy"] == "ClusterFirstWithHostNet"


def test_secondary_networks_are_asked_for_and_the_first_interface_is_the_pods_own() -> None:
    document = V4_ON_32_H100 + kubernetes(
        network="secondary", networks="rdma-0,rdma-1", rdma_resource="rdma/ib", rdma_count=8
    )
    leader, _ = templates(document, "TP8 DP4 EP32")
    assert "hostNetwork" not in leader["spec"]
    assert leader["metadata"]["annotations"]["k8s.v1.cni.cncf.io/networks"] == "rdma-0,rdma-1"
    assert container(leader)["resources"]["limits"]["rdma/ib"] == "8"
    assert env(leader)["NCCL_SOCKET_IFNAME"] == "=eth0"
    assert env(leader)["GLOO_SOCKET_IFNAME"] == "eth0"


def test_the_pod_network_has_no_rdma() -> None:
    leader, _ = templates(V4_ON_32_H100 + kubernetes(network="pod"), "TP8 DP4 EP32")
    assert not any("rdma" in name for name in container(leader)["resources"]["limits"])
    assert env(leader)["NCCL_SOCKET_IFNAME"] == "=eth0"


def test_on_the_hosts_network_the_interface_is_the_documents_or_left_to_nccl_with_a_remark() -> None:
    named = V4_ON_32_H100.replace("nics:", "interface: ens3f0, hcas: [mlx5_0, mlx5_3], nics:")
    leader, _ = templates(named, "TP8 DP4 EP32")
    assert env(leader)["NCCL_SOCKET_IFNAME"] == "=ens3f0"
    assert env(leader)["NCCL_IB_HCA"].startswith("=mlx5_0")
    leader, _ = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    assert "NCCL_SOCKET_IFNAME" not in env(leader)
    text = rendered("lws", render_input(V4_ON_32_H100, "TP8 DP4 EP32"))["leaderworkerset.yaml"].text
    assert "# NCCL_SOCKET_IFNAME: left out" in text


def test_a_pod_tells_its_own_address_and_leaves_devices_to_the_plugin() -> None:
    leader, _ = templates(V4_ON_32_H100, "TP8 DP4 EP32")
    assert env(leader)["VLLM_HOST_IP"] == {"fieldRef": {"fieldPath": "status.podIP"}}
    leader, _ = templates(LLAMA_ON_8_H100, "8 x TP1")
    assert "CUDA_VISIBLE_DEVICES" not in env(leader)


def test_numa_binding_brings_the_right_to_set_memory_policy() -> None:
    document = V4_ON_32_H100.replace("nics:", "gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], nics:")
    leader, _ = templates(document, "TP8 DP4 EP32")
    assert "--numa-bind" in container(leader)["args"]
    assert set(container(leader)["securityContext"]["capabilities"]["add"]) == {"IPC_LOCK", "SYS_NICE"}


def test_services_do_not_leak_into_the_environment() -> None:
    """A Service called vllm would set VLLM_PORT to a URL, which vLLM refuses."""
    for template in templates(V4_ON_32_H100):
        assert template["spec"]["enableServiceLinks"] is False


def test_nothing_is_fetched_while_it_starts() -> None:
    leader, _ = templates(V4_ON_32_H100)
    assert env(leader)["HF_HUB_OFFLINE"] == "1"
    assert container(leader)["args"][1] == "/models/deepseek-ai/DeepSeek-V4-Pro"
    (mount,) = [one for one in container(leader)["volumeMounts"] if one["mountPath"] == "/models"]
    assert mount["readOnly"] is True


def test_the_engine_can_be_called_from_the_gateways_pods() -> None:
    leader, _ = templates(LLAMA_ON_8_H100)
    assert flags(tuple(container(leader)["args"]))["--host"] == "0.0.0.0"


def test_the_gateway_calls_every_leader_by_name() -> None:
    files = rendered("lws", render_input(V4_ON_32_H100, "2 x TP8 PP2"))
    config = next(one for one in yaml.safe_load_all(files["gateway.yaml"].text) if one["kind"] == "ConfigMap")
    document = yaml.safe_load(config["data"]["roadworthy.yaml"])
    assert [one["url"] for one in document["engine"]["endpoints"]] == [
        "http://v4-engine-0.v4-engine:8000",
        "http://v4-engine-1.v4-engine:8000",
    ]


@pytest.mark.parametrize("text", ["$(LWS_LEADER_ADDRESS)", "$HOME", "a$$b", "$((1+1))"])
def test_what_kubernetes_would_expand_stays_as_the_document_has_it(text: str) -> None:
    from dataclasses import replace

    inputs = render_input(LLAMA_ON_8_H100)
    model = replace(inputs.deployment.model, served_name=text)
    files = rendered("lws", replace(inputs, deployment=replace(inputs.deployment, model=model)))
    args = yaml.safe_load(files["leaderworkerset.yaml"].text)["spec"]["leaderWorkerTemplate"]["leaderTemplate"]["spec"][
        "containers"
    ][0]["args"]
    assert expanded(args[args.index("--served-model-name") + 1]) == text


@pytest.mark.parametrize(
    ("document", "layout"),
    [
        (V4_ON_32_H100, "TP8 DP4 EP32"),
        (V4_ON_32_H100, "TP8 PP4"),
        (V4_ON_32_H100 + "engine: {settings: {data_parallel_external_lb: true}}\n", "TP8 DP4 EP32"),
        (K3_ON_32_H200, "TP8 DP4 EP32"),
        (LLAMA_ON_8_H100, "8 x TP1"),
    ],
)
def test_each_pod_starts_with_the_line_of_its_host(document: str, layout: str) -> None:
    """What the kubelet makes of the template for each pod is the line that real vLLM's parser is asked about.

    The address to listen on and the checkpoint's place differ.
    """
    inputs = render_input(document, layout)
    lines = [line for line in launch(inputs).lines if line.replica == 0]
    leader, worker = templates(document, layout)
    for line in lines:
        pod = {
            "LWS_LEADER_ADDRESS": "the-leader",
            "LWS_GROUP_SIZE": str(len(lines)),
            "LWS_WORKER_INDEX": str(line.node_rank),
        }
        made = [expanded(word, pod) for word in container(worker if line.node_rank else leader)["args"]]
        wanted = ["the-leader" if word == AtStart.MASTER_ADDRESS else str(word) for word in line.argv]
        for words in (made, wanted):
            words[1] = "CHECKPOINT"
            if "--host" in words:
                words[words.index("--host") + 1] = "ANY"
        assert made == wanted


def expanded(text: str, pod: dict[str, str] | None = None) -> str:
    """The kubelet's expansion: `$$` is a dollar, `$(NAME)` the value of a variable that is set, else left alone."""
    known = pod or {}

    def value(found: re.Match[str]) -> str:
        return "$" if found.group() == "$$" else known.get(found.group(1), found.group())

    return re.sub(r"\$\$|\$\((\w+)\)", value, text)


def test_a_host_that_serves_its_own_ranks_is_reached_by_its_own_name() -> None:
    """With a balancer over hosts each pod answers; its first rank is computed from its index."""
    document = V4_ON_32_H100 + "engine: {settings: {data_parallel_hybrid_lb: true}}\n"
    inputs = render_input(document, "TP4 DP8 EP32")
    leader, worker = (
        yaml.safe_load(rendered("lws", inputs)["leaderworkerset.yaml"].text)["spec"]["leaderWorkerTemplate"][name]
        for name in ("leaderTemplate", "workerTemplate")
    )
    assert "livenessProbe" in container(worker)
    assert expanded(container(worker)["command"][2]).endswith('--data-parallel-start-rank "$((LWS_WORKER_INDEX * 2))"')
    assert "--data-parallel-start-rank" not in container(leader)["args"]
    config = next(
        one for one in yaml.safe_load_all(rendered("lws", inputs)["gateway.yaml"].text) if one["kind"] == "ConfigMap"
    )
    urls = [one["url"] for one in yaml.safe_load(config["data"]["roadworthy.yaml"])["engine"]["endpoints"]]
    assert urls == ["http://v4-engine-0.v4-engine:8000", *(f"http://v4-engine-0-{n}.v4-engine:8000" for n in (1, 2, 3))]


def test_a_group_stays_in_one_domain_where_the_document_names_one() -> None:
    found = group(V4_ON_32_H100 + kubernetes(topology_key="topology.kubernetes.io/rack"))
    assert (
        found["metadata"]["annotations"]["leaderworkerset.sigs.k8s.io/exclusive-topology"]
        == "topology.kubernetes.io/rack"
    )


def test_the_cpu_engine_asks_for_no_gpu() -> None:
    leader, _ = templates(TINY)
    assert not any("gpu" in name for name in container(leader)["resources"]["limits"])
    assert "nodeSelector" not in leader["spec"]


def test_k3_takes_the_same_road() -> None:
    leader, worker = templates(K3_ON_32_H200)
    assert container(leader)["image"] == "vllm/vllm-openai:v0.33.0"
    assert leader["spec"]["nodeSelector"] == {"nvidia.com/gpu.product": "NVIDIA-H200"}
    assert flags(tuple(container(worker)["args"]))["--moe-backend"] == "marlin"


def test_the_original_names_are_kept_where_kubernetes_does_not_take_them() -> None:
    found = group(LLAMA_ON_8_H100.replace("name: llama", "name: My Llama_8B.v1"))
    assert found["metadata"]["name"] == "my-llama-8b-v1-engine"
    assert found["metadata"]["annotations"]["roadworthy/deployment"] == "My Llama_8B.v1"


def test_a_queue_admits_all_pods_of_an_engine_together() -> None:
    found = group(V4_ON_32_H100 + kubernetes(queue="gpus"))
    assert found["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
    assert "kueue.x-k8s.io/queue-name" not in group(V4_ON_32_H100)["metadata"]["labels"]
    files = rendered("kuberay", render_input(V4_ON_32_H100 + kubernetes(queue="gpus")))
    for name in ("raycluster.yaml", "rayservice.yaml"):
        for one in yaml.safe_load_all(files[name].text):
            assert one["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpus"
