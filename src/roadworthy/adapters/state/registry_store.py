"""Tenants, keys, secrets and the audit trail, by statements on an open transaction."""

from __future__ import annotations

import secrets as random
from typing import TYPE_CHECKING, Any

import sqlalchemy as sa

from roadworthy.adapters.state.tables import api_keys, audit, revision, secrets, tenants
from roadworthy.adapters.state.upsert import insert, upsert
from roadworthy.route.keys import ApiKey
from roadworthy.route.registry import AuditRow, ChangedMeanwhile, Registered, RegistryChange, TenantRow

if TYPE_CHECKING:
    from collections.abc import Sequence

SECRET_BYTES = 32


def load(connection: sa.Connection) -> Registered:
    """All of it, as of one moment."""
    return Registered(
        tenants=tuple(
            TenantRow(id=row.id, definition=row.definition, version=row.version)
            for row in connection.execute(sa.select(tenants).order_by(tenants.c.id))
        ),
        keys=tuple(_key(row) for row in connection.execute(sa.select(api_keys).order_by(api_keys.c.id))),
        revision=current(connection),
    )


def current(connection: sa.Connection, *, hold: bool = False) -> int:
    """The revision; with ``hold`` nobody else changes it before this transaction ends."""
    query = sa.select(revision.c.revision)
    return int(connection.execute(query.with_for_update() if hold else query).scalar_one())


def apply(connection: sa.Connection, change: RegistryChange, row: AuditRow, expect: int | None) -> int:
    """Write ``change`` and its audit row; the new revision. Raises ChangedMeanwhile when ``expect`` is past."""
    at = current(connection, hold=True)
    if expect is not None and expect != at:
        raise ChangedMeanwhile
    upsert(
        connection, tenants,
        [{"id": one.id, "definition": _plain(one.definition), "version": one.version} for one in change.tenants],
    )  # fmt: skip
    if change.dropped:
        connection.execute(sa.delete(tenants).where(tenants.c.id.in_(change.dropped)))
    upsert(connection, api_keys, [_row(key) for key in change.keys])
    _write_audit(connection, row)
    if change == RegistryChange():
        return at
    connection.execute(sa.update(revision).values(revision=at + 1))
    return at + 1


def audit_rows(
    connection: sa.Connection, *, limit: int, before: int | None, subject: str | None
) -> tuple[AuditRow, ...]:
    """The latest rows with an id below ``before``, newest first."""
    query = sa.select(audit).order_by(audit.c.id.desc()).limit(limit)
    if before is not None:
        query = query.where(audit.c.id < before)
    if subject is not None:
        query = query.where(audit.c.subject == subject)
    return tuple(AuditRow(**row._mapping) for row in connection.execute(query))


def secret(connection: sa.Connection, name: str) -> bytes:
    """The secret of that name; random bytes, made when first asked for."""
    made = {"name": name, "value": random.token_bytes(SECRET_BYTES)}
    connection.execute(insert(connection, secrets).on_conflict_do_nothing(), made)
    value: bytes = connection.execute(sa.select(secrets.c.value).where(secrets.c.name == name)).scalar_one()
    return bytes(value)


def _write_audit(connection: sa.Connection, row: AuditRow) -> None:
    values: dict[str, Any] = {
        "at_s": row.at_s, "who": row.who, "role": row.role, "address": row.address, "action": row.action,
        "subject": row.subject, "before": _plain(row.before), "after": _plain(row.after),
    }  # fmt: skip
    connection.execute(sa.insert(audit), values)


def _plain(mapping: Any) -> Any:
    """A read-only mapping as a dict, which is what JSON takes."""
    return None if mapping is None else dict(mapping)


def _row(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id, "tenant_id": key.tenant_id, "role": key.role, "prefix": key.prefix, "digest": key.digest,
        "scopes": list(key.scopes), "label": key.label, "created_s": key.created_s, "expires_s": key.expires_s,
        "revoked_s": key.revoked_s, "replaced_by": key.replaced_by,
    }  # fmt: skip


def _key(row: sa.Row[Any]) -> ApiKey:
    values: dict[str, Any] = dict(row._mapping)
    scopes: Sequence[Any] = values.pop("scopes")
    return ApiKey(**{**values, "digest": bytes(values["digest"])}, scopes=tuple(scopes))
