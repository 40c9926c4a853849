"""A folder of rendered files: written in one go, compared with what would be written, cleaned of what is not made now.

``manifest.json`` in the folder names the files that a rendering wrote. Whatever it does not name is somebody else's
and stays.
"""

from __future__ import annotations

import difflib
import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roadworthy.adapters.files import write_atomically
from roadworthy.core.errors import ProbeError
from roadworthy.render.manifest import NAME, manifest

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.render.values import Artifact


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What writing did, as paths relative to the folder.

    Args:
        kept: files that an earlier rendering wrote and that were changed by hand since; no longer made, not removed.
    """

    written: tuple[str, ...] = ()
    unchanged: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    kept: tuple[str, ...] = ()


def write_artifacts(folder: Path, artifacts: Sequence[Artifact]) -> Written:
    """Write every artifact below ``folder``, then the manifest; remove what the last manifest named and this does not.

    Raises ProbeError when a place cannot be written; what was written until then stays, each file whole.
    """
    earlier = _earlier(folder)
    written, unchanged = [], []
    for artifact in artifacts:
        place = _place(folder, artifact.path)
        if _holds(place, artifact):
            unchanged.append(artifact.path)
            continue
        _make_folder(place.parent)
        write_atomically(place, artifact.text, mode=artifact.mode, durable=False)
        written.append(artifact.path)
    removed, kept = _remove_stale(folder, earlier, {artifact.path for artifact in artifacts})
    _make_folder(folder)
    write_atomically(folder / NAME, manifest(artifacts), durable=False)
    return Written(
        written=tuple(written), unchanged=tuple(unchanged), removed=tuple(removed), kept=tuple(kept)
    )  # fmt: skip


def difference(folder: Path, artifacts: Sequence[Artifact]) -> str:
    """What writing would change below ``folder`` as a unified diff; empty where nothing would."""
    earlier = _earlier(folder)
    parts = [part for artifact in artifacts for part in _changes(folder, artifact)]
    for path in sorted(set(earlier) - {artifact.path for artifact in artifacts}):
        old = _text(_place(folder, path))
        if old is not None and _digest(old) == earlier[path]:
            parts += _unified(old, "", f"{folder.name}/{path}", "/dev/null")
    return "".join(parts)


def _changes(folder: Path, artifact: Artifact) -> Iterator[str]:
    place, name = _place(folder, artifact.path), f"{folder.name}/{artifact.path}"
    old = _text(place)
    if old is None:
        yield from _unified("", artifact.text, "/dev/null", name)
        return
    yield from _unified(old, artifact.text, name, name)
    mode = place.stat().st_mode & 0o777
    if mode != artifact.mode:
        yield f"mode {name} {mode:o} -> {artifact.mode:o}\n"


def _unified(old: str, new: str, old_name: str, new_name: str) -> list[str]:
    lines = difflib.unified_diff(
        old.splitlines(keepends=True), new.splitlines(keepends=True), old_name, new_name, n=3
    )  # fmt: skip
    return [line if line.endswith("\n") else f"{line}\n\\ no newline at the end of the file\n" for line in lines]


def _earlier(folder: Path) -> dict[str, str]:
    """Path and digest of what the folder's manifest names; nothing where there is none or it is not one of ours."""
    text = _text(folder / NAME)
    if text is None:
        return {}
    try:
        entries = json.loads(text)
        return {entry["path"]: entry["sha256"] for entry in entries if _inside(entry["path"])}
    except (ValueError, TypeError, KeyError, RecursionError):
        return {}


def _inside(path: object) -> bool:
    return (
        isinstance(path, str)
        and not path.startswith("/")
        and not {"", ".", ".."} & set(path.split("/"))
        and "\0" not in path
    )


def _place(folder: Path, path: str) -> Path:
    """Where ``path`` is below ``folder``. Raises ProbeError when a link on the way leads out of it."""
    place = folder / path
    if not place.parent.resolve().is_relative_to(folder.resolve()):
        raise ProbeError(
            f"{place}: a link leads out of {folder}", hint="remove the link, or name another folder with --out"
        )
    return place


def _holds(place: Path, artifact: Artifact) -> bool:
    return _text(place) == artifact.text and not place.is_symlink() and place.stat().st_mode & 0o777 == artifact.mode


def _text(place: Path) -> str | None:
    """The text of a file, with what is no UTF-8 marked; None where there is no such file."""
    try:
        return place.read_bytes().decode("utf-8", "backslashreplace")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
        return None
    except OSError as error:
        raise ProbeError(f"{place}: cannot read: {error.strerror or error}", hint="check its owner and mode") from error


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _remove_stale(folder: Path, earlier: dict[str, str], now: set[str]) -> tuple[list[str], list[str]]:
    removed, kept = [], []
    for path in sorted(set(earlier) - now):
        place = _place(folder, path)
        text = _text(place)
        if text is None:
            continue
        if place.is_symlink() or _digest(text) != earlier[path]:
            kept.append(path)
            continue
        place.unlink()
        removed.append(path)
        for parent in [folder / part for part in Path(path).parents][:-1]:
            with suppress(OSError):  # it holds something else
                parent.rmdir()
    return removed, kept


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ProbeError(
            f"{folder}: cannot be made: {error.strerror or error}", hint="name another folder with --out"
        ) from error
