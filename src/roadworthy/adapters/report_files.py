"""Finds out before a long run whether its report can be written after it, and loses none that cannot be."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from roadworthy.adapters.files import write_atomically
from roadworthy.core.errors import ProbeError, SpecError
from roadworthy.core.units import format_bytes

REPORT_ROOM_BYTES = 2 * 2**20
"""More than a large report takes; so much is written and taken away again."""


def require_writable(path: Path) -> None:
    """Return when a report can be written to ``path``; an existing file stays as it is.

    Raises:
        SpecError: ``path`` is a folder, a device or a pipe, or its folder is missing or closed to us.
        ProbeError: the disk has no room for a report.
    """
    try:
        if path.is_dir():
            raise SpecError(f"{path}: is a folder, wanted a file", hint=f"write {path}/report.html, for example")
        if path.exists() and not path.is_file():  # writing in one step would put a file in a device's place
            raise SpecError(f"{path}: is a device, a pipe or a socket, wanted a file", hint="name a file")
        if not path.parent.is_dir():
            raise SpecError(f"{path}: there is no folder {path.parent}", hint=f"mkdir -p {path.parent}")
        _write_and_remove(path)
    except ValueError as error:  # a NUL in the path
        raise SpecError(f"{str(path)!r}: not a path", hint="look for an invisible character") from error
    except PermissionError as error:
        raise SpecError(f"{path}: cannot be written: {error.strerror}", hint="choose another folder") from error
    except OSError as error:
        full = error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
        hint = (
            f"free {format_bytes(REPORT_ROOM_BYTES)} there, or choose another place" if full else "choose another place"
        )
        raise ProbeError(f"{path}: cannot be written: {error.strerror}", hint=hint) from error


def _write_and_remove(path: Path) -> None:
    handle, name = tempfile.mkstemp(prefix=f".{path.name}."[:200], dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as probe:
            probe.write(bytes(REPORT_ROOM_BYTES))
            probe.flush()
            os.fsync(probe.fileno())
    finally:
        with contextlib.suppress(OSError):
            Path(name).unlink()


def write_or_rescue(contents: Sequence[tuple[Path, str]], *, say: Callable[[str], None]) -> None:
    """Write every text to its path; what cannot be written goes to the folder for temporary files instead.

    A measurement may have taken hours, and its disk may have filled meanwhile.

    Args:
        say: told of each file.

    Raises:
        ProbeError: of the first path that could not be written, with the place its content is at.
    """
    first: ProbeError | None = None
    for path, text in contents:
        try:
            write_atomically(path, text)
            say(f"wrote {path}")
        except (ProbeError, SpecError) as error:
            rescued = _rescued(path, text)
            place = f"its content is in {rescued}" if rescued else "its content could not be kept"
            say(f"error: {error}; {place}")
            first = first or ProbeError(f"{error}; {place}", hint=error.hint)
    if first is not None:
        raise first


def _rescued(path: Path, text: str) -> Path | None:
    try:
        handle, name = tempfile.mkstemp(prefix="roadworthy-", suffix=f"-{path.name}"[-100:])
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError:
        return None
    return Path(name)
