"""Records of loggers and clusters as the plain lines that rules read: time, host, who, text.

journald, Docker, Kubernetes' lists, Loki, stern and the usual shippers (Fluent Bit, Vector, Filebeat) wrap one line of
text each in their own JSON; what they know of its host and time is put where a syslog line has it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

TEXTS = ("MESSAGE", "log", "message", "msg", "line", "body")
TIMES = ("__REALTIME_TIMESTAMP", "time", "@timestamp", "timestamp", "ts", "date")
HOSTS = (
    "_HOSTNAME", "hostname", "host", "nodeName", "node_name", "node", "podName", "pod_name", "pod", "instance",
)  # fmt: skip
PODS = ("podName", "pod_name", "pod")
CONTAINERS = ("containerName", "container_name", "container", "SYSLOG_IDENTIFIER", "_COMM", "app", "job", "unit")
NESTED = ("kubernetes", "labels", "stream", "fields", "metadata", "host", "resource")
TELLS_A_LOGGER = frozenset({
    "_HOSTNAME", "__REALTIME_TIMESTAMP", "stream", "kubernetes", "podName", "pod_name", "containerName", "labels",
    "@timestamp", "container_name",
})  # fmt: skip
"""Without one of these a line of JSON may be anything: a request, a row of an access log."""

ANSI = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How a file of records is read.

    Args:
        key: of the arrays that hold them; empty where the text itself is their array.
        lines: plain lines of one record.
        keep_text: whether the text as it stands says more (probes read manifests).
        yaml: whether it is a list that kubectl printed as YAML.
    """

    key: str
    lines: Callable[[Any], Iterator[str]]
    keep_text: bool = False
    yaml: bool = False


def form_of(head: bytes) -> Form | None:
    """The form of a file that starts with ``head``; None for lines of any kind."""
    text = head.lstrip()
    if text.startswith(b"{"):
        if re.search(rb'"resultType"\s*:\s*"streams"|"result"\s*:\s*\[\s*\{\s*"stream"\s*:', text[:2000]):
            return Form(key="result", lines=_loki)
        if re.search(rb'"items"\s*:\s*\[', text) and re.search(rb'"apiVersion"\s*:|"kind"\s*:\s*"\w*List"', text):
            return Form(key="items", lines=_kubernetes, keep_text=b'"Event"' not in text)
    if re.match(rb"apiVersion: v1\r?\nitems:\r?\n- ", text):
        return Form(key="", lines=_kubernetes, keep_text=b"kind: Event" not in text, yaml=True)
    if re.match(rb"\{\s*\n", text) and b'"__REALTIME_TIMESTAMP"' in text:  # journalctl -o json-pretty
        return Form(key="", lines=_lines_of)
    if re.match(rb"\[\s*\{", text) and re.search(rb'"(?:MESSAGE|log|message|msg|line|body)"\s*:', text):
        return Form(key="", lines=_lines_of)
    return None


def plain_line(line: bytes) -> bytes:
    """One line of a logger's JSON as plain text; any other line as it is."""
    start = line.lstrip(b"\x1e")  # journalctl -o json-seq puts a separator before each
    if not start.startswith(b"{"):
        return line
    try:
        record: Any = json.loads(start)
    except ValueError:
        return line
    if not isinstance(record, dict):
        return line
    text = _record(record)
    return line if text is None else text.encode("utf-8", "replace")


def without_colours(chunk: bytes) -> bytes:
    """``chunk`` without terminal colours, which part words that belong together."""
    return ANSI.sub(b"", chunk) if b"\x1b" in chunk else chunk


def _record(record: Mapping[str, Any]) -> str | None:
    if "log" in record and isinstance(record["log"], str) and set(record) <= {"log", "stream", "time", "attrs"}:
        return f"{record.get('time', '')} {_one_line(record['log'])}".lstrip()  # Docker knows no host
    if "MESSAGE" not in record and not (TELLS_A_LOGGER & record.keys()):
        return None
    return _wrapped(record)


def _wrapped(record: Mapping[str, Any]) -> str | None:
    """The line that ``record`` wraps; None where it has no text."""
    text = next((one for key in TEXTS if (one := _text(record.get(key))) is not None), None)
    if text is None:
        return None
    known = {**{key: one for key, one in record.items() if not isinstance(one, dict)}, **_nested(record)}
    return _told(known, text)


def _told(known: Mapping[str, Any], text: str) -> str:
    when = _when(next((known[key] for key in TIMES if known.get(key)), ""))
    host = next((str(known[key]) for key in (*PODS, *HOSTS) if isinstance(known.get(key), str) and known[key]), "")
    who = next((str(known[key]) for key in CONTAINERS if isinstance(known.get(key), str) and known[key]), "-")
    if known.get("_HOSTNAME"):
        host = str(known["_HOSTNAME"])
    if not when and host:
        return f"[pod/{_word(host)}/{_word(who)}] {_one_line(text)}"
    head = f"{when} {_word(host) or '-'} {_word(who)}: " if host or who != "-" else f"{when} "
    return (head + _one_line(text)).lstrip()


def _word(text: str) -> str:
    return re.sub(r"[^\w./@-]", "_", text.removesuffix(".service"))


def _nested(record: Mapping[str, Any]) -> dict[str, Any]:
    """What a logger tells in objects of its own: Kubernetes' names, labels, Filebeat's host."""
    found: dict[str, Any] = {}
    for key in NESTED:
        inner = record.get(key)
        if isinstance(inner, dict):
            found |= {one: value for one, value in inner.items() if isinstance(value, str)}
            if key == "host" and isinstance(inner.get("name"), str):
                found.setdefault("hostname", inner["name"])
    return found


def _text(value: object) -> str | None:
    if isinstance(value, list):  # journald gives bytes that are not UTF-8 as numbers
        return bytes(byte for byte in value if isinstance(byte, int) and 0 <= byte < 256).decode("utf-8", "replace")
    return value if isinstance(value, str) else None


def _one_line(text: str) -> str:
    return text.rstrip("\r\n").replace("\n", " ")


def _when(value: object) -> str:
    """ISO 8601 of what loggers write: text as it is, numbers as seconds, milli-, micro- or nanoseconds."""
    if isinstance(value, str) and not re.fullmatch(r"\d+(?:\.\d+)?", value):
        return value
    try:
        seconds = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return ""
    while seconds > 1e11:
        seconds /= 1000
    try:
        return datetime.fromtimestamp(seconds, tz=UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    except (OverflowError, OSError, ValueError):
        return ""


def _lines_of(record: object) -> Iterator[str]:
    """One record of an array of them, as Grafana and Kibana export."""
    if isinstance(record, dict) and (line := _wrapped(record)) is not None:
        yield line


def _loki(stream: object) -> Iterator[str]:
    """Lines of one stream of Loki, with its labels' place; Loki gives the newest first."""
    if not isinstance(stream, dict):
        return
    labels = stream.get("stream")
    known = {key: value for key, value in labels.items() if isinstance(value, str)} if isinstance(labels, dict) else {}
    values = [one for one in list_of(stream.get("values")) if isinstance(one, list) and len(one) >= 2]
    if len(values) > 1 and str(values[0][0]) > str(values[-1][0]):
        values.reverse()
    for time_ns, text, *_ in values:
        if isinstance(text, str):
            yield _told({**known, "time": str(time_ns)}, text)


def _kubernetes(item: object) -> Iterator[str]:
    """Events, states of containers and conditions of nodes, each as one line of the object that it is about."""
    if not isinstance(item, dict):
        return
    kind = item.get("kind") or ("Event" if "involvedObject" in item else "")
    meta, status = mapping_of(item.get("metadata")), mapping_of(item.get("status"))
    if kind == "Event" or "involvedObject" in item or "regarding" in item:
        yield _event(item, meta)
        return
    name = str(meta.get("name", "-"))
    for one in [*list_of(status.get("initContainerStatuses")), *list_of(status.get("containerStatuses"))]:
        yield from _container(name, mapping_of(one))
    for condition in list_of(status.get("conditions")):
        yield from _condition(name, kind, mapping_of(condition))


def mapping_of(value: object) -> dict[str, Any]:
    """``value`` where it is an object, else an empty one: what clusters answer may have holes."""
    return value if isinstance(value, dict) else {}


def list_of(value: object) -> list[Any]:
    """``value`` where it is an array, else an empty one."""
    return value if isinstance(value, list) else []


def _event(item: Mapping[str, Any], meta: Mapping[str, Any]) -> str:
    about = mapping_of(item.get("involvedObject") or item.get("regarding"))
    series = mapping_of(item.get("series"))
    when = next(
        (
            str(one) for one in (
                item.get("lastTimestamp"), series.get("lastObservedTime"), item.get("eventTime"),
                item.get("deprecatedLastTimestamp"), item.get("firstTimestamp"), meta.get("creationTimestamp"),
            ) if one
        ),
        "",
    )  # fmt: skip
    count = item.get("count") or series.get("count") or item.get("deprecatedCount") or 1
    text = str(item.get("message") or item.get("note") or "")
    head = f"{when} {about.get('name', '-')} {about.get('kind', 'event')}: {item.get('type', '')}"
    return _one_line(f"{head} {item.get('reason', '')}: {text} (x{count})").strip()


def _container(pod: str, one: Mapping[str, Any]) -> Iterator[str]:
    for which in ("state", "lastState"):
        for how, said in mapping_of(one.get(which)).items():
            told = mapping_of(said)
            if how == "running":
                continue
            when = told.get("finishedAt") or told.get("startedAt") or ""
            yield _one_line(
                f"{when} {pod} kubelet: container {one.get('name')} "
                f"{'was' if which == 'lastState' else 'is'} {how}: {told.get('reason', '')} "
                f"Exit Code: {told.get('exitCode', '-')} {told.get('message') or ''} "
                f"(restarted {one.get('restartCount', 0)} times)"
            ).strip()


def _condition(name: str, kind: str, one: Mapping[str, Any]) -> Iterator[str]:
    good = "True" if one.get("type") in ("Ready", "Initialized", "ContainersReady", "PodScheduled") else "False"
    if kind in ("Node", "Pod") and one.get("status") and one.get("status") != good:
        yield _one_line(
            f"{one.get('lastTransitionTime', '')} {name} {kind}: {one.get('type')} is {one.get('status')}: "
            f"{one.get('reason', '')} {one.get('message', '')}"
        ).strip()
