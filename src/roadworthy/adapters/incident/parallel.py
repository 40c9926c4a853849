"""One large log on several cores: cut at line ends into pieces, each scanned by a process of its own, then joined."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.incident.encodings import unwrapped
from roadworthy.adapters.incident.places import place_of
from roadworthy.adapters.incident.sources import CHUNK_BYTES, LINE_MOST_BYTES
from roadworthy.adapters.processes import cores, each
from roadworthy.diagnose.scan import FileScan, joined
from roadworthy.diagnose.signals import signal_index

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.diagnose.values import Clue

PARALLEL_FROM_BYTES = 256 * 2**20
PIECE_BYTES = 64 * 2**20


def scan_pieces(path: Path, name: str, *, read: Callable[[int], None]) -> tuple[Clue, ...]:
    """The clues of the plain file at ``path``. ``read`` hears of the bytes of each piece that is done."""
    pieces = list(_pieces(path))
    parts = []
    for (start, end), part in zip(pieces, each(partial(_scan, path, name), pieces, processes=cores()), strict=True):
        read(end - start)
        parts.append(part)
    return joined(parts)


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


def _scan(path: Path, name: str, piece: tuple[int, int]) -> tuple[tuple[Clue, ...], int]:
    start, end = piece
    scan = FileScan(index=signal_index(), file=name, host=place_of(name))
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
