"""Files of this host: read whole, written in one step. Everything that goes wrong becomes one of our errors."""

from __future__ import annotations

import errno
import os
import tempfile
from contextlib import suppress
from pathlib import Path

from roadworthy.core.errors import ProbeError, SpecError

MAX_TEXT_BYTES = 64 * 2**20
"""Nothing that we read whole is anywhere near this; a mistaken path to a checkpoint shard is."""

_HINTS = {
    errno.ENOSPC: "free some space, or name a folder on another disk",
    errno.EDQUOT: "free some of your quota, or name a folder on another disk",
    errno.EROFS: "the file system is mounted read-only: name another folder",
    errno.EACCES: "check the owner and the mode with `ls -ld`, or name another folder",
    errno.EPERM: "check the owner and the mode with `ls -ld`, or name another folder",
    errno.ENOENT: "the folder does not exist: make it first, or name another",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.ENAMETOOLONG: "the path is too long for this file system",
    errno.EISDIR: "that is a folder: name a file in it",
}


def read_text(path: Path | str, *, what: str, limit_bytes: int = MAX_TEXT_BYTES) -> str:
    """The UTF-8 text of ``path``, a byte order mark left out; ``what`` says in messages what the file is.

    Raises:
        SpecError: there is no such file, it is a folder, too big, or not UTF-8 text.
        ProbeError: it is there and cannot be read.
    """
    place = Path(path)
    try:
        with place.open("rb") as file:
            data = file.read(limit_bytes + 1)
    except (FileNotFoundError, NotADirectoryError) as error:
        raise SpecError(f"{path}: no such file, wanted {what}", hint=_nearby(place)) from error
    except IsADirectoryError as error:
        raise SpecError(f"{path}: a folder, wanted {what}", hint="name a file in it") from error
    except OSError as error:
        raise ProbeError(f"{path}: cannot read {what}: {_reason(error)}", hint=_hint(error)) from error
    except ValueError as error:  # a NUL in the path
        raise SpecError(f"{str(path)!r}: not a path, wanted {what}", hint="look for an invisible character") from error
    return decode(data, source=str(path), what=what, limit_bytes=limit_bytes)


def decode(data: bytes, *, source: str, what: str, limit_bytes: int = MAX_TEXT_BYTES) -> str:
    """``data`` as UTF-8 text. Raises SpecError, naming ``source``, when it is too long or is not text."""
    if len(data) > limit_bytes:
        raise SpecError(
            f"{source}: more than {limit_bytes:,} bytes, wanted {what}",
            hint="is it the right file? this one is too big",
        )
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise SpecError(
            f"{source}: not UTF-8 text (byte 0x{data[error.start]:02x} on line {line}), wanted {what}",
            hint=f"if it is text in another encoding: `iconv -t UTF-8 {source}`",
        ) from error


def write_atomically(path: Path | str, content: str | bytes, *, mode: int | None = None, durable: bool = True) -> None:
    """Write ``content`` to ``path`` in one step: readers see the old file or the new one, and never a part.

    The new bytes go to a file beside it and reach the disk before they take the name. ``mode`` sets the permissions
    from the first byte on; without it they are those of the file replaced, or the process's usual ones. ``durable``
    False leaves out the wait for the disk: for files that can be made again at once.

    Raises ProbeError, leaving nothing behind, when the disk is full or the place cannot be written.
    """
    place = Path(path)
    data = content.encode("utf-8") if isinstance(content, str) else content
    temporary: str | None = None
    try:
        if place.is_dir():
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
        if place.exists() and not place.is_file():  # the new file would take the place of the device
            raise ProbeError(f"{path}: cannot write: a device, a pipe or a socket, not a file", hint="name a file")
        target = place.resolve()  # keeps a symbolic link a link
        handle, temporary = tempfile.mkstemp(prefix=f".{target.name[:64]}.", suffix=".part", dir=target.parent)
        with os.fdopen(handle, "wb") as file:
            os.fchmod(file.fileno(), _usual_mode(target) if mode is None else mode)
            file.write(data)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        Path(temporary).replace(target)
        temporary = None
    except OSError as error:
        raise ProbeError(f"{path}: cannot write: {_reason(error)}", hint=_hint(error)) from error
    except ValueError as error:
        raise ProbeError(f"{str(path)!r}: cannot write: not a path", hint="look for an invisible character") from error
    finally:
        if temporary is not None:
            with suppress(OSError):
                Path(temporary).unlink()


def _usual_mode(target: Path) -> int:
    try:
        return target.stat().st_mode & 0o777
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _reason(error: OSError) -> str:
    return error.strerror or str(error)


def _hint(error: OSError) -> str:
    return _HINTS.get(error.errno or 0, "")


def _nearby(place: Path) -> str:
    """A file of nearly that name in the same folder, or what else to do."""
    from difflib import get_close_matches

    try:
        names = sorted(entry.name for entry in place.parent.iterdir() if entry.is_file())
    except (OSError, ValueError):
        return f"the folder {place.parent} is not there either"
    close = get_close_matches(place.name, names, n=1, cutoff=0.7)
    return f"did you mean {place.parent / close[0]}?" if close else "check the path"
