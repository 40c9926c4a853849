"""What a cluster knows of the pods of a selector: logs of this run and the last, events, nodes. Reads only."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from roadworthy.adapters.incident.engines import METRICS_MOST_BYTES, is_of_interest
from roadworthy.adapters.incident.fetched import ONE_MOST_BYTES
from roadworthy.adapters.incident.programs import Programs, each_at_once
from roadworthy.adapters.incident.records import list_of, mapping_of
from roadworthy.core.errors import ProbeError, SpecError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.adapters.incident.fetched import Fetched

LIMIT_S = 60.0
AT_ONCE = 6
MOST_PODS = 64
LIST_MOST_BYTES = 64 * 2**20
NOTHING_BEFORE = re.compile(r"previous terminated container .* not found")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Which pods, and how far back their logs go."""

    selector: str
    namespace: str | None
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pod:
    name: str
    namespace: str
    node: str
    containers: tuple[str, ...]
    restarted: frozenset[str]
    ports: tuple[int, ...]

    @property
    def folder(self) -> str:
        return f"pods/{self.namespace or 'default'}/{self.name}"


def fetch_pods(asked: Asked, fetched: Fetched) -> None:
    """Everything of the pods that ``asked`` names; what cannot be had is noted.

    Raises:
        SpecError: no label selector.
        ProbeError: no kubectl, no answer, or no such pod.
    """
    if asked.selector.startswith("-") or (asked.namespace or "").startswith("-"):
        raise SpecError(f"{asked.selector!r} is no label selector", hint="such as app=vllm")
    where = ["-n", asked.namespace] if asked.namespace else []
    pods = [
        _pod(one)
        for one in _items(_text(fetched.programs, ["get", "pods", *where, "-l", asked.selector, "-o", "json"]))
    ]
    if not pods:
        raise ProbeError(f"no pod has {asked.selector!r}", hint="`kubectl get pods --show-labels` lists what there is")
    if len(pods) > MOST_PODS:
        fetched.could_not_look(f"{len(pods) - MOST_PODS} more pods", f"only the first {MOST_PODS} were asked")
        pods = pods[:MOST_PODS]
    work: list[tuple[str, list[str]]] = [
        (f"pods/{namespace or 'default'}/{file}", ["get", kind, *_in(namespace), *how])
        for namespace in sorted({pod.namespace for pod in pods})
        for file, kind, how in (("pods.txt", "pods", ["-o", "wide"]), ("events.json", "events", ["-o", "json"]))
    ]
    work += [
        (f"nodes/{node}/describe.txt", ["describe", "node", node])
        for node in sorted({one.node for one in pods})
        if node
    ]
    for pod in pods:
        work += _of_pod(pod, asked)
    each_at_once(lambda one: _into(fetched, *one), work, most=AT_ONCE, programs=fetched.programs)
    each_at_once(lambda pod: _metrics(pod, fetched), pods, most=AT_ONCE, programs=fetched.programs)


def _of_pod(pod: _Pod, asked: Asked) -> list[tuple[str, list[str]]]:
    where = _in(pod.namespace)
    work = [(f"{pod.folder}/describe.txt", ["describe", "pod", pod.name, *where])]
    how = ["--timestamps", f"--limit-bytes={ONE_MOST_BYTES}"]
    for container in pod.containers:
        one = ["logs", pod.name, "-c", container, *where, *how]
        work.append((f"{pod.folder}/{container}.log", [*one, f"--since={asked.since_s:.0f}s"]))
        if container in pod.restarted:
            work.append((f"{pod.folder}/{container}.previous.log", [*one, "--previous"]))
    if not pod.containers:
        work.append((f"{pod.folder}/engine.log", ["logs", pod.name, "--all-containers", "--prefix", *where, *how]))
    return work


def _in(namespace: str) -> list[str]:
    return ["-n", namespace] if namespace else []


def _items(text: str) -> list[dict[str, Any]]:
    try:
        items = json.loads(text)["items"]
        if not isinstance(items, list):
            raise TypeError
    except (ValueError, KeyError, TypeError):
        raise ProbeError("kubectl: its list of pods is no JSON that we know") from None
    return [one for one in items if isinstance(one, dict)]


def _pod(item: dict[str, Any]) -> _Pod:
    meta, spec, status = (mapping_of(item.get(key)) for key in ("metadata", "spec", "status"))
    containers = [mapping_of(one) for key in ("initContainers", "containers") for one in list_of(spec.get(key))]
    states = [
        mapping_of(one) for key in ("initContainerStatuses", "containerStatuses") for one in list_of(status.get(key))
    ]
    return _Pod(
        name=str(meta.get("name", "")), namespace=str(meta.get("namespace") or ""),
        node=str(spec.get("nodeName") or ""),
        containers=tuple(str(one["name"]) for one in containers if one.get("name")),
        restarted=frozenset(str(one.get("name")) for one in states if one.get("restartCount") or one.get("lastState")),
        ports=tuple(
            port["containerPort"] for one in containers for port in list_of(one.get("ports"))
            if isinstance(port, dict) and isinstance(port.get("containerPort"), int)
        ),
    )  # fmt: skip


def _command(arguments: Sequence[str]) -> list[str]:
    return ["kubectl", *arguments, "--request-timeout=20s"] if arguments[0] != "logs" else ["kubectl", *arguments]


def _text(programs: Programs, arguments: Sequence[str]) -> str:
    found: list[bytes] = []
    ended = programs.run_into(_command(arguments), found.append, limit_s=LIMIT_S, most_bytes=LIST_MOST_BYTES)
    if ended.cut or ended.code:
        raise ProbeError(
            f"kubectl {arguments[0]}: {ended.cut or ended.said or f'exit code {ended.code}'}",
            hint="`kubectl config current-context` says which cluster is asked",
        )
    return b"".join(found).decode("utf-8", "replace")


def _into(fetched: Fetched, file: str, arguments: Sequence[str]) -> None:
    try:
        with fetched.writing(file) as sink:
            ended = fetched.programs.run_into(
                _command(arguments), sink.write, limit_s=LIMIT_S, most_bytes=ONE_MOST_BYTES
            )
    except ProbeError as error:
        fetched.could_not_look(file, str(error))
        return
    if (ended.cut or ended.code) and not NOTHING_BEFORE.search(ended.said):
        fetched.could_not_look(file, ended.cut or ended.said or f"exit code {ended.code}")


def _metrics(pod: _Pod, fetched: Fetched) -> None:
    """One scrape of each of the pod's ports that has engine metrics, through the API server."""
    for port in pod.ports:
        path = f"/api/v1/namespaces/{pod.namespace or 'default'}/pods/{pod.name}:{port}/proxy/metrics"
        found: list[bytes] = []
        try:
            ended = fetched.programs.run_into(
                _command(["get", "--raw", path]), found.append, limit_s=LIMIT_S, most_bytes=METRICS_MOST_BYTES
            )
        except ProbeError as error:
            fetched.could_not_look(f"{pod.folder} port {port} /metrics", str(error))
            return
        text = b"".join(found).decode("utf-8", "replace")
        if not ended.code and is_of_interest(text):
            fetched.put(f"{pod.folder}/metrics.{port}.prom", text)
        elif ended.code and "forbidden" in ended.said.lower():
            fetched.could_not_look(f"{pod.folder} port {port} /metrics", ended.said)
