"""Health, metrics, status and reload: what the admin port tells of the gateway as a whole."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import CONTENT_TYPE_LATEST
from starlette.responses import PlainTextResponse, Response

from roadworthy.gateway.admin.answers import AdminError
from roadworthy.gateway.admin.operations import Operation
from roadworthy.gateway.admin.schemas import FREE, TEXT, listed, record

if TYPE_CHECKING:
    from roadworthy.gateway.admin.operations import Call


async def _healthz(_: Call) -> Response:
    return PlainTextResponse("ok\n")


async def _readyz(call: Call) -> Response:
    if await call.view.is_ready():
        return PlainTextResponse("ready\n")
    return PlainTextResponse("no healthy engine, see /api/status\n", status_code=503)


async def _metrics(call: Call) -> Response:
    return Response(await call.view.metrics_text(), media_type=CONTENT_TYPE_LATEST)


async def _status(call: Call) -> Any:
    return await call.view.status_view()


async def _requests(call: Call) -> Any:
    return {"requests": await call.view.requests_view()}


async def _whoami(call: Call) -> Any:
    return {
        "who": call.caller.who,
        "role": call.caller.role,
        "has_key": call.caller.has_key,
        "stored": call.desk_or_none is not None and call.desk_or_none.stored,
    }


async def _reload(call: Call) -> Any:
    problem = await call.view.reload()
    recorded = await call.record("document.reload", "document", after={"problem": problem})
    if problem is not None:
        raise AdminError(
            problem,
            code="document_refused",
            hint="the document before stays in force; mend it and try again",
        )
    return {"document": (await call.view.status_view())["document"], **recorded}


OPERATIONS = (
    Operation(
        name="healthz", method="GET", path="/healthz", role=None, needs_desk=False, handle=_healthz,
        summary="The process lives.", media=("text/plain",),
    ),
    Operation(
        name="readyz", method="GET", path="/readyz", role=None, needs_desk=False, handle=_readyz,
        summary="An engine can take a request; 503 where none can.", media=("text/plain",),
    ),
    Operation(
        name="metrics", method="GET", path="/metrics", role=None, needs_desk=False, handle=_metrics,
        summary="Prometheus metrics.", media=("text/plain",),
    ),
    Operation(
        name="status", method="GET", path="/api/status", needs_desk=False, handle=_status, answer=FREE,
        summary="Engines, tenants, workers and the document in force.",
    ),
    Operation(
        name="requests", method="GET", path="/api/requests", needs_desk=False, handle=_requests,
        answer=listed("requests", FREE), summary="The latest requests, one by one, without their text.",
    ),
    Operation(
        name="whoami", method="GET", path="/api/whoami", needs_desk=False, handle=_whoami,
        answer=record({"who": TEXT, "role": TEXT, "has_key": {"type": "boolean"}, "stored": {"type": "boolean"}}),
        summary="What this key may do, and whether changes outlive the process.",
    ),
    Operation(
        name="reload", method="POST", path="/api/reload", role="operator", needs_desk=False, handle=_reload,
        answer=record({"document": FREE, "audited": {"type": "boolean"}}, optional=("audited",)),
        errors=("document_refused",), summary="Read the document again.",
        doc="Words of administrators stay before what it says now, field by field.",
    ),
)  # fmt: skip
