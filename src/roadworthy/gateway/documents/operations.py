"""What an operation of the documents' API is: one value that is routed, checked, and described in OpenAPI."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from roadworthy import __version__
from roadworthy.gateway.admin.openapi import shown_content, shown_parameters, shown_responses
from roadworthy.gateway.documents.schemas import CODES, COMPONENTS

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from starlette.requests import Request

    from roadworthy.gateway.admin.operations import Parameter
    from roadworthy.gateway.documents.library import Library
    from roadworthy.gateway.documents.schemas import Schema

Result = TypeVar("Result")

OF_ALL = ("invalid_api_key", "method_not_allowed", "documents_busy", "internal_error", "storage_failed",
          "documents_unavailable")  # fmt: skip


@dataclass(slots=True, kw_only=True)
class Call:
    """One request as a handler gets it: whose it is, parameters and body checked."""

    request: Request
    tenant: str
    key: str | None
    given: Mapping[str, Any]
    body: Mapping[str, Any]
    library: Library
    pool: Executor
    questions: Executor

    async def on_thread(
        self, work: Callable[..., Result], *values: Any, pool: Executor | None = None, **named: Any
    ) -> Result:
        """Wait for what blocks; questions, which take minutes, have a pool of their own."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(pool or self.pool, lambda: work(*values, **named))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One method of one path.

    Args:
        doc: what it does beyond the summary.
        body: schema of a JSON body, None for none; ``takes`` names the type of any other.
        answer: schema of the answer, or the name of a component; None for one that is not JSON.
        also: a second good status, with the same answer.
        media: types of the answer.
        errors: codes beyond those of all.
        handle: answers with a value, a value and its status, or a response.
    """

    name: str
    method: Literal["GET", "POST", "DELETE"]
    path: str
    summary: str
    handle: Callable[[Call], Awaitable[Any]]
    doc: str = ""
    parameters: tuple[Parameter, ...] = ()
    body: Schema | None = None
    takes: str | None = None
    answer: Schema | str | None = None
    status: int = 200
    also: int | None = None
    media: tuple[str, ...] = ("application/json",)
    errors: tuple[str, ...] = ()
    examples: Mapping[str, Any] = field(default_factory=dict)

    @property
    def all_errors(self) -> tuple[str, ...]:
        codes = [*OF_ALL, *self.errors]
        if self.parameters:
            codes.append("invalid_parameter")
        if self.body is not None:
            codes += ["invalid_json", "invalid_fields", "body_too_large", "unsupported_media_type"]
        return tuple(dict.fromkeys(codes))


def document(operations: Iterable[Operation]) -> dict[str, Any]:
    """The OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _described(one)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "roadworthy documents API",
            "version": __version__,
            "description": "Long documents of one tenant: store, search, ask with citations, compare with a playbook.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": COMPONENTS,
            "securitySchemes": {
                "tenantKey": {"type": "http", "scheme": "bearer", "description": "The tenant's key of the data port."}
            },
        },
    }


def _described(one: Operation) -> dict[str, Any]:
    described: dict[str, Any] = {"operationId": one.name, "summary": one.summary}
    if one.doc:
        described["description"] = one.doc
    if one.parameters:
        described["parameters"] = shown_parameters(one.parameters)
    content: dict[str, Any]
    if one.takes is not None:
        content = {one.takes: {"schema": {"type": "string", "format": "binary", "minLength": 1}}}
        described["requestBody"] = {"required": True, "content": content}
    elif one.body is not None:
        example = {"one": {"value": dict(one.examples)}}
        content = {"application/json": {"schema": one.body, "examples": example}}
        described["requestBody"] = {"required": True, "content": content}
    described["responses"] = _responses(one)
    described["security"] = [{"tenantKey": []}]
    return described


def _responses(one: Operation) -> dict[str, Any]:
    good = {"description": one.summary, "content": shown_content(one.answer, one.media)}
    found: dict[str, Any] = {str(status): good for status in (one.status, one.also) if status is not None}
    return shown_responses(found, ((code, *CODES[code]) for code in one.all_errors))
