"""Pods, their last runs, events, nodes and metrics through a stand-in kubectl that prints what the real one prints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from roadworthy.adapters.incident.fetched import NOT_LOOKED_AT, Fetched
from roadworthy.adapters.incident.kube import Asked, fetch_pods
from roadworthy.adapters.incident.read import read_incident
from roadworthy.core.errors import ProbeError, SpecError

PODS = {
    "apiVersion": "v1", "kind": "List",
    "items": [
        {
            "metadata": {"name": "llm-0", "namespace": "serving"},
            "spec": {
                "nodeName": "gpu-node-1",
                "initContainers": [{"name": "fetch"}],
                "containers": [{"name": "vllm", "ports": [{"containerPort": 8000, "name": "http"}]}],
            },
            "status": {
                "initContainerStatuses": [{"name": "fetch", "restartCount": 0, "lastState": {}}],
                "containerStatuses": [{"name": "vllm", "restartCount": 3, "lastState": {"terminated": {}}}],
            },
        }
    ],
}  # fmt: skip

DESCRIBED = """\
Name:             llm-0
Namespace:        serving
Node:             gpu-node-1/10.0.0.4
Containers:
  vllm:
    State:          Running
    Last State:     Terminated
      Reason:       OOMKilled
      Exit Code:    137
    Restart Count:  3
    Limits:
      memory:          64Gi
      nvidia.com/gpu:  8
    Mounts:
      /dev/shm from shm (rw)
"""

EVENTS = json.dumps(
    {
        "apiVersion": "v1", "kind": "List",
        "items": [
            {
                "kind": "Event", "type": "Warning", "reason": "BackOff", "count": 7,
                "involvedObject": {"kind": "Pod", "name": "llm-0", "namespace": "serving"},
                "message": "Back-off restarting failed container vllm in pod llm-0_serving(11111111-2222)",
                "firstTimestamp": "2026-11-02T04:00:00Z", "lastTimestamp": "2026-11-02T04:11:00Z",
            }
        ],
    },
    indent=4,
)  # fmt: skip


@pytest.fixture
def kubectl(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of answers, one a question; a stand-in prints them and writes down what it was asked."""
    folder = tmp_path / "answers"
    folder.mkdir()
    program = tmp_path / "bin" / "kubectl"
    program.parent.mkdir()
    program.write_text(
        "#!/usr/bin/env python3\n"
        "import pathlib, sys, time\n"
        f"folder = pathlib.Path({str(folder)!r})\n"
        "asked = [one for one in sys.argv[1:] if not one.startswith('--request-timeout')]\n"
        "with (folder / 'asked').open('a') as file: file.write(' '.join(asked) + '\\n')\n"
        "words = '_'.join(asked).replace('/', '-')\n"
        "for answer in sorted(folder.glob('*.out'), key=lambda one: -len(one.stem)):\n"
        "    if all(word in words for word in answer.stem.split('+')):\n"
        "        sys.stdout.write(answer.read_text())\n"
        "        sys.stdout.flush()\n"
        "        sys.exit(0)\n"
        "print('Error from server (Forbidden): nodes is forbidden', file=sys.stderr)\n"
        "sys.exit(1)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    for name, text in {
        "get_pods+json": json.dumps(PODS),
        "get_pods+wide": "NAME  READY  STATUS            RESTARTS\nllm-0  0/1  CrashLoopBackOff  3\n",
        "get_events": EVENTS,
        "describe_pod": DESCRIBED,
        "logs+vllm": "2026-11-02T04:11:09.123456789Z INFO 11-02 04:11:09 [api_server.py:1] Starting vLLM API server\n",
        "logs+vllm+--previous": "2026-11-02T04:10:00.000000000Z torch.OutOfMemoryError: CUDA out of memory.\n",
        "logs+fetch": "2026-11-02T03:59:00.000000000Z fetched\n",
    }.items():
        (folder / f"{name}.out").write_text(text)
    return folder


def fetched(tmp_path: Path, namespace: str | None = "serving", selector: str = "app=llm") -> Fetched:
    folder = tmp_path / "fetched"
    folder.mkdir()
    one = Fetched(folder=folder)
    fetch_pods(Asked(selector=selector, namespace=namespace, since_s=7200), one)
    one.close()
    return one


def test_everything_of_a_pod_is_fetched_and_what_is_forbidden_is_noted(kubectl: Path, tmp_path: Path) -> None:
    got = fetched(tmp_path)
    files = {str(path.relative_to(got.folder)) for path in got.folder.rglob("*") if path.is_file()}
    assert files == {
        "pods/serving/pods.txt", "pods/serving/events.json", "pods/serving/llm-0/describe.txt",
        "pods/serving/llm-0/vllm.log", "pods/serving/llm-0/vllm.previous.log", "pods/serving/llm-0/fetch.log",
        NOT_LOOKED_AT,
    }  # fmt: skip
    missed = dict(got.missed)
    assert "forbidden" in missed["nodes/gpu-node-1/describe.txt"]
    assert "forbidden" in missed["pods/serving/llm-0 port 8000 /metrics"]
    asked = (kubectl / "asked").read_text()
    assert "logs llm-0 -c vllm -n serving --timestamps" in asked
    assert "--since=7200s" in asked
    assert "-c fetch -n serving --timestamps --limit-bytes=536870912 --previous" not in asked


def test_what_was_fetched_is_diagnosed_with_the_pod_as_its_place(kubectl: Path, tmp_path: Path) -> None:
    (kubectl / "get_--raw.out").write_text('vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:num_requests_running 1\n')
    (kubectl / "describe_node.out").write_text("Name: gpu-node-1\nTaints: nvidia.com/gpu:NoSchedule\n")
    got = fetched(tmp_path)
    assert not got.missed
    book = read_incident([got.folder]).examination.book()
    assert {clue.host for clue in book.all("k8s.oom-killed")} == {"llm-0"}
    assert {clue.host for clue in book.all("memory.cuda-oom")} == {"llm-0"}
    assert {clue.host for clue in book.all("k8s.taint")} == {"gpu-node-1"}
    crash = [clue for clue in book.all("k8s.crash-loop") if clue.lines[0].file.endswith("events.json")]
    assert [(clue.host, clue.lines[0].number > 1) for clue in crash] == [("llm-0", True)]
    assert crash[0].time_s is not None
    assert book.has("kv.has-room")


@pytest.mark.parametrize(
    ("listed", "said"),
    [('{"items": []}', "no pod has"), ("oops", "no JSON that we know"), ('{"items": 3}', "no JSON that we know")],
)
def test_a_selector_without_pods_and_an_odd_answer_are_named(
    kubectl: Path, tmp_path: Path, listed: str, said: str
) -> None:
    (kubectl / "get_pods+json.out").write_text(listed)
    with pytest.raises(ProbeError, match=said):
        fetched(tmp_path)


def test_an_api_server_that_does_not_answer_is_named(kubectl: Path, tmp_path: Path) -> None:
    (kubectl / "get_pods+json.out").unlink()
    with pytest.raises(ProbeError, match="kubectl get: Error from server"):
        fetched(tmp_path)


@pytest.mark.parametrize(("selector", "namespace"), [("--all", None), ("app=x", "-A")])
def test_what_kubectl_would_take_for_an_option_is_refused(tmp_path: Path, selector: str, namespace: str | None) -> None:
    with pytest.raises(SpecError):
        fetched(tmp_path, namespace, selector)


def test_a_pod_without_a_list_of_containers_is_asked_as_a_whole(kubectl: Path, tmp_path: Path) -> None:
    bare: dict[str, Any] = {"items": [{"metadata": {"name": "llm-0"}}, "junk"]}
    (kubectl / "get_pods+json.out").write_text(json.dumps(bare))
    (kubectl / "logs+--all-containers.out").write_text("[pod/llm-0/vllm] hello\n")
    got = fetched(tmp_path, None)
    assert (got.folder / "pods/default/llm-0/engine.log").read_text() == "[pod/llm-0/vllm] hello\n"


def test_kubectl_that_is_not_there_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProbeError, match="not installed here"):
        fetched(tmp_path)
