"""The routes of one twin."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from roadworthy.adapters.twin_server.generate import Generate
from roadworthy.adapters.twin_server.live import LiveEngine
from roadworthy.adapters.twin_server.metrics import EngineCollector, LatencyHistograms, TwinInfo, exposition

if TYPE_CHECKING:
    import asyncio

    from starlette.requests import Request

    from roadworthy.twin.config import TwinConfig

METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"


def build_app(config: TwinConfig, loop: asyncio.AbstractEventLoop) -> Starlette:
    """The application that serves ``config`` on ``loop``."""
    registry = CollectorRegistry()
    live = LiveEngine(config, loop, LatencyHistograms(config, registry))
    registry.register(EngineCollector(config, live.stats))
    registry.register(TwinInfo(config))
    started_s = int(time.time())

    async def models(_: Request) -> Response:
        return JSONResponse({"object": "list", "data": [_card(config, name, started_s) for name in config.models]})

    async def version(_: Request) -> Response:
        return JSONResponse({"version": f"{config.engine_version or 'unknown'} ({config.label})"})

    async def nothing(_: Request) -> Response:
        return Response()

    async def metrics(_: Request) -> Response:
        return Response(exposition(registry), media_type=METRICS_TYPE)

    return Starlette(
        routes=[
            Route("/v1/chat/completions", Generate("chat", live), methods=["POST"]),
            Route("/v1/completions", Generate("completion", live), methods=["POST"]),
            Route("/v1/models", models),
            Route("/health", nothing),
            Route("/ping", nothing, methods=["GET", "POST"]),
            Route("/version", version),
            Route("/metrics", metrics),
        ],
        exception_handlers={HTTPException: _http_error},
    )


async def _http_error(_: Request, error: Exception) -> Response:
    """Unknown path or method, as vLLM's web framework words it."""
    assert isinstance(error, HTTPException)
    return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=error.headers)


def _card(config: TwinConfig, name: str, created_s: int) -> dict[str, object]:
    return {
        "id": name,
        "object": "model",
        "created": created_s,
        "owned_by": "roadworthy-twin",
        "root": name,
        "parent": None,
        "max_model_len": config.max_model_len,
        "permission": [],
    }
