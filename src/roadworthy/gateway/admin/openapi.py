"""The admin API's OpenAPI 3.1 document, made of the same operations that are routed and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy import __version__
from roadworthy.gateway.admin.answers import ERRORS
from roadworthy.gateway.admin.schemas import COMPONENTS, ref

if TYPE_CHECKING:
    from collections.abc import Iterable

    from roadworthy.gateway.admin.operations import Operation, Schema

PATH = "/api/openapi.json"


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The whole of it, as plain data."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "roadworthy admin API",
            "version": __version__,
            "description": "Tenants, keys, quotas, usage, engines and audit of one gateway. Every error has one shape; "
            "codes are stable.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "adminKey": {
                    "type": "http", "scheme": "bearer",
                    "description": "A key of the admin API, or the one in ROADWORTHY_ADMIN_KEY of the gateway.",
                }
            },
        },
    }  # fmt: skip


def _operation(one: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": one.name, "summary": one.summary}
    role = f"Needs role {one.role}." if one.role is not None else ""
    text = " ".join(part for part in (one.doc, role) if part)
    if text:
        described["description"] = text
    if one.parameters:
        described["parameters"] = [_parameter(parameter) for parameter in one.parameters]
    if one.body is not None:
        content: dict[str, Any] = {"schema": one.body}
        if one.examples:
            content["examples"] = {"one": {"value": dict(one.examples)}}
        required = bool(one.body.get("required") or one.body.get("minProperties"))
        described["requestBody"] = {"required": required, "content": {"application/json": content}}
    described["responses"] = _responses(one)
    described["security"] = [{"adminKey": []}] if one.role is not None else []
    return described


def _parameter(parameter: Any) -> dict[str, Any]:
    schema = dict(parameter.schema)
    if parameter.default is not None:
        schema["default"] = parameter.default
    return {
        "name": parameter.name, "in": parameter.place, "required": parameter.place == "path",
        "description": parameter.doc, "schema": schema,
    }  # fmt: skip


def _responses(one: Operation) -> dict[str, Any]:
    good: dict[str, Any] = {"description": one.summary}
    if one.status != 204:
        good["content"] = {media: _content(one.answer, media) for media in one.media}
    found = {str(one.status): good}
    if one.name == "readyz":
        found["503"] = {"description": "No engine can.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    by_status: dict[int, list[str]] = {}
    for code in (*one.all_errors, "method_not_allowed", "internal_error"):
        by_status.setdefault(ERRORS[code].status, []).append(code)
    for status in sorted(by_status):
        said = "; ".join(f"{code}: {ERRORS[code].meaning}" for code in by_status[status])
        found.setdefault(str(status), {"description": said, "content": {"application/json": {"schema": ref("Error")}}})
    return found


def _content(answer: Schema | str | None, media: str) -> dict[str, Any]:
    if media != "application/json" or answer is None:
        return {"schema": {"type": "string"}}
    return {"schema": ref(answer) if isinstance(answer, str) else answer}
