"""The document's JSON Schema, from the same tree that the loader walks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.spec.fields import Field, ListOf, Section, Settings, written_default
from roadworthy.spec.kinds import Kind
from roadworthy.spec.schema import DOCUMENT

if TYPE_CHECKING:
    from collections.abc import Mapping


def json_schema() -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the document, for editors. What it refuses the loader refuses as well."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "roadworthy deployment document",
        **_section_schema(DOCUMENT),
    }


def _section_schema(section: Section) -> dict[str, Any]:
    required = [field.key for field in section.fields if section.required(field)]
    return {
        "type": "object",
        "description": section.doc,
        "properties": {field.key: _field_schema(section, field) for field in section.fields},
        "additionalProperties": False,
        **({"required": required} if required else {}),
    }


def _field_schema(section: Section, field: Field) -> dict[str, Any]:
    schema: Mapping[str, Any]
    match field.value:
        case Section():
            schema = _section_schema(field.value)
        case ListOf(item=item, most=most):
            schema = {
                "type": "array",
                "items": _section_schema(item) if isinstance(item, Section) else dict(item.json_schema),
                "maxItems": most,
            }
        case Settings(most=most):
            schema = {
                "type": "object",
                "additionalProperties": {"type": ["string", "number", "boolean", "null"]},
                "maxProperties": most,
            }
        case Kind():
            schema = {**field.value.json_schema, "examples": [field.value.example.strip('"')]}
    described = {**schema, "description": field.doc}
    default = written_default(section, field)
    if default is not None:
        described["default"] = default
    if section.required(field):
        return described
    return {"anyOf": [described, {"type": "null"}], "description": field.doc}
