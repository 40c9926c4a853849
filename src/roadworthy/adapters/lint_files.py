"""Files to lint: named, found below a folder, or from standard input; as bytes, for their encoding is not known."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from roadworthy.core.errors import SpecError

MAX_FILE_BYTES = 16 * 2**20
"""No launch file comes near this; a log or a checkpoint does."""

_SKIPPED_FOLDERS = frozenset({".git", ".hg", ".svn", "node_modules", "__pycache__", ".venv", ".tox", ".mypy_cache"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One file. ``data`` is None where it could not be read, and ``reason`` then says why. ``named`` is False for what
    was come upon in a folder."""

    path: str
    data: bytes | None
    reason: str = ""
    named: bool = True


def files_to_lint(paths: tuple[str, ...]) -> Iterator[Found]:
    """The files of ``paths`` in order, those of a folder sorted by name.

    Raises SpecError for a path that does not exist.
    """
    for path in paths:
        if path == "-":
            yield Found(path="-", data=sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
            continue
        try:
            mode = Path(path).stat().st_mode
        except (FileNotFoundError, NotADirectoryError) as error:
            raise SpecError(
                f"{path}: no such file", hint="name launch files, folders of them, or - for standard input"
            ) from error
        except (OSError, ValueError) as error:
            yield Found(path=path, data=None, reason=getattr(error, "strerror", None) or str(error))
            continue
        if stat.S_ISDIR(mode):
            yield from _below(Path(path))
        elif stat.S_ISREG(mode) or stat.S_ISFIFO(mode):
            yield _read(Path(path), path, named=True)
        else:
            yield Found(path=path, data=None, reason="neither a file nor a folder")


def _below(folder: Path) -> Iterator[Found]:
    for place, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if name not in _SKIPPED_FOLDERS)
        for name in sorted(names):
            path = Path(place) / name
            if path.is_file() and not name.endswith(".orig"):
                yield _read(path, str(path), named=False)


def _read(path: Path, shown: str, *, named: bool) -> Found:
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        return Found(path=shown, data=None, reason=error.strerror or str(error), named=named)
    if len(data) > MAX_FILE_BYTES:
        return Found(path=shown, data=None, reason=f"more than {MAX_FILE_BYTES // 2**20} MiB", named=named)
    return Found(path=shown, data=data, named=named)
