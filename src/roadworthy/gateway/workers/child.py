"""A worker: a gateway without an admin port, on a socket that it was given, told what to do over the link."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError
from roadworthy.gateway.quota_watch import alert_as_json
from roadworthy.gateway.service import Gateway
from roadworthy.gateway.stores import NO_STORES, Stores
from roadworthy.gateway.told import from_json
from roadworthy.gateway.workers.link import Link

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roadworthy.gateway.config import GatewayConfig


class Worker:
    """Runs from ``start`` until it is told to stop, or its supervisor is gone.

    Args:
        configure: from the text of a document to this worker's configuration; raises RoadworthyError.
        stores: how this process reaches what a configuration names.
    """

    def __init__(
        self,
        index: str,
        data_socket: socket.socket,
        configure: Callable[[str], GatewayConfig],
        stores: Callable[[GatewayConfig], Stores] = lambda _: NO_STORES,
    ) -> None:
        self._index, self._socket, self._configure, self._stores = index, data_socket, configure, stores
        self._text = ""
        self._gateway: Gateway | None = None
        self._over = asyncio.Event()
        self._stopping = False
        self._link = Link(self._answer, self._abandoned)

    async def run(self, link: socket.socket) -> None:
        await self._link.open(link)
        await self._over.wait()
        await asyncio.sleep(0)  # the last answer leaves first
        self._link.close()

    def _abandoned(self) -> None:
        """The supervisor is gone without a word: finish what is in progress for a moment, and end."""
        if not self._stopping:
            self._end = asyncio.get_running_loop().create_task(self._stop(10.0))

    async def _answer(self, message: dict[str, Any]) -> Any:
        try:
            return await getattr(self, f"_on_{message['ask']}")(message)
        except RoadworthyError as error:
            return {"problem": str(error), "hint": error.hint, "exit_code": error.exit_code, "code": _told(error)}

    async def _on_start(self, message: dict[str, Any]) -> Any:
        self._text = message["text"]
        config = await asyncio.to_thread(self._configure, self._text)
        self._gateway = Gateway(
            config,
            load=lambda: self._configure(self._text),
            data_socket=self._socket,
            worker=self._index,
            admin=False,
            pepper=bytes.fromhex(message["pepper"]),
            stores=self._stores(config),
        )
        if told := from_json(message["told"]):
            await self._gateway.govern(told)
        for url in message["draining"]:
            if url in config.endpoints:
                self._gateway.set_draining(url, True)
        await self._gateway.start()
        return {}

    async def _on_reload(self, message: dict[str, Any]) -> Any:
        before, self._text = self._text, message["text"]
        problem = await self._running.reload()
        if problem is not None:
            self._text = before
        return {"problem": problem}

    async def _on_drain(self, message: dict[str, Any]) -> Any:
        try:
            self._running.set_draining(message["url"], message["draining"])
        except KeyError:
            return {"unknown": True}
        return {}

    async def _on_status(self, _: dict[str, Any]) -> Any:
        return await self._running.status_view()

    async def _on_govern(self, message: dict[str, Any]) -> Any:
        await self._running.govern(from_json(message["change"]))
        return {}

    async def _on_tenants(self, message: dict[str, Any]) -> Any:
        return await self._running.tenants_told(ask_shared=message["ask_shared"])

    async def _on_alerts(self, _: dict[str, Any]) -> Any:
        return [alert_as_json(one) for one in self._running.take_alerts()]

    async def _on_requests(self, _: dict[str, Any]) -> Any:
        return await self._running.requests_view()

    async def _on_metrics(self, _: dict[str, Any]) -> Any:
        return (await self._running.metrics_text()).decode()

    async def _on_retire(self, _: dict[str, Any]) -> Any:
        self._stopping = True
        await self._running.retire()
        await self._stop(0.0)
        return {}

    async def _on_stop(self, message: dict[str, Any]) -> Any:
        self._stopping = True
        await self._stop(message["drain_s"])
        return {}

    async def _on_cut(self, _: dict[str, Any]) -> Any:
        if self._gateway is not None:
            self._gateway.cut()
        return {}

    async def _stop(self, drain_s: float) -> None:
        self._stopping = True
        if self._gateway is not None:
            await self._gateway.stop(drain_s)
        self._over.set()

    @property
    def _running(self) -> Gateway:
        assert self._gateway is not None
        return self._gateway


def _told(error: RoadworthyError) -> str:
    return type(error).__name__
