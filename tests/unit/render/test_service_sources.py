"""What the targets around engines cite is in the truth table, and what it says to emit for Kubernetes is emitted."""

from __future__ import annotations

import re

import pytest

from roadworthy.catalog.truth import truth_rows
from support.rendering import K3_ON_32_H200, LLAMA_ON_8_H100, V4_ON_32_H100, render_input, rendered

TARGETS = ("lws", "kuberay", "check", "gateway-api", "envoy", "prometheus", "grafana")
OTHERS = {"", "plan", "engine.settings", "model.weights", "vLLM recipes"}
"""Sources that are no rows: the plan itself, the document, the published recipes."""


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("document", [V4_ON_32_H100, K3_ON_32_H200, LLAMA_ON_8_H100], ids=["v4", "k3", "llama"])
def test_every_source_is_a_row_of_the_truth_table(target: str, document: str) -> None:
    rows = truth_rows()
    for artifact in rendered(target, render_input(document)).values():
        for setting in artifact.settings:
            assert setting.source in OTHERS or setting.source in rows, (setting.name, setting.source)


@pytest.mark.parametrize("target", TARGETS)
def test_nothing_that_the_truth_table_calls_false_or_harmful_is_emitted(target: str) -> None:
    text = "\n".join(
        re.sub(r"#.*", "", artifact.text)
        for path, artifact in rendered(target, render_input(V4_ON_32_H100, "TP8 DP4 EP32")).items()
        if not path.endswith(".md")
    )
    for bad in (
        "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF", "expandable_segments", "NCCL_ALGO", "NCCL_PROTO",
        "NCCL_NET_GDR_LEVEL", "NCCL_IB_GID_INDEX", "--disable-log-requests", "--moe-", "RAY_heartbeat", "numactl ",
        "privileged: true", "oom_score_adj", "ipcrm", "nginx.ingress", "kind: Ingress", "CUDA_VISIBLE_DEVICES",
        "gpu_cache_usage_perc", "vllm_kv_cache_hit_rate", "sessionPersistence",
    ):  # fmt: skip
        assert bad not in text, bad


def test_each_kubernetes_row_has_its_answer_in_the_files() -> None:
    """Row by row; a new row of the table makes this fail until someone has looked at it."""
    document = V4_ON_32_H100
    lws = rendered("lws", render_input(document, "TP8 DP4 EP32"))["leaderworkerset.yaml"].text
    ray = rendered("kuberay", render_input(document, "TP8 DP4 EP32"))["raycluster.yaml"].text
    answers = {
        "k8s.raycluster": ("kind: LeaderWorkerSet" in lws, 'exec "$$@"' in ray, "restartPolicy: RecreateGroup" in lws),
        "k8s.rayVersion": ('rayVersion: "2.60.0"' in ray,),
        "k8s.image-v0.6.3": ("vllm/vllm-openai:v0.33.0" in lws,),
        "k8s.head-8-gpu": ('num-gpus: "8"' in ray, "Losing the head ends the engine" in ray),
        "k8s.resources": (lws.count('nvidia.com/gpu: "8"') == 4,),
        "k8s.shm": ("medium: Memory" in lws, 'sizeLimit: "32Gi"' in lws),
        "k8s.rdma-missing": ('rdma/hca_shared_devices_a: "1"' in lws, 'rdma/hca_shared_devices_a: "1"' in ray),
        "k8s.ipc-lock": ("- IPC_LOCK" in lws, "- IPC_LOCK" in ray, "privileged: true" not in lws),
        "k8s.hostNetwork": ("hostNetwork: true" in lws, "dnsPolicy: ClusterFirstWithHostNet" in lws),
        "k8s.nodeSelector": ("nvidia.com/gpu.product: NVIDIA-H100-80GB-HBM3" in lws, "tolerations:" in lws),
        "k8s.gang": ("Gang admission" in lws, "startupPolicy: LeaderCreated" in lws),
        "k8s.probes": ("failureThreshold: 360" in lws, "terminationGracePeriodSeconds: 180" in lws),
        "k8s.pvc-nfs": ("HF_HUB_OFFLINE" in lws, "- /models/deepseek-ai/DeepSeek-V4-Pro" in lws),
        "k8s.autoscale": ("minReplicas: 3" in ray, "maxReplicas: 3" in ray),
        "k8s.lws-env": all(
            f"$({name})" in lws for name in ("LWS_LEADER_ADDRESS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX")
        ),
    }
    assert {row for row in truth_rows() if row.startswith("k8s.")} == answers.keys()
    for row, found in answers.items():
        assert all(found) if isinstance(found, tuple) else found, (row, found)
