"""Lines of our own program, the torch all-reduce: one JSON object after a mark."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roadworthy.diagnose.hosts.fabric.faults import most_telling
from roadworthy.diagnose.hosts.fabric.values import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.hosts.fabric.values import Fault, Kind

MARK = "@@@ measured "

FAULTS: tuple[tuple[str, str], ...] = (
    (r"connectFullMesh failed.*remote=\[?(?:127\.|::1)|remote.*127\.0\.0\.1", "nccl-socket-ifname"),
    (r"ibv_modify_qp failed|NET/IB.*Got completion", "rdma-peer-unreachable"),
    (r"No route to host|[Cc]onnection (?:refused|timed out)|[Tt]imed out (?:after|waiting)|failed to connect|client socket has (?:timed out|failed)", "network-port-blocked"),
    (r"out of memory", "gpu-memory-occupied"),
    (r"No module named|ModuleNotFoundError", ""),
    (r"(?:^|\s)\w*(?:Error|Exception): ", ""),
)  # fmt: skip


def lines(text: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every marked line; a line cut short is left out."""
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith(MARK):
            try:
                found = json.loads(line[len(MARK) :])
            except ValueError:
                continue
            if isinstance(found, dict):
                yield number, found


def reading(text: str, kind: Kind, *, gpus: tuple[str, str] | None = None) -> Reading | None:
    """The best number of ``kind``: the highest bandwidth, the lowest latency; between two GPUs where ``gpus`` names
    them, in that direction."""
    found: list[Reading] = []
    key = "bytes_per_s" if kind == "bandwidth" else "latency_s"
    for number, one in lines(text):
        value = one.get(key)
        ends = (str(one["from"]), str(one["to"])) if "from" in one and "to" in one else None
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value > 0 and ends == gpus:
            found.append(
                Reading(kind=kind, value=float(value), line=number, text=text.splitlines()[number - 1].strip())
            )
    if not found:
        return None
    return (max if kind == "bandwidth" else min)(found, key=lambda one: one.value)


def gpu_pairs(text: str) -> tuple[tuple[str, str], ...]:
    """The directed pairs of GPUs that a run inside one host reports."""
    return tuple((str(one["from"]), str(one["to"])) for _, one in lines(text) if "from" in one and "to" in one)


def fault(text: str) -> Fault | None:
    """The most telling error in ``text``."""
    said = ["" if line.startswith("@@@") else line for line in text.splitlines()]
    found = most_telling(said, FAULTS)
    return found and replace(found, text=found.text[:600])
