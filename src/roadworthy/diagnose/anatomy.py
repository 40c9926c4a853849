"""Who wrote a line, and when: line formats of vLLM, SGLang, Ray, NCCL, PyTorch, the kernel, journald, Kubernetes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

MONTHS = {
    name: number
    for number, name in enumerate(
        ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"], 1
    )
}
YEAR_WITHOUT = 2000
"""Year of clocks that print none: good for order inside one incident, not for a date."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Writer:
    """What the head of a line tells; None where it does not."""

    host: str | None = None
    rank: int | None = None
    process: str | None = None
    time_s: float | None = None


RANK = (
    re.compile(r"\[rank(\d+)\]"),
    re.compile(r"\[[Rr]ank (\d+)\]"),
    re.compile(r"\bRank (\d+)\]"),
    re.compile(r"\brank[= ](\d+)\b"),
    re.compile(r"\bWorker_?(?:DP\d+_)?(?:PP\d+_)?(?:TP|EP|DP)(\d+)"),
    re.compile(r"\bTP(\d+)[\] ]"),
    re.compile(r"\[(\d+)\] (?:\S+:\d+ )?NCCL "),
    re.compile(r"\brank(\d+)\b"),
)
PROCESS = re.compile(r"\(([A-Za-z_:]+[\w:]*?) (?:rank=\d+ )?pid=\d+")
NCCL_HOST = re.compile(r"(?:^|[\s\]])([A-Za-z0-9][\w.-]*):\d+:\d+ \[\d+\] ")
UCX_HOST = re.compile(r"\[([A-Za-z][\w.-]*):\d+\s*:\d+")
NO_HOST = r"(?!(?:INFO|WARN|WARNING|ERROR|DEBUG|CRITICAL|FATAL|stdout|stderr)\b)"
SYSLOG_HOST = re.compile(
    r"^(?:[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d(?:\.\d+)?|\d{4}-\d\d-\d\dT\S+|"
    r"[A-Z][a-z]{2} \d{4}-\d\d-\d\d \d\d:\S+ [A-Z]{3,4}|\d{10}\.\d+|<\d+>1 \S+) "
    rf"{NO_HOST}([\w.-]*[A-Za-z\d][\w.-]*) {NO_HOST}[\w./@-]+(?:\[\d+\])?(?::| - | \d+ - )"
)
"""Syslog, journald in each of its short forms, RFC 5424, and records that were put into this shape."""

POD = re.compile(r"^\[?pod/([\w.-]+)/[\w.-]+\]?")
STERN = re.compile(
    r"^([a-z0-9]+(?:-[a-z0-9]+)*-(?:\d+|[a-z0-9]{5}|[a-z0-9]{8,10}))[ >]+[a-z0-9][a-z0-9-]* "
    r"(?=[(\[\d]|INFO|WARN|ERROR|Traceback)"
)
LABELS = re.compile(r"^\S+ \{[^}]*\b(?:pod|node|node_name|hostname|instance|host)=\"([^\"]+)\"[^}]*\}")
EVENT_OBJECT = re.compile(r"^(?:\S+ +)?\S+ +(?:Normal|Warning) +\w+ +(?:pod|node|Pod|Node)/([\w.-]+)\s")
"""A row of `kubectl get events`."""

RAY_IP = re.compile(r"\bip=([\d.]+)")

ISO = re.compile(r"(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(Z|[+-]\d\d:?\d\d)?")
VLLM_TIME = re.compile(r"\b(?:INFO|WARNING|ERROR|DEBUG|CRITICAL) (\d\d)-(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
GLOG = re.compile(r"(?:^|[\[ ])[IWEF](\d{1,2})(\d\d) (\d\d):(\d\d):(\d\d)(?:\.(\d+))?")
SYSLOG_TIME = re.compile(r"^([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d)")
KERNEL = re.compile(r"^\[\s*(\d+\.\d+)\]")
EPOCH = re.compile(r"^(\d{10}\.\d+) \S")
CTIME = re.compile(r"^\[?[A-Z][a-z]{2} ([A-Z][a-z]{2}) ([ \d]\d) (\d\d):(\d\d):(\d\d) (\d{4})\]?")
"""`dmesg -T`."""


def writer_of(text: str) -> Writer:
    """Host, rank, process and time of one line; what the line does not say stays None."""
    head = text[:400]
    process = PROCESS.search(head)
    return Writer(
        host=_first(head, (NCCL_HOST, POD, UCX_HOST, SYSLOG_HOST, STERN, LABELS, EVENT_OBJECT, RAY_IP)),
        rank=_rank(head),
        process=process.group(1) if process else None,
        time_s=time_of(head),
    )


def _first(text: str, patterns: tuple[re.Pattern[str], ...]) -> str | None:
    for pattern in patterns:
        if found := pattern.search(text):
            return found.group(1)
    return None


def _rank(text: str) -> int | None:
    found = _first(text, RANK)
    return int(found) if found else None


def time_of(text: str) -> float | None:
    """Seconds of the first clock in ``text``: since 1970 where it has a year, else since the start of YEAR_WITHOUT, or
    since boot for the kernel's own."""
    for pattern, read in CLOCKS:
        if found := pattern.search(text):
            try:
                return read(found)
            except ValueError:  # 31 February and its like
                continue
    return None


def _fraction(digits: str | None) -> float:
    return float(f"0.{digits}") if digits else 0.0


def _iso(found: re.Match[str]) -> float:
    year, month, day, hour, minute, second = (int(found.group(index)) for index in range(1, 7))
    moment = datetime(year, month, day, hour, minute, second, tzinfo=UTC)
    if (zone := found.group(8)) and zone != "Z":
        sign = -1 if zone[0] == "-" else 1
        moment -= sign * timedelta(hours=int(zone[1:3]), minutes=int(zone[-2:]))
    return moment.timestamp() + _fraction(found.group(7))


def _without_year(month: int, day: int, rest: tuple[str, ...], fraction: str | None) -> float:
    hour, minute, second = map(int, rest)
    return datetime(YEAR_WITHOUT, month, day, hour, minute, second, tzinfo=UTC).timestamp() + _fraction(fraction)


def _vllm(found: re.Match[str]) -> float:
    return _without_year(int(found.group(1)), int(found.group(2)), found.group(3, 4, 5), found.group(6))


def _syslog(found: re.Match[str]) -> float:
    return _without_year(MONTHS.get(found.group(1), 0), int(found.group(2)), found.group(3, 4, 5), None)


def _kernel(found: re.Match[str]) -> float:
    return float(found.group(1))


def _ctime(found: re.Match[str]) -> float:
    month, day, hour, minute, second, year = found.groups()
    moment = datetime(int(year), MONTHS.get(month, 0), int(day), int(hour), int(minute), int(second), tzinfo=UTC)
    return moment.timestamp()


CLOCKS: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], float]], ...] = (
    (ISO, _iso), (VLLM_TIME, _vllm), (GLOG, _vllm), (SYSLOG_TIME, _syslog), (KERNEL, _kernel), (EPOCH, _kernel),
    (CTIME, _ctime),
)  # fmt: skip

HOST_FILE = re.compile(r"^([A-Za-z][\w-]*)\.(?:[\w-]+\.)+\w+$")
NOT_HOSTS = frozenset({
    "engine", "nccl", "dmesg", "prefill", "decode", "router", "worker", "cpu", "metrics", "raylet", "gateway", "server",
    "client", "proxy", "before", "after", "vllm", "sglang", "app", "job", "messages", "syslog", "kern", "journal",
})  # fmt: skip


def host_of_file(path: str) -> str | None:
    """Host that a file's name or folder tells: ``node-a.dmesg.txt``, ``node-a/dmesg.txt``."""
    *folders, name = path.replace("\\", "/").split("/")
    if (found := HOST_FILE.match(name)) and found.group(1).lower() not in NOT_HOSTS:
        return found.group(1)
    return folders[-1] if folders and re.search(r"\d|node|host|pod|gpu", folders[-1]) else None
