"""What is known of a document and of a job, each in a file of its own that is written whole or not at all."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from roadworthy.adapters.files import write_atomically

if TYPE_CHECKING:
    from pathlib import Path

DocumentStatus = Literal["queued", "reading", "ready", "failed", "cancelled", "deleting"]
JobKind = Literal["ingest", "compare"]
JobStatus = Literal["queued", "running", "interrupted", "done", "failed", "cancelled"]

ENDED: tuple[JobStatus, ...] = ("done", "failed", "cancelled")


@dataclass(slots=True, kw_only=True)
class DocumentRecord:
    """A document as its tenant sees it.

    Args:
        id: made of its bytes: the same again for the same document.
        name: as it was uploaded, without folders.
        uploaded_s: seconds of the epoch.
        error, hint: why nothing could be had out of it, and what to do.
    """

    id: str
    name: str
    size_bytes: int
    uploaded_s: float
    vectors: bool = True
    status: DocumentStatus = "queued"
    kind: str | None = None
    pages: int | None = None
    ocr_pages: int | None = None
    unread_pages: int | None = None
    units: int | None = None
    notes: list[str] = field(default_factory=list)
    error: str | None = None
    hint: str | None = None

    @property
    def stored_name(self) -> str:
        """In the store, where names are unique; its end is what search takes for the document's name."""
        return f"{self.id}/{self.name}"


@dataclass(slots=True, kw_only=True)
class JobRecord:
    """Work on one document.

    Args:
        request: what a comparison was asked for; without any key.
        done, of: progress in ``what``.
        since_s: when it began with ``what``, seconds of the epoch.
    """

    id: str
    kind: JobKind
    document: str
    created_s: float
    status: JobStatus = "queued"
    started_s: float | None = None
    ended_s: float | None = None
    what: str | None = None
    done: int = 0
    of: int | None = None
    since_s: float | None = None
    error: str | None = None
    hint: str | None = None
    request: dict[str, Any] = field(default_factory=dict)


Record = TypeVar("Record", DocumentRecord, JobRecord)


def keep(folder: Path, record: DocumentRecord | JobRecord) -> None:
    """Write ``record``; on disk when this returns. Raises ProbeError."""
    write_atomically(folder / f"{record.id}.json", json.dumps(asdict(record), ensure_ascii=False), mode=0o600)


def kept(folder: Path, of: type[Record]) -> dict[str, Record]:
    """All records in ``folder`` by id. One that cannot be read, or is of a later version, is left where it is."""
    found: dict[str, Record] = {}
    names = {one.name for one in fields(of)}
    for path in folder.glob("*.json"):
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
            found[path.stem] = of(**{name: value for name, value in values.items() if name in names})
        except (OSError, ValueError, TypeError, AttributeError):
            continue
    return found
