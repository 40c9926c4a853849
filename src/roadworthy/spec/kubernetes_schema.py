"""The keys of `kubernetes`: names that a cluster gives to things, and sizes of pods."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.spec import kinds
from roadworthy.spec.fields import Field, Section
from roadworthy.spec.kubernetes import KubernetesSpec

if TYPE_CHECKING:
    from roadworthy.spec.kinds import Kind

_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_DNS = rf"{_LABEL}(?:\.{_LABEL})*"
_PREFIXED = rf"(?:{_DNS}/)?[A-Za-z0-9](?:[-A-Za-z0-9_.]{{0,61}}[A-Za-z0-9])?"


def _label(example: str) -> Kind:
    return kinds.text("a Kubernetes name: a-z, 0-9 and dashes, at most 63", _LABEL, example=example)


def _name(example: str) -> Kind:
    return kinds.text("a Kubernetes name: a-z, 0-9, dashes and dots", _DNS, example=example)


def _image(example: str) -> Kind:
    return kinds.text(
        "an image with tag or digest, such as registry.example/vllm:v0.33.0",
        r"[A-Za-z0-9][A-Za-z0-9._:/-]*(?:@sha256:[0-9a-f]{64})?", example=example, most=500,
    )  # fmt: skip


def _key(what: str, example: str) -> Kind:
    return kinds.text(what, _PREFIXED, example=example)


KUBERNETES = Section(
    cls=KubernetesSpec,
    doc="What a Kubernetes cluster calls things; only the targets that write manifests read it.",
    fields=(
        Field(key="namespace", attribute="namespace", value=_label("llm"), doc="Where everything goes."),
        Field(
            key="image",
            attribute="image",
            value=_image("vllm/vllm-openai:v0.33.0"),
            doc="The engine's image, best by digest; left out, the official one of `engine.version`.",
        ),
        Field(
            key="ray_image",
            attribute="ray_image",
            value=_image("registry.example/vllm-ray:v0.33.0"),
            doc="The engine's image with Ray added, for `kuberay`: the official one lacks it. Left out, one to push.",
        ),
        Field(
            key="gateway_image",
            attribute="gateway_image",
            value=_image("registry.example/roadworthy:1.0"),
            doc="The gateway's image; left out, a name to be pushed from the Dockerfile that is rendered.",
        ),
        Field(
            key="pull_secret",
            attribute="pull_secret",
            value=_name("registry"),
            doc="Secret for a private registry.",
        ),
        Field(
            key="network",
            attribute="network",
            value=kinds.choice("host", "secondary", "pod"),
            doc="How an engine's pods reach each other: the host's network, secondary networks (Multus), or the pod "
            "network, which is TCP. Left out: host where an engine spans nodes, pod where it does not.",
        ),
        Field(
            key="networks",
            attribute="networks",
            value=kinds.text(
                "a list of networks, such as rdma-0,rdma-1", r"[ -~]+", example="rdma-0,rdma-1", most=4000
            ),
            doc="Value of the annotation `k8s.v1.cni.cncf.io/networks`, for `network: secondary`: one network a NIC.",
        ),
        Field(
            key="rdma_resource",
            attribute="rdma_resource",
            value=_key("an extended resource, such as rdma/ib", "rdma/ib"),
            doc="Extended resource that puts RDMA devices into a pod, as the cluster's device plugin calls it.",
        ),
        Field(
            key="rdma_count",
            attribute="rdma_count",
            value=kinds.whole_number(most=64, example="8"),
            doc="How many of it a pod asks for: 1 where one shares all NICs, the number of NICs where each is its own.",
        ),
        Field(
            key="gpu_resource",
            attribute="gpu_resource",
            value=_key("an extended resource, such as nvidia.com/gpu", "nvidia.com/gpu"),
            doc="Extended resource that gives a pod its GPUs.",
        ),
        Field(
            key="gpu_product",
            attribute="gpu_product",
            value=kinds.text(
                "a label value", r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", example="NVIDIA-H200"
            ),
            doc="Value of the node label `nvidia.com/gpu.product`; left out, feature discovery's word.",
        ),
        Field(
            key="storage_class",
            attribute="storage_class",
            value=_name("nvme"),
            doc="Storage class of the checkpoint's volume; left out, the cluster's default.",
        ),
        Field(
            key="model_path",
            attribute="model_path",
            value=kinds.text("an absolute folder", r"/[A-Za-z0-9._/-]*", example="/mnt/nvme/models", most=1000),
            doc="Folder on every node that holds checkpoints (local NVMe); left out, a shared volume claim.",
        ),
        Field(
            key="pod_cpus",
            attribute="pod_cpus",
            value=kinds.whole_number(most=4096, example="96"),
            doc="CPUs of an engine pod; left out, 8 and 8 more for each GPU.",
        ),
        Field(
            key="pod_memory",
            attribute="pod_memory_bytes",
            value=kinds.size(example="512GiB"),
            doc="Memory of an engine pod, shared memory included; left out, by its number of GPUs.",
        ),
        Field(
            key="hugging_face_secret",
            attribute="hugging_face_secret",
            value=_name("hugging-face"),
            doc="Secret whose key `token` the download of the checkpoint uses, where it is there.",
        ),
        Field(
            key="tenant_secret",
            attribute="tenant_secret",
            value=_name("roadworthy-tenants"),
            doc="Secret that holds each tenant's key; keys are never written into a manifest.",
        ),
        Field(
            key="tls_secret",
            attribute="tls_secret",
            value=_name("roadworthy-tls"),
            doc="Secret with the certificate of the HTTPS listener.",
        ),
        Field(
            key="gateway_class",
            attribute="gateway_class",
            value=_name("envoy-gateway"),
            doc="GatewayClass that carries out the Gateway API objects.",
        ),
        Field(
            key="gateway_replicas",
            attribute="gateway_replicas",
            value=kinds.whole_number(most=1000, example="2"),
            doc="Pods of the roadworthy gateway.",
        ),
        Field(
            key="host_name",
            attribute="host_name",
            value=_name("llm.example.com"),
            doc="Name that clients use, for the HTTPS listener and the route; left out, any.",
        ),
        Field(
            key="topology_key",
            attribute="topology_key",
            value=_key("a node label", "topology.kubernetes.io/rack"),
            doc="Node label of one fast network domain; all pods of an engine stay within one, alone.",
        ),
        Field(
            key="queue",
            attribute="queue",
            value=_label("gpus"),
            doc="LocalQueue of Kueue: all pods of an engine are admitted together, or none. Left out, one by one.",
        ),
    ),
)
