"""One large log on several cores: cut at line ends into pieces, each scanned by a process of its own, then joined."""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.incident.encodings import unwrapped
from roadworthy.adapters.incident.sources import CHUNK_BYTES, LINE_MOST_BYTES
from roadworthy.diagnose.anatomy import host_of_file
from roadworthy.diagnose.scan import FileScan, joined
from roadworthy.diagnose.signals import signal_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.diagnose.values import Clue

PARALLEL_FROM_BYTES = 256 * 2**20
PIECE_BYTES = 64 * 2**20


def cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def scan_pieces(path: Path, name: str, *, read: Callable[[int], None]) -> tuple[Clue, ...]:
    """The clues of the plain file at ``path``. ``read`` hears of the bytes of each piece that is done."""
    pieces = list(_pieces(path))
    context = get_context("spawn")  # forking a process that may have threads is not safe
    with ProcessPoolExecutor(max_workers=min(cores(), len(pieces)), mp_context=context) as pool:
        parts = []
        for (start, end), part in zip(pieces, pool.map(_scan, *_arguments(path, name, pieces)), strict=True):
            read(end - start)
            parts.append(part)
    return joined(parts)


def _arguments(
    path: Path, name: str, pieces: list[tuple[int, int]]
) -> tuple[list[Path], list[str], list[int], list[int]]:
    count = len(pieces)
    return [path] * count, [name] * count, [start for start, _ in pieces], [end for _, end in pieces]


def _pieces(path: Path) -> list[tuple[int, int]]:
    """(start, end) of pieces that end at a line's end, or at a cut where a line is longer than we read."""
    size, start, pieces = path.stat().st_size, 0, []
    with path.open("rb") as file:
        while start < size:
            file.seek(min(size, start + PIECE_BYTES))
            file.readline(LINE_MOST_BYTES)
            end = min(size, max(file.tell(), start + 1))
            pieces.append((start, end))
            start = end
    return pieces


def _scan(path: Path, name: str, start: int, end: int) -> tuple[tuple[Clue, ...], int]:
    scan = FileScan(index=signal_index(), file=name, host=host_of_file(name))
    with path.open("rb") as file:
        file.seek(start)
        while (left := end - file.tell()) > 0:
            data = file.read(min(CHUNK_BYTES, left))
            if not data:
                break  # the file was cut while we read it
            if not data.endswith(b"\n"):
                data += file.readline(min(LINE_MOST_BYTES, max(0, end - file.tell())))
            scan.feed(unwrapped(data))
    return scan.clues(), scan.lines_read
