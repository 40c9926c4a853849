"""What a tenant is told that cannot have what it asks for."""

from __future__ import annotations

from roadworthy.core.errors import Refused


def no_document(document: str) -> Refused:
    """Another tenant's document and one that never was look the same."""
    return Refused(
        f"no document {document[:100]!r}", code="document_not_found", status=404, hint="GET /v1/documents lists them"
    )


def no_job(job: str) -> Refused:
    return Refused(f"no job {job[:100]!r}", code="job_not_found", status=404, hint="GET /v1/documents/jobs lists them")


def not_ready(name: str, status: str) -> Refused:
    return Refused(
        f"{name!r} is {status}, not ready", code="document_not_ready", status=409,
        hint="its job tells how far it is", retry_after_s=2.0 if status in ("queued", "reading") else None,
    )  # fmt: skip


def wrong_state(job: str, status: str, wanted: str) -> Refused:
    return Refused(f"job {job} is {status}, wanted {wanted}", code="job_state", status=409)


def empty() -> Refused:
    return Refused("the document is empty", code="empty_document", status=400, hint="send its bytes as the body")


def too_large(most_bytes: int) -> Refused:
    return Refused(f"a document may take {most_bytes:,} bytes", code="document_too_large", status=413, hint="split it")


def too_many(most: int) -> Refused:
    return Refused(
        f"{most:,} documents are stored, which is the most", code="documents_quota", status=403,
        hint="delete some, or ask the operator for more (gateway.documents.max_documents)",
    )  # fmt: skip


def too_much(most_bytes: int) -> Refused:
    return Refused(
        f"all documents together may take {most_bytes:,} bytes", code="documents_quota", status=403,
        hint="delete some, or ask the operator for more (gateway.documents.max_stored)",
    )  # fmt: skip


def no_room(why: str) -> Refused:
    return Refused(f"it cannot be written: {why}", code="storage_failed", status=507, hint="tell the operator")


def busy(what: str) -> Refused:
    return Refused(f"too many {what} at once", code="documents_busy", status=429, hint="try again", retry_after_s=1.0)


class StoreError(Refused):
    """The store cannot be used; ``private`` says why, with paths that are the operator's to know."""

    def __init__(self, private: str) -> None:
        super().__init__(
            "the documents cannot be read at this moment", code="storage_failed", status=507, hint="tell the operator"
        )
        self.private = private
