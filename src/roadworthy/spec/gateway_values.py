"""What a gateway does beyond listening and routing: TLS, its logs, how long it waits, and documents."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSpec:
    """Files in PEM. ``client_ca`` set means that clients must show a certificate which it signed."""

    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DocumentsSpec:
    """Documents that tenants store and ask about; off without ``home``.

    Args:
        home: folder under which each tenant has its own.
        max_upload_bytes: of one document.
        max_documents, max_stored_bytes: of one tenant; the second counts the files as they were uploaded.
        readers: documents that are read at once, over all tenants.
        reader_memory_bytes: of each process that reads one.
        gateway_url: where questions find the data port; None for its own address.
    """

    home: str | None = None
    max_upload_bytes: int = 256 * 2**20
    max_documents: int = 10_000
    max_stored_bytes: int = 10 * 2**30
    readers: int = 1
    reader_memory_bytes: int = 8 * 2**30
    gateway_url: str | None = None
