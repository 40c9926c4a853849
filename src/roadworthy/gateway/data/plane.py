"""What all connections of the data port share, and the two decisions taken for each request: screen, begin."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import math
import time
from typing import TYPE_CHECKING, Any, Literal

from roadworthy.core.errors import Refused
from roadworthy.gateway.data import errors
from roadworthy.gateway.data.answers import MethodNotAllowed
from roadworthy.gateway.data.body import read_body
from roadworthy.gateway.data.client import ClientConnection
from roadworthy.gateway.data.exchange import Exchange
from roadworthy.gateway.data.record import RequestRecord
from roadworthy.gateway.data.request import RequestIds
from roadworthy.gateway.data.response_ids import ResponseIds
from roadworthy.gateway.data.routes import DOCUMENTS, ROUTES, STORED, STORED_ROUTES
from roadworthy.gateway.data.work import Work
from roadworthy.gateway.principal import Principal
from roadworthy.route.govern.seats import may_use
from roadworthy.route.state import RoutingState

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable

    from roadworthy.gateway.billing import Billing
    from roadworthy.gateway.data.limits import Limits
    from roadworthy.gateway.data.request import Head, Request
    from roadworthy.gateway.data.routes import Route
    from roadworthy.gateway.documents.passage import DocumentsPort, Passage
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.gateway.governance import Governance, Ticket
    from roadworthy.gateway.trace import Tracer
    from roadworthy.gateway.unlimited import Unlimited
    from roadworthy.route.settings import RoutingSettings
    from roadworthy.route.tenants import TenantBook
    from roadworthy.spec.values import Tenant

LAST_WORDS_S = 0.5
"""How long a stopping gateway waits for clients to take what is already written to them."""

RETIRE_IDLE_S = 5.0
"""How long a process that was followed by another keeps a connection without a request."""

_HEADERS_KEPT = 1024


class DataPlane:
    """The data port without its socket.

    Args:
        endpoints: engines, in the document's order.
        pepper: the secret of salts and response ids.
        finished: hears of every request that is over; must be quick and must not raise.
        retried: hears why an engine was given up for another, unseen by the client.
        now_s: seconds that only rise.
        epoch_s: seconds of the epoch.
        session_header: names the conversation that a request belongs to.
        tracer: says which requests are traced; None for none.
        remote_media: let engines fetch media by URL.
        governance: lets requests in, or not, and gives back what they hold.
        engine_priority: tell engines each request's priority.
        counts: how the tokens of streams are counted; None for as the engine tells of itself.
        billing: what is billed; None for nothing.
        documents: the way to the process that serves documents; None where nobody does.
    """

    def __init__(
        self,
        *,
        endpoints: Iterable[Endpoint],
        tenants: TenantBook,
        governance: Governance,
        pepper: bytes,
        limits: Limits,
        routing: RoutingSettings,
        finished: Callable[[RequestRecord], None],
        retried: Callable[[str], None],
        now_s: Callable[[], float],
        epoch_s: Callable[[], float] = time.time,
        session_header: str = "x-session-id",
        tracer: Tracer | None = None,
        remote_media: bool = False,
        engine_priority: bool = False,
        counts: Literal["exact", "final"] | None = None,
        billing: Billing | None = None,
        documents: DocumentsPort | None = None,
    ) -> None:
        self.governance = governance
        self.engine_priority = engine_priority
        self.counts = counts
        self.billing = billing
        self.documents = documents
        self.limits = limits
        self.retried = retried
        self.now_s = now_s
        self.epoch_s = epoch_s
        self.draining = self.retiring = False
        self.epoch = 0  # rises whenever a head that was screened before has to be screened again
        self.stream_events = 0  # relayed since the start: the live measure of tokens a second
        self.clients: set[ClientConnection] = set()
        self.exchanges: set[Exchange | Passage] = set()
        self._finished = finished
        self._tracer = tracer
        self._pepper = pepper
        self._remote_media = remote_media
        self._response_ids = ResponseIds(pepper)
        self._ids = RequestIds(epoch_s() - now_s())
        self._ordinal = itertools.count(1)
        self._own_headers: dict[tuple[str, str, str], bytes] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._emptied: asyncio.Event | None = None
        self._clients_gone: asyncio.Event | None = None
        self.session_header = session_header.lower().encode("ascii")
        self.routing = RoutingState(routing)
        self.set_endpoints(endpoints)
        self.set_tenants(tenants)

    def protocol(self) -> ClientConnection:
        """A protocol for one more client; the factory that ``loop.create_server`` wants."""
        return ClientConnection(self)

    # what may change while it runs

    def set_endpoints(self, endpoints: Iterable[Endpoint]) -> None:
        """Send new requests to these; those in progress at an engine that is left out go on."""
        self.endpoint_list = tuple(endpoints)
        self.endpoints = {one.url: one for one in self.endpoint_list}
        self.routing.set_engines(self.endpoints)

    def set_tenants(self, tenants: TenantBook) -> None:
        """Know these tenants from the next request on; those in progress keep what they hold."""
        self.tenants = tenants
        self.tenants_changed()

    def tenants_changed(self) -> None:
        """Tenants or keys have changed: look at every key anew."""
        self._principals: dict[tuple[str, bool], Principal] = {}
        self._next_end_s = math.inf  # of the keys that connections are remembered by, seconds of the epoch
        self.epoch += 1

    def set_limits(self, limits: Limits, *, remote_media: bool) -> None:
        self.limits, self._remote_media = limits, remote_media
        self.epoch += 1

    # decisions

    def screen(self, head: Head) -> None:
        """Look at a head before its body is read: path, method, key. Sets ``route`` and ``principal``, or
        ``refused``."""
        head.epoch = self.epoch
        head.most_bytes = self.limits.body_bytes
        try:
            head.route = self._route(head)
            head.most_bytes = min(head.most_bytes, head.route.body_bytes)
            head.principal = self._principal(head)
        except Refused as refused:
            head.refused = refused

    def _route(self, head: Head) -> Route:
        if self.draining:
            raise errors.shutting_down()
        route = ROUTES.get(head.path)
        if route is None:
            if self.documents is not None and f"{head.path}/".startswith(f"{DOCUMENTS.path}/"):
                return DOCUMENTS
            if head.path.startswith(STORED) and len(head.path) > len(STORED):
                cancel = head.path.endswith("/cancel")
                allowed = ("POST",) if cancel else ("GET", "DELETE")
                if head.method not in allowed:
                    raise MethodNotAllowed(f"{STORED}ID does not take {head.method}", allowed=", ".join(allowed))
                return STORED_ROUTES[head.method]
            raise errors.BadRequest(
                f"no such path: {head.path[:100]}", code="not_found", status=404, hint=f"there are {', '.join(ROUTES)}"
            )
        if route.method != head.method:
            raise MethodNotAllowed(f"{head.path} does not take {head.method}", allowed=route.method)
        return route

    def _principal(self, head: Head) -> Principal:
        holder = self.tenants.holder(head.key, self.epoch_s())
        if holder is None:
            what = "no API key was given" if head.key is None else "the API key is not known, or has ended"
            raise Refused(what, code="invalid_api_key", status=401, hint="send Authorization: Bearer KEY")
        if holder.ends_s is not None:
            self._next_end_s = min(self._next_end_s, holder.ends_s)
        name = (holder.tenant.id, holder.trusted)
        principal = self._principals.get(name)
        if principal is None:
            principal = Principal(holder.tenant, pepper=self._pepper, trusted=holder.trusted)
            self._principals[name] = principal
        return principal

    def begin(self, client: ClientConnection, request: Request) -> Exchange | None:
        """Start a whole request: an exchange to dispatch, or None when it is answered already."""
        head = request.head
        route, principal = head.route, head.principal
        assert route is not None
        assert principal is not None
        started_s = self.now_s()
        request.id = self._ids.next(started_s)
        try:
            if route.operation == "models":
                client.respond(200, self._models(principal.tenant), request)
                return None
            if route.operation == "response_by_id":
                work = self._stored(request, principal)
            else:
                work = self._work(request, route, principal)
            if self.billing is not None:
                self.billing.check()
            ticket = self._ticket(head, principal, work, started_s)
        except Refused as refused:
            self.turned_away(refused, request)
            client.refuse(refused, request)
            return None
        exchange = Exchange(self, client, request, work, ticket, started_s)
        self.exchanges.add(exchange)
        return exchange

    def pass_on(self, client: ClientConnection, request: Request) -> Passage:
        """Hand a request for documents on, its body as it comes. Raises Refused."""
        assert self.documents is not None
        started_s = self.now_s()
        request.id = self._ids.next(started_s)
        passage = self.documents.passage(self, client, request, started_s)
        self.exchanges.add(passage)
        return passage

    def _ticket(self, head: Head, principal: Principal, work: Work, now_s: float) -> Ticket | Unlimited:
        """Let the request in, as far as can be told at once. Raises Refused."""
        io_wait_ms = _milliseconds(head.io_wait_ms) if principal.trusted else None
        if io_wait_ms is not None:
            work.io_wait_s = io_wait_ms / 1e3
        ticket = self.governance.open(principal.tenant, work.route, work.operation, io_wait_ms, now_s)
        treatment = ticket.treatment
        if treatment.degraded:
            work.degrade(treatment.model, treatment.why)
        elif treatment.why:
            work.why = treatment.why
        return ticket

    def _work(self, request: Request, route: Route, principal: Principal) -> Work:
        parts, head = request.body, request.head
        data = parts[0] if len(parts) == 1 else b"".join(parts)
        parts.clear()
        body = read_body(route, data, remote_media=self._remote_media, billing=self.counts)
        engine_url = None
        if body.previous_response_id is not None:
            engine_url = self._holder(body.previous_response_id, principal, "previous_response_id")
        fields = principal.salt_field if route.salted else b""
        if body.counting is not None:
            fields += body.counting.field
        return Work(
            route=self.routing.describe(
                tenant_id=principal.tenant.id, model=body.model, stream=body.stream, body=data,
                max_tokens=body.max_tokens if route.generates else 0, session_id=head.session_id or body.session_id,
                request_id=request.id.decode("ascii"),
            ),
            operation=route.operation, path=head.path, body=body.forward, stream=body.stream, engine_url=engine_url,
            fields=fields,
            response_ids=self._response_ids if route.operation == "responses" else None,
            trace=self._trace(request), counting=body.counting,
            counts_deltas=self.counts is not None and route.operation in ("responses", "messages"),
        )  # fmt: skip

    def _trace(self, request: Request) -> str:
        if self._tracer is None:
            request.trace = request.head.traceparent
            return ""
        request.trace, trace = self._tracer.begin(request.head.traceparent)
        return trace

    # stored responses

    def _stored(self, request: Request, principal: Principal) -> Work:
        path = request.head.path
        response_id = path.removeprefix(STORED).removesuffix("/cancel")
        engine_url = self._holder(response_id, principal, None)
        query = request.head.query
        path += "?stream=true" if "stream=true" in query.split("&") else ""
        return Work(
            route=self.routing.describe(
                tenant_id=principal.tenant.id, model="", stream=path.endswith("stream=true"), body=b"",
                request_id=request.id.decode("ascii"),
            ),
            operation="response_by_id", path=path, body=b"", stream=path.endswith("stream=true"),
            engine_url=engine_url, trace=self._trace(request),
        )  # fmt: skip

    def _holder(self, response_id: str, principal: Principal, param: str | None) -> str:
        """The engine that holds a response of this tenant. Another tenant's and one that never was look the same."""
        url = self._response_ids.engine_of(response_id, principal.tenant.id, self.endpoints)
        if url is None:
            raise errors.BadRequest(
                f"no response {response_id[:100]!r}", code="response_not_found", status=404, param=param,
                hint="responses are kept by the engine that made them, until it restarts",
            )  # fmt: skip
        return url

    # answers

    def _models(self, tenant: Tenant) -> bytes:
        """What the engines serve, adapters included, each name once, only those that the tenant may use."""
        cards: dict[str, dict[str, object]] = {}
        for endpoint in self.endpoint_list:
            for card in endpoint.model_cards:
                cards.setdefault(str(card["id"]), card)
        allowed = [card for name, card in cards.items() if may_use(tenant, name)]
        return json.dumps({"object": "list", "data": allowed}, separators=(",", ":")).encode()

    def own_headers(self, outcome: str, model: str, why: str = "") -> bytes:
        """``x-roadworthy-decision``, ``x-roadworthy-model`` and where there is one ``x-roadworthy-reason``, as whole
        lines."""
        lines = self._own_headers.get((outcome, model, why))
        if lines is None:
            # the model's name is the client's text: it passed JSON, so it may hold a line end
            name = "".join(char if " " < char < "\x7f" else "?" for char in model)
            text = f"x-roadworthy-decision: {outcome}\r\nx-roadworthy-model: {name}\r\n"
            if why:
                reason = "".join(char if " " <= char < "\x7f" else "?" for char in why)
                text += f"x-roadworthy-reason: {reason}\r\n"
            lines = text.encode("ascii")
            if len(self._own_headers) >= _HEADERS_KEPT:
                self._own_headers.clear()
            self._own_headers[outcome, model, why] = lines
        return lines

    def readable_error(self, answer: bytes, status: int, request: Request) -> bytes:
        """An engine's 4xx as the client may see it: without addresses and paths, and in JSON in any case."""
        try:
            known = isinstance(json.loads(answer), dict)
        except (ValueError, RecursionError):
            known = False
        if known:
            return errors.scrubbed(answer)
        refused = errors.BadRequest("the engine refused this request", code="engine_refused", status=status)
        return errors.error_body(refused, request.head.dialect)

    # bookkeeping

    def next_ordinal(self) -> int:
        return next(self._ordinal)

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def finished(self, exchange: Exchange | Passage, record: RequestRecord) -> None:
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
        head = request.head
        self._finished(
            RequestRecord(
                request_id=request.id.decode("ascii"),
                tenant_id=head.principal.tenant.id if head.principal is not None else "-",
                operation=head.route.operation if head.route is not None else "",
                model="",
                endpoint="",
                decision=refused.code,
                ending="refused",
                status=refused.status,
                request_bytes=request.body_bytes,
                started_s=self.now_s(),
            )
        )

    def sweep(self) -> None:
        """Look at everything that can last too long."""
        now_s = self.now_s()
        if self.epoch_s() >= self._next_end_s:
            self.tenants_changed()  # a key has ended
        for exchange in tuple(self.exchanges):
            exchange.check(now_s)
        for client in tuple(self.clients):
            client.check(now_s)
        for endpoint in self.endpoint_list:
            endpoint.close_idle(older_than_s=self.limits.engine_idle_s)

    async def drain(self, grace_s: float | None) -> None:
        """Take no more requests, let those in progress end within ``grace_s`` (None: however long they take), then cut
        the rest and close all."""
        self.draining = True
        self.epoch += 1
        for client in tuple(self.clients):
            client.close_if_idle()
        if self.exchanges and (grace_s is None or grace_s > 0):
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

    async def retire(self) -> None:
        """Finish: every answer closes its connection, and connections without a request close after a moment, since a
        request may be on its way over each of them. Return once all are closed."""
        self.retiring = True
        while self.clients:
            await asyncio.sleep(self.limits.sweep_s)
            now_s = self.now_s()
            for client in tuple(self.clients):
                client.close_if_idle(since_s=now_s - RETIRE_IDLE_S)

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


def _milliseconds(value: bytes | None) -> float | None:
    """A number of milliseconds that can be; None for anything else."""
    try:
        number = float(value or b"")
    except ValueError:
        return None
    return number if 0 <= number < 1e9 else None
