"""The gateway as one object: start it, ask it how it is, change it, stop it. One process; several are ``workers``."""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import RoadworthyError, SpecError
from roadworthy.gateway import metrics
from roadworthy.gateway.access_log import AccessLog, profile, time_text
from roadworthy.gateway.admin.app import admin_app
from roadworthy.gateway.admin.server import AdminServer
from roadworthy.gateway.data.plane import DataPlane
from roadworthy.gateway.documents.passage import documents_port
from roadworthy.gateway.endpoints import Endpoint
from roadworthy.gateway.governed_metrics import governed
from roadworthy.gateway.kv_events import KvEvents
from roadworthy.gateway.listen import listener, url_of
from roadworthy.gateway.poller import Poller
from roadworthy.gateway.principal import pepper_of
from roadworthy.gateway.status import DocumentStatus, EndpointStatus, GatewayStatus
from roadworthy.gateway.stores import NO_STORES, Stores
from roadworthy.gateway.tally import RecentRate, Tally
from roadworthy.gateway.tenancy import TOLD_AT_ONCE, Tenancy
from roadworthy.gateway.tenants import finished
from roadworthy.gateway.tls import load, server_context
from roadworthy.gateway.trace import Tracer
from roadworthy.gateway.versions import version_warning

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable

    from roadworthy.gateway.admin.desk import Desk
    from roadworthy.gateway.admin.view import AdminView, GovernedView
    from roadworthy.gateway.config import GatewayConfig
    from roadworthy.gateway.status import TenantStatus
    from roadworthy.route.govern.values import Alert
    from roadworthy.route.keys import Change
    from roadworthy.spec.values import Tenant

DRAIN_S = 10.0
"""How long ``stop`` lets requests in progress go on, unless told otherwise."""

START_ANEW = "put it back, or start the gateway anew; an upgrade (SIGUSR2) does so without losing a stream"

FIXED = (
    "host", "port", "admin_port", "workers", "otlp_endpoint", "access_log", "session_header", "state_url", "shared_url",
    "documents",
)  # fmt: skip
FIXED_GOVERNANCE = {"ledger": "ledger", "lease_ttl_s": "lease_ttl", "on_state_loss": "on_state_loss"}
"""What a reload cannot change, the second by the document's words."""

_RATE_SAMPLE_S = 1.0


class Gateway:
    """Data port, admin port and poller on the running event loop.

    ``async with Gateway(config) as gateway`` starts and stops it. Nothing is opened before ``start``.

    Args:
        load: reads the document again, for ``reload``; None where there is none to read.
        data_socket: bound already, by the process that this one works for.
        worker: which of several processes this is; None for the only one.
        admin: open an admin port; a worker's is its supervisor's.
        pepper: the secret of salts and response ids, where another process has it already.
        stores: where limits, tenants and what is billed are kept.

    Raises:
        SpecError: an engine's URL, a tenant's key, or a file of ``tls`` cannot be used.
        ProbeError: the access log cannot be opened.
        Unsupported: spans are wanted and the extra ``otel`` is not installed.
    """

    def __init__(
        self,
        config: GatewayConfig,
        *,
        load: Callable[[], GatewayConfig] | None = None,
        data_socket: socket.socket | None = None,
        worker: str | None = None,
        admin: bool = True,
        pepper: bytes | None = None,
        stores: Stores = NO_STORES,
    ) -> None:
        self._config, self._load, self._worker, self._has_admin = config, load, worker, admin
        endpoints = [self._endpoint(url) for url in config.endpoints]
        self.pepper = pepper = pepper or stores.pepper or pepper_of(config.tenants)
        self._desk = stores.desk(pepper) if admin else None
        self._tls = server_context(config.tls)
        self._tracer = Tracer.to_collector(config.otlp_endpoint, worker=worker or "0") if config.otlp_endpoint else None
        self._log = AccessLog(config.access_log, worker=worker) if config.access_log else None
        self._stores = stores
        self._tenancy = Tenancy(config, stores, worker=worker, pepper=pepper)
        billing = self._tenancy.billing
        sinks = [
            one
            for one in (
                self._log and self._log.write,
                self._tracer and self._tracer.export,
                billing and billing.write,
            )
            if one
        ]
        self._tally = Tally(self._model_label, sinks)
        self._plane = DataPlane(
            endpoints=endpoints,
            tenants=self._tenancy.book,
            governance=self._tenancy.governance,
            pepper=pepper,
            limits=config.limits,
            routing=config.routing,
            finished=self._tally.record,
            retried=self._tally.retried,
            now_s=time.monotonic,
            session_header=config.session_header,
            tracer=self._tracer,
            remote_media=config.remote_media,
            engine_priority=config.engine_priority,
            counts=self._tenancy.counts,
            billing=billing,
            documents=documents_port(config.documents),
        )
        self._poller = Poller(endpoints, policy=config.poll, now_s=time.monotonic, observer=self._plane.routing)
        self._kv_events = self._publishing(config)
        self._event_rate, self._token_rate = RecentRate(), RecentRate()
        self._data_socket = data_socket
        self._admin_socket: socket.socket | None = None
        self._server: asyncio.Server | None = None
        self._admin: AdminServer | None = None
        self._ticker: asyncio.Task[None] | None = None
        self._reloading = asyncio.Lock()
        self._started_s = time.monotonic()
        self._document = DocumentStatus(loaded_at_s=time.time())
        self._data_url = self._admin_url = ""
        self._admin_view: AdminView = self

    def _endpoint(self, url: str) -> Endpoint:
        return Endpoint(url, policy=self._config.breaker, now_s=time.monotonic)

    def _publishing(self, config: GatewayConfig) -> KvEvents:
        """The subscriptions that ``config`` asks for, and word of them to the engines' endpoints."""
        addresses = dict(config.kv_events)
        for endpoint in self._plane.endpoint_list:
            endpoint.publishes = bool(addresses.get(endpoint.url))
        return KvEvents(addresses, self._plane.routing)

    # life

    async def start(self) -> None:
        """Bind both ports, look at every engine once, serve. Engines that do not answer hold nothing up.

        Raises:
            ProbeError: a port is taken.
            SpecError: a host is no address of this machine.
        """
        config = self._config
        if self._data_socket is None:
            self._data_socket = listener(config.host, config.port, what="gateway.port")
        try:
            if self._has_admin:
                self._admin_socket = listener(config.admin_host, config.admin_port, what="gateway.admin_port")
            scheme = "https" if self._tls is not None else "http"
            self._data_url = url_of(self._data_socket, scheme)
            self._admin_url = url_of(self._admin_socket) if self._admin_socket is not None else ""
            self._started_s = time.monotonic()
            await self._tenancy.start()
            await self._poller.start()
            self._tenancy.tick(self._started_s, self._plane.endpoint_list)
            self._kv_events.start()
            if self._desk is not None:
                await self._desk.open(self)
            if self._admin_socket is not None:
                self._admin = AdminServer(admin_app(lambda: self._admin_view, self._desk), self._admin_socket)
                await self._admin.start()
            self._server = await asyncio.get_running_loop().create_server(
                self._plane.protocol, sock=self._data_socket, backlog=1024, ssl=self._tls
            )
            self._ticker = asyncio.create_task(self._tick())
        except BaseException:
            await self.stop(drain_s=0.0)
            raise

    async def stop(self, drain_s: float | None = DRAIN_S) -> None:
        """Accept nothing more, let requests in progress end within ``drain_s`` seconds (None: however long they take),
        cut the rest, close all.

        The admin port goes last, so that it can be seen draining. Calling it again does nothing.
        """
        if self._server is not None:
            self._server.close()
        await self._plane.drain(drain_s)
        if self._desk is not None:
            await self._desk.close()
        if self._ticker is not None:
            self._ticker.cancel()
            await asyncio.gather(self._ticker, return_exceptions=True)
        await self._poller.stop()
        await self._kv_events.stop()
        self._tally.fold()
        if self._admin is not None:
            await self._admin.stop()
        for listening in (self._data_socket, self._admin_socket):
            if listening is not None:
                listening.close()
        self._server = self._admin = self._ticker = self._data_socket = self._admin_socket = None
        for sink in (self._log, self._tracer):
            if sink is not None:
                await asyncio.to_thread(sink.close)
        await self._tenancy.stop()
        self._log = self._tracer = None

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
        ids = (one.id for one in self._plane.tenants)
        return self._status(self._tally.tenants(ids, self._tenancy.governance.in_flight))

    def _status(self, tenants: tuple[TenantStatus, ...]) -> GatewayStatus:
        plane = self._plane
        return GatewayStatus(
            ready=self.ready,
            draining=plane.draining,
            uptime_s=time.monotonic() - self._started_s,
            client_connections=len(plane.clients),
            in_flight=len(plane.exchanges),
            requests=self._tally.requests,
            stream_events_per_s=self._event_rate.per_s(),
            output_tokens_per_s=self._token_rate.per_s(),
            endpoints=tuple(_endpoint_status(one, time.monotonic()) for one in plane.endpoint_list),
            tenants=tenants,
            document=self._document,
        )

    async def is_ready(self) -> bool:
        return self.ready

    async def status_view(self) -> dict[str, Any]:
        """``status`` as plain values."""
        statuses = await self._tenancy.statuses(self._tally)
        told, tenants = asdict(self._status(())), []
        for at, one in enumerate(statuses):
            if at % TOLD_AT_ONCE == TOLD_AT_ONCE - 1:
                await asyncio.sleep(0)
            tenants.append(asdict(one))
        return {**told, "tenants": tenants}

    async def requests_view(self) -> list[dict[str, Any]]:
        """The latest requests that are over, newest first."""
        self._tally.fold()
        offset_s = time.time() - time.monotonic()
        return [{"time": time_text(one, offset_s), **profile(one)} for one in reversed(self._tally.recent)]

    def snapshot(self) -> metrics.Snapshot:
        """All numbers at this moment; write them out with ``metrics.render``, off this loop."""
        plane = self._plane
        engines = plane.endpoint_list
        return metrics.snapshot(
            self._tally,
            engine_gauges={
                "in_flight": {one.url: one.in_flight for one in engines},
                "engine_up": {one.url: int(one.healthy) for one in engines},
                "engine_draining": {one.url: int(one.draining) for one in engines},
                "engine_kv_usage_ratio": {one.url: one.health.kv_usage_ratio for one in engines},
                "idle_connections": {one.url: len(one.idle) for one in engines},
                "engine_prefix_bytes": {one.url: plane.routing.held_bytes(one.url) for one in engines},
                "engine_prefix_confirmed": {one.url: plane.routing.kv_confirmed(one.url)[0] for one in engines},
                "engine_kv_events_missed": self._kv_events.missed(),
            },
            gauges={
                "client_connections": len(plane.clients),
                "requests_in_flight": len(plane.exchanges),
                "document_loaded_timestamp_seconds": self._document.loaded_at_s,
            },
            counters={
                "stream_events": plane.stream_events,
                "reloads": self._document.reloads,
                "reloads_refused": self._document.refused,
                "spans_dropped": self._tracer.dropped if self._tracer is not None else 0,
                "log_lines_dropped": self._log.dropped if self._log is not None else 0,
            },
            governed=governed(self._tenancy, sorted({key[0] for key in self._tally.by_tenant})),
        )

    async def metrics_text(self, worker: str | None = None) -> bytes:
        """Prometheus text; ``worker`` labels it where this is one of several processes."""
        return await asyncio.to_thread(metrics.render, self.snapshot(), worker=worker or self._worker)

    def _model_label(self, name: str) -> str:
        known = any(name in endpoint.models for endpoint in self._plane.endpoint_list)
        return name if known else metrics.OTHER_MODEL

    # what it is told

    def cut(self) -> None:
        """Do not wait any longer: a ``stop`` in progress ends the requests that are left now."""
        self._plane.cut()

    def set_draining(self, url: str, draining: bool) -> None:
        """Send no new requests to the engine at ``url`` (or do again). Raises KeyError for one that is not ours."""
        self._plane.endpoints[url].draining = draining

    async def drain_engine(self, url: str, draining: bool) -> None:
        """``set_draining`` for the admin port."""
        self.set_draining(url, draining)

    async def govern(self, change: Change) -> None:
        """Put ``change`` of tenants and keys into force. What runs goes on; what waits of a tenant that is gone is
        refused."""
        plane = self._plane
        self._tenancy.govern(change)
        plane.set_tenants(self._tenancy.book)
        plane.counts = self._tenancy.counts

    async def tenants_view(self) -> list[dict[str, Any]]:
        """What each tenant holds and uses now."""
        return [finished(one) for one in await self.tenants_told(ask_shared=True)]

    async def tenants_told(self, *, ask_shared: bool) -> list[dict[str, Any]]:
        """The same for ``gateway.tenants``, which adds up what several processes tell."""
        return await self._tenancy.view(self._tally, ask_shared=ask_shared)

    def take_alerts(self) -> list[Alert]:
        """Alerts since the last look, of a worker, for its supervisor to pass on."""
        return self._tenancy.take_alerts()

    async def document_tenants(self) -> tuple[Tenant, ...]:
        """The tenants of the document in force, keys filled in."""
        return self._config.tenants

    def data_socket_copy(self) -> socket.socket:
        """The listening socket, for a process that takes over."""
        assert self._data_socket is not None
        return self._data_socket.dup()

    @property
    def told(self) -> Change:
        """All that was told of tenants and keys beyond the document."""
        return self._tenancy.told.whole()

    def hand_admin_to(self, view: GovernedView) -> Desk | None:
        """The admin port tells of ``view`` from now on, and tenants are changed there by the desk that comes back."""
        self._admin_view = view
        desk, self._desk = self._desk, None
        if desk is not None:
            desk.hand_to(view)
        return desk

    async def drain(self, drain_s: float) -> None:
        """As ``stop``, but the admin port stays."""
        if self._server is not None:
            self._server.close()
        await self._plane.drain(drain_s)

    async def retire(self) -> None:
        """Another process has taken over the port: accept nothing more, finish what is in progress however long it
        takes, serve what still comes over connections that are open, and return once all of them are closed."""
        if self._server is not None:
            self._server.close()
        await self._plane.retire()

    async def reload(self) -> str | None:
        """Read the document again and take over tenants, keys, engines, limits and TLS files, without touching a
        request in progress. A document that cannot be used changes nothing.

        Returns:
            What is wrong with it; None when it is in force.
        """
        async with self._reloading:
            try:
                if self._load is None:
                    raise SpecError("there is no document to read again")
                await self._take_over(await asyncio.to_thread(self._load))
            except RoadworthyError as error:
                hint = f"; hint: {error.hint}" if error.hint else ""
                details = "".join(f"; {problem}" for problem in getattr(error, "problems", ()))
                self._document = _after_refusal(self._document, f"{error}{details}{hint}")
            else:
                self._document = DocumentStatus(
                    loaded_at_s=time.time(), reloads=self._document.reloads + 1, refused=self._document.refused
                )
            if self._log is not None:
                self._log.reopen()
            problem = self._document.problem
        if problem is None and self._desk is not None:  # what administrators said goes before what it says now
            await self._desk.reloaded()
        return problem

    async def _take_over(self, config: GatewayConfig) -> None:
        """All that can fail comes first, so that a document is taken over whole or not at all."""
        before, plane = self._config, self._plane
        for name in FIXED:
            was, wanted = getattr(before, name), getattr(config, name)
            if was != wanted:
                raise SpecError(
                    f"gateway.{name}: {wanted!r} was {was!r}, and is fixed at the start",
                    hint=START_ANEW,
                )
        if before.routing != config.routing or (before.tls.cert is None) != (config.tls.cert is None):
            raise SpecError(
                "gateway: routing, lanes, and TLS on or off are fixed at the start",
                hint=START_ANEW,
            )
        for name, key in FIXED_GOVERNANCE.items():
            was, wanted = getattr(before.governance, name), getattr(config.governance, name)
            if was != wanted:
                raise SpecError(f"governance.{key}: {wanted!r} was {was!r}, and is fixed at the start", hint=START_ANEW)
        book = self._tenancy.book_for(config)
        known = plane.endpoints
        endpoints = [known.get(url) or self._endpoint(url) for url in config.endpoints]
        if self._tls is not None:
            server_context(config.tls)  # the files are right, before the context in use gets them
            load(self._tls, config.tls)
        self._config = config
        plane.set_limits(config.limits, remote_media=config.remote_media)
        self._tenancy.take_over(config, book)
        plane.set_tenants(book)
        plane.counts, plane.engine_priority = self._tenancy.counts, config.engine_priority
        plane.set_endpoints(endpoints)
        for url, endpoint in known.items():
            if url not in plane.endpoints:
                endpoint.retire()
        self._poller.watch(endpoints)
        if config.kv_events != before.kv_events:
            await self._kv_events.stop()
            self._kv_events = self._publishing(config)
            self._kv_events.start()

    async def _tick(self) -> None:
        next_sample_s = 0.0
        while True:
            await asyncio.sleep(self._config.limits.sweep_s)
            self._plane.sweep()
            self._tally.fold()
            now_s = time.monotonic()
            self._tenancy.tick(now_s, self._plane.endpoint_list)
            if now_s >= next_sample_s:
                next_sample_s = now_s + _RATE_SAMPLE_S
                self._event_rate.sample(now_s, self._plane.stream_events)
                self._token_rate.sample(now_s, self._tally.output_tokens)


def _after_refusal(document: DocumentStatus, problem: str) -> DocumentStatus:
    return DocumentStatus(
        loaded_at_s=document.loaded_at_s,
        reloads=document.reloads,
        refused=document.refused + 1,
        problem=problem,
    )


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
        version=endpoint.version,
        warning=version_warning(endpoint.version),
    )
