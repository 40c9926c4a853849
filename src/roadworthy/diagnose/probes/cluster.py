"""Kubernetes and Ray as their tools show them, and versions of what is installed."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.values import Clue, Document


def pods(document: Document) -> Iterator[Clue]:
    """Probes without a start-up probe, mounts without shared memory, missing capabilities, limits of the head."""
    text = document.text
    described = re.search(r"^\s*Mounts:", text, re.MULTILINE) and re.search(r"^\s*Limits:", text, re.MULTILINE)
    manifest = re.search(r"^\s*(?:kind: |containers:|livenessProbe:|volumes:|resources:|image: )", text, re.MULTILINE)
    if described and "/dev/shm" not in text and "nvidia.com/gpu" in text:
        at = text.count("\n", 0, text.index("Mounts:")) + 1
        yield document.clue("shm.no-mount", document.line(at))
    if described or manifest:
        yield from _pod_fields(document, manifest is not None)
    if re.search(r"Name:\s+\S*head|raycluster-\S*head|group: headgroup", text) and "OOMKilled" in text:
        line = next(line for line in document.numbered() if "OOMKilled" in line.text)
        yield document.clue("k8s.head-oom", line)


def _pod_fields(document: Document, manifest: bool) -> Iterator[Clue]:
    text = document.text
    if "startupProbe" not in text and "Startup:" not in text:
        for line in document.numbered():
            if re.search(r"livenessProbe|^\s*Liveness:", line.text):
                yield document.clue("k8s.no-startup-probe", line)
    for line in document.numbered():
        if found := re.search(
            r"(?P<key>initialDelaySeconds|failureThreshold|periodSeconds): ?(?P<value>\d+)", line.text
        ):
            yield document.clue("k8s.probe-setting", line, **found.groupdict())
        elif found := re.search(r"rdma/(?P<resource>[\w-]+):?\s+(?P<count>\d+)", line.text):
            yield document.clue("k8s.rdma-resource", line, **found.groupdict())
        elif "IPC_LOCK" in line.text:
            yield document.clue("k8s.ipc-lock", line)
        elif re.search(r"medium: ?\"?Memory", line.text):
            yield document.clue("k8s.memory-volume", line)
        elif found := re.match(r"^\s+memory:\s+(?P<limit>\S+)", line.text):
            yield document.clue("k8s.memory-limit", line, **found.groupdict())
        elif "privileged: false" in line.text:
            yield document.clue("k8s.unprivileged", line)
    if (
        manifest
        and "nvidia.com/gpu" in text
        and not re.search(r"rdma/|hostNetwork: true|/dev/infiniband|k8s.v1.cni", text)
    ):
        at = text.count("\n", 0, text.index("nvidia.com/gpu")) + 1
        yield document.clue("k8s.no-rdma-resource", document.line(at))
    if manifest and "nvidia.com/gpu" in text and "/dev/shm" not in text:
        at = text.count("\n", 0, text.index("nvidia.com/gpu")) + 1
        yield document.clue("shm.no-mount", document.line(at))
    if manifest and re.search(r"runtimeClassName|nvidia.com/gpu|--gpus", text) is None and "image:" in text:
        yield document.clue("k8s.no-gpu-request", document.line(text.count("\n", 0, text.index("image:")) + 1))


def nodes(document: Document) -> Iterator[Clue]:
    """``k8s.gpus``: capacity, allocatable and what is asked for, of `kubectl describe node`."""
    section = ""
    for line in document.numbered():
        if found := re.match(r"^\s*(Capacity|Allocatable|Allocated resources|Limits|Requests):", line.text):
            section = found.group(1)
        elif section and (found := re.search(r"nvidia\.com/gpu:?\s+(?P<count>\d+)", line.text)):
            yield document.clue(f"k8s.gpus-{section.split()[0].lower()}", line, count=found["count"])
        if found := re.search(r"(?P<resource>rdma/[\w-]+):?\s+0\s*$", line.text):
            yield document.clue("k8s.rdma-zero", line, resource=found["resource"])
        if found := re.search(r"Taints:\s+(?P<taint>\S+:No\w+)", line.text):
            yield document.clue("k8s.taint", line, taint=found["taint"])


def ray_status(document: Document) -> Iterator[Clue]:
    """``ray.total-gpus`` and ``ray.demand`` of `ray status`, ``ray.node-address`` of the node list."""
    for line in document.numbered():
        if found := re.match(
            r"^\s*(?P<used>[\d.]+)/(?P<total>[\d.]+) (?P<resource>GPU|TPU|NPU|CPU|neuron_cores)\b", line.text
        ):
            yield document.clue(
                f"ray.total-{found['resource'].lower()}", line, used=found["used"], total=found["total"]
            )
        elif found := re.match(r"^\s*(?P<demand>\{.*?\})\s*\*\s*(?P<count>\d+)", line.text):
            gpus = sum(
                float(gpu) * int(times)
                for demand, times in re.findall(r"(\{[^}]*\})\s*\*\s*(\d+)", line.text)
                for gpu in re.findall(r"'GPU': ([\d.]+)", demand)
            )
            other = re.findall(r"'(?P<name>[A-Za-z_][\w-]*)': [\d.]+", line.text)
            bundle = max((float(gpu) for gpu in re.findall(r"'GPU': ([\d.]+)", line.text)), default=0.0)
            yield document.clue(
                "ray.demand", line, gpus=f"{gpus:g}", bundle=f"{bundle:g}", resources=",".join(sorted(set(other)))
            )
        elif found := re.match(
            r"^\s*(?:\d+\s+)?\w+\s+(?P<address>\d+\.\d+\.\d+\.\d+)\s+(?:True|False|ALIVE)", line.text
        ):
            yield document.clue("ray.node-address", line, address=found["address"])
        elif re.match(r"^\s*1 node_\w+\s*$", line.text):
            yield document.clue("ray.node-active", line)
        if (found := re.match(r"^\s*['\"]?node:(?P<address>\d+\.\d+\.\d+\.\d+)['\"]?: 1\.0", line.text)) or (
            found := re.search(r"\bALIVE\b.*\bnode:(?P<address>[A-Za-z][\w.-]*): 1\.0", line.text)
        ):
            yield document.clue("ray.node-address", line, address=found["address"])
        if found := re.search(r"\bALIVE\b.*?(?P<address>\d+\.\d+\.\d+\.\d+)", line.text):
            yield document.clue("ray.node-address", line, address=found["address"])


PACKAGE = re.compile(r"^(?P<name>[A-Za-z][\w.-]*)\s*(?:==|\s)\s*(?P<version>\d[\w.+!-]*)\s*$")
WATCHED = frozenset({
    "torch", "vllm", "transformers", "ray", "xformers", "triton", "flashinfer-python", "nixl", "sglang", "nvidia-nccl-cu11", "nvidia-nccl-cu12", "nvidia-nccl-cu13",
})  # fmt: skip


def packages(document: Document) -> Iterator[Clue]:
    """``package.NAME`` with its version, of pip list, freeze or a line of an environment report."""
    for line in document.numbered():
        found = PACKAGE.match(line.text)
        if found and found["name"].lower() in WATCHED:
            cuda = re.search(r"\+cu(\d+)", found["version"])
            yield document.clue(
                f"package.{found['name'].lower()}", line, version=found["version"], cuda=cuda.group(1) if cuda else ""
            )  # fmt: skip


def file_sizes(document: Document) -> Iterator[Clue]:
    """``weights.odd-size``: a shard far smaller than its neighbours, or small enough to be a pointer."""
    rows = []
    for line in document.numbered():
        found = re.match(r"^[-l][rwxsStT-]{9}\S*\s+\d+\s+\S+\s+\S+\s+(?P<size>\d+)\s.*?(?P<name>\S+\.(?:safetensors|bin|pt|pth|gguf))\s*$", line.text) or re.match(
            r"^\s*(?P<size>\d+)\s+(?P<name>\S+\.(?:safetensors|bin|pt|pth|gguf))\s*$", line.text
        )  # fmt: skip
        if found:
            rows.append((int(found["size"]), found["name"], line))
    if not rows:
        return
    usual = sorted(size for size, *_ in rows)[len(rows) // 2]
    for size, name, line in rows:
        if size < 1024:
            yield document.clue("weights.pointer-size", line, name=name, size=size)
        elif len(rows) >= 3 and size < 0.5 * usual and not re.search(r"0*(\d+)-of-0*\1\.", name):
            yield document.clue("weights.odd-size", line, name=name, size=size, usual=usual)


KERNEL_CACHE = re.compile(
    r"(?P<path>\S*(?:deep_gemm|triton|flashinfer|inductor|torch_compile|torch_extensions|tvm|vllm|jit|\.nv/ComputeCache)"
    r"\S*)\s+(?:0|0B|4\.0K)\s*$|"
    r"^(?:0|0B|4\.0K)\s+(?P<path2>\S*(?:deep_gemm|triton|flashinfer|inductor|torch_compile|torch_extensions|jit)\S*)\s*$"
)


def kernel_caches(document: Document) -> Iterator[Clue]:
    """``jit.empty-cache``: `du` says that the folder of compiled kernels holds nothing."""
    for line in document.numbered():
        if "cache" in line.text.lower() and (found := KERNEL_CACHE.search(line.text)):
            yield document.clue("jit.empty-cache", line, path=found["path"] or found["path2"])


def proxies(document: Document) -> Iterator[Clue]:
    """A reverse proxy's configuration, and streams timed direct and through it."""
    text = document.text
    if re.search(r"proxy_pass|location /", text):
        for line in document.numbered():
            if re.search(r"proxy_buffering\s+off", line.text):
                yield document.clue("proxy.buffering-off", line)
            elif re.search(r"proxy_buffering\s+on|proxy_buffers\b|proxy_buffer_size|gzip\s+on", line.text):
                yield document.clue("proxy.buffering-on", line)
        if "proxy_buffering" not in text:
            at = text.count("\n", 0, text.index("proxy_pass") if "proxy_pass" in text else text.index("location /")) + 1
            yield document.clue("proxy.buffering-default", document.line(at))
    yield from _stream_times(document)


def _stream_times(document: Document) -> Iterator[Clue]:
    """``stream.burst``: many events in one read, or many data lines with the same clock far from the start."""
    stamps: list[tuple[str, float]] = []
    streaming = False
    for line in document.numbered():
        if re.search(r"text/event-stream", line.text):
            streaming = True
        if line.text.lstrip().startswith("data:") and (
            found := re.search(r"#? ?\+(?P<at>\d+(?:\.\d+)?) ?s", line.text)
        ):
            stamps.append((line.text, float(found["at"])))
            last = line
    if len(stamps) >= 2:
        spread, first = max(at for _, at in stamps) - min(at for _, at in stamps), min(at for _, at in stamps)
        if spread < 0.05 and first > 2.0:
            yield document.clue("stream.burst", last, events=len(stamps), seconds=first)
        elif streaming or spread >= 0.05:
            yield document.clue("stream.steady", last)


PROBES = (pods, nodes, ray_status, packages, file_sizes, kernel_caches, proxies)
