"""How the admin port answers: JSON, CSV, and one shape for every error."""

from __future__ import annotations

import csv
import io
import json
import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from roadworthy.core.errors import RoadworthyError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


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
    try:
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    except ValueError:
        text = json.dumps(_plain(value), ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return Response(
        text.encode(errors="backslashreplace"),
        status_code=status,
        headers={"Cache-Control": "no-store", **(headers or {})},
        media_type="application/json",
    )


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def csv_answer(rows: Iterable[Mapping[str, Any]], columns: Sequence[str], *, name: str) -> Response:
    """``rows`` as CSV (RFC 4180) under the name ``name``."""
    out = io.StringIO()
    writer = csv.writer(out)
    writer.writerow(columns)
    writer.writerows([_cell(row.get(column)) for column in columns] for row in rows)
    return Response(
        out.getvalue().encode(errors="backslashreplace"),
        headers={"Cache-Control": "no-store", "Content-Disposition": f'attachment; filename="{name}.csv"'},
        media_type="text/csv",
    )


def _cell(value: Any) -> Any:
    """A spreadsheet takes text that begins like a formula for one, and model names are what clients wrote."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value
