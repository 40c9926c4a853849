"""What the admin port answers. It has no key of its own: bind it where only operators reach it."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Protocol

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

if TYPE_CHECKING:
    from starlette.requests import Request

    from roadworthy.gateway.status import GatewayStatus


class AdminView(Protocol):
    """What the admin port may ask of the gateway; the seam along which it can move to a thread or process."""

    @property
    def ready(self) -> bool: ...
    def status(self) -> GatewayStatus: ...
    def render_metrics(self) -> bytes: ...


def admin_app(view: AdminView) -> Starlette:
    """``/healthz`` (the process lives), ``/readyz`` (an engine can take a request), ``/metrics``, ``/api/status``."""

    async def healthz(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def readyz(_: Request) -> Response:
        if view.ready:
            return PlainTextResponse("ready\n")
        return PlainTextResponse("no healthy engine, see /api/status\n", status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(await asyncio.to_thread(view.render_metrics), media_type=CONTENT_TYPE_LATEST)

    async def status(_: Request) -> Response:
        return JSONResponse(asdict(view.status()))

    async def refused(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        body = {"message": error.detail, "type": "not_found_error", "code": "not_found", "param": None, "hint": None}
        if error.status_code == 405:
            body |= {"type": "invalid_request_error", "code": "method_not_allowed"}
        return JSONResponse({"error": body}, status_code=error.status_code, headers=error.headers)

    return Starlette(
        routes=[
            Route("/healthz", healthz),
            Route("/readyz", readyz),
            Route("/metrics", metrics),
            Route("/api/status", status),
        ],
        exception_handlers={HTTPException: refused},
    )
