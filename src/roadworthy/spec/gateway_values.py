"""What a gateway does beyond listening and routing: TLS, its logs, and how long it waits."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsSpec:
    """Files in PEM. ``client_ca`` set means that clients must show a certificate which it signed."""

    cert: str | None = None
    key: str | None = None
    client_ca: str | None = None
