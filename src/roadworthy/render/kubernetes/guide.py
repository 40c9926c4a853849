"""``README.md`` of a folder of manifests: what to make first, in which order to apply, what to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.render.engine_lines import launch
from roadworthy.render.kubernetes.engine_pod import network_of, uses_rdma
from roadworthy.render.kubernetes.gateway_document import key_variables, secret_key
from roadworthy.render.kubernetes.gateway_workload import IMAGE
from roadworthy.render.kubernetes.model_cache import fetchable
from roadworthy.render.kubernetes.objects import names_of
from roadworthy.render.markdown import code, table
from roadworthy.render.values import Artifact

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from roadworthy.render.values import RenderInput

ORDER = ("namespace.yaml", "model-cache.yaml", "network-policy.yaml", "disruption-budget.yaml", "gateway.yaml")
LAUNCHERS = {
    "lws": "leaderworkerset.yaml and engine-service.yaml",
    "kuberay": "either raycluster.yaml with engine-service.yaml, or rayservice.yaml",
}


def guide(inputs: RenderInput, files: Iterable[Artifact], *, launcher: str) -> Artifact:
    """The page for an operator who has just rendered the folder."""
    parts = [
        f"# {code(inputs.deployment.name)} on Kubernetes",
        f"{code(inputs.deployment.model.served_name)}, {inputs.chosen.layout.label}. "
        "Rendered: change the document and render again instead of editing; every setting says why it is there.",
        "## What must be there first",
        "\n".join(f"- {line}" for line in _needs(inputs, launcher)),
        "## Order",
        "\n".join(f"{number}. {line}" for number, line in enumerate(_steps(inputs, files, launcher), start=1)),
        "## What to look at before the first start",
        table(("setting", "here", "why"), _to_check(inputs)),
        "## When it does not come up",
        _TROUBLE,
    ]
    return Artifact(path="README.md", text="\n\n".join(parts) + "\n")


def _needs(inputs: RenderInput, launcher: str) -> Iterator[str]:
    if launcher == "lws":
        yield "The LeaderWorkerSet controller (`leaderworkerset.x-k8s.io/v1`)."
    else:
        yield "The KubeRay operator 1.7 or newer, and an image with vLLM **and** Ray: see `ray.Dockerfile`."
    if inputs.gpu.id != "cpu":
        yield "The NVIDIA device plugin and GPU feature discovery (both come with the GPU operator)."
        yield "Nodes that are ready: `roadworthy render DOCUMENT --target check` asks each what matters to an engine."
    line = launch(inputs).lines[0]
    if uses_rdma(inputs, line):
        yield "An RDMA device plugin that offers " + code(inputs.deployment.kubernetes.rdma_resource) + "."
    if network_of(inputs, line) == "secondary":
        yield "Multus and the networks that `kubernetes.networks` names."
    yield f"The gateway's image: build `gateway.Dockerfile`, name it in `kubernetes.gateway_image` (now {code(IMAGE)})."


def _steps(inputs: RenderInput, files: Iterable[Artifact], launcher: str) -> Iterator[str]:
    site, names, written = inputs.deployment.kubernetes, names_of(inputs), {one.path for one in files}
    yield "`kubectl apply -f namespace.yaml`"
    if inputs.deployment.tenants:
        keys = [secret_key(tenant, variable) for tenant, variable in key_variables(inputs)]
        listed = ", ".join(code(key) for key in keys[:12]) + (" and so on" if len(keys) > 12 else "")
        yield (
            f"The Secret {code(site.tenant_secret)} with one key for each tenant: {listed}. "
            "The command stands on top of `gateway.yaml`."
        )
    if "model-cache.yaml" in written:
        if fetchable(inputs):
            yield (
                f"The checkpoint: `kubectl apply -f model-cache.yaml`, then `kubectl -n {names.namespace} wait "
                f"--for=condition=complete --timeout=24h job/{names.model_cache}-download`. A gated model needs the "
                f"Secret {code(site.hugging_face_secret)} with the key `token`."
            )
        else:
            yield f"The checkpoint: `kubectl apply -f model-cache.yaml`, then copy it into `{names.model_cache}`."
    else:
        yield f"The checkpoint, on every node, below {code(site.model_path or '')}."
    yield "`kubectl apply -f network-policy.yaml -f disruption-budget.yaml -f gateway.yaml`"
    yield f"The engines: {LAUNCHERS[launcher]}. Readiness takes as long as the load; the startup probe allows an hour."
    yield (
        f"A first answer: `kubectl -n {names.namespace} port-forward service/{names.gateway} 8080:80`, then "
        "`curl http://127.0.0.1:8080/v1/models -H 'Authorization: Bearer KEY'`, then `roadworthy bench`."
    )


def _to_check(inputs: RenderInput) -> Iterator[tuple[str, str, str]]:
    site = inputs.deployment.kubernetes
    line = launch(inputs).lines[0]
    yield (
        "`kubernetes.image`", code(site.image or f"tag of vLLM {inputs.deployment.engine.version}"),
        "a digest cannot change under you; `vllm --version` in it must be the engine.version of the document",
    )  # fmt: skip
    if inputs.gpu.id != "cpu":
        yield (
            "`kubernetes.gpu_product`", code(site.gpu_product or "by the catalog"),
            "`kubectl get nodes -L nvidia.com/gpu.product` prints what your nodes say",
        )  # fmt: skip
    if line.nodes > 1 and inputs.gpu.id != "cpu":
        yield (
            "`kubernetes.network`", code(network_of(inputs, line)),
            "host: RDMA without secondary networks, policies do not apply; secondary: one network a NIC (Multus); "
            "pod: NCCL over TCP, far below what the plan predicts",
        )  # fmt: skip
        yield (
            "`kubernetes.rdma_resource`", code(site.rdma_resource),
            "`kubectl describe node` lists what the device plugin offers; without it NCCL falls back to TCP",
        )  # fmt: skip
    yield (
        "`kubernetes.model_path`", code(site.model_path or "none: a shared volume"),
        "a copy on each node's NVMe loads fastest; over NFS every node reads the whole checkpoint",
    )  # fmt: skip
    yield "`kubernetes.pod_memory`", "by GPUs", "a start; compare with the working set after the first load"


_TROUBLE = """\
- Pending: `kubectl describe pod` names the resource that no node offers. Some pods of a group pending and others not:
  use gang admission (Kueue, Volcano, KAI), partial groups hold GPUs idle.
- Killed while loading: exit code 137 is memory (raise `kubernetes.pod_memory`); a startup probe that fails is time.
- Starts, then `watchdog ... timeout`: one rank is gone or never came. `kubectl logs` of every pod of the group, the one
  that says nothing first.
- NCCL says `NET/Socket`: no RDMA device in the pod, see the table above.
- `roadworthy diagnose LOG` reads the engine's log and ranks causes."""
