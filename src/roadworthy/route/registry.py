"""What administrators said of tenants and keys, as it is stored, and the trail of who said it.

Values only: the admin API decides and applies them, a store keeps them, and neither knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from roadworthy.route.keys import ApiKey


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantRow:
    """What administrators said of one tenant.

    Args:
        definition: ``{"adds": bool, "fields": {attribute: value}}``, where ``adds`` means that the tenant is no
            document's, and ``fields`` go before what the document says; None for a tenant that was removed.
        version: grows with every change of this tenant.
    """

    id: str
    definition: Mapping[str, Any] | None
    version: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditRow:
    """One change: who asked for what, when (seconds of the epoch), what was before and after. Secrets are never in it.

    Args:
        who: ``key:ID (label)``, ``bootstrap`` for the key in the environment, ``loopback`` for a client of this host
            while there is no admin key.
        address: where the request came from.
        subject: what it is about, such as ``tenant:team-a``.
        id: its place in the trail, given by the registry.
    """

    at_s: float
    who: str
    role: str
    address: str
    action: str
    subject: str
    before: Mapping[str, Any] | None = None
    after: Mapping[str, Any] | None = None
    id: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryChange:
    """Upserts of tenants and keys, and tenants of which nothing is said any more."""

    tenants: tuple[TenantRow, ...] = ()
    dropped: tuple[str, ...] = ()
    keys: tuple[ApiKey, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Registered:
    """Everything in the registry at ``revision``."""

    tenants: tuple[TenantRow, ...] = ()
    keys: tuple[ApiKey, ...] = ()
    revision: int = 0


class ChangedMeanwhile(Exception):
    """The registry is no longer at the revision that the change was worked out for."""
