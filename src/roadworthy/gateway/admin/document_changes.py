"""What a document that was read again changes of tenants, as the audit tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.schemas import TENANT_FIELDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.spec.values import Tenant

MOST_TOLD = 50
"""Tenants named in one row; of more only the number is told."""

_FIELDS = {name: attribute for name, (attribute, _) in TENANT_FIELDS.items()}


def told(before: Mapping[str, Tenant], after: Mapping[str, Tenant]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """What was and what is, by tenant, of those that differ; None where none does. Keys are not told, only that one
    is another."""
    differing = sorted(one for one in before.keys() | after.keys() if before.get(one) != after.get(one))
    if not differing:
        return None
    was: dict[str, Any] = {}
    now: dict[str, Any] = {}
    for tenant_id in differing[:MOST_TOLD]:
        old, new = before.get(tenant_id), after.get(tenant_id)
        was[tenant_id] = _fields(old, new)
        now[tenant_id] = _fields(new, old)
        if old is not None and new is not None and (old.key, old.scopes) != (new.key, new.scopes):
            now[tenant_id]["key"] = "another, or with other scopes"
    if len(differing) > MOST_TOLD:
        now["more_tenants"] = len(differing) - MOST_TOLD
    return was, now


def _fields(tenant: Tenant | None, other: Tenant | None) -> Any:
    """The fields of ``tenant`` in which ``other`` differs; all of those that are set where there is no other."""
    if tenant is None:
        return None
    against = other if other is not None else type(tenant)(id=tenant.id)
    return {
        name: list(value) if isinstance(value, tuple) else value
        for name, attribute in _FIELDS.items()
        if (value := getattr(tenant, attribute)) != getattr(against, attribute)
    }
