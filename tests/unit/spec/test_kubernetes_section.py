"""The keys of `kubernetes`: names that Kubernetes takes, and what is said about those that it does not."""

from __future__ import annotations

import pytest

from roadworthy.spec.kubernetes import KubernetesSpec
from roadworthy.spec.load import check_text, load_text


def section(text: str) -> KubernetesSpec:
    return load_text(f"model: {{config: tiny}}\nkubernetes: {{{text}}}", source="x.yaml").kubernetes


def test_left_out_everything_has_a_default() -> None:
    assert load_text("model: {config: tiny}", source="x.yaml").kubernetes == KubernetesSpec()


def test_names_sizes_and_counts_are_read() -> None:
    found = section(
        "namespace: llm, image: 'r.example:5000/a/vllm:v1@sha256:" + "0" * 64 + "', network: secondary, "
        "networks: 'a,b', rdma_resource: rdma/ib, rdma_count: 8, pod_memory: 512GiB, model_path: /mnt/nvme, "
        "topology_key: topology.kubernetes.io/rack, queue: gpus, host_name: llm.example.com"
    )
    assert found.image is not None
    assert found.image.endswith("0" * 64)
    assert (found.network, found.rdma_count, found.pod_memory_bytes) == ("secondary", 8, 512 * 2**30)
    assert (found.topology_key, found.queue) == ("topology.kubernetes.io/rack", "gpus")


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("namespace: Llm", "kubernetes.namespace"),
        ("namespace: a.b", "kubernetes.namespace"),
        ("image: 'vllm openai'", "kubernetes.image"),
        ("image: '-x'", "kubernetes.image"),
        ("network: bridge", "kubernetes.network"),
        ("rdma_resource: 'rdma/ib x'", "kubernetes.rdma_resource"),
        ("rdma_count: 0", "kubernetes.rdma_count"),
        ("model_path: models", "kubernetes.model_path"),
        ("pod_memory: 512", "kubernetes.pod_memory"),
        ("tls_secret: 'a_b'", "kubernetes.tls_secret"),
        ('networks: "a\\nb"', "kubernetes.networks"),
        ("host_name: 'llm_example'", "kubernetes.host_name"),
        ("topology_key: 'a/b/c'", "kubernetes.topology_key"),
        ("gateway_replicas: 0", "kubernetes.gateway_replicas"),
    ],
)
def test_what_kubernetes_would_refuse_is_named_here(text: str, path: str) -> None:
    _, problems = check_text(f"model: {{config: tiny}}\nkubernetes: {{{text}}}", source="x.yaml")
    assert [problem.path for problem in problems] == [path]


def test_a_misspelt_key_is_told_with_what_is_near() -> None:
    _, (problem,) = check_text("model: {config: tiny}\nkubernetes: {name_space: a}", source="x.yaml")
    assert "namespace" in problem.hint
