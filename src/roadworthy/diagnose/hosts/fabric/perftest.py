"""What `ib_write_bw` and `ib_write_lat` of perftest print, with any header, warnings and GPU memory in between.

perftest's ``MB/sec`` are 2**20 bytes, its ``Gb/sec`` 10**9 bits (perftest 4.5, ``print_report_bw``)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from roadworthy.diagnose.hosts.fabric.faults import most_telling
from roadworthy.diagnose.hosts.fabric.values import GBIT, Reading

if TYPE_CHECKING:
    from collections.abc import Iterator

    from roadworthy.diagnose.hosts.fabric.values import Fault, Kind

UNITS_BYTES_PER_S = {"MB/sec": 2.0**20, "MiB/sec": 2.0**20, "Gb/sec": GBIT, "GB/sec": 1e9}
HEADER = re.compile(r"^\s*#bytes\s+#iterations\s+(?P<rest>.*)$")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?(?:e[+-]?\d+)?|nan|inf|-?nan", re.IGNORECASE)

FAULTS: tuple[tuple[str, str], ...] = (
    (r"Failed to modify QP.* to RT[RS]|Unable to Connect the HCA's through the link", "rdma-peer-unreachable"),
    (r"Failed status 12\b|transport retry counter exceeded", "rdma-peer-unreachable"),
    (r"Failed status \d+: wr_id|Completion with [Ee]rror", "rdma-peer-unreachable"),
    (r"Did not get Message for 120 Seconds", "rdma-peer-unreachable"),
    (r"(?:rdma_resolve_addr|rdma_resolve_route|Function rdma_connect) failed|Failed to (?:resolve|connect) .*RDMA CM", "rdma-peer-unreachable"),
    (r"No GID|Failed to get GID|Invalid GID|gid.*is (?:zero|null|empty)", "rdma-gid-mismatch"),
    (r"Couldn't allocate MR|Failed to create MR|ibv_reg_mr|Cannot allocate memory", "memlock-limit"),
    (r"Couldn't create (?:CQ|a receiver CQ)|Failed to create CQs|Couldn't create QP|Unable to create QP|Failed to create QP", "memlock-limit"),
    (r"IB device .* not found|Unable to find the Infiniband/RoCE device|Did not detect devices", "rdma-device-not-exposed"),
    (r"Port number .* state is (?:Down|not Active)|[Pp]ort \d+ .*is not (?:active|up)|Couldn't set the link layer", "rdma-link-degraded"),
    (r"nvidia_p2p|dmabuf.*(?:fail|not supported)|cuda.*(?:MR|register).*fail|Failed to register .*GPU", "gpudirect-rdma-disabled"),
    (r"Couldn't connect to|Unable to init the socket connection|Unable to open file descriptor for socket", "network-port-blocked"),
    (r"Couldn't get context for the device|Couldn't create IB resources|Unable to create the resources", ""),
    (r"Couldn't listen to port|Failed to bind socket|Address already in use", ""),
    (r"(?:unrecognized|invalid) option|Parser function exited with Error|error while loading shared libraries", ""),
)  # fmt: skip
"""What a message points to, the most telling first; an empty id says that the tool could not look."""


def bandwidth(text: str) -> Reading | None:
    """Average of the largest message size in bytes a second; a two-way test counts both directions together."""
    best: tuple[int, Reading] | None = None
    for size, reading in _rows(text, "BW average"):
        if best is None or size >= best[0]:
            best = (size, reading)
    return best[1] if best else None


def latency(text: str) -> Reading | None:
    """Typical latency of the smallest message size in seconds; the average where only that was kept."""
    best: tuple[int, Reading] | None = None
    for size, reading in [*_rows(text, "t_typical"), *_rows(text, "t_avg")]:
        if best is None or size < best[0]:
            best = (size, reading)
    return best[1] if best else None


def two_way(text: str) -> bool:
    """Whether the test sent in both directions at once."""
    return "Bidirectional" in text


def fault(text: str) -> Fault | None:
    """The most telling error in ``text``."""
    return most_telling(text.splitlines(), FAULTS)


def _rows(text: str, column: str) -> Iterator[tuple[int, Reading]]:
    """(message size, reading) of each row below a header that has ``column``."""
    at, factor = -1, 0.0
    for number, line in enumerate(text.splitlines(), 1):
        if header := HEADER.match(line):
            at, factor = _column(header["rest"], column)
            continue
        cells = line.split()
        if at < 0 or len(cells) <= at or not cells[0].isdigit() or not all(NUMBER.fullmatch(cell) for cell in cells):
            continue
        value = float(cells[at]) * factor
        if 0 < value < float("inf"):
            kind: Kind = "bandwidth" if column.startswith("BW") else "latency"
            yield int(cells[0]), Reading(kind=kind, value=value, line=number, text=line.strip())


def _column(names: str, wanted: str) -> tuple[int, float]:
    """Index of the column among all cells of a row, and what its unit is worth; -1 where it is not there."""
    found = re.findall(r"([\w.%# ]*?\S)\[([\w/]+)\]", names)
    for index, (name, unit) in enumerate(found):
        if name.strip() == wanted:
            return index + 2, UNITS_BYTES_PER_S.get(unit, 1e-6 if unit == "usec" else 0.0)
    return -1, 0.0
