"""The ready file of `up` and `gateway`: where the service answers and with which keys, once it serves.

It is there while the service is, and only then: whoever waits for it must not find that of an earlier run. It holds
the pid of its owner, so that a file left by a killed process is told from one in use, and is never taken from another.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from roadworthy.adapters.files import read_text, write_atomically
from roadworthy.adapters.report_files import require_writable
from roadworthy.core.errors import ProbeError, RoadworthyError, SpecError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEngine:
    """``pid`` is None for an engine that somebody else runs, or that is being restarted."""

    url: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTenant:
    """A tenant and its key in clear: the file is written for the operator alone (mode 0600)."""

    id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is being served. ``pid`` is the process that wrote it, None in a file that does not say."""

    data_url: str
    admin_url: str
    engines: tuple[ReadyEngine, ...]
    tenants: tuple[ReadyTenant, ...]
    pid: int | None = None


@contextmanager
def claimed(path: Path | None) -> Iterator[None]:
    """Make sure that a ready file can be written to ``path``, and that none of ours is left there at the end.

    Raises:
        SpecError: the place cannot hold one, holds another kind of file, or belongs to a service that runs.
        ProbeError: the place cannot be read or written.
    """
    if path is None:
        yield
        return
    _refuse_what_is_not_ours(path)
    require_writable(path)
    path.unlink(missing_ok=True)
    try:
        yield
    finally:
        with suppress(RoadworthyError, OSError):
            if read_ready(path).pid == os.getpid():
                path.unlink(missing_ok=True)


def write_ready(path: Path, ready: Ready) -> None:
    """Write ``ready`` in one step; readers see the whole file or none."""
    document = {
        "data_url": ready.data_url,
        "admin_url": ready.admin_url,
        "pid": os.getpid(),
        "engines": [{"url": engine.url, "pid": engine.pid} for engine in ready.engines],
        "tenants": [{"id": tenant.id, "key": tenant.key} for tenant in ready.tenants],
    }
    write_atomically(path, json.dumps(document, indent=2) + "\n", mode=0o600)


def read_ready(path: Path) -> Ready:
    """Read a ready file. Raises ProbeError when it is not one, SpecError when there is none."""
    text = read_text(path, what="the ready file")
    try:
        document = json.loads(text)
        return Ready(
            data_url=document["data_url"],
            admin_url=document["admin_url"],
            engines=tuple(ReadyEngine(url=str(one["url"]), pid=_pid(one)) for one in document["engines"]),
            tenants=tuple(ReadyTenant(id=tenant["id"], key=tenant["key"]) for tenant in document["tenants"]),
            pid=_pid(document),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(
            f"{path}: not a ready file: {error!r}", hint="name the file that `up --ready-file` or `gateway` wrote"
        ) from error


def _refuse_what_is_not_ours(path: Path) -> None:
    if not path.is_file():
        return
    try:
        ready = read_ready(path)
    except RoadworthyError as error:
        raise SpecError(
            f"{path}: exists and is not a ready file, so it stays", hint="name a new file with --ready-file"
        ) from error
    if ready.pid is not None and ready.pid != os.getpid() and _alive(ready.pid):
        raise SpecError(
            f"{path}: belongs to the service at {ready.data_url}, process {ready.pid}, which is running",
            hint="stop that one, or name another file with --ready-file",
        )


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _pid(entry: dict[str, Any]) -> int | None:
    pid = entry.get("pid")
    return pid if isinstance(pid, int) else None
