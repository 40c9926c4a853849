"""The `kubernetes` section as a value: what no plan can know about a cluster. Every default works on some cluster, and
the rendered files say beside each what to look at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

PodNetwork = Literal["host", "secondary", "pod"]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubernetesSpec:
    """Names and sizes of one Kubernetes cluster.

    Args:
        image: of the engine; None means the official image of ``engine.version``.
        ray_image: the engine's image with Ray added; None means a name to be pushed from the rendered Dockerfile.
        gateway_image: of the gateway; None means a name to be pushed from the rendered Dockerfile.
        pull_secret: of a private registry.
        network: how ranks reach each other: the ``host`` network, ``secondary`` networks of Multus, or the ``pod``
            network (TCP). None means ``host`` where an engine spans nodes and ``pod`` where it does not.
        networks: the annotation that asks Multus for secondary networks.
        rdma_resource: extended resource that gives a pod its RDMA devices; ``rdma_count`` of it in each pod.
        gpu_product: value of the node label ``nvidia.com/gpu.product``; None means the catalog's for ``cluster.gpu``.
        storage_class: None means the cluster's default.
        model_path: folder on every node that holds checkpoints; None means a volume claim.
        pod_cpus, pod_memory_bytes: of each engine pod; None means by its number of GPUs.
        hugging_face_secret: secret with the key ``token``; only the download reads it.
        tenant_secret: secret that holds the tenants' keys.
        tls_secret: certificate of the HTTPS listener, of type ``kubernetes.io/tls``.
        topology_key: node label of one fast network domain; an engine's pods stay within one.
        queue: LocalQueue of Kueue, which admits all pods of an engine or none.
    """

    namespace: str = "roadworthy"
    image: str | None = None
    ray_image: str | None = None
    gateway_image: str | None = None
    pull_secret: str | None = None
    network: PodNetwork | None = None
    networks: str | None = None
    rdma_resource: str = "rdma/hca_shared_devices_a"
    rdma_count: int = 1
    gpu_resource: str = "nvidia.com/gpu"
    gpu_product: str | None = None
    storage_class: str | None = None
    model_path: str | None = None
    pod_cpus: int | None = None
    pod_memory_bytes: int | None = None
    hugging_face_secret: str = "hugging-face"
    tenant_secret: str = "roadworthy-tenants"
    tls_secret: str = "roadworthy-tls"
    gateway_class: str = "envoy-gateway"
    gateway_replicas: int = 2
    host_name: str | None = None
    topology_key: str | None = None
    queue: str | None = None
