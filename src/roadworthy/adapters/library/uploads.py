"""A document on its way in: to disk as it comes, under its own digest when it is whole."""

from __future__ import annotations

import hashlib
import os
import secrets
from typing import TYPE_CHECKING

from roadworthy.adapters.library import refusals
from roadworthy.adapters.library.records import DocumentRecord

if TYPE_CHECKING:
    from roadworthy.adapters.library.shelf import Shelf
    from roadworthy.spec.gateway_values import DocumentsSpec

LONGEST_NAME = 200


class Upload:
    """``write`` its parts, then ``whole``; ``drop`` in any case. Each blocks for the disk.

    Raises:
        Refused: it is empty, or more than the tenant may store; the disk is full.
    """

    def __init__(self, shelf: Shelf, limits: DocumentsSpec) -> None:
        self._shelf, self._limits = shelf, limits
        self._digest = hashlib.sha256()
        self._bytes = 0
        self._path = shelf.work(f"upload-{secrets.token_hex(8)}")
        with shelf.lock:
            self._check_room(0)
        try:
            self._file = self._path.open("xb")
        except OSError as error:
            raise refusals.no_room(error.strerror or "no file can be made") from None

    def write(self, part: bytes) -> None:
        if self._bytes + len(part) > self._limits.max_upload_bytes:
            raise refusals.too_large(self._limits.max_upload_bytes)
        with self._shelf.lock:
            self._check_room(len(part))
            self._shelf.arriving_bytes += len(part)
            self._bytes += len(part)
        self._digest.update(part)
        try:
            self._file.write(part)
        except OSError as error:
            raise refusals.no_room(error.strerror or "the disk does not take it") from None

    def whole(self, name: str, *, vectors: bool, now_s: float) -> tuple[DocumentRecord, bool]:
        """The document, and whether it is new: the same bytes are the same document."""
        if not self._bytes:
            raise refusals.empty()
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise refusals.no_room(error.strerror or "the disk does not take it") from None
        shelf, document = self._shelf, f"doc_{self._digest.hexdigest()[:32]}"
        with shelf.lock:
            before = shelf.documents.get(document)
            if before is not None and before.status not in ("failed", "cancelled", "deleting"):
                return before, False
            if before is not None and before.status == "deleting":
                raise refusals.not_ready(before.name, "being deleted")
            self._check_room(0)
            self._path.chmod(0o600)
            self._path.replace(shelf.source(document))
            record = DocumentRecord(
                id=document, name=tidy(name), size_bytes=self._bytes, uploaded_s=now_s, vectors=vectors
            )
            shelf.keep_document(record)
        return record, True

    def drop(self) -> None:
        """What was not taken over goes."""
        self._file.close()
        self._path.unlink(missing_ok=True)
        with self._shelf.lock:
            self._shelf.arriving_bytes -= self._bytes
            self._bytes = 0

    def _check_room(self, more_bytes: int) -> None:
        shelf, limits = self._shelf, self._limits
        if len(shelf.documents) >= limits.max_documents:
            raise refusals.too_many(limits.max_documents)
        if shelf.stored_bytes + shelf.arriving_bytes + more_bytes > limits.max_stored_bytes:
            raise refusals.too_much(limits.max_stored_bytes)


def tidy(name: str) -> str:
    """A name without folders and without what cannot be shown."""
    last = name.replace("\\", "/").rstrip("/").rsplit("/", 1)[-1]
    shown = " ".join("".join(one if one.isprintable() else " " for one in last).split())
    return shown[:LONGEST_NAME] or "document"
