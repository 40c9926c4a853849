"""What all connections of the data port share, and the two decisions taken for each request: screen, begin."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Refused
from roadworthy.gateway.data import errors
from roadworthy.gateway.data.body import read_completion
from roadworthy.gateway.data.client import ClientConnection, MethodNotAllowed
from roadworthy.gateway.data.exchange import Exchange
from roadworthy.gateway.data.record import RequestRecord
from roadworthy.route.admit import Admission, check_model
from roadworthy.route.values import RouteRequest

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Mapping

    from roadworthy.gateway.data.limits import Limits
    from roadworthy.gateway.data.request import Request
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.route.tenants import TenantBook
    from roadworthy.spec.values import Tenant

ROUTES = {"/v1/chat/completions": "POST", "/v1/completions": "POST", "/v1/models": "GET"}
"""Paths that exist, each with its method. Anything else an engine serves is not reachable from the data port."""

LAST_WORDS_S = 0.5
"""How long a stopping gateway waits for clients to take what is already written to them."""


class DataPlane:
    """The data port without its socket.

    Args:
        endpoints: engines by URL, in the document's order.
        finished: hears of every request that is over; must be quick and must not raise.
        retried: hears why an engine was given up for another, unseen by the client.
        now_s: seconds that only rise.
    """

    def __init__(
        self,
        *,
        endpoints: Mapping[str, Endpoint],
        tenants: TenantBook,
        limits: Limits,
        finished: Callable[[RequestRecord], None],
        retried: Callable[[str], None],
        now_s: Callable[[], float],
    ) -> None:
        self.endpoints = dict(endpoints)
        self.endpoint_list = tuple(self.endpoints.values())
        self.tenants = tenants
        self.admission = Admission(tenants)
        self.limits = limits
        self.retried = retried
        self.now_s = now_s
        self.draining = False
        self.stream_events = 0  # relayed since the start: the live measure of tokens a second
        self.clients: set[ClientConnection] = set()
        self.exchanges: set[Exchange] = set()
        self._finished = finished
        self._ordinal = itertools.count(1)
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        self._clients_gone: asyncio.Event | None = None

    def protocol(self) -> ClientConnection:
        """A protocol for one more client; the factory that ``loop.create_server`` wants."""
        return ClientConnection(self)

    # decisions

    def screen(self, request: Request) -> Refused | None:
        """Look at a head before its body is read: path, method, key. Sets ``request.tenant``."""
        if self.draining:
            return errors.shutting_down()
        method = ROUTES.get(request.path)
        if method is None:
            return errors.BadRequest(
                f"no such path: {request.path[:100]}",
                code="not_found",
                status=404,
                hint=f"there are {', '.join(ROUTES)}",
            )
        if method != request.method:
            return MethodNotAllowed(f"{request.path} does not take {request.method}", allowed=method)
        request.tenant = self.tenants.find(request.key)
        if request.tenant is None:
            what = "no API key was given" if request.key is None else "the API key is not known"
            return Refused(what, code="invalid_api_key", status=401, hint="send Authorization: Bearer KEY")
        return None

    def begin(self, client: ClientConnection, request: Request) -> Exchange | None:
        """Start a whole request: an exchange to dispatch, or None when it is answered already."""
        assert request.tenant is not None
        if request.path == "/v1/models":
            client.respond(200, self._models(request.tenant), request)
            return None
        try:
            body = read_completion(b"".join(request.body))
            request.body.clear()
            route = RouteRequest(
                tenant_id=request.tenant.id,
                model=body.model,
                stream=body.stream,
                max_tokens=body.max_tokens,
                prompt_bytes=request.body_bytes,
                session_id=request.session_id,
            )
            lease = self.admission.admit(request.tenant, route, self.now_s())
        except Refused as refused:
            self.turned_away(refused, request)
            client.refuse(refused, request)
            return None
        exchange = Exchange(self, client, request, body, route, lease)
        self.exchanges.add(exchange)
        return exchange

    def _models(self, tenant: Tenant) -> bytes:
        """What the engines serve, each name once, only those that the tenant may use."""
        cards: dict[str, dict[str, object]] = {}
        for endpoint in self.endpoint_list:
            for card in endpoint.model_cards:
                cards.setdefault(str(card["id"]), card)
        allowed = []
        for name, card in cards.items():
            try:
                check_model(tenant, name)
            except Refused:
                continue
            allowed.append(card)
        return json.dumps({"object": "list", "data": allowed}, separators=(",", ":")).encode()

    # bookkeeping

    def next_ordinal(self) -> int:
        return next(self._ordinal)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def finished(self, exchange: Exchange, record: RequestRecord) -> None:
        """An exchange is over and settled."""
        self.exchanges.discard(exchange)
        self._finished(record)
        if self._emptied is not None and not self.exchanges:
            self._emptied.set()

    def client_closed(self, client: ClientConnection) -> None:
        self.clients.discard(client)
        if self._clients_gone is not None and not self.clients:
            self._clients_gone.set()

    def turned_away(self, refused: Refused, request: Request) -> None:
        """A request was refused before it became an exchange."""
        self._finished(
            RequestRecord(
                tenant_id=request.tenant.id if request.tenant is not None else "-",
                model="",
                endpoint="",
                ending="refused",
                status=refused.status,
                request_bytes=request.body_bytes,
            )
        )

    def sweep(self) -> None:
        """Look at everything that can last too long."""
        now_s = self.now_s()
        for exchange in tuple(self.exchanges):
            exchange.check(now_s)
        for client in tuple(self.clients):
            client.check(now_s)
        for endpoint in self.endpoint_list:
            endpoint.close_idle(older_than_s=self.limits.engine_idle_s)

    async def drain(self, grace_s: float) -> None:
        """Take no more requests, let those in progress end within ``grace_s``, then cut the rest and close all."""
        self.draining = True
        for client in tuple(self.clients):
            client.close_if_idle()
        if self.exchanges and grace_s > 0:
            self._emptied = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self._emptied.wait()
        self.cut()
        await self._close_clients()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for endpoint in self.endpoint_list:
            endpoint.close_idle()

    def cut(self) -> None:
        """End every request in progress with an error."""
        for exchange in tuple(self.exchanges):
            exchange.cut()

    async def _close_clients(self) -> None:
        for client in tuple(self.clients):
            client.close()
        if self.clients:
            self._clients_gone = asyncio.Event()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LAST_WORDS_S):
                    await self._clients_gone.wait()
        for client in tuple(self.clients):
            client.abort()
