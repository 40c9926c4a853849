"""Every manifest against real schemas: Kubernetes' own, and those of the custom resources where they are laid out."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from support.kubernetes import documents, is_core, problems_of
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, TINY, V4_ON_32_H100, render_input, rendered

EVERYTHING = (
    V4_ON_32_H100.replace("nics:", "interface: ens3f0, hcas: [mlx5_0], gpu_numa_nodes: [0, 0, 0, 0, 1, 1, 1, 1], nics:")
    + """\
tenants: [{id: a.b, key: sk-x, kv_quota: 7GiB}, {id: b, key_env: B_KEY, models: [m], concurrency: 3}]
sla: {ttft_p99: 250ms, tpot_p99: 40ms, success: 99.9%}
kubernetes:
  namespace: llm
  image: registry.example/vllm@sha256:0000000000000000000000000000000000000000000000000000000000000000
  ray_image: registry.example/ray:1
  gateway_image: registry.example/gw:1
  pull_secret: registry
  network: secondary
  networks: rdma-0,rdma-1
  rdma_resource: rdma/ib
  rdma_count: 8
  gpu_product: NVIDIA-H100
  storage_class: nvme
  pod_cpus: 96
  pod_memory: 512GiB
  host_name: llm.example.com
  topology_key: topology.kubernetes.io/rack
  queue: gpus
"""
)
DOCUMENTS = {
    "v4": (V4_ON_32_H100, None),
    "v4 with data parallelism": (V4_ON_32_H100, "TP8 DP4 EP32"),
    "v4 with every key": (EVERYTHING, None),
    "k3": (K3_ON_32_H200, None),
    "one gpu each": (LLAMA_ON_8_H100, "8 x TP1"),
    "checkpoint on the nodes": (LLAMA_ON_8_H100 + "kubernetes: {model_path: /mnt/nvme}\n", None),
    "cpu": (TINY, None),
}
TARGETS = ("lws", "kuberay", "gateway-api", "prometheus")


def manifests(target: str, case: str) -> list[dict[str, Any]]:
    document, layout = DOCUMENTS[case]
    return [
        one
        for path, artifact in rendered(target, render_input(document, layout)).items()
        if path.endswith((".yaml", ".yml"))
        for one in documents(artifact.text)
        if "apiVersion" in one
    ]


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("target", ["lws", "kuberay"])
def test_kubernetes_takes_every_object_of_its_own(target: str, case: str) -> None:
    found = [one for one in manifests(target, case) if is_core(one)]
    assert {"Deployment", "Service", "ConfigMap", "NetworkPolicy", "PodDisruptionBudget"} <= {
        one["kind"] for one in found
    }
    for manifest in found:
        assert problems_of(manifest, None) == [], manifest["kind"]


@pytest.mark.parametrize("case", DOCUMENTS)
@pytest.mark.parametrize("target", TARGETS)
def test_controllers_take_every_custom_resource(target: str, case: str, test_data: Path) -> None:
    found = [one for one in manifests(target, case) if not is_core(one)]
    assert found
    for manifest in found:
        assert problems_of(manifest, test_data / "crds") == [], manifest["kind"]


@pytest.mark.parametrize("case", DOCUMENTS)
def test_kubernetes_takes_the_check_of_nodes(case: str) -> None:
    found = manifests("check", case)
    assert [one["kind"] for one in found] == ["Namespace", "ConfigMap", "DaemonSet"]
    for manifest in found:
        assert problems_of(manifest, None) == [], manifest["kind"]


def test_the_check_is_strict(test_data: Path) -> None:
    """A misspelt field fails at every depth, in objects of either kind."""
    for target, kind, path in (
        ("lws", "LeaderWorkerSet", ("spec", "leaderWorkerTemplate", "leaderTemplate", "spec", "containers", 0)),
        ("kuberay", "RayCluster", ("spec", "headGroupSpec", "template", "spec")),
        ("prometheus", "PrometheusRule", ("spec", "groups", 0, "rules", 0)),
        ("gateway-api", "HTTPRoute", ("spec", "rules", 0)),
        ("lws", "Deployment", ("spec", "template", "spec", "containers", 0, "readinessProbe")),
        ("lws", "NetworkPolicy", ("spec", "ingress", 1)),
        ("check", "DaemonSet", ("spec", "template", "spec", "containers", 0, "securityContext")),
    ):
        manifest = copy.deepcopy(next(one for one in manifests(target, "v4") if one["kind"] == kind))
        assert problems_of(manifest, test_data / "crds") == []
        place: Any = manifest
        for step in path:
            place = place[step]
        place["hostNetwrok"] = True
        assert problems_of(manifest, test_data / "crds"), (kind, path)


@pytest.mark.parametrize("target", ["lws", "kuberay"])
def test_selectors_find_the_pods_that_they_mean(target: str) -> None:
    """Services, policies, budgets and monitors select by labels that pods of this rendering have."""
    found = manifests(target, "v4") + manifests("prometheus", "v4")
    pods = [_pod_labels(one) for one in found]
    labels = [one for several in pods for one in several]
    for manifest in found:
        for wanted in _selectors(manifest):
            assert any(wanted.items() <= one.items() for one in labels), (manifest["kind"], wanted)


def _pod_labels(manifest: dict[str, Any]) -> list[dict[str, str]]:
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Deployment":
            return [spec["template"]["metadata"]["labels"]]
        case "LeaderWorkerSet":
            both = spec["leaderWorkerTemplate"]
            return [both[name]["metadata"]["labels"] for name in ("leaderTemplate", "workerTemplate")]
        case "RayCluster":
            groups = [spec["headGroupSpec"], *spec.get("workerGroupSpecs", [])]
            return [one["template"]["metadata"]["labels"] for one in groups]
    return []


def _selectors(manifest: dict[str, Any]) -> list[dict[str, str]]:
    spec = manifest.get("spec", {})
    match manifest["kind"]:
        case "Service":
            return [spec["selector"]]
        case "NetworkPolicy":
            peers = [peer for rule in spec["ingress"] for peer in rule.get("from", []) if set(peer) == {"podSelector"}]
            return [spec["podSelector"]["matchLabels"], *(peer["podSelector"]["matchLabels"] for peer in peers)]
        case "PodDisruptionBudget" | "PodMonitor":
            return [spec["selector"]["matchLabels"]]
    return []
