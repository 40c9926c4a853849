"""What the programs of nccl-tests print: rows of sizes with time, algorithm and bus bandwidth, out of place and in."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.fabric.faults import most_telling
from roadworthy.diagnose.hosts.fabric.values import Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.hosts.fabric.values import Fault

MPI_TAG = re.compile(r"^\s*\[\d+,\d+\]<(?:stdout|stderr)>:\s?")
"""`mpirun --tag-output` puts it before each line."""

FAULTS: tuple[tuple[str, str], ...] = (
    (r"Test NCCL failure .*unhandled cuda error|CUDA failure .*(?:out of memory|busy)", "gpu-memory-occupied"),
    (r"ibv_modify_qp failed|NET/IB.*(?:Got completion|error 12|timeout)", "rdma-peer-unreachable"),
    (r"ibv_reg_mr|Cannot allocate memory", "memlock-limit"),
    (r"No route to host|Connection (?:refused|timed out)|Permission denied \(publickey|ORTE was unable", "network-port-blocked"),
    (r"peer access is not supported|NVLink.*(?:error|fault)|uncorrectable NVLink", "nvlink-fault"),
    (r"[Tt]est NCCL failure|NCCL WARN|Test CUDA failure|Test failure", ""),
    (r"error while loading shared libraries|not enough slots|command not found|CUDA driver version is insufficient", ""),
)  # fmt: skip


def bandwidth(text: str) -> Reading | None:
    """Bus bandwidth of the largest size in bytes a second, the better of out of place and in place."""
    best = None
    for size, _, busbw, number, line in _rows(text):
        if busbw > 0 and (best is None or size >= best[0]):
            best = (size, Reading(kind="bandwidth", value=busbw, line=number, text=line))
    return best[1] if best else None


def latency(text: str) -> Reading | None:
    """Time of the smallest size that moves something, in seconds."""
    best = None
    for size, seconds, _, number, line in _rows(text):
        if size > 0 and seconds > 0 and (best is None or size < best[0]):
            best = (size, Reading(kind="latency", value=seconds, line=number, text=line))
    return best[1] if best else None


def wrong_results(text: str) -> Reading | None:
    """The first row whose values did not come out right, with how many."""
    for number, raw in enumerate(text.splitlines(), 1):
        cells = _cells(raw)
        if cells is None:
            continue
        wrong = [float(cell) for cell in (cells[-1], cells[-5] if len(cells) >= 9 else "0") if _is_number(cell)]
        if "#wrong" in text and any(value > 0 for value in wrong):
            return Reading(kind="bandwidth", value=max(wrong), line=number, text=raw.strip())
    return None


def fault(text: str) -> Fault | None:
    """The most telling error in ``text``."""
    found = most_telling(text.splitlines(), FAULTS)
    return found and replace(found, text=MPI_TAG.sub("", found.text).strip())


def _rows(text: str) -> Iterator[tuple[int, float, float, int, str]]:
    """(size in bytes, seconds, bus bandwidth in bytes a second, line, text). The two halves of a row have four columns
    each and stand at the end, whatever columns a version has before them."""
    for number, raw in enumerate(text.splitlines(), 1):
        cells = _cells(raw)
        if cells is None:
            continue
        halves = [cells[-8:-4], cells[-4:]]
        found = [
            (float(time) * 1e-6, float(busbw) * 1e9)
            for time, _, busbw, _ in halves
            if _is_number(time) and _is_number(busbw)
        ]
        if found:
            yield int(cells[0]), min(time for time, _ in found), max(busbw for _, busbw in found), number, raw.strip()


def _cells(raw: str) -> list[str] | None:
    """Cells of a row of results: a size, a count, a type, then at least eight numbers."""
    cells = MPI_TAG.sub("", raw).split()
    if len(cells) < 11 or not cells[0].isdigit() or not cells[1].isdigit() or _is_number(cells[2]):
        return None
    return cells


def _is_number(cell: str) -> bool:
    return re.fullmatch(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?", cell, re.IGNORECASE) is not None
