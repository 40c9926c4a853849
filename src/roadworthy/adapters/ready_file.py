"""The ready file of `up` and `gateway`: where the service answers and with which keys, once it serves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from roadworthy.adapters.files import read_text, write_atomically
from roadworthy.core.errors import ProbeError


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyEngine:
    """``pid`` is None for an engine that somebody else runs."""

    url: str
    pid: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyTenant:
    """A tenant and its key in clear: the file is written for the operator alone (mode 0600)."""

    id: str
    key: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """What is being served."""

    data_url: str
    admin_url: str
    engines: tuple[ReadyEngine, ...]
    tenants: tuple[ReadyTenant, ...]


def write_ready(path: Path, ready: Ready) -> None:
    """Write ``ready`` in one step; readers see the whole file or none."""
    document = {
        "data_url": ready.data_url,
        "admin_url": ready.admin_url,
        "engines": [{"url": engine.url, "pid": engine.pid} for engine in ready.engines],
        "tenants": [{"id": tenant.id, "key": tenant.key} for tenant in ready.tenants],
    }
    write_atomically(path, json.dumps(document, indent=2) + "\n", mode=0o600)


def read_ready(path: Path) -> Ready:
    """Read a ready file. Raises ProbeError when it is not one."""
    text = read_text(path, what="the ready file")
    try:
        document = json.loads(text)
        return Ready(
            data_url=document["data_url"],
            admin_url=document["admin_url"],
            engines=_engines(document["engines"]),
            tenants=tuple(ReadyTenant(id=tenant["id"], key=tenant["key"]) for tenant in document["tenants"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise ProbeError(
            f"{path}: not a ready file: {error!r}", hint="name the file that `up --ready-file` or `gateway` wrote"
        ) from error


def _engines(entries: Sequence[dict[str, object]]) -> tuple[ReadyEngine, ...]:
    engines = []
    for entry in entries:
        pid = entry.get("pid")
        engines.append(ReadyEngine(url=str(entry["url"]), pid=pid if isinstance(pid, int) else None))
    return tuple(engines)
