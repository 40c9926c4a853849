"""From a request to the operation that answers it: who asks, what is given, one shape for what goes wrong."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

from starlette.responses import Response
from starlette.routing import Route

from roadworthy.gateway.admin.access import Caller
from roadworthy.gateway.admin.answers import AdminError, error_answer, json_answer
from roadworthy.gateway.admin.checks import problems
from roadworthy.gateway.admin.operations import Call

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from starlette.requests import Request

    from roadworthy.gateway.admin.access import Gatekeeper
    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.operations import Operation, Parameter
    from roadworthy.gateway.admin.view import AdminView

MOST_BODY_BYTES = 64 * 1024
_NOBODY = Caller(who="anybody", role="viewer", address="", has_key=False)
_log = logging.getLogger(__name__)


def routes(
    operations: Iterable[Operation],
    view_now: Callable[[], AdminView],
    desk: Desk | None,
    gatekeeper: Gatekeeper,
) -> list[Route]:
    """A route for each path. Those of operations that need a desk are there with one only."""
    of_path: dict[str, dict[str, Operation]] = {}
    for one in operations:
        if desk is not None or not one.needs_desk:
            of_path.setdefault(one.path, {})[one.method] = one
    return [
        Route(path, _endpoint(by_method, view_now, desk, gatekeeper), methods=list(by_method))
        for path, by_method in of_path.items()
    ]


def _endpoint(
    by_method: dict[str, Operation], view_now: Callable[[], AdminView], desk: Desk | None, gatekeeper: Gatekeeper
) -> Callable[[Request], Awaitable[Response]]:
    async def answer(request: Request) -> Response:
        operation = by_method["GET" if request.method == "HEAD" else request.method]
        try:
            caller = _NOBODY
            if operation.role is not None:
                caller = gatekeeper.admit(request, operation.role, changes_keys=operation.changes_keys)
            given = given_in(request, operation.parameters) if operation.role is not None else {}
            body = await body_in(request, operation)
            call = Call(request=request, view=view_now(), caller=caller, given=given, body=body, desk_or_none=desk)
            result = await operation.handle(call)
        except AdminError as error:
            return error_answer(error)
        except Exception:
            _log.exception("admin API: %s %s", request.method, operation.path)
            return error_answer(
                AdminError("the gateway failed at this", code="internal_error", hint="its standard error says more")
            )
        return result if isinstance(result, Response) else json_answer(result, status=operation.status)

    return answer


def given_in(request: Request, parameters: tuple[Parameter, ...]) -> dict[str, Any]:
    """Every parameter's value by its name. Raises AdminError for one that cannot be used, or that nobody knows."""
    asked = request.query_params.multi_items()
    known = [one.name for one in parameters if one.place == "query"]
    names = [name for name, _ in asked]
    for name in names:
        if name not in known:
            raise AdminError(
                f"{name[:100]!r}: an unknown parameter" + (f", wanted one of {', '.join(known)}" if known else ""),
                code="invalid_parameter",
                param=name[:100],
            )
        if names.count(name) > 1:
            raise AdminError(f"{name}: given twice", code="invalid_parameter", param=name, hint="give it once")
    texts = {
        "query": dict(asked),
        "path": {name: str(value) for name, value in request.path_params.items()},
        "header": {one.name: request.headers[one.name] for one in parameters if one.name in request.headers},
    }
    return {one.name: _value(one, texts[one.place].get(one.name)) for one in parameters}


def _value(parameter: Parameter, text: str | None) -> Any:
    if text is None:
        return parameter.default
    value: Any = text
    if parameter.schema.get("type") == "integer" and text.removeprefix("-").isascii():
        try:
            value = int(text) if len(text) <= 20 else text
        except ValueError:
            value = text
    for problem in problems(parameter.schema, value, parameter.name):
        raise AdminError(
            f"{parameter.name}: {problem['seen']}, wanted {problem['wanted']}", code="invalid_parameter",
            param=parameter.name,
        )  # fmt: skip
    return value


async def body_in(request: Request, operation: Operation) -> dict[str, Any]:
    """The body's object, checked; empty for an operation that takes none."""
    if operation.body is None:
        return {}
    text = await _text_in(request)
    if not text.strip() and not operation.body.get("required") and not operation.body.get("minProperties"):
        return {}
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        raise AdminError("the body is no JSON", code="invalid_json", hint=_like(operation)) from None
    if not isinstance(value, dict):
        raise AdminError("the body must be a JSON object", code="invalid_json", hint=_like(operation))
    found = list(problems(operation.body, value))
    if found:
        first = found[0]
        raise AdminError(
            f"{first['path'] or 'body'}: {first['seen']}, wanted {first['wanted']}",
            code="invalid_fields",
            param=first["path"] or None,
            hint=_like(operation),
            problems=found if len(found) > 1 else (),
        )
    return value


def _like(operation: Operation) -> str:
    return f"such as {json.dumps(operation.examples)}" if operation.examples else ""


async def _text_in(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            raise AdminError(
                f"the body is longer than {MOST_BODY_BYTES:,} bytes", code="body_too_large", hint="send less at once"
            )
    return body
