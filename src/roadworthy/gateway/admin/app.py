"""The admin port's application: health and metrics for everybody who reaches it, the API for those who may.

Without an admin key anywhere, clients of its own host may look, drain and reload; nobody may change tenants or keys.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException

from roadworthy.gateway.admin import engines, keys, openapi, service, tenants, usage
from roadworthy.gateway.admin.access import Gatekeeper
from roadworthy.gateway.admin.answers import AdminError, error_answer
from roadworthy.gateway.admin.dispatch import routes
from roadworthy.gateway.admin.operations import Operation
from roadworthy.gateway.admin.schemas import FREE
from roadworthy.gateway.admin.view import AdminView

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.requests import Request
    from starlette.responses import Response

    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.operations import Call

__all__ = ["OPERATIONS", "AdminView", "admin_app"]


async def _openapi(_: Call) -> Any:
    return openapi.document(OPERATIONS)


OPERATIONS: tuple[Operation, ...] = (
    *service.OPERATIONS,
    *engines.OPERATIONS,
    *tenants.OPERATIONS,
    *keys.OPERATIONS,
    *usage.OPERATIONS,
    Operation(
        name="openapi", method="GET", path=openapi.PATH, role=None, needs_desk=False, handle=_openapi, answer=FREE,
        summary="This document.",
    ),
)  # fmt: skip


def admin_app(view_now: Callable[[], AdminView], desk: Desk | None = None) -> Starlette:
    """The application, which tells of whatever ``view_now`` gives at the time.

    Args:
        desk: where tenants and keys are changed; without one that part of the API is not there.
    """
    gatekeeper = desk.gatekeeper if desk is not None else _without_keys()
    return Starlette(
        routes=routes(OPERATIONS, view_now, desk, gatekeeper), exception_handlers={HTTPException: _refused}
    )


def _without_keys() -> Gatekeeper:
    return Gatekeeper(bootstrap=None, pepper=os.urandom(32), find=lambda _: None, keyed=lambda: False, now_s=time.time)


async def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    code = "method_not_allowed" if error.status_code == 405 else "not_found"
    return error_answer(
        AdminError(error.detail, code=code, hint="GET /api/openapi.json tells every path"), headers=error.headers
    )
