"""Tenants, keys and times as the API shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.schemas import TENANT_FIELDS

if TYPE_CHECKING:
    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.roster import Entry
    from roadworthy.route.keys import ApiKey

_NAME_OF = {attribute: name for name, (attribute, _) in TENANT_FIELDS.items()}


def time_text(time_s: float) -> str:
    """Seconds of the epoch as RFC 3339 in UTC, to the millisecond."""
    return datetime.fromtimestamp(time_s, tz=UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def tenant_json(entry: Entry, desk: Desk) -> dict[str, Any]:
    """A tenant as ``schemas.TENANT`` describes it."""
    tenant, now_s = entry.tenant, desk.now_s()
    keys = sum(one.usable(now_s) for one in desk.roster.keys(tenant.id))
    return {
        "id": tenant.id,
        "source": entry.source,
        "edited": sorted(_NAME_OF[one] for one in entry.edited if one in _NAME_OF) if entry.source == "edited" else [],
        "version": entry.version,
        "keys": keys + desk.roster.has_document_key(tenant.id),
        **{
            name: list(value) if isinstance(value := getattr(tenant, attribute), tuple) else value
            for name, (attribute, _) in TENANT_FIELDS.items()
        },
    }


def key_json(key: ApiKey, now_s: float) -> dict[str, Any]:
    """A key as ``schemas.KEY`` describes it."""
    return {
        "id": key.id,
        "prefix": key.prefix,
        "tenant": key.tenant_id,
        "role": key.role,
        "scopes": list(key.scopes),
        "label": key.label,
        "state": key_state(key, now_s),
        "created": time_text(key.created_s),
        "expires": None if key.expires_s is None else time_text(key.expires_s),
        "revoked": None if key.revoked_s is None else time_text(key.revoked_s),
        "replaced_by": key.replaced_by,
    }


def key_state(key: ApiKey, now_s: float) -> str:
    if key.revoked_s is not None and key.revoked_s <= now_s:
        return "revoked"
    return "active" if key.usable(now_s) else "expired"
