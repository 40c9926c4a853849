"""How the admin port answers: JSON, CSV, and one shape for every error."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorKind:
    """One code of error: its HTTP status, and what it means to an operator."""

    status: int
    meaning: str


ERRORS: Mapping[str, ErrorKind] = {
    "invalid_json": ErrorKind(status=400, meaning="The body is no JSON, or not of the shape that is wanted."),
    "invalid_fields": ErrorKind(status=400, meaning="The body is JSON, and something in it cannot be used."),
    "invalid_parameter": ErrorKind(
        status=400, meaning="A parameter of the path, the query or a header cannot be used."
    ),
    "admin_key_required": ErrorKind(status=401, meaning="No admin key came with the request."),
    "invalid_admin_key": ErrorKind(status=401, meaning="The key is no admin key, or expired, or was revoked."),
    "admin_key_not_set": ErrorKind(status=403, meaning="The gateway has no admin key, and this needs one."),
    "role_too_low": ErrorKind(status=403, meaning="The key's role does not cover this."),
    "cross_origin": ErrorKind(status=403, meaning="A web page of another origin asked."),
    "not_found": ErrorKind(status=404, meaning="There is no such path."),
    "tenant_not_found": ErrorKind(status=404, meaning="No tenant of this id is in force."),
    "key_not_found": ErrorKind(status=404, meaning="No key has this id."),
    "engine_not_found": ErrorKind(status=404, meaning="The gateway has no engine at this URL."),
    "method_not_allowed": ErrorKind(status=405, meaning="The path is there, with other methods."),
    "tenant_exists": ErrorKind(status=409, meaning="A tenant of this id is in force already."),
    "key_is_over": ErrorKind(status=409, meaning="The key is revoked or has expired, and cannot be changed."),
    "last_admin_key": ErrorKind(status=409, meaning="No key would be left that may change tenants and keys."),
    "not_in_document": ErrorKind(status=409, meaning="The document does not name this tenant."),
    "no_ledger": ErrorKind(status=409, meaning="No ledger is kept: the document names no gateway.state_url."),
    "version_changed": ErrorKind(status=412, meaning="Somebody changed it since the version in If-Match."),
    "body_too_large": ErrorKind(status=413, meaning="The body is longer than any that is wanted here."),
    "document_refused": ErrorKind(status=422, meaning="The document cannot be used; the one before stays in force."),
    "change_refused": ErrorKind(status=422, meaning="The gateway cannot put this into force; nothing has changed."),
    "internal_error": ErrorKind(status=500, meaning="A fault of the gateway; its log says more."),
    "state_unavailable": ErrorKind(status=503, meaning="The database of tenants, keys and audit does not answer."),
}

_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    500: "server_error",
    503: "server_error",
}


class AdminError(RoadworthyError):
    """A request that the admin port turns down.

    Args:
        code: one of ``ERRORS``, which has the status.
        param: the field or parameter that it is about.
        problems: every one of several, as ``spec check`` names them.
    """

    def __init__(
        self,
        message: str,
        *,
        code: str,
        hint: str = "",
        param: str | None = None,
        problems: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(message, hint=hint)
        self.code, self.param, self.problems = code, param, tuple(problems)

    @property
    def status(self) -> int:
        return ERRORS[self.code].status


def error_answer(error: AdminError, headers: Mapping[str, str] | None = None) -> Response:
    """``{"error": {message, type, code, param, hint}}``, with ``problems`` where there are several."""
    body: dict[str, Any] = {
        "message": str(error),
        "type": _TYPES.get(error.status, "invalid_request_error"),
        "code": error.code,
        "param": error.param,
        "hint": error.hint or None,
    }
    if error.problems:
        body["problems"] = list(error.problems)
    more = {**(headers or {})}
    if error.status == 401:
        more["WWW-Authenticate"] = "Bearer"
    return json_answer({"error": body}, status=error.status, headers=more)


def json_answer(value: Any, *, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """``value`` as JSON; what JSON cannot say (NaN, infinity) is null. Nobody may keep a copy."""
    return Response(
        _json(value).encode(errors="backslashreplace"),
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def _json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        return json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


ROWS_AT_ONCE = 200
"""Rows that are written out in one go: between them streams get their turn."""


def rows_answer(value: Mapping[str, Any], name: str, rows: Sequence[Any], shown: Callable[[Any], Any]) -> Response:
    """``value`` as JSON with ``rows``, each as ``shown`` has it, under ``name``; written out part by part."""

    async def parts() -> AsyncIterator[bytes]:
        head = _json(value)[:-1]
        yield f"{head}{',' if len(head) > 1 else ''}{json.dumps(name)}:[".encode()
        for start in range(0, len(rows), ROWS_AT_ONCE):
            text = ",".join(_json(shown(row)) for row in rows[start : start + ROWS_AT_ONCE])
            yield f"{',' if start else ''}{text}".encode(errors="backslashreplace")
            await asyncio.sleep(0)
        yield b"]}"

    return StreamingResponse(parts(), headers={"Cache-Control": "no-store"}, media_type="application/json")


def csv_answer(
    rows: Sequence[Any], columns: Sequence[str], shown: Callable[[Any], Mapping[str, Any]], *, name: str
) -> Response:
    """``rows`` as CSV (RFC 4180) under the name ``name``, written out part by part."""

    async def parts() -> AsyncIterator[bytes]:
        out = io.StringIO()
        writer = csv.writer(out)
        writer.writerow(columns)
        for start in range(0, len(rows), ROWS_AT_ONCE):
            for row in rows[start : start + ROWS_AT_ONCE]:
                told = shown(row)
                writer.writerow([_cell(told.get(column)) for column in columns])
            yield out.getvalue().encode(errors="backslashreplace")
            out.seek(0)
            out.truncate()
            await asyncio.sleep(0)
        yield out.getvalue().encode()

    headers = {"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingResponse(parts(), headers=headers, media_type="text/csv")


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins like a formula for one, and model names are what clients wrote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
