"""The gateway as one object: start it, ask it how it is, stop it."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING

from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.server import AdminServer
from roadworthy.gateway.books import Books, RecentRate
from roadworthy.gateway.data.plane import DataPlane
from roadworthy.gateway.endpoints import Endpoint
from roadworthy.gateway.listen import listener, url_of
from roadworthy.gateway.metrics import GatewayMetrics
from roadworthy.gateway.poller import Poller
from roadworthy.gateway.status import EndpointStatus, GatewayStatus
from roadworthy.route.tenants import TenantBook

if TYPE_CHECKING:
    import socket

    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.data.record import RequestRecord

DRAIN_S = 10.0
"""How long ``stop`` lets requests in progress go on, unless told otherwise."""

_RATE_SAMPLE_S = 1.0


class Gateway:
    """Data port, admin port and poller on the running event loop.

    ``async with Gateway(config) as gateway`` starts and stops it. Nothing is opened before ``start``.

    Raises:
        SpecError: an engine's URL or a tenant's key cannot be used.
    """

    def __init__(self, config: GatewayConfig) -> None:
        self._host, self._port = config.host, config.port
        self._admin_host, self._admin_port = config.admin_host, config.admin_port
        self._sweep_s = config.limits.sweep_s
        endpoints = {url: Endpoint(url, policy=config.breaker, now_s=time.monotonic) for url in config.endpoints}
        book = TenantBook(config.tenants, pepper=secrets.token_bytes(32))
        self._books = Books(tenant.id for tenant in book)
        self._plane = DataPlane(
            endpoints=endpoints,
            tenants=book,
            limits=config.limits,
            finished=self._finished,
            retried=self._retried,
            now_s=time.monotonic,
        )
        self._metrics = GatewayMetrics(endpoints.values(), client_connections=lambda: len(self._plane.clients))
        self._poller = Poller(endpoints.values(), policy=config.poll, now_s=time.monotonic)
        self._event_rate, self._token_rate = RecentRate(), RecentRate()
        self._data_socket: socket.socket | None = None
        self._admin_socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._admin: AdminServer | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._started_s = time.monotonic()
        self._data_url = self._admin_url = ""

    # life

    async def start(self) -> None:
        """Bind both ports, look at every engine once, serve. Engines that do not answer hold nothing up.

        Raises:
            ProbeError: a port is taken.
            SpecError: a host is no address of this machine.
        """
        self._data_socket = listener(self._host, self._port, what="gateway.port")
        try:
            self._admin_socket = listener(self._admin_host, self._admin_port, what="gateway.admin_port")
            self._data_url, self._admin_url = url_of(self._data_socket), url_of(self._admin_socket)
            self._started_s = time.monotonic()
            await self._poller.start()
            self._admin = AdminServer(admin_app(self), self._admin_socket)
            await self._admin.start()
            self._server = await asyncio.get_running_loop().create_server(
                self._plane.protocol, sock=self._data_socket, backlog=1024
            )
            self._ticker = asyncio.create_task(self._tick())
        except BaseException:
            await self.stop(drain_s=0.0)
            raise

    async def stop(self, drain_s: float = DRAIN_S) -> None:
        """Accept nothing more, let requests in progress end within ``drain_s`` seconds, cut the rest, close all.

        The admin port goes last, so that it can be seen draining. Calling it again does nothing.
        """
        if self._server is not None:
            self._server.close()
        await self._plane.drain(drain_s)
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._poller.stop()
        if self._admin is not None:
            await self._admin.stop()
        for listening in (self._data_socket, self._admin_socket):
            if listening is not None:
                listening.close()
        self._server = self._admin = self._ticker = self._data_socket = self._admin_socket = None

    async def __aenter__(self) -> Gateway:
        await self.start()
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.stop()

    # what it tells

    @property
    def data_url(self) -> str:
        """``http://host:port`` of the data port, once started."""
        return self._data_url

    @property
    def admin_url(self) -> str:
        """``http://host:port`` of the admin port, once started."""
        return self._admin_url

    @property
    def open_access(self) -> bool:
        """True when no tenant is configured and anyone may ask."""
        return self._plane.tenants.open_access

    @property
    def ready(self) -> bool:
        """Whether a request sent now would find a healthy engine."""
        return not self._plane.draining and any(
            one.healthy and one.health.reachable and not one.draining for one in self._plane.endpoint_list
        )

    def status(self) -> GatewayStatus:
        """Everything an operator sees, at this moment."""
        plane = self._plane
        return GatewayStatus(
            ready=self.ready,
            draining=plane.draining,
            uptime_s=time.monotonic() - self._started_s,
            client_connections=len(plane.clients),
            in_flight=len(plane.exchanges),
            requests=self._books.requests,
            stream_events_per_s=self._event_rate.per_s(),
            output_tokens_per_s=self._token_rate.per_s(),
            endpoints=tuple(_endpoint_status(one, time.monotonic()) for one in plane.endpoint_list),
            tenants=tuple(
                counts.status(tenant_id, plane.admission.in_flight(tenant_id))
                for tenant_id, counts in self._books.by_tenant.items()
            ),
        )

    def render_metrics(self) -> bytes:
        """Prometheus text; call it off the event loop."""
        return self._metrics.render()

    # what it is told

    def cut(self) -> None:
        """Do not wait any longer: a ``stop`` in progress ends the requests that are left now."""
        self._plane.cut()

    def set_draining(self, url: str, draining: bool) -> None:
        """Send no new requests to the engine at ``url`` (or do again). Raises KeyError for one that is not ours."""
        self._plane.endpoints[url].draining = draining

    def _finished(self, record: RequestRecord) -> None:
        self._books.add(record)
        self._metrics.add(record)

    def _retried(self, reason: str) -> None:
        self._metrics.retried(reason)

    async def _tick(self) -> None:
        next_sample_s = 0.0
        while True:
            await asyncio.sleep(self._sweep_s)
            self._plane.sweep()
            now_s = time.monotonic()
            if now_s >= next_sample_s:
                next_sample_s = now_s + _RATE_SAMPLE_S
                self._event_rate.sample(now_s, self._plane.stream_events)
                self._token_rate.sample(now_s, sum(one.output_tokens for one in self._books.by_tenant.values()))


def _endpoint_status(endpoint: Endpoint, now_s: float) -> EndpointStatus:
    health = endpoint.health
    return EndpointStatus(
        url=endpoint.url,
        healthy=endpoint.healthy,
        reachable=health.reachable,
        note=health.note,
        breaker=endpoint.breaker_state,
        draining=endpoint.draining,
        in_flight=endpoint.in_flight,
        dispatched_total=endpoint.dispatched_total,
        running=health.running,
        waiting=health.waiting,
        kv_usage_ratio=health.kv_usage_ratio,
        models=tuple(sorted(endpoint.models)),
        checked_s_ago=None if health.checked_s is None else now_s - health.checked_s,
    )
