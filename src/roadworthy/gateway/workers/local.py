"""The gateway in the supervisor's own process, as one more worker: what a single one becomes by its first upgrade."""

from __future__ import annotations

import asyncio
import os
from typing import TYPE_CHECKING, Any

from roadworthy.gateway.told import from_json

if TYPE_CHECKING:
    from roadworthy.gateway.service import Gateway


class LocalWorker:
    """Answers what a ``WorkerProcess`` would."""

    def __init__(self, gateway: Gateway) -> None:
        self._gateway = gateway
        self.index = 0
        self.pid = os.getpid()
        self.exit_code = 0
        self.ended = asyncio.Event()
        self.retiring = True

    async def ask(self, what: str, **more: Any) -> Any:
        gateway = self._gateway
        if what == "status":
            return await gateway.status_view()
        if what == "tenants":
            return await gateway.tenants_told(ask_shared=more["ask_shared"])
        if what == "requests":
            return await gateway.requests_view()
        if what == "metrics":
            return (await gateway.metrics_text(worker="before")).decode()
        if what == "cut":
            gateway.cut()
        elif what == "govern":
            await gateway.govern(from_json(more["change"]))
        elif what == "retire":
            await gateway.retire()
            self.ended.set()
        elif what == "stop":
            await gateway.drain(more["drain_s"])
            self.ended.set()
        return {}

    async def kill(self) -> None:
        """It ends with the process."""
        self.ended.set()
