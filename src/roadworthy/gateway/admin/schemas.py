"""The shapes of what the admin API takes and gives: bodies are checked against these, answers are tested."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import ERRORS
from roadworthy.route.keys import ROLES, SCOPES

if TYPE_CHECKING:
    from collections.abc import Mapping

Schema = dict[str, Any]

MOST_SECONDS = 10 * 366 * 86_400


def nullable(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


def record(properties: Mapping[str, Schema], *, doc: str = "", optional: tuple[str, ...] = ()) -> Schema:
    """An object that has every one of ``properties``, but for the ``optional`` ones, and no other."""
    return {
        "type": "object",
        **({"description": doc} if doc else {}),
        "properties": dict(properties),
        "required": [name for name in properties if name not in optional],
        "additionalProperties": False,
    }


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def listed(name: str, item: Schema, **more: Schema) -> Schema:
    return record({name: {"type": "array", "items": item}, **more})


COUNT: Schema = {"type": "integer", "minimum": 0}
TEXT: Schema = {"type": "string"}
TIME: Schema = {"type": "string", "format": "date-time", "description": "UTC, RFC 3339."}
FREE: Schema = {"type": "object", "additionalProperties": True}

TENANT_ID: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$",
    "title": "letters, digits, dot, dash and underscore, at most 63",
}
KEY_ID: Schema = {
    "type": "string",
    "pattern": "^[a-z2-7]{12}$",
    "title": "the id of a key, 12 characters of a-z and 2-7",
}
MODEL: Schema = {"type": "string", "minLength": 1, "maxLength": 200, "pattern": "^[!-~]+$",
                 "title": "a model name of visible ASCII without spaces"}  # fmt: skip
LABEL: Schema = {"type": "string", "maxLength": 200, "pattern": "^[ -~]*$", "title": "visible ASCII"}

TENANT_FIELDS: dict[str, tuple[str, Schema]] = {
    "weight": (
        "weight",
        {"type": "number", "minimum": 0.001, "maximum": 1_000_000,
         "description": "Share of the engines under contention, against the other tenants' weights."},
    ),
    "priority": (
        "priority",
        {"type": "integer", "minimum": -1000, "maximum": 1000,
         "description": "As the engine counts: lower goes first."},
    ),
    "kv_quota_bytes": (
        "kv_quota_bytes",
        {"type": "integer", "minimum": 1, "maximum": 10**18,
         "description": "Most KV cache its requests hold at once over all engines; beyond it they borrow."},
    ),
    "rpm": ("requests_per_minute",
            {"type": "integer", "minimum": 1, "maximum": 10**9, "description": "Requests a minute."}),
    "tpm": ("tokens_per_minute",
            {"type": "integer", "minimum": 1, "maximum": 10**12, "description": "Tokens a minute, prompt and output."}),
    "daily_tokens": (
        "daily_tokens",
        {"type": "integer", "minimum": 1, "maximum": 10**15, "description": "Tokens a day (UTC), prompt and output."},
    ),
    "concurrency": (
        "concurrency",
        {"type": "integer", "minimum": 1, "maximum": 10**6, "description": "Requests at once, waiting ones included."},
    ),
    "models": (
        "models",
        {"type": "array", "items": MODEL, "maxItems": 100, "uniqueItems": True,
         "description": "Models it may ask for; an empty list means all."},
    ),
    "fallback": (
        "fallback", {**MODEL, "description": "Model it is given instead when the one asked for has no room."},
    ),
}  # fmt: skip
"""Fields of a tenant on the API: the attribute of ``spec.values.Tenant``, and the schema. Units are in the names, where
the document has them in the values."""

QUOTA_FIELDS = ("kv_quota_bytes", "rpm", "tpm", "daily_tokens", "concurrency")
"""What an operator may edit."""

WITHOUT_NULL = ("weight", "priority", "models")
"""Fields that have no "no limit": null puts them back to their default."""


def tenant_body(names: tuple[str, ...], *, with_id: bool = False) -> Schema:
    """A body with any of the fields ``names``; null takes a limit away."""
    properties = {name: nullable(TENANT_FIELDS[name][1]) for name in names}
    if with_id:
        return {
            "type": "object", "properties": {"id": TENANT_ID, **properties}, "required": ["id"],
            "additionalProperties": False,
        }  # fmt: skip
    return {"type": "object", "properties": properties, "minProperties": 1, "additionalProperties": False}


_SOURCE: Schema = {
    "type": "string", "enum": ["document", "edited", "admin"],
    "description": "document: as it says; edited: the document's, with the fields under edited fixed here; admin: "
    "added here.",
}  # fmt: skip

TENANT = record(
    {
        "id": TENANT_ID,
        "source": _SOURCE,
        "edited": {"type": "array", "items": TEXT},
        "version": {**COUNT, "description": "Send it back in If-Match to change only what you have seen."},
        "keys": {**COUNT, "description": "Keys that open the data port now, the document's included."},
        **{name: schema if name in WITHOUT_NULL else nullable(schema) for name, (_, schema) in TENANT_FIELDS.items()},
    },
    doc="One tenant in force.",
)

KEY = record(
    {
        "id": KEY_ID,
        "prefix": {**TEXT, "description": "The part of the key that may be shown."},
        "tenant": nullable(TENANT_ID),
        "role": {"type": ["string", "null"], "enum": [*ROLES, None]},
        "scopes": {"type": "array", "items": {"type": "string", "enum": list(SCOPES)}},
        "label": TEXT,
        "state": {"type": "string", "enum": ["active", "expired", "revoked"]},
        "created": TIME,
        "expires": nullable(TIME),
        "revoked": nullable(TIME),
        "replaced_by": nullable(KEY_ID),
    },
    doc="One key, without its secret.",
)

ISSUED = record(
    {
        "key": ref("Key"),
        "secret": {**TEXT, "description": "The key itself. It is shown this once and kept nowhere."},
        "stored": {"type": "boolean", "description": "false: it is gone when the gateway ends."},
    }
)

SCOPES_FIELD: Schema = {
    "type": "array", "items": {"type": "string", "enum": list(SCOPES)}, "maxItems": len(SCOPES), "uniqueItems": True,
    "description": "trusted-caller: its statements about itself, such as x-roadworthy-io-wait-ms, are believed.",
}  # fmt: skip
EXPIRES_FIELD: Schema = {
    "type": ["integer", "null"], "minimum": 1, "maximum": MOST_SECONDS,
    "description": "Seconds from now until it opens nothing any more; null for never.",
}  # fmt: skip
OVERLAP_FIELD: Schema = {
    "type": "integer", "minimum": 0, "maximum": MOST_SECONDS, "default": 86_400,
    "description": "Seconds for which the old key goes on to open, so that its holders can change over.",
}  # fmt: skip
LABEL_FIELD: Schema = {**LABEL, "description": "What it is for, in your words."}
ROLE_FIELD: Schema = {"type": "string", "enum": list(ROLES)}

NUMBER_OR_NULL: Schema = {"type": ["number", "null"]}
COUNT_OR_NULL: Schema = {"type": ["integer", "null"], "minimum": 0}

LIVE = record(
    {
        "id": TEXT,
        "in_flight": COUNT,
        "waiting": COUNT,
        "borrowed": COUNT,
        "blocks_held": COUNT,
        "blocks_quota": COUNT_OR_NULL,
        "requests": COUNT,
        "refused": COUNT,
        "failed": COUNT,
        "prompt_tokens": COUNT,
        "output_tokens": COUNT,
        "tokens_per_min": {"type": "number", "minimum": 0},
        "tokens_today": COUNT,
        "ttft_p50_s": NUMBER_OR_NULL,
        "ttft_p99_s": NUMBER_OR_NULL,
    },
    doc="What one tenant holds and uses now: requests in flight, waiting and borrowed, KV blocks; counts since the "
    "start of the gateway; rates and times to a first token of the last minute or so.",
)  # fmt: skip

QUOTA = record(
    {
        "tenant": TENANT_ID,
        "version": COUNT,
        "limits": record({name: nullable(TENANT_FIELDS[name][1]) for name in QUOTA_FIELDS}),
        "now": {"oneOf": [ref("Live"), {"type": "null"}]},
    },
    doc="A tenant's limits (null: none), and what it holds now.",
)

USAGE_ROW = record(
    {
        "day": TEXT, "tenant": TEXT, "model": TEXT, "requests": COUNT, "prompt_tokens": COUNT, "cached_tokens": COUNT,
        "output_tokens": COUNT, "total_tokens": COUNT,
    },
    optional=("day", "tenant", "model"),
    doc="Sums of finished requests. cached_tokens are part of prompt_tokens; total_tokens is prompt and output.",
)  # fmt: skip

LEDGER_ROW = record(
    {
        "request_id": TEXT, "tenant": TEXT, "model": TEXT, "endpoint": TEXT, "operation": TEXT, "started": TIME,
        "prompt_tokens": COUNT, "cached_tokens": COUNT, "output_tokens": COUNT, "ending": TEXT,
        "status": {"type": "integer"}, "estimated": {"type": "boolean"}, "worker": TEXT,
    },
    doc="One billed request.",
)  # fmt: skip

AUDIT_ROW = record(
    {
        "id": COUNT, "at": TIME, "who": TEXT, "role": TEXT, "address": TEXT, "action": TEXT, "subject": TEXT,
        "before": nullable(FREE), "after": nullable(FREE),
    },
    doc="One change: who asked for what, when, and what was before and after. Secrets are never in it.",
)  # fmt: skip

ERROR = record(
    {
        "error": record(
            {
                "message": TEXT,
                "type": TEXT,
                "code": {"type": "string", "enum": list(ERRORS)},
                "param": nullable(TEXT),
                "hint": nullable(TEXT),
                "problems": {
                    "type": "array",
                    "items": record({"path": TEXT, "seen": TEXT, "wanted": TEXT, "hint": TEXT}),
                },
            },
            optional=("problems",),
        )
    },
    doc="What is wrong, and the next step.",
)

COMPONENTS: dict[str, Schema] = {
    "Tenant": TENANT, "Key": KEY, "IssuedKey": ISSUED, "Live": LIVE, "Quota": QUOTA, "UsageRow": USAGE_ROW,
    "LedgerRow": LEDGER_ROW, "AuditRow": AUDIT_ROW, "Error": ERROR,
}  # fmt: skip
