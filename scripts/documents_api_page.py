"""docs/reference/documents-api.md, made of the OpenAPI document that the documents' process serves."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from admin_api_page import anchor, component, operation

from roadworthy.gateway.documents.app import OPERATIONS
from roadworthy.gateway.documents.operations import document
from roadworthy.gateway.documents.schemas import CODES, COMPONENTS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from roadworthy.gateway.documents.operations import Operation

INTRODUCTION = """\
# The documents API

<!-- written by `make docs` from src/roadworthy/gateway/documents: edit there -->

It is on the data port of `roadworthy gateway` and `roadworthy up` where the document says `gateway.documents.home`.
`GET /v1/documents/openapi.json` gives the same as an OpenAPI 3.1 document.
[Documents over HTTP](../guides/documents.md#over-http) shows it in use.

- **Keys** are the tenants' of the data port: `Authorization: Bearer KEY`. A tenant reaches its own documents and
  nothing else; the id of another's is answered as one that never was.
- **Errors** have the data port's shape: `{"error": {"message", "type", "code", "param", "hint"}}`.
- **Each request** has a connection of its own: it is closed after the answer, and nothing may be sent ahead.
- **Questions and comparisons** go through the gateway with the caller's key, so that its models, quotas, rules and
  billing hold; what they refuse comes back with its own code and `Retry-After`.
"""


def page() -> str:
    paths = document(OPERATIONS)["paths"]
    rows = "\n".join(f"| [`{one.method} {one.path}`](#{anchor(one)}) | {one.summary} |" for one in OPERATIONS)
    parts = [INTRODUCTION, f"| | |\n|---|---|\n{rows}\n"]
    parts += [_operation(one, paths[one.path][one.method.lower()]) for one in OPERATIONS]
    parts.append("## Shapes\n")
    parts += [component(name, schema) for name, schema in COMPONENTS.items() if name != "Error"]
    errors = "\n".join(f"| `{code}` | {status} | {meaning} |" for code, (status, meaning) in CODES.items())
    parts.append(f"## Errors\n\n| code | status | |\n|---|---|---|\n{errors}\n")
    return "\n".join(parts)


def _operation(one: Operation, described: Mapping[str, Any]) -> str:
    status = f"{one.status}" + (f" or {one.also}" if one.also is not None else "")
    return operation(one, described, "", status=status, example=json.dumps(dict(one.examples), ensure_ascii=False))
