"""docs/reference/admin-api.md, made of the OpenAPI document that a gateway serves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import ERRORS
from roadworthy.gateway.admin.app import OPERATIONS
from roadworthy.gateway.admin.openapi import document
from roadworthy.gateway.admin.schemas import COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.gateway.admin.operations import Operation

INTRODUCTION = """\
# The admin API

<!-- written by `make docs` from src/roadworthy/gateway/admin: edit there -->

It is on the admin port of `roadworthy gateway` and `roadworthy up`. `GET /api/openapi.json` gives the same as an
OpenAPI 3.1 document. [Tenants and keys](../guides/tenants.md) shows it in use; the commands `tenants`, `keys`, `quota`,
`engines` and `drain` ask nothing else.

- **Keys.** `Authorization: Bearer KEY` with a key of the admin API, or the one in `ROADWORTHY_ADMIN_KEY` of the
  gateway's environment, which has role admin. A viewer reads everything; an operator also drains, reloads and edits
  quotas; an admin also changes tenants and keys.
- **Without any admin key**, clients of the gateway's own host may read, drain and reload; nobody may change tenants or
  keys; other hosts get health and metrics only. Health, metrics and the OpenAPI document never need a key.
- **Errors** have one shape: `{"error": {"message", "type", "code", "param", "hint"}}`, with `problems` where several
  fields are wrong. Codes are stable.
- **Every change** writes an audit row in the same transaction: who, what, before, after, when. Secrets are never in it.
- **Kept** in the database of `gateway.state_url`; without one, in memory (`"stored": false`).
"""


def page() -> str:
    paths = document(OPERATIONS)["paths"]
    parts = [INTRODUCTION, _summary()]
    parts += [_operation(one, paths[one.path][one.method.lower()]) for one in OPERATIONS]
    parts.append("## Shapes\n")
    parts += [component(name, schema) for name, schema in COMPONENTS.items() if name != "Error"]
    rows = "\n".join(f"| `{code}` | {kind.status} | {kind.meaning} |" for code, kind in ERRORS.items())
    parts.append(f"## Errors\n\n| code | status | |\n|---|---|---|\n{rows}\n")
    return "\n".join(parts)


def _summary() -> str:
    rows = "\n".join(
        f"| [`{one.method} {one.path}`](#{anchor(one)}) | {one.role or 'everybody'} | {one.summary} |"
        for one in OPERATIONS
    )
    return f"| | who | |\n|---|---|---|\n{rows}\n"


def anchor(one: Operation) -> str:
    kept = (letter for letter in f"{one.method} {one.path}".lower() if letter.isalnum() or letter in " -_")
    return "".join(kept).replace(" ", "-")


def _operation(one: Operation, described: Mapping[str, Any]) -> str:
    role = f"Role {one.role}." if one.role is not None else "No key is needed."
    return operation(one, described, role, status=str(one.status), example=json.dumps(dict(one.examples)))


def operation(one: Any, described: Mapping[str, Any], words: str, *, status: str, example: str) -> str:
    """An operation of any of our APIs, with ``words`` behind what it says of itself."""
    lines = [f"## {one.method} {one.path}", "", " ".join(part for part in (one.summary, one.doc, words) if part), ""]
    if one.parameters:
        lines += ["| parameter | | |", "|---|---|---|"]
        for parameter in described["parameters"]:
            default = parameter["schema"].get("default")
            kind = kind_of(parameter["schema"]) + (f", `{default}` unless given" if default is not None else "")
            lines.append(f"| `{parameter['name']}` ({parameter['in']}) | {kind} | {parameter['description']} |")
        lines.append("")
    if one.body is not None:
        lines += fields_of(one.body, "field of the body")
        lines += ["```json", example, "```", ""]
    if one.answer is not None:
        lines += [f"Answers {status} with {answer_of(one.answer)}.", ""]
    codes = ", ".join(f"`{code}`" for code in one.errors)
    if codes:
        lines += [f"Errors of its own: {codes}.", ""]
    return "\n".join(lines)


def answer_of(answer: Mapping[str, Any] | str) -> str:
    if isinstance(answer, str):
        return f"a [{answer}](#{answer.lower()})"
    fields = answer.get("properties")
    if not fields:
        return "an object"
    return ", ".join(f"`{name}` ({kind_of(schema)})" for name, schema in fields.items())


def component(name: str, schema: Mapping[str, Any]) -> str:
    return "\n".join([f"### {name}", "", schema.get("description", ""), "", *fields_of(schema, "field")])


def fields_of(schema: Mapping[str, Any], heading: str) -> list[str]:
    required = schema.get("required", ()) if heading != "field" else ()
    lines = [f"| {heading} | | |", "|---|---|---|"]
    for name, of in schema["properties"].items():
        kind = kind_of(of) + (", required" if name in required else "")
        lines.append(f"| `{name}` | {kind} | {of.get('description', '')} |")
    return [*lines, ""]


def kind_of(schema: Mapping[str, Any]) -> str:
    """A schema in a few words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "oneOf" in schema:
        return " or ".join(kind_of(one) for one in schema["oneOf"])
    types = schema.get("type", "anything")
    names = [types] if isinstance(types, str) else list(types)
    if "enum" in schema:
        return " or ".join(f"`{one}`" if one is not None else "null" for one in schema["enum"])
    words = []
    for one in names:
        if one == "array":
            words.append(f"list of {kind_of(schema['items'])}")
        elif one in ("integer", "number"):
            words.append(one + _range(schema))
        elif one == "string":
            words.append(schema.get("title") or schema.get("format") or one)
        else:
            words.append(one)
    return " or ".join(words)


def _range(schema: Mapping[str, Any]) -> str:
    if "minimum" in schema and "maximum" in schema:
        return f" from {schema['minimum']:,} to {schema['maximum']:,}"
    return f" from {schema['minimum']:,}" if "minimum" in schema else ""
