"""The admin API's OpenAPI 3.1 document, made of the same operations that are routed and checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy import __version__
from roadworthy.gateway.admin.answers import ERRORS
from roadworthy.gateway.admin.schemas import COMPONENTS, ref

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from roadworthy.gateway.admin.operations import Operation, Parameter, Schema

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
        described["parameters"] = shown_parameters(one.parameters)
    if one.body is not None:
        content: dict[str, Any] = {"schema": one.body}
        if one.examples:
            content["examples"] = {"one": {"value": dict(one.examples)}}
        required = bool(one.body.get("required") or one.body.get("minProperties"))
        described["requestBody"] = {"required": required, "content": {"application/json": content}}
    described["responses"] = _responses(one)
    described["security"] = [{"adminKey": []}] if one.role is not None else []
    return described


def shown_parameters(parameters: Iterable[Parameter]) -> list[dict[str, Any]]:
    """Parameters of an operation of any of our APIs."""
    return [
        {
            "name": one.name, "in": one.place, "required": one.place == "path", "description": one.doc,
            "schema": dict(one.schema) | ({"default": one.default} if one.default is not None else {}),
        }
        for one in parameters
    ]  # fmt: skip


def shown_content(answer: Schema | str | None, media: Iterable[str]) -> dict[str, Any]:
    """What an answer holds, in each of the types that it comes in."""
    shape = {"type": "string"} if answer is None else ref(answer) if isinstance(answer, str) else answer
    return {one: {"schema": shape if one == "application/json" else {"type": "string"}} for one in media}


def shown_responses(good: Mapping[str, Any], errors: Iterable[tuple[str, int, str]]) -> dict[str, Any]:
    """``good`` answers by status, and behind them those of ``errors``: codes with their status and meaning."""
    by_status: dict[int, list[str]] = {}
    for code, status, meaning in errors:
        by_status.setdefault(status, []).append(f"{code}: {meaning}")
    found = dict(good)
    for status in sorted(by_status):
        content = {"application/json": {"schema": ref("Error")}}
        found.setdefault(str(status), {"description": "; ".join(by_status[status]), "content": content})
    return found


def _responses(one: Operation) -> dict[str, Any]:
    good: dict[str, Any] = {"description": one.summary}
    if one.status != 204:
        good["content"] = shown_content(one.answer, one.media)
    found = {str(one.status): good}
    if one.name == "readyz":
        found["503"] = {"description": "No engine can.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    codes = (*one.all_errors, "method_not_allowed", "internal_error")
    return shown_responses(found, ((code, ERRORS[code].status, ERRORS[code].meaning) for code in codes))
