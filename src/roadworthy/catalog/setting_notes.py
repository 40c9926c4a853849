"""What is known of a setting beyond whether the parser takes it: its row of the truth table, its replacement.

Kept in ``setting_notes.yaml`` by hand, because no parser says it. Names that no longer exist, or never did, stand there
with what to write instead; names that exist stand there only when there is something to say of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from roadworthy.catalog.data import read_catalog

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.catalog.truth import Status


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """One name.

    Args:
        gone: the name is no setting (any more) in the newest version known.
        row_id: row of the truth table, empty without one.
        reason: empty where the row's own words do.
        replacement: what to write instead; empty where the row's own words do.
        renamed_to: the name that takes the same value.
        source: empty where the row's own do.
    """

    name: str
    status: Status
    gone: bool
    row_id: str = ""
    reason: str = ""
    replacement: str = ""
    renamed_to: str | None = None
    source: str = ""


@lru_cache(maxsize=1)
def flag_notes() -> Mapping[str, Note]:
    """Notes on flags of ``vllm serve`` by their spelling with dashes."""
    return _notes("flags", "gone_flags")


@lru_cache(maxsize=1)
def environment_notes() -> Mapping[str, Note]:
    """Notes on environment variables by name."""
    return _notes("environment", "gone_environment")


def _notes(there: str, gone: str) -> Mapping[str, Note]:
    document = _read()
    notes = [_note(name, entry, gone=False) for name, entry in document[there].items()]
    notes += [_note(name, entry, gone=True) for name, entry in document[gone].items()]
    return MappingProxyType({note.name: note for note in notes})


def _note(name: str, entry: Mapping[str, Any], *, gone: bool) -> Note:
    return Note(
        name=name,
        status=entry["status"],
        gone=gone,
        row_id=entry.get("row", ""),
        reason=entry.get("reason", ""),
        replacement=entry.get("replacement", ""),
        renamed_to=entry.get("renamed_to"),
        source=entry.get("source", ""),
    )


@lru_cache(maxsize=1)
def _read() -> dict[str, Any]:
    return read_catalog("setting_notes")
