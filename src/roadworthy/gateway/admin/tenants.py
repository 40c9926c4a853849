"""Tenants and their quotas: list, add, edit, remove, reset."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import AdminError
from roadworthy.gateway.admin.desk import Wanted
from roadworthy.gateway.admin.operations import Operation, Parameter
from roadworthy.gateway.admin.roster import over
from roadworthy.gateway.admin.schemas import (
    LABEL,
    QUOTA_FIELDS,
    TENANT_FIELDS,
    TENANT_ID,
    TEXT,
    TIME,
    listed,
    nullable,
    record,
    ref,
    tenant_body,
)
from roadworthy.gateway.admin.texts import tenant_json, time_text
from roadworthy.route.keys import revoked
from roadworthy.route.registry import TenantRow

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.gateway.admin.operations import Call
    from roadworthy.gateway.admin.roster import Entry, Roster

MOST_LISTED = 1_000
"""In one answer: it is made between two events of a stream."""


def entry_of(roster: Roster, tenant_id: str) -> Entry:
    """The tenant in force. Raises AdminError."""
    entry = roster.entry(tenant_id)
    if entry is None:
        row = roster.row(tenant_id)
        removed = row is not None and row.definition is None
        raise AdminError(
            f"no tenant {tenant_id!r}" + (": an administrator removed it" if removed else ""),
            code="tenant_not_found",
            param="tenant",
            hint=f"POST /api/tenants/{tenant_id}/reset brings the document's back"
            if removed and roster.is_of_document(tenant_id)
            else "GET /api/tenants lists them",
        )
    return entry


def _unchanged(call: Call, version: int) -> None:
    """Raise AdminError when If-Match names another version."""
    wanted = call.given["If-Match"]
    if wanted is not None and int(wanted.strip('"')) != version:
        raise AdminError(
            f"it is at version {version}, not {wanted}", code="version_changed", param="If-Match",
            hint="read it again, and decide anew",
        )  # fmt: skip


def _attributes(body: Mapping[str, Any]) -> dict[str, Any]:
    """The body's fields as attributes of a tenant."""
    said = {}
    for name, value in body.items():
        if name == "id":
            continue
        attribute, schema = TENANT_FIELDS[name]
        said[attribute] = int(value) if schema["type"] == "integer" and value is not None else value
    return said


def _next_row(roster: Roster, tenant_id: str, fields: Mapping[str, Any], *, adds: bool) -> TenantRow:
    before = roster.row(tenant_id)
    return TenantRow(
        id=tenant_id,
        definition={"adds": adds, "fields": dict(fields)},
        version=1 + (before.version if before is not None else 0),
    )


def _judged(row: TenantRow, roster: Roster) -> None:
    """Raise AdminError when ``row`` makes no right tenant of what the document says."""
    tenant = over(row, roster.document_tenant(row.id))
    if tenant is not None and tenant.fallback is not None and tenant.fallback in tenant.models:
        raise AdminError(
            f"fallback: {tenant.fallback}, which is among its models, wanted another model",
            code="invalid_fields",
            param="fallback",
            hint="name the model that stands in, or take fallback away with null",
        )


def _shown(names: Mapping[str, Any], tenant: Any) -> dict[str, Any]:
    """What the audit tells of the fields in ``names``."""
    return {name: _plain(getattr(tenant, TENANT_FIELDS[name][0])) for name in names if name != "id"}


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


# handlers


async def _list(call: Call) -> Any:
    limit = call.given["limit"]
    found = call.desk.roster.page(call.given["after"], limit + 1)
    return {
        "tenants": [tenant_json(one, call.desk) for one in found[:limit]],
        "next": found[limit - 1].tenant.id if len(found) > limit else None,
        "stored": call.desk.stored,
    }


async def _get(call: Call) -> Any:
    return tenant_json(entry_of(call.desk.roster, call.given["tenant"]), call.desk)


async def _add(call: Call) -> Any:
    tenant_id = call.body["id"]

    def work(roster: Roster) -> Wanted:
        if roster.entry(tenant_id) is not None:
            raise AdminError(
                f"there is a tenant {tenant_id!r}", code="tenant_exists", param="id",
                hint=f"PATCH /api/tenants/{tenant_id} edits it",
            )  # fmt: skip
        row = _next_row(roster, tenant_id, _attributes(call.body), adds=not roster.is_of_document(tenant_id))
        _judged(row, roster)
        after = {name: value for name, value in call.body.items() if name != "id"}
        return Wanted(subject=f"tenant:{tenant_id}", tenants=[row], after=after)

    await call.desk.change(work, caller=call.caller, action="tenant.add")
    return tenant_json(entry_of(call.desk.roster, tenant_id), call.desk)


async def _edit(call: Call) -> Any:
    await _change_fields(call, "tenant.edit")
    return await _get(call)


async def _change_fields(call: Call, action: str) -> None:
    tenant_id = call.given["tenant"]

    def work(roster: Roster) -> Wanted:
        entry = entry_of(roster, tenant_id)
        _unchanged(call, entry.version)
        before = roster.row(tenant_id)
        said = before.definition or {} if before is not None else {}
        fields = said.get("fields", {})
        adds = said.get("adds", False) or not roster.is_of_document(tenant_id)  # it stays when the document drops it
        row = _next_row(roster, tenant_id, {**fields, **_attributes(call.body)}, adds=adds)
        _judged(row, roster)
        tenant = over(row, roster.document_tenant(tenant_id))
        return Wanted(
            subject=f"tenant:{tenant_id}", tenants=[row], before=_shown(call.body, entry.tenant),
            after=_shown(call.body, tenant),
        )  # fmt: skip

    await call.desk.change(work, caller=call.caller, action=action)


async def _remove(call: Call) -> Any:
    tenant_id = call.given["tenant"]

    def work(roster: Roster) -> Wanted:
        entry = entry_of(roster, tenant_id)
        _unchanged(call, entry.version)
        now_s = call.desk.now_s()
        keys = [revoked(one, now_s) for one in roster.keys(tenant_id) if one.usable(now_s)]
        row = replace(_next_row(roster, tenant_id, {}, adds=False), definition=None)
        return Wanted(
            subject=f"tenant:{tenant_id}", tenants=[row], keys=keys,
            before=_shown(TENANT_FIELDS, entry.tenant), after={"revoked_keys": [one.id for one in keys]},
            result={"removed": tenant_id, "revoked_keys": [one.id for one in keys]},
        )  # fmt: skip

    wanted = await call.desk.change(work, caller=call.caller, action="tenant.remove")
    return {**wanted.result, "stored": call.desk.stored}


async def _reset(call: Call) -> Any:
    tenant_id = call.given["tenant"]

    def work(roster: Roster) -> Wanted:
        document = roster.document_tenant(tenant_id)
        if document is None:
            entry_of(roster, tenant_id)
            raise AdminError(
                f"the document names no tenant {tenant_id!r}", code="not_in_document", param="tenant",
                hint=f"DELETE /api/tenants/{tenant_id} removes it",
            )  # fmt: skip
        entry = roster.entry(tenant_id)
        return Wanted(
            subject=f"tenant:{tenant_id}",
            dropped=[tenant_id] if roster.row(tenant_id) is not None else [],
            before=_shown(TENANT_FIELDS, entry.tenant) if entry is not None else None,
            after=_shown(TENANT_FIELDS, document),
        )

    await call.desk.change(work, caller=call.caller, action="tenant.reset")
    return tenant_json(entry_of(call.desk.roster, tenant_id), call.desk)


async def _live(call: Call) -> Any:
    found = await call.desk.tenants_view()
    if call.given["idle"] == "false":
        found = [one for one in found if any(one[name] for name in _USED)]
    return {"at": time_text(call.desk.now_s()), "tenants": found}


async def _quota(call: Call) -> Any:
    entry = entry_of(call.desk.roster, call.given["tenant"])
    now = [one for one in await call.desk.tenants_view() if one["id"] == entry.tenant.id]
    return {
        "tenant": entry.tenant.id,
        "version": entry.version,
        "limits": _shown(dict.fromkeys(QUOTA_FIELDS), entry.tenant),
        "now": now[0] if now else None,
    }


async def _set_quota(call: Call) -> Any:
    await _change_fields(call, "quota.set")
    return await _quota(call)


_USED = ("in_flight", "waiting", "requests", "refused", "tokens_today")
_TENANT = Parameter(name="tenant", place="path", schema=TENANT_ID, doc="The tenant's id.")
_IF_MATCH = Parameter(
    name="If-Match", place="header", schema={"type": "string", "pattern": '^("[0-9]{1,9}"|[0-9]{1,9})$'},
    doc="The version that you have seen; 412 when it is another by now.",
)  # fmt: skip
_FIELDS = tuple(TENANT_FIELDS)

OPERATIONS = (
    Operation(
        name="list_tenants", method="GET", path="/api/tenants", handle=_list,
        parameters=(
            Parameter(
                name="limit", place="query", schema={"type": "integer", "minimum": 1, "maximum": MOST_LISTED},
                doc="Most of them in one answer.", default=1000,
            ),
            Parameter(name="after", place="query", schema=LABEL, doc="Go on behind this id, the answer's next."),
        ),
        answer=listed("tenants", ref("Tenant"), next=nullable(TEXT), stored={"type": "boolean"}),
        summary="The tenants in force, by id.",
    ),
    Operation(
        name="add_tenant", method="POST", path="/api/tenants", role="admin", changes_keys=True, handle=_add,
        body=tenant_body(_FIELDS, with_id=True), answer="Tenant", status=201, errors=("tenant_exists",),
        examples={"id": "team-a", "weight": 2, "rpm": 600, "kv_quota_bytes": 68719476736},
        summary="Add a tenant.",
        doc="It has no key yet: POST /api/tenants/{tenant}/keys makes one. On a gateway without tenants the first one "
        "closes the open access; after the last one was removed it stays closed.",
    ),
    Operation(
        name="get_tenant", method="GET", path="/api/tenants/{tenant}", handle=_get, parameters=(_TENANT,),
        answer="Tenant", errors=("tenant_not_found",), summary="One tenant in force.",
    ),
    Operation(
        name="edit_tenant", method="PATCH", path="/api/tenants/{tenant}", role="admin", changes_keys=True,
        handle=_edit, parameters=(_TENANT, _IF_MATCH), body=tenant_body(_FIELDS), answer="Tenant",
        errors=("tenant_not_found", "version_changed"), examples={"weight": 2, "fallback": None},
        summary="Edit a tenant; null takes a limit away.",
        doc="Fields that are not named stay as they are: those of a document's tenant go on to follow the document. "
        "What is held stays held; requests in progress end as they would have.",
    ),
    Operation(
        name="remove_tenant", method="DELETE", path="/api/tenants/{tenant}", role="admin", changes_keys=True,
        handle=_remove, parameters=(_TENANT, _IF_MATCH),
        answer=record(
            {"removed": TEXT, "revoked_keys": {"type": "array", "items": TEXT}, "stored": {"type": "boolean"}}
        ),
        errors=("tenant_not_found", "version_changed"),
        summary="Remove a tenant and revoke its keys.",
        doc="Requests that wait are refused, those that run end. A document's tenant stays hidden until it is reset.",
    ),
    Operation(
        name="reset_tenant", method="POST", path="/api/tenants/{tenant}/reset", role="admin", changes_keys=True,
        handle=_reset, parameters=(_TENANT,), answer="Tenant", errors=("tenant_not_found", "not_in_document"),
        summary="Take back what administrators said: the tenant is what the document says.",
    ),
    Operation(
        name="get_quota", method="GET", path="/api/tenants/{tenant}/quota", handle=_quota, parameters=(_TENANT,),
        answer="Quota", errors=("tenant_not_found",), summary="A tenant's limits, and what it holds now.",
    ),
    Operation(
        name="set_quota", method="PATCH", path="/api/tenants/{tenant}/quota", role="operator", changes_keys=True,
        handle=_set_quota, parameters=(_TENANT, _IF_MATCH), body=tenant_body(QUOTA_FIELDS), answer="Quota",
        errors=("tenant_not_found", "version_changed"), examples={"rpm": 600, "daily_tokens": None},
        summary="Edit a tenant's limits while they are held; null takes one away.",
        doc="Nothing in progress is cut: a lower limit is kept to as requests end.",
    ),
    Operation(
        name="live", method="GET", path="/api/live", handle=_live,
        parameters=(
            Parameter(
                name="idle", place="query", schema={"type": "string", "enum": ["true", "false"]}, default="false",
                doc="Whether tenants are told of that have not asked for anything since the start, nor today.",
            ),
        ),
        answer=listed("tenants", ref("Live"), at=TIME),
        summary="What each tenant holds and uses now.",
    ),
)  # fmt: skip
