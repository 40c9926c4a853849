"""Kubernetes and Compose: images, and what a pod lacks or has too much of to run a multi-node engine."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from roadworthy.lint.edits import replace_part
from roadworthy.lint.rules.servers import older_than
from roadworthy.lint.values import Edit
from roadworthy.lint.yaml_source import HOLE, Item

if TYPE_CHECKING:
    from roadworthy.lint.rules.judge import Judge
    from roadworthy.lint.values import Invocation, KeyValue

_GPU_RESOURCE = re.compile(r"(?:nvidia|amd)\.com/gpu|nvidia\.com/mig")
_RDMA_RESOURCE = re.compile(
    r"rdma/|/hca|hca_|nvidia\.com/(?:sriov|.*(?:rdma|roce|ib|hca|mlnx|cx\d|bf\d))|mellanox|sriov"
    r"|vpc\.amazonaws\.com/efa|/ib",
    re.IGNORECASE,
)
_NEEDS = {"v4": (0, 20), "v4-0813": (0, 25), "k3": (0, 27)}
_CLOUD_TYPE = re.compile(
    r"(?:p\d\w*\.\d*xlarge|a\d-(?:high|mega|ultra|edge)gpu.*|Standard_\w+|BM\.\w+|\w+\.\d*xlarge|gd?-\dx.*|ecs\..*)$"
)


@dataclass(frozen=True, slots=True)
class Pod:
    """A pod template: its spec, the object it is part of, and what group of a cluster it is."""

    spec: Item
    document: Item
    kind: str
    role: str = ""

    @property
    def containers(self) -> list[Item]:
        found = self.spec.get("containers")
        return [one for one in found.items if one.kind == "map"] if found is not None else []

    @property
    def metadata(self) -> Item | None:
        parent = self.spec.parent
        return parent.get("metadata") if parent is not None else None


def check_kubernetes(judge: Judge) -> None:
    for image in judge.reading.images:
        _image(judge, image)
    for document in judge.reading.documents:
        if document.kind != "map":
            continue
        kind = document.text("kind")
        pods = list(_pods(document, kind))
        multi = _spans_nodes(judge, document, kind)
        for pod in pods:
            _pod(judge, pod, multi)
        _object(judge, document, kind, pods, multi)
        for item in document.walk():
            if item.kind == "map":
                _anywhere(judge, item)
        if document.get("services") is not None and not document.get("apiVersion"):
            _compose(judge, document)


def _pods(document: Item, kind: str) -> Iterator[Pod]:
    for item in document.walk():
        if item.kind == "map" and (found := item.get("containers")) is not None and found.kind == "list":
            names = item.path
            role = (
                "head"
                if "headGroupSpec" in names
                else "worker"
                if "workerGroupSpecs" in names or "workerTemplate" in names
                else ""
            )
            yield Pod(item, document, kind, "leader" if "leaderTemplate" in names else role)


def _number(text: str) -> int | None:
    return int(text) if text.isdecimal() and len(text) < 9 else None


def _gpus(container: Item) -> int | None:
    """GPUs that a container asks for; 0 for none, None for a number that is not given."""
    for part in ("limits", "requests"):
        block = container.get("resources", part)
        if block is None or block.kind != "map":
            continue
        for key, value in block.entries:
            if _GPU_RESOURCE.match(key.value):
                return _number(value.value)
    return 0


def _spans_nodes(judge: Judge, document: Item, kind: str) -> bool:
    """Whether the engine of this object runs over several nodes."""
    if kind in ("RayCluster", "RayService", "RayJob"):
        workers = [item for item in document.walk() if item.key is not None and item.key.value == "workerGroupSpecs"]
        return bool(workers and workers[0].items)
    if kind == "LeaderWorkerSet":
        size = _number(document.text("spec", "leaderWorkerTemplate", "size"))
        return size is None or size > 1
    for invocation in judge.reading.servers():
        if document.start <= invocation.start <= document.end:
            nnodes = invocation.flag("--nnodes", "-n")
            if nnodes is not None and nnodes.value != "1":
                return True
            if judge.context.uses_ray(invocation) and (judge.context.degrees(invocation).world or 0) > 8:
                return True
    return False


# -- images


def _image(judge: Judge, image: KeyValue) -> None:
    match = re.search(r"(?:^|/)vllm-openai[\w.-]*:v?(\d+)\.(\d+)(?:\.(\d+))?", image.value)
    if match is None:
        return
    version = (int(match.group(1)), int(match.group(2)), int(match.group(3) or 0))
    model = judge.context.model()
    if model in ("other", "v4-32b") and version >= (0, 6, 4):
        return
    needed = (0, 27, 1) if model == "k3" else (*_NEEDS.get(model or "v4", (0, 20)), 0)
    if version >= needed:
        return
    edits: tuple[Edit, ...] = ()
    if image.word is not None and image.word.value == image.value and "@" not in image.value:
        start = image.value.index(match.group()) + match.group().index(":") + 1
        rest = re.match(r"[\w.-]+", image.value[start:])
        edits = replace_part(image.word, start, start + len(rest.group() if rest else ""), "v0.33.0")
    known = {"k3": "K3 needs 0.27.1", "v4-0813": "V4-Pro-0813 needs 0.25.0"}.get(model or "", "V4 needs 0.20.0")
    judge.report(
        "k8s.image-v0.6.3",
        image.start,
        f"image {image.value}",
        reason=f"{known}; this release knows neither architecture"
        + (", nor today's flags, nor CUDA 13." if version < (0, 20, 0) else " well enough to start it."),
        status="dangerous" if version < (0, 20, 0) else "context_dependent",
        edits=edits,
    )


# -- one pod


def _pod(judge: Judge, pod: Pod, multi: bool) -> None:
    with_gpu = [one for one in pod.containers if _gpus(one) != 0]
    host_network = pod.spec.text("hostNetwork") == "true"
    if (
        host_network
        and pod.spec.text("dnsPolicy") != "ClusterFirstWithHostNet"
        and HOLE not in pod.spec.text("dnsPolicy")
    ):
        key = pod.spec.key_of("hostNetwork")
        judge.report(
            "k8s.hostNetwork",
            key.start if key is not None else pod.spec.start,
            "hostNetwork: true",
            reason="Without dnsPolicy ClusterFirstWithHostNet the pod resolves no service of the cluster.",
            replacement="dnsPolicy: ClusterFirstWithHostNet",
            edits=_line_after(judge, pod.spec, key, "dnsPolicy: ClusterFirstWithHostNet")
            if pod.spec.get("dnsPolicy") is None
            else (),
        )
    for container in with_gpu:
        _resources(judge, container)
        if multi:
            _rdma(judge, pod, container, host_network)
            _ipc_lock(judge, container)
    _probes(judge, pod, with_gpu)
    _volumes(judge, pod)


def _line_after(judge: Judge, owner: Item, key: Item | None, line: str) -> tuple[Edit, ...]:
    """A new key in ``owner``, on a line of its own before the key named."""
    if owner.flow or key is None:
        return ()
    begin = judge.text.rfind("\n", 0, key.start) + 1
    lead = judge.text[begin : key.start]
    if lead.strip() not in ("", "-"):
        return ()
    newline = "\r\n" if "\r\n" in judge.text[:4000] else "\n"
    indent = " " * len(lead)
    if lead.strip() == "-":
        end = judge.text.find("\n", key.start)
        return () if end < 0 else (Edit(start=end + 1, end=end + 1, text=f"{indent}{line}{newline}"),)
    return (Edit(start=begin, end=begin, text=f"{indent}{line}{newline}"),)


def _name_at(container: Item) -> int:
    key = container.key_of("name")
    return key.start if key is not None else container.start


def _resources(judge: Judge, container: Item) -> None:
    requests, limits = container.get("resources", "requests"), container.get("resources", "limits")
    if requests is None or limits is None or requests.kind != "map" or limits.kind != "map":
        return
    low = []
    for key, value in requests.entries:
        limit = limits.text(key.value)
        if limit and HOLE not in limit + value.value and _quantity(value.value) != _quantity(limit):
            low.append((key, value, limit))
    if not low:
        return
    key, value, limit = low[0]
    judge.report(
        "k8s.resources",
        key.start,
        f"resources.requests: {', '.join(f'{k.value} {v.value} of {lim}' for k, v, lim in low)}",
        reason="Requests below the limits make the pod Burstable: first to go when the node runs out of memory.",
        replacement="requests equal to limits",
        edits=tuple(
            Edit(start=v.piece.at(0), end=v.piece.at(len(v.value)), text=lim)
            for _, v, lim in low
            if v.piece.at(len(v.value)) - v.piece.at(0) == len(v.value) and re.fullmatch(r"[\w.]+", lim)
        ),
    )


def _quantity(text: str) -> float | str:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(m|[kKMGTP]i?)?", text.strip())
    if match is None:
        return text
    unit = match.group(2) or ""
    power = " kmgtp".find(unit[:1].lower()) if unit and unit != "m" else 0
    factor = 0.001 if unit == "m" else float(1024 if unit.endswith("i") else 1000) ** power
    return float(match.group(1)) * factor


def _rdma(judge: Judge, pod: Pod, container: Item, host_network: bool) -> None:
    if host_network or _privileged(container):
        return
    names = [
        key.value
        for part in ("limits", "requests")
        if (block := container.get("resources", part)) is not None
        for key, _ in block.entries
    ]
    claims = container.get("resources", "claims")
    if any(_RDMA_RESOURCE.search(name) for name in names) or claims is not None or any(HOLE in name for name in names):
        return
    annotations = pod.metadata.get("annotations") if pod.metadata is not None else None
    if annotations is not None and any(
        key.value.startswith(("k8s.v1.cni.cncf.io/", "networking.gke.io/interfaces", HOLE))
        for key, _ in annotations.entries
    ):
        return
    resources = container.get("resources", "limits") or container.get("resources")
    at = resources.key.start if resources is not None and resources.key is not None else _name_at(container)
    judge.report(
        "k8s.rdma-missing",
        at,
        f"container {container.text('name') or '?'}: no RDMA resource, no network annotation, no hostNetwork",
        replacement="an RDMA resource (such as rdma/ib: 8) with a k8s.v1.cni.cncf.io/networks annotation, or"
        " hostNetwork: true",
    )
    containers = pod.spec.key_of("containers")
    judge.report(
        "k8s.hostNetwork",
        containers.start if containers is not None else pod.spec.start,
        "hostNetwork: absent",
        reason="Without secondary networks the fabric is reached through the host's network alone; whether the"
        " cluster has them is not to be"
        " seen here.",
    )


def _privileged(container: Item) -> bool:
    return container.text("securityContext", "privileged") == "true"


def _ipc_lock(judge: Judge, container: Item) -> None:
    added = container.get("securityContext", "capabilities", "add")
    names = {one.value for one in added.items} if added is not None else set()
    if _privileged(container) or names & {"IPC_LOCK", "ALL", "CAP_IPC_LOCK"} or any(HOLE in name for name in names):
        return
    security = container.key_of("securityContext")
    edits: tuple[Edit, ...] = ()
    if security is None:
        name = container.key_of("name")
        edits = _line_after(judge, container, name, "securityContext: {capabilities: {add: [IPC_LOCK]}}")
    judge.report(
        "k8s.ipc-lock",
        security.start if security is not None else _name_at(container),
        f"container {container.text('name') or '?'}: no IPC_LOCK",
        replacement="securityContext: {capabilities: {add: [IPC_LOCK]}}",
        edits=edits,
    )


# -- probes


def _server_of(judge: Judge, container: Item) -> Invocation | None:
    return next((one for one in judge.reading.servers() if one.owner is container), None)


def _probes(judge: Judge, pod: Pod, with_gpu: list[Item]) -> None:
    for container in pod.containers:
        server = _server_of(judge, container)
        headless = server is not None and server.flag("--headless") is not None
        if server is None and not (pod.kind == "RayCluster" and pod.role == "head" and container in with_gpu):
            continue
        startup, liveness = container.get("startupProbe"), container.get("livenessProbe")
        if headless:
            if liveness is not None and liveness.get("httpGet") is not None:
                judge.report(
                    "k8s.probes",
                    liveness.key.start if liveness.key is not None else liveness.start,
                    "livenessProbe.httpGet on a headless node",
                    reason="A headless node serves no HTTP: the probe fails and the pod is restarted for ever.",
                    replacement="no livenessProbe on headless workers",
                )
            continue
        if startup is not None:
            _budget(judge, startup)
        elif container in with_gpu and (pod.kind != "LeaderWorkerSet" or pod.role != "worker"):
            key = liveness.key if liveness is not None else None
            at = key.start if key is not None else _name_at(container)
            judge.report(
                "k8s.probes",
                at,
                f"container {container.text('name') or '?'}: no startupProbe",
                reason="Loading takes tens of minutes"
                + (
                    "; the liveness probe ends it before."
                    if liveness is not None
                    else ", and nothing tells when the server answers."
                ),
            )


def _budget(judge: Judge, startup: Item) -> None:
    failures, period = startup.text("failureThreshold") or "3", startup.text("periodSeconds") or "10"
    delay = startup.text("initialDelaySeconds") or "0"
    numbers = [_number(text) for text in (failures, period, delay)]
    if None in numbers:
        return
    count, step, wait = (number or 0 for number in numbers)
    seconds = count * step + wait
    if seconds >= 3600:
        return
    key = startup.key
    judge.report(
        "k8s.probes",
        key.start if key is not None else startup.start,
        f"startupProbe: {failures} failures of {period} s",
        reason=f"A budget of {seconds // 60} min; loading takes tens of minutes, and a start that is cut off begins"
        f" again.",
        replacement="failureThreshold x periodSeconds of at least 3600 s",
    )


# -- volumes, selectors, objects


def _volumes(judge: Judge, pod: Pod) -> None:
    volumes = pod.spec.get("volumes")
    for volume in volumes.items if volumes is not None else []:
        if volume.kind != "map":
            continue
        claim = volume.text("persistentVolumeClaim", "claimName")
        nfs = volume.get("nfs")
        if nfs is None and not re.search(r"(?:^|[-_.])nfs(?:[-_.]|$)", claim, re.IGNORECASE):
            continue
        mounts = [
            mount
            for container in pod.containers
            for mount in (container.get("volumeMounts") or Item("list", 0, 0)).items
            if mount.text("name") == volume.text("name")
        ]
        paths = [mount.text("mountPath") for mount in mounts]
        if paths and not any(
            re.search(r"huggingface|hf|model|weight|cache|hub|data", path, re.IGNORECASE) for path in paths
        ):
            continue
        target = volume.get("persistentVolumeClaim", "claimName") if claim else nfs
        at = target.key.start if target is not None and target.key is not None else volume.start
        judge.report(
            "k8s.pvc-nfs",
            at,
            f"weights over NFS: {claim or (nfs.text('path') if nfs is not None else '')}",
            reason="Every node reads the whole checkpoint (0.9 to 1.5 TB) through one NFS server at each start."
            " What stands behind it is not to"
            " be seen here; a parallel file system would do.",
        )


def _anywhere(judge: Judge, item: Item) -> None:
    for key, value in item.entries:
        if (
            key.value == "node.kubernetes.io/instance-type"
            and value.kind == "text"
            and not _CLOUD_TYPE.match(value.value)
        ):
            if HOLE in value.value:
                continue
            judge.report(
                "k8s.nodeSelector",
                key.start,
                f"{key.value}: {value.value}",
                reason="Clouds set this label; on bare metal it is usually absent and the pod stays pending.",
                replacement="nvidia.com/gpu.product, as GPU feature discovery sets it",
            )
        elif (
            key.value == "nvidia.com/gpu.product"
            and "A100" in value.value
            and judge.context.model() in ("v4", "v4-0813", "k3")
        ):
            judge.report("vllm.fp8-kv-prereq", key.start, f"{key.value}: {value.value}")
        elif key.value == "key" and value.value == "node.kubernetes.io/instance-type":
            values = item.get("values")
            if values is not None and not all(_CLOUD_TYPE.match(one.value) for one in values.items):
                judge.report(
                    "k8s.nodeSelector", value.start, f"{value.value} in {', '.join(one.value for one in values.items)}"
                )
        elif key.value == "rayVersion" and value.kind == "text":
            _ray_version(judge, key, value)


def _ray_version(judge: Judge, key: Item, value: Item) -> None:
    match = re.match(r"(\d+)\.(\d+)", value.value)
    if match is None:
        return
    in_images = {
        found.group(1)
        for image in judge.reading.images
        if (found := re.search(r"(?:^|/)ray(?:-llm|-ml)?:(\d+\.\d+\.\d+)", image.value))
    }
    if in_images and value.value not in in_images:
        judge.report(
            "k8s.rayVersion",
            key.start,
            f"rayVersion: {value.value}",
            reason=f"The image holds Ray {', '.join(sorted(in_images))}; the operator chooses probes and features"
            f" by this field.",
            replacement=f"rayVersion: '{sorted(in_images)[0]}'",
            edits=(Edit(start=value.piece.at(0), end=value.piece.at(0) + len(value.value), text=sorted(in_images)[0]),),
        )
    elif not in_images and (int(match.group(1)), int(match.group(2))) < (2, 53):
        judge.report(
            "k8s.rayVersion",
            key.start,
            f"rayVersion: {value.value}",
            reason="It installs nothing, but the operator goes by it: below 2.53 its probes run wget inside the"
            " image, and token authentication"
            " needs 2.52. It has to equal the Ray in the image, which is not to be seen here.",
        )


def _object(judge: Judge, document: Item, kind: str, pods: list[Pod], multi: bool) -> None:
    kind_key = document.key_of("kind")
    at = kind_key.start if kind_key is not None else document.start
    if kind == "RayCluster":
        inside = [
            one
            for one in judge.reading.invocations
            if one.program == "vllm serve" and document.start <= one.start <= document.end
        ]
        if not inside:
            judge.report(
                "k8s.raycluster",
                at,
                "kind: RayCluster",
                reason="It creates an idle Ray cluster: nothing in it starts vLLM, there is no Service and no"
                " readiness of port 8000.",
            )
        if multi:
            _gang(judge, document, at)
        _head(judge, document, inside)
        for image in judge.reading.images:
            if (
                document.start <= image.start <= document.end
                and re.search(r"(?:^|/)vllm-openai[\w.-]*[:@]", image.value)
                and not older_than(image.value, (0, 18))
            ):
                judge.report(
                    "ray.version",
                    image.start,
                    f"image {image.value} in a RayCluster",
                    reason="The official vLLM image holds no Ray, so `ray start` is not found.",
                )
    if kind == "Ingress":
        _ingress(judge, document, at)
    if kind in ("HTTPRoute", "GRPCRoute", "BackendTrafficPolicy", "BackendLBPolicy"):
        for item in document.walk():
            if item.key is not None and item.key.value == "sessionPersistence":
                judge.report(
                    "gw.gateway-api",
                    item.key.start,
                    "sessionPersistence",
                    reason="Still experimental (GEP-1619), and persistence by cookie or header, not hashing.",
                )
    for pod in pods:
        for container in pod.containers:
            _single_gpu(judge, container)


def _gang(judge: Judge, document: Item, at: int) -> None:
    text = judge.text[document.start : document.end]
    if re.search(
        r"kueue\.x-k8s\.io/queue-name|schedulerName|ray\.io/(?:scheduler-name|gang-scheduling)|volcano\.sh"
        r"|kai\.scheduler|gang",
        text,
    ):
        return
    judge.report(
        "k8s.gang",
        at,
        "no gang scheduling",
        reason="Pods that start one by one can hold GPUs while the rest of their group waits; whether the cluster"
        " schedules groups is not to be"
        " seen here.",
    )


def _head(judge: Judge, document: Item, servers: list[Invocation]) -> None:
    head = document.get("spec", "headGroupSpec")
    if head is None:
        return
    params = head.get("rayStartParams")
    gpus = params.get("num-gpus") if params is not None else None
    if gpus is not None and gpus.value == "0" and servers:
        judge.report(
            "ray.driver-node",
            gpus.key.start if gpus.key is not None else gpus.start,
            "rayStartParams.num-gpus: '0'",
            reason="vLLM runs in this cluster; on a head without GPUs its rank 0 lands elsewhere and its defaults"
            " are those of small GPUs.",
        )
    scaling = document.text("spec", "enableInTreeAutoscaling") == "true"
    if scaling and gpus is not None and gpus.value not in ("0", ""):
        judge.report(
            "k8s.head-8-gpu",
            gpus.key.start if gpus.key is not None else gpus.start,
            f"rayStartParams.num-gpus: {gpus.value}",
            reason="Fine for a group of fixed size; this cluster scales, and losing the head ends it.",
        )


def _single_gpu(judge: Judge, container: Item) -> None:
    server = _server_of(judge, container)
    if server is None or judge.context.model(server) not in ("v4", "v4-0813", "k3"):
        return
    gpus, degrees = _gpus(container), judge.context.degrees(server)
    if gpus is None or not 0 < gpus < 8 or (degrees.nnodes or 2) > 1:
        return
    limits = container.get("resources", "limits") or container.get("resources", "requests")
    key = (
        next((key for key, _ in limits.entries if _GPU_RESOURCE.match(key.value)), None) if limits is not None else None
    )
    judge.report(
        "proc.single-a100",
        key.start if key is not None else container.start,
        f"{key.value if key is not None else 'GPUs'}: {gpus}",
        reason="V4-Pro's weights take about 865 GB, K3's about 1.5 TB: this replica cannot load them, canary or not.",
    )


def _ingress(judge: Judge, document: Item, at: int) -> None:
    annotations = document.get("metadata", "annotations")
    named = (
        [key for key, _ in annotations.entries if key.value.startswith("nginx.ingress.kubernetes.io/")]
        if annotations is not None
        else []
    )
    given = document.text("spec", "ingressClassName") or (
        annotations.text("kubernetes.io/ingress.class") if annotations is not None else ""
    )
    if given and given != "nginx" and not named:
        return
    judge.report(
        "gw.gateway-api",
        at,
        "kind: Ingress",
        reason="ingress-nginx is retired (no fixes since March 2026)."
        + ("" if given or named else " Which controller takes this is not to be seen here."),
    )
    for key in named:
        judge.report(
            "gw.gateway-api",
            key.start,
            key.value,
            reason="An annotation of ingress-nginx, which is retired (no fixes since March 2026).",
        )


# -- Compose


def _compose(judge: Judge, document: Item) -> None:
    from roadworthy.lint.rules.host import _shm

    services = document.get("services")
    for _, service in services.entries if services is not None else []:
        size = service.get("shm_size")
        if size is not None and size.key is not None:
            _shm(judge, size.key.start, f"shm_size: {size.value}", size.value)
