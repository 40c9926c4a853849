"""One request in progress: sent to an engine, tried elsewhere while the client has seen nothing, relayed, settled.

::

    DISPATCH --head, plain--------> COLLECT --complete--> respond
       |  ^  --head, event stream-> PEEK ----first event--> RELAY --complete--> end of stream
       |  |                          |
       |  +-- refused, 5xx, died ----+      (another engine, unseen)
       +---- none left --> our own error

Once a byte has gone to the client nothing is tried again: a stream that dies ends with an error event. Whatever the
way out, ``_settle`` runs once: it gives back the tenant's lease and the engine's place, and tells the observer.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Literal

from roadworthy.gateway.data import errors
from roadworthy.gateway.data.engine import EngineConnection
from roadworthy.gateway.data.events import last_usage
from roadworthy.gateway.data.record import Ending, RequestRecord
from roadworthy.gateway.data.stream import FULL, EventGate
from roadworthy.route.pick import least_load

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.body import CompletionBody
    from roadworthy.gateway.data.client import ClientConnection
    from roadworthy.gateway.data.plane import DataPlane
    from roadworthy.gateway.data.request import Request
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.route.admit import Lease
    from roadworthy.route.values import RouteRequest

Phase = Literal["dispatch", "peek", "collect", "relay", "over"]
Failure = Literal["connect", "full", "hard"]

CLIENT_LEFT_STATUS = 499
"""nginx's number for a client that closed first; only in metrics and logs."""


class Exchange:
    """Drives one completion request from admission to its end."""

    __slots__ = (
        "_answer", "_attempts", "_body", "_client", "_connect_task", "_connection", "_content_type", "_endpoint",
        "_failure", "_first_byte_s", "_gate", "_hard_failures", "_lease", "_outcome", "_parts", "_paused_s", "_phase",
        "_plane", "_received_bytes", "_request", "_retried_stale", "_route", "_started_s", "_status", "_tried",
    )  # fmt: skip

    def __init__(
        self,
        plane: DataPlane,
        client: ClientConnection,
        request: Request,
        body: CompletionBody,
        route: RouteRequest,
        lease: Lease,
    ) -> None:
        self._plane, self._client, self._request = plane, client, request
        self._body, self._route, self._lease = body, route, lease
        self._started_s = plane.now_s()
        self._phase: Phase = "dispatch"
        self._endpoint: Endpoint | None = None
        self._connection: EngineConnection | None = None
        self._connect_task: asyncio.Task[None] | None = None
        self._tried: list[str] = []
        self._attempts = self._hard_failures = 0
        self._failure: Failure = "connect"
        self._retried_stale = False
        self._outcome = "routed"
        self._status = 0
        self._content_type = b""
        self._parts: list[bytes] = []
        self._received_bytes = 0
        self._answer = b""  # a plain one, whole
        self._gate = EventGate(plane.limits.peek_bytes)
        self._first_byte_s: float | None = None
        self._paused_s: float | None = None

    # dispatch

    def dispatch(self) -> None:
        """Send to the best engine not tried yet; answer with an error when there is none."""
        plane = self._plane
        decision = least_load(plane.endpoint_list, self._route, tried=self._tried)
        if decision.endpoint is None:
            self._give_up(decision.outcome)
            return
        self._outcome = decision.outcome
        self._endpoint = plane.endpoints[decision.endpoint]
        self._endpoint.begin(plane.next_ordinal())
        self._retried_stale = False
        self._attempts += 1
        connection = self._endpoint.take_idle()
        if connection is not None:
            self._send(connection)
        else:
            self._connect(self._endpoint)

    def _connect(self, endpoint: Endpoint) -> None:
        self._connect_task = self._plane.spawn(self._open_and_send(endpoint))

    async def _open_and_send(self, endpoint: Endpoint) -> None:
        plane = self._plane
        try:
            async with asyncio.timeout(plane.limits.connect_timeout_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: EngineConnection(endpoint, plane.now_s), endpoint.host, endpoint.port
                )
        except (OSError, TimeoutError) as error:
            self._connect_task = None
            if getattr(error, "errno", None) in (errno.EMFILE, errno.ENFILE):
                self._fail_for_good(errors.engines_unavailable("the gateway has no file descriptors left"), "no_engine")
            else:
                self._attempt_failed("connect")
            return
        self._connect_task = None
        if self._phase == "over":  # the client left in the very turn in which the connection opened
            connection.abort()
        elif connection.closing:  # opened, and broken before its first word
            self._attempt_failed("connect")
        else:
            self._send(connection)

    def _send(self, connection: EngineConnection) -> None:
        self._connection = connection
        head = (
            f"POST {self._request.path} HTTP/1.1\r\nHost: {connection.endpoint.authority}\r\n"
            f"Content-Type: application/json\r\nContent-Length: {len(self._body.forward)}\r\n"
            f"X-Request-Id: {self._request.id}\r\n"
        )
        if self._request.traceparent is not None:
            head += f"traceparent: {self._request.traceparent}\r\n"
        connection.send(self, head.encode("ascii") + b"\r\n", self._body.forward)

    def _attempt_failed(self, failure: Failure) -> None:
        """This engine will not answer and the client has seen nothing: settle with the engine, try another."""
        endpoint = self._endpoint
        assert endpoint is not None
        if failure == "full":
            endpoint.said_full()
        else:
            endpoint.failed(to_connect=failure == "connect")
        self._let_go()
        self._tried.append(endpoint.url)
        self._failure = failure
        self._phase = "dispatch"
        self._parts, self._received_bytes = [], 0
        self._gate.forget()
        if failure == "hard":
            self._hard_failures += 1
            if self._hard_failures >= self._plane.limits.hard_failures:
                self._give_up("no_engine")
                return
        self._plane.retried(failure)
        self.dispatch()

    def _give_up(self, outcome: str) -> None:
        if outcome == "model_not_found":
            refused = errors.BadRequest(
                f"no engine serves model {self._route.model!r}", code="model_not_found", status=404, param="model",
                hint="GET /v1/models lists the names",
            )  # fmt: skip
            self._fail_for_good(refused, "refused")
        elif not self._tried:
            self._fail_for_good(errors.engines_unavailable("every one is draining"), "no_engine")
        elif self._failure == "hard":
            self._fail_for_good(errors.engine_failed(), "engine_error")
        elif self._failure == "full":
            self._fail_for_good(errors.engines_busy(), "no_engine")
        else:
            self._fail_for_good(errors.engines_unavailable("none accepts a connection"), "no_engine")

    def _fail_for_good(self, refused: Refused, ending: Ending) -> None:
        """Answer with ``refused``: as a response while the client has seen nothing, else as the stream's last event."""
        self._drop_connection()
        if self._phase == "relay":
            start = b"\n\n" if self._gate.mid_event else b""
            self._client.write_events(start + errors.closing_events(refused))
            self._settle(ending, refused.status)
            self._client.end_stream(close=True)
        else:
            self._settle(ending, refused.status)
            self._client.refuse(refused, self._request)
        self._client.exchange_over(self)

    # what the engine says

    def engine_head(self, connection: EngineConnection, status: int, content_type: bytes) -> None:
        if connection is not self._connection:
            return
        self._status, self._content_type = status, content_type
        if status in FULL:
            self._attempt_failed("full")
        elif status >= 500:
            self._attempt_failed("hard")
        elif status == 200 and self._body.stream and content_type.lower().startswith(b"text/event-stream"):
            self._phase = "peek"
        else:
            self._phase = "collect"

    def engine_data(self, connection: EngineConnection, data: bytes) -> None:
        if connection is not self._connection:
            return
        if self._phase == "relay":
            self._relay(data)
        elif self._phase == "peek":
            self._peek(data)
        else:
            self._received_bytes += len(data)
            if self._received_bytes > self._plane.limits.plain_answer_bytes:
                self._fail_for_good(errors.engine_failed(), "engine_error")
            else:
                self._parts.append(data)

    def engine_complete(self, connection: EngineConnection) -> None:
        if connection is not self._connection:
            return
        self._connection = None
        if self._phase == "collect":
            self._respond_plain()
            return
        if self._phase == "peek":  # ended without one event: pass on what there is
            self._start_relay()
        if rest := self._gate.rest():
            self._client.write_events(rest)
        self._endpoint_answered()
        self._settle("engine_error" if self._gate.ended_in_error() else "ok", 200)
        self._client.end_stream(close=False)
        self._client.exchange_over(self)

    def engine_lost(self, connection: EngineConnection) -> None:
        """The connection broke, or what came over it was not HTTP."""
        if connection is not self._connection:
            return
        self._connection = None
        if self._phase == "relay":
            self._endpoint_failed()
            self._fail_for_good(errors.engine_failed(), "engine_error")
        elif connection.answers and not connection.bytes_seen and not self._retried_stale:
            # an idle connection that the engine closed just as we wrote: not a failure of the engine
            assert self._endpoint is not None
            self._retried_stale = True
            self._connect(self._endpoint)
        else:
            self._attempt_failed("hard")

    def _peek(self, data: bytes) -> None:
        verdict = self._gate.look(data)
        if verdict == "relay":
            self._start_relay()
            self._relay(b"")
        elif verdict != "wait":
            self._attempt_failed(verdict)

    def _start_relay(self) -> None:
        self._phase = "relay"
        self._endpoint_answered()
        self._first_byte_s = self._plane.now_s()
        self._client.begin_stream(
            self._request, content_type=self._content_type, headers=self._own_headers(), exchange=self
        )

    def _relay(self, data: bytes) -> None:
        gate = self._gate
        before = gate.events
        passed = gate.take(data)
        if passed:
            self._plane.stream_events += gate.events - before
            self._client.write_events(passed)

    def _respond_plain(self) -> None:
        self._answer = b"".join(self._parts)
        self._endpoint_answered()
        self._settle("ok" if self._status < 400 else "rejected", self._status)
        self._client.respond(
            self._status,
            self._answer,
            self._request,
            content_type=self._content_type,
            headers=self._own_headers(),
        )
        self._client.exchange_over(self)

    def _own_headers(self) -> bytes:
        # the model's name is the client's text: it passed JSON, so it may hold a line end
        model = self._route.model.encode("ascii", "backslashreplace").replace(b"\r", b"").replace(b"\n", b"")
        return (
            b"x-roadworthy-decision: " + self._outcome.encode("ascii") + b"\r\nx-roadworthy-model: " + model + b"\r\n"
        )

    # what the client does

    def client_left(self) -> None:
        """The client is gone: close the engine's connection at once, which makes the engine stop."""
        if self._phase == "over":
            return
        self._abandon()
        self._settle("client_left", CLIENT_LEFT_STATUS if self._phase != "relay" else self._status)

    def client_paused(self) -> None:
        self._paused_s = self._plane.now_s()
        if self._connection is not None:
            self._connection.pause()

    def client_resumed(self) -> None:
        self._paused_s = None
        if self._connection is not None:
            self._connection.resume()

    # what time does

    def check(self, now_s: float) -> None:
        """Called by the sweep: end what has been silent for too long."""
        limits = self._plane.limits
        if self._paused_s is not None:
            if now_s - self._paused_s > limits.client_stall_s:
                self._abandon()
                self._settle("client_stalled", self._status)
                self._client.abort()
        elif self._connection is not None and now_s - self._connection.last_byte_s > limits.engine_silence_s:
            self._endpoint_failed()
            self._fail_for_good(errors.engine_silent(), "engine_timeout")

    def cut(self) -> None:
        """The gateway stops and waited long enough."""
        if self._phase != "over":
            self._endpoint_abandoned()
            self._fail_for_good(errors.shutting_down(), "shutdown")

    # the way out

    def _abandon(self) -> None:
        self._endpoint_abandoned()
        self._drop_connection()

    def _drop_connection(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None and connection.exchange is self:
            connection.abort()
        task, self._connect_task = self._connect_task, None
        if task is not None:
            task.cancel()

    def _let_go(self) -> None:
        self._drop_connection()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.end()

    def _endpoint_answered(self) -> None:
        if self._endpoint is not None:
            self._endpoint.answered()

    def _endpoint_failed(self) -> None:
        if self._endpoint is not None:
            self._endpoint.failed(to_connect=False)

    def _endpoint_abandoned(self) -> None:
        if self._endpoint is not None:
            self._endpoint.breaker.abandoned()

    def _settle(self, ending: Ending, status: int) -> None:
        """Runs once, whatever the way out."""
        if self._phase == "over":
            return
        url = self._endpoint.url if self._endpoint is not None else (self._tried[-1] if self._tried else "")
        self._let_go()
        self._lease.release()
        self._phase = "over"
        now_s = self._plane.now_s()
        usage = last_usage(self._answer) if self._answer else self._gate.usage()
        self._plane.finished(
            self,
            RequestRecord(
                tenant_id=self._route.tenant_id,
                model=self._route.model,
                endpoint=url,
                ending=ending,
                status=status,
                stream=self._body.stream,
                attempts=self._attempts,
                request_bytes=self._route.prompt_bytes,
                response_bytes=self._gate.passed_bytes + len(self._answer),
                ttft_s=None if self._first_byte_s is None else self._first_byte_s - self._started_s,
                duration_s=now_s - self._started_s,
                prompt_tokens=usage.prompt_tokens if usage else 0,
                output_tokens=usage.output_tokens if usage else max(0, self._gate.events - 1),  # less [DONE]
                tokens_estimated=usage is None,
            ),
        )
