"""Engines: which there are, and taking one out of use and back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from roadworthy.gateway.admin.answers import AdminError
from roadworthy.gateway.admin.operations import Operation
from roadworthy.gateway.admin.schemas import FREE, TEXT, listed, record

if TYPE_CHECKING:
    from roadworthy.gateway.admin.operations import Call


async def _engines(call: Call) -> Any:
    return {"engines": (await call.view.status_view())["endpoints"]}


async def _drain(call: Call) -> Any:
    return await _set(call, draining=True)


async def _undrain(call: Call) -> Any:
    return await _set(call, draining=False)


async def _set(call: Call, *, draining: bool) -> Any:
    url = call.body["url"].rstrip("/")
    engines = {one["url"]: one["draining"] for one in (await call.view.status_view())["endpoints"]}
    try:
        await call.view.drain_engine(url, draining)
    except KeyError:
        raise AdminError(
            f"no engine {url!r}",
            code="engine_not_found",
            param="url",
            hint=f"there are {', '.join(engines)}" if engines else "no engine is known now",
        ) from None
    recorded = await call.record(
        "engine.drain" if draining else "engine.undrain",
        f"engine:{url}",
        {"draining": engines.get(url)},
        {"draining": draining},
    )
    return {"url": call.body["url"], "draining": draining, **recorded}


_URL = record({"url": {"type": "string", "minLength": 1, "maxLength": 200, "description": "As the document has it."}})
_DONE = record({"url": TEXT, "draining": {"type": "boolean"}, "audited": {"type": "boolean"}}, optional=("audited",))
_LIKE = {"url": "http://10.0.0.11:8000"}

OPERATIONS = (
    Operation(
        name="list_engines", method="GET", path="/api/engines", needs_desk=False, handle=_engines,
        answer=listed("engines", FREE), summary="Every engine: health, load, what it serves, whether it drains.",
    ),
    Operation(
        name="drain_engine", method="POST", path="/api/engines/drain", role="operator", needs_desk=False,
        handle=_drain, body=_URL, answer=_DONE, errors=("engine_not_found",), examples=_LIKE,
        summary="Send an engine no new requests; those in progress end.",
    ),
    Operation(
        name="undrain_engine", method="POST", path="/api/engines/undrain", role="operator", needs_desk=False,
        handle=_undrain, body=_URL, answer=_DONE, errors=("engine_not_found",), examples=_LIKE,
        summary="Send it requests again.",
    ),
)  # fmt: skip
