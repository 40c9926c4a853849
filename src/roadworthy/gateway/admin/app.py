"""What the admin port answers. It has no key of its own: bind it where only operators reach it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request

MOST_BODY_BYTES = 64 * 1024


class AdminView(Protocol):
    """What the admin port may ask of the gateway, and tell it: one process, or the supervisor of several."""

    async def is_ready(self) -> bool: ...
    async def status_view(self) -> dict[str, Any]: ...
    async def requests_view(self) -> list[dict[str, Any]]: ...
    async def metrics_text(self) -> bytes: ...
    async def drain_engine(self, url: str, draining: bool) -> None: ...
    async def reload(self) -> str | None: ...


def admin_app(view_now: Callable[[], AdminView]) -> Starlette:
    """The admin port's application, which tells of whatever ``view_now`` gives at the time.

    ``/healthz`` (the process lives), ``/readyz`` (an engine can take a request), ``/metrics``, ``/api/status``,
    ``/api/requests`` (the latest, one by one); and by POST ``/api/reload``, ``/api/engines/drain`` and
    ``/api/engines/undrain`` with ``{"url": ...}``.
    """

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if await view_now().is_ready():
            return PlainTextResponse("ready\n")
        return PlainTextResponse("no healthy engine, see /api/status\n", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(await view_now().metrics_text(), media_type=CONTENT_TYPE_LATEST)

    async def status(_: Request) -> Response:
        return JSONResponse(await view_now().status_view())

    async def requests(_: Request) -> Response:
        return JSONResponse({"requests": await view_now().requests_view()})

    async def reload(_: Request) -> Response:
        problem = await view_now().reload()
        if problem is None:
            return JSONResponse({"document": (await view_now().status_view())["document"]})
        return _error(
            422, problem, "document_refused", hint="the document before stays in force; mend it and try again"
        )

    async def drain(request: Request) -> Response:
        return await _drain(request, draining=True)

    async def undrain(request: Request) -> Response:
        return await _drain(request, draining=False)

    async def _drain(request: Request, *, draining: bool) -> Response:
        url = await _url_in(request)
        if url is None:
            return _error(400, 'the body must be {"url": "http://HOST:PORT"}', "invalid_json")
        try:
            await view_now().drain_engine(url.rstrip("/"), draining)
        except KeyError:
            known = ", ".join(one["url"] for one in (await view_now().status_view())["endpoints"])
            return _error(404, f"no engine {url[:200]!r}", "engine_not_found", hint=f"there are {known}")
        return JSONResponse({"url": url, "draining": draining})

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == 405:
            return _error(405, error.detail, "method_not_allowed", headers=dict(error.headers or {}))
        return _error(error.status_code, error.detail, "not_found", kind="not_found_error")

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/api/status", status),
            Route("/api/requests", requests),
            Route("/api/reload", reload, methods=["POST"]),
            Route("/api/engines/drain", drain, methods=["POST"]),
            Route("/api/engines/undrain", undrain, methods=["POST"]),
        ],
        exception_handlers={HTTPException: refused},
    )


async def _url_in(request: Request) -> str | None:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > MOST_BODY_BYTES:
            return None
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return None
    url = value.get("url") if isinstance(value, dict) else None
    return url if isinstance(url, str) else None


def _error(
    status: int,
    message: str,
    code: str,
    *,
    kind: str = "invalid_request_error",
    hint: str | None = None,
    headers: dict[str, str] | None = None,
) -> Response:
    body = {"message": message, "type": kind, "code": code, "param": None, "hint": hint}
    return JSONResponse({"error": body}, status_code=status, headers=headers)
