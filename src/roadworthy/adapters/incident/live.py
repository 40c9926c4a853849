"""Evidence from what runs: hosts over ssh, pods of a selector, two scrapes of an engine. Reads only."""

from __future__ import annotations

import http.client
import json
import subprocess
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roadworthy.adapters.capture import capture_over_ssh
from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.diagnose.examine import DOCUMENT_LIMIT_BYTES

if TYPE_CHECKING:
    from roadworthy.adapters.incident.read import Reading

KUBECTL_LIMIT_S = 60
SCRAPE_LIMIT_S = 15
SCRAPE_MOST_BYTES = 16 * 2**20
LOG_LINES = 200_000


def take(reading: Reading, file: str, text: str, *, host: str | None = None) -> None:
    """Add one text to what was read."""
    scan = reading.examination.scan(file)
    scan.host = host or scan.host
    data = text.encode("utf-8", "replace")
    scan.feed(data)
    reading.files += 1
    reading.bytes += len(data)
    reading.examination.finished(scan, text if len(text) <= DOCUMENT_LIMIT_BYTES else None)


def read_hosts(reading: Reading, hosts: Sequence[str]) -> None:
    """The answers of a capture of each host; a host that cannot be reached is among the skipped."""
    for host, answers in capture_over_ssh(hosts).items():
        if isinstance(answers, ProbeError):
            reading.skipped.append((host, str(answers)))
            continue
        for answer in answers:
            if answer.text:
                take(reading, f"{host}/{answer.file}", answer.text, host=host)


def read_pods(reading: Reading, selector: str, namespace: str | None) -> None:
    """Events, descriptions and logs (the last run's too) of the pods that ``selector`` names. Raises ProbeError."""
    if selector.startswith("-") or (namespace or "").startswith("-"):
        raise SpecError(f"{selector!r} is no label selector", hint="such as app=vllm")
    where = ["-n", namespace] if namespace else []
    listed = _kubectl(["get", "pods", *where, "-l", selector, "-o", "json"])
    try:
        names = [item["metadata"]["name"] for item in json.loads(listed)["items"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError("kubectl: its list of pods is no JSON that we know") from error
    if not names:
        raise ProbeError(f"no pod has {selector!r}", hint="`kubectl get pods --show-labels` lists what there is")
    for name in names:
        for file, arguments in (
            ("describe.txt", ["describe", "pod", name]),
            ("engine.log", ["logs", name, "--all-containers", "--timestamps", f"--tail={LOG_LINES}"]),
            ("previous.log", ["logs", name, "--all-containers", "--timestamps", "--previous", f"--tail={LOG_LINES}"]),
        ):
            try:
                take(reading, f"{name}/{file}", _kubectl([*arguments, *where]), host=name)
            except ProbeError as error:
                if file != "previous.log":  # a pod that never restarted has none
                    reading.skipped.append((f"{name}/{file}", str(error)))


def _kubectl(arguments: list[str]) -> str:
    try:
        done = subprocess.run(["kubectl", *arguments], capture_output=True, timeout=KUBECTL_LIMIT_S, check=False)
    except FileNotFoundError as error:
        raise ProbeError(
            "kubectl is not installed here", hint="save `kubectl logs` and `kubectl describe` to files"
        ) from error
    except subprocess.TimeoutExpired as error:
        raise ProbeError(f"kubectl {arguments[0]}: no answer within {KUBECTL_LIMIT_S} s") from error
    if done.returncode:
        said = done.stderr.decode("utf-8", "replace").strip().splitlines()
        raise ProbeError(f"kubectl {arguments[0]}: {said[-1] if said else f'exit code {done.returncode}'}")
    return done.stdout.decode("utf-8", "replace")


def read_metrics(reading: Reading, url: str, *, apart_s: float) -> None:
    """Two scrapes of ``url``, ``apart_s`` seconds apart. Raises ProbeError when it does not answer."""
    name = (urlsplit(url).netloc or "engine").replace(":", "_")
    for number in range(2):
        take(reading, f"{name}.t{number}.prom", _scrape(url))
        if number == 0:
            time.sleep(apart_s)


def _scrape(url: str) -> str:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise SpecError(f"{url!r} is no address", hint="such as http://127.0.0.1:8000/metrics")
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname, parts.port, timeout=SCRAPE_LIMIT_S)
    try:
        connection.request("GET", parts.path or "/metrics")
        answer = connection.getresponse()
        body = answer.read(SCRAPE_MOST_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise ProbeError(
            f"cannot reach {url}: {error}", hint="is the engine up, and its port reachable from here?"
        ) from error
    finally:
        connection.close()
    if answer.status != 200:
        raise ProbeError(f"{url} answered {answer.status}", hint="give the address of /metrics")
    return body.decode("utf-8", "replace")
