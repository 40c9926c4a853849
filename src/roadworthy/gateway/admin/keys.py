"""Keys: issue, rotate with an overlap, edit, revoke. A secret leaves through one answer, once."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import AdminError
from roadworthy.gateway.admin.desk import Wanted
from roadworthy.gateway.admin.operations import Operation, Parameter
from roadworthy.gateway.admin.schemas import (
    EXPIRES_FIELD,
    KEY_ID,
    LABEL_FIELD,
    OVERLAP_FIELD,
    ROLE_FIELD,
    SCOPES_FIELD,
    TENANT_ID,
    listed,
    record,
    ref,
)
from roadworthy.gateway.admin.tenants import MOST_LISTED, entry_of
from roadworthy.gateway.admin.texts import key_json, key_state
from roadworthy.route.keys import ID_BYTES, SECRET_BYTES, issued, revoked, superseded

if TYPE_CHECKING:
    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.operations import Call
    from roadworthy.gateway.admin.roster import Roster
    from roadworthy.route.keys import ApiKey, IssuedKey, Role, Scope

DEFAULT_OVERLAP_S = 86_400


def _key_of(roster: Roster, key_id: str) -> ApiKey:
    key = roster.key(key_id)
    if key is None:
        raise AdminError(
            f"no key {key_id!r}", code="key_not_found", param="key",
            hint="GET /api/keys lists them; a document's keys are changed in the document",
        )  # fmt: skip
    return key


def _in_use(roster: Roster, key_id: str, now_s: float) -> ApiKey:
    key = _key_of(roster, key_id)
    if not key.usable(now_s):
        raise AdminError(
            f"key {key.prefix} is {key_state(key, now_s)}", code="key_is_over", param="key", hint="make another"
        )
    return key


def _new(
    desk: Desk,
    *,
    tenant_id: str | None = None,
    role: Role | None = None,
    scopes: tuple[Scope, ...] = (),
    label: str = "",
    expires_s: float | None = None,
) -> IssuedKey:
    return issued(
        desk.random(ID_BYTES), desk.random(SECRET_BYTES), pepper=desk.pepper, created_s=desk.now_s(),
        tenant_id=tenant_id, role=role, scopes=scopes, label=label, expires_s=expires_s,
    )  # fmt: skip


def _expiry(call: Call, name: str = "expires_in_s") -> float | None:
    seconds = call.body.get(name)
    return None if seconds is None else call.desk.now_s() + seconds


def _handed_out(desk: Desk, new: IssuedKey) -> dict[str, Any]:
    return {"key": key_json(new.key, desk.now_s()), "secret": new.text, "stored": desk.stored}


def _told(key: ApiKey, now_s: float) -> dict[str, Any]:
    """What the audit says of a key."""
    shown = key_json(key, now_s)
    return {name: shown[name] for name in ("tenant", "role", "scopes", "label", "expires", "revoked", "replaced_by")}


def _require_another_admin(roster: Roster, key: ApiKey, call: Call) -> None:
    """Nobody may lock everybody out by a slip."""
    if key.role != "admin" or call.desk.gatekeeper.has_bootstrap:
        return
    now_s = call.desk.now_s()
    others = [one for one in roster.admin_keys() if one.role == "admin" and one.id != key.id and one.usable(now_s)]
    if not others:
        raise AdminError(
            f"{key.prefix} is the last key that may change tenants and keys", code="last_admin_key", param="key",
            hint="make another one of role admin first, or rotate it",
        )  # fmt: skip


# handlers


async def _list(call: Call) -> Any:
    roster, now_s = call.desk.roster, call.desk.now_s()
    state, limit = call.given["state"], call.given["limit"]
    behind = roster.key_page(call.given["after"], call.given["tenant"])
    found = list(islice((one for one in behind if state in ("all", key_state(one, now_s))), limit + 1))
    return {
        "keys": [key_json(one, now_s) for one in found[:limit]],
        "next": found[limit - 1].id if len(found) > limit else None,
        "stored": call.desk.stored,
    }


async def _get(call: Call) -> Any:
    return key_json(_key_of(call.desk.roster, call.given["key"]), call.desk.now_s())


async def _create(call: Call) -> Any:
    tenant_id = call.given["tenant"]
    new = _new(
        call.desk, tenant_id=tenant_id, scopes=tuple(call.body.get("scopes", ())), label=call.body.get("label", ""),
        expires_s=_expiry(call),
    )  # fmt: skip
    return await _issue(call, new, lambda roster: entry_of(roster, tenant_id))


async def _create_admin(call: Call) -> Any:
    new = _new(call.desk, role=call.body["role"], label=call.body.get("label", ""), expires_s=_expiry(call))
    return await _issue(call, new, lambda _: None)


async def _issue(call: Call, new: IssuedKey, require: Any) -> Any:
    def work(roster: Roster) -> Wanted:
        require(roster)
        return Wanted(subject=f"key:{new.key.id}", keys=[new.key], after=_told(new.key, call.desk.now_s()))

    await call.desk.change(work, caller=call.caller, action="key.create")
    return _handed_out(call.desk, new)


async def _rotate(call: Call) -> Any:
    now_s = call.desk.now_s()
    overlap_s = call.body.get("overlap_s", DEFAULT_OVERLAP_S)

    def work(roster: Roster) -> Wanted:
        old = _in_use(roster, call.given["key"], now_s)
        if old.tenant_id is not None:
            entry_of(roster, old.tenant_id)
        new = _new(
            call.desk, tenant_id=old.tenant_id, role=old.role, scopes=old.scopes, label=old.label,
            expires_s=_expiry(call),
        )  # fmt: skip
        ended = superseded(old, by=new.key.id, until_s=now_s + overlap_s)
        return Wanted(
            subject=f"key:{old.id}", keys=[new.key, ended], before=_told(old, now_s), after=_told(ended, now_s),
            result=new,
        )  # fmt: skip

    wanted = await call.desk.change(work, caller=call.caller, action="key.rotate")
    return {
        **_handed_out(call.desk, wanted.result),
        "replaced": key_json(_key_of(call.desk.roster, call.given["key"]), now_s),
    }


async def _edit(call: Call) -> Any:
    now_s = call.desk.now_s()

    def work(roster: Roster) -> Wanted:
        key = _in_use(roster, call.given["key"], now_s)
        if key.role is not None and call.body.get("scopes"):
            raise AdminError(
                "scopes: a key with a role has none", code="invalid_fields", param="scopes", hint="leave scopes out"
            )
        edited = replace(
            key,
            label=call.body.get("label", key.label),
            scopes=tuple(call.body.get("scopes", key.scopes)),
            expires_s=_expiry(call) if "expires_in_s" in call.body else key.expires_s,
        )
        if edited.expires_s is not None and edited.expires_s != key.expires_s:
            _require_another_admin(roster, key, call)
        return Wanted(subject=f"key:{key.id}", keys=[edited], before=_told(key, now_s), after=_told(edited, now_s))

    await call.desk.change(work, caller=call.caller, action="key.edit")
    return await _get(call)


async def _revoke(call: Call) -> Any:
    now_s = call.desk.now_s()

    def work(roster: Roster) -> Wanted:
        key = _key_of(roster, call.given["key"])
        if key.usable(now_s):
            _require_another_admin(roster, key, call)
        over = revoked(key, now_s)
        return Wanted(subject=f"key:{key.id}", keys=[over], before=_told(key, now_s), after=_told(over, now_s))

    await call.desk.change(work, caller=call.caller, action="key.revoke", keep_in_force=True)
    return await _get(call)


_KEY = Parameter(name="key", place="path", schema=KEY_ID, doc="The key's id.")
_TENANT = Parameter(name="tenant", place="path", schema=TENANT_ID, doc="The tenant's id.")


def _body(required: tuple[str, ...] = (), least: int = 0, **properties: Any) -> dict[str, Any]:
    return {
        "type": "object", "properties": properties, "additionalProperties": False,
        **({"required": list(required)} if required else {}), **({"minProperties": least} if least else {}),
    }  # fmt: skip


OPERATIONS = (
    Operation(
        name="list_keys", method="GET", path="/api/keys", handle=_list,
        parameters=(
            Parameter(name="tenant", place="query", schema=TENANT_ID, doc="Keys of this tenant only."),
            Parameter(
                name="state", place="query",
                schema={"type": "string", "enum": ["active", "expired", "revoked", "all"]},
                doc="Keys in this state only.", default="all",
            ),
            Parameter(
                name="limit", place="query", schema={"type": "integer", "minimum": 1, "maximum": MOST_LISTED},
                doc="Most of them in one answer.", default=1000,
            ),
            Parameter(name="after", place="query", schema=KEY_ID, doc="Go on behind this id, the answer's next."),
        ),
        answer=listed(
            "keys", ref("Key"), next={"type": ["string", "null"]}, stored={"type": "boolean"}
        ),
        summary="Keys that were issued, of tenants and of the admin API, without their secrets.",
        doc="A document's own keys are not among them.",
    ),
    Operation(
        name="get_key", method="GET", path="/api/keys/{key}", handle=_get, parameters=(_KEY,), answer="Key",
        errors=("key_not_found",), summary="One key, without its secret.",
    ),
    Operation(
        name="create_key", method="POST", path="/api/tenants/{tenant}/keys", role="admin", changes_keys=True,
        handle=_create, parameters=(_TENANT,), status=201, answer="IssuedKey", errors=("tenant_not_found",),
        body=_body(label=LABEL_FIELD, scopes=SCOPES_FIELD, expires_in_s=EXPIRES_FIELD),
        examples={"label": "nightly jobs", "expires_in_s": 7776000},
        summary="Make a key of a tenant. The answer shows the secret, once.",
    ),
    Operation(
        name="create_admin_key", method="POST", path="/api/admin-keys", role="admin", changes_keys=True,
        handle=_create_admin, status=201, answer="IssuedKey",
        body=_body(("role",), role=ROLE_FIELD, label=LABEL_FIELD, expires_in_s=EXPIRES_FIELD),
        examples={"role": "viewer", "label": "dashboard"},
        summary="Make a key of the admin API. The answer shows the secret, once.",
        doc="viewer reads everything; operator also drains, reloads and edits quotas; admin also changes tenants and "
        "keys.",
    ),
    Operation(
        name="rotate_key", method="POST", path="/api/keys/{key}/rotate", role="admin", changes_keys=True,
        handle=_rotate, parameters=(_KEY,), status=201,
        body=_body(overlap_s=OVERLAP_FIELD, expires_in_s=EXPIRES_FIELD),
        answer=record(
            {
                "key": ref("Key"), "secret": {"type": "string"}, "stored": {"type": "boolean"},
                "replaced": ref("Key"),
            }
        ),
        errors=("key_not_found", "key_is_over", "tenant_not_found"), examples={"overlap_s": 86400},
        summary="Put a new key in the place of one, which opens for the overlap still.",
    ),
    Operation(
        name="edit_key", method="PATCH", path="/api/keys/{key}", role="admin", changes_keys=True, handle=_edit,
        parameters=(_KEY,), answer="Key", errors=("key_not_found", "key_is_over", "last_admin_key"),
        body=_body(least=1, label=LABEL_FIELD, scopes=SCOPES_FIELD, expires_in_s=EXPIRES_FIELD),
        examples={"expires_in_s": 3600}, summary="Edit a key's label, scopes or expiry.",
    ),
    Operation(
        name="revoke_key", method="POST", path="/api/keys/{key}/revoke", role="admin", changes_keys=True,
        handle=_revoke, parameters=(_KEY,), answer="Key", errors=("key_not_found", "last_admin_key"),
        summary="Revoke a key, for good.",
        doc="No new request gets in with it; streams in progress end as they would have. It is in force even where it "
        "could not be written (503), and is written when the database is back.",
    ),
)  # fmt: skip
