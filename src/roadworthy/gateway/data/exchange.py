"""One request in progress: sent to an engine, tried elsewhere while the client has seen nothing, relayed, settled.

::

    WAIT: for the store that limits are counted in, for room at the engines
       |
    DISPATCH --head, plain--------> COLLECT --complete--> respond
       |  ^  --head, event stream-> PEEK ----first event--> RELAY --complete--> end of stream
       |  |                          |
       |  +-- refused, 5xx, died ----+      (another engine, unseen)
       +---- none left --> our own error

Once a byte has gone to the client nothing is tried again: a stream that dies ends with an error event. Whatever the
way out, ``_settle`` runs once: it gives back what the tenant held and the engine's place, and tells the observer.
"""

from __future__ import annotations

import asyncio
import errno
from typing import TYPE_CHECKING, Literal

from roadworthy.gateway.data import errors
from roadworthy.gateway.data.engine import EngineConnection
from roadworthy.gateway.data.record import Ending, RequestRecord
from roadworthy.gateway.data.stream import FULL
from roadworthy.gateway.data.usage import Usage, usage_of
from roadworthy.gateway.governance import Ticket
from roadworthy.route.pick import choose

if TYPE_CHECKING:
    from roadworthy.core.errors import Refused
    from roadworthy.gateway.data.client import ClientConnection
    from roadworthy.gateway.data.plane import DataPlane
    from roadworthy.gateway.data.request import Request
    from roadworthy.gateway.data.stream import EventGate
    from roadworthy.gateway.data.work import Work
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.gateway.unlimited import Unlimited
    from roadworthy.route.state import Placement

Phase = Literal["wait", "dispatch", "peek", "collect", "relay", "over"]
Failure = Literal["connect", "full", "hard"]

CLIENT_LEFT_STATUS = 499
"""nginx's number for a client that closed first; only in metrics and logs."""


class Exchange:
    """Drives one request from admission to its end."""

    __slots__ = (
        "_attempts", "_by", "_client", "_connect_task", "_connection", "_content_type", "_endpoint", "_failure",
        "_first_byte_s", "_gate", "_hard_failures", "_outcome", "_parts", "_paused_s", "_phase",
        "_placement", "_plane", "_received_bytes", "_request", "_retried_stale", "_sent_s",
        "_slot", "_started_s", "_status", "_ticket", "_tried", "_work", "end_passed",
    )  # fmt: skip

    def __init__(
        self,
        plane: DataPlane,
        client: ClientConnection,
        request: Request,
        work: Work,
        ticket: Ticket | Unlimited,
        started_s: float,
    ) -> None:
        self._plane, self._client, self._request = plane, client, request
        self._work, self._ticket = work, ticket
        self._started_s = self._sent_s = started_s
        self._phase: Phase = "wait"
        self._endpoint: Endpoint | None = None
        self._placement: Placement | None = None
        self._connection: EngineConnection | None = None
        self._connect_task: asyncio.Task[None] | None = None
        self._tried: tuple[str, ...] = ()
        self._attempts = self._hard_failures = 0
        self._failure: Failure = "connect"
        self._retried_stale = False
        self._outcome = self._by = ""
        self._status = 0
        self._content_type = b""
        self._parts: list[bytes] = []
        self._received_bytes = 0
        self._gate: EventGate | None = None
        self._slot: int | None = None  # of the journal
        self._first_byte_s: float | None = None
        self._paused_s: float | None = None
        self.end_passed = False  # the last chunk has gone to the client as it came

    # admission

    def start(self) -> None:
        """Run, or wait until it may."""
        ticket = self._ticket
        if ticket.permit is not None:
            self.admitted()
        else:
            assert isinstance(ticket, Ticket)
            self._plane.governance.wait(ticket, self)

    def admitted(self) -> None:
        if self._phase == "wait":
            if self._plane.engine_priority and (permit := self._ticket.permit) is not None:
                self._work.priority = permit.priority
            self._phase = "dispatch"
            self.dispatch()

    def turned_away(self, refused: Refused) -> None:
        if self._phase == "wait":
            self._fail_for_good(refused, "refused")

    # dispatch

    def dispatch(self) -> None:
        """Send to the best engine not tried yet; answer with an error when there is none."""
        plane, work = self._plane, self._work
        if work.engine_url is None:
            decision = choose(plane.endpoint_list, work.route, tried=self._tried, state=plane.routing)
            if decision.endpoint is None:
                self._give_up(decision.outcome)
                return
            self._outcome, self._by = decision.outcome, decision.by
            endpoint = plane.endpoints[decision.endpoint]
        else:  # what is asked for is kept by this engine alone
            self._outcome, self._by = "routed", "kept"
            found = plane.endpoints.get(work.engine_url)
            if found is None or self._tried:
                self._give_up("no_engine")
                return
            endpoint = found
        self._endpoint = endpoint
        endpoint.begin(plane.next_ordinal())
        self._placement = plane.routing.dispatched(work.route, endpoint.url)
        plane.governance.placed(self._ticket, endpoint.url)
        self._retried_stale = False
        self._attempts += 1
        connection = endpoint.take_idle()
        if connection is not None:
            self._send(connection)
        else:
            self._connect(endpoint)

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
        head, body = self._work.for_engine(connection.endpoint, self._request)
        connection.send(self, head, body)
        self._sent_s = connection.sent_s

    def _attempt_failed(self, failure: Failure) -> None:
        """This engine will not answer and the client has seen nothing: settle with the engine, try another."""
        endpoint = self._endpoint
        assert endpoint is not None
        if failure == "full":
            endpoint.said_full()
        else:
            endpoint.failed(to_connect=failure == "connect")
        self._let_go(answered=False)
        self._tried = (*self._tried, endpoint.url)
        self._failure = failure
        self._phase = "dispatch"
        self._parts, self._received_bytes = [], 0
        self._gate = None
        if failure == "hard":
            self._hard_failures += 1
            if self._hard_failures >= self._plane.limits.hard_failures:
                self._give_up("no_engine")
                return
        self._plane.retried(failure)
        self.dispatch()

    def _give_up(self, outcome: str) -> None:
        tried = self._failure if self._tried else None
        self._fail_for_good(*errors.gave_up(outcome, self._work.route.model, tried))

    def _fail_for_good(self, refused: Refused, ending: Ending) -> None:
        """Answer with ``refused``: as a response while the client has seen nothing, else as the stream's last event."""
        relayed, gate = self._phase == "relay", self._gate
        self._drop_connection()
        if relayed:
            start = b"\n\n" if gate is not None and gate.mid_event else b""
            self._client.write_events(start + errors.closing_events(refused, self._request.head.dialect))
            self._settle(ending, refused.status)
            self._client.end_stream(close=True)
        else:
            self._outcome = refused.code
            self._settle(ending, refused.status)
            self._client.refuse(refused, self._request)
        self._client.exchange_over(self)

    # what the engine says

    def engine_head(self, connection: EngineConnection, status: int, content_type: bytes) -> None:
        if connection is not self._connection:
            return
        self._status, self._content_type = status, content_type
        if status == 200:
            if self._work.stream and content_type[:17].lower() == b"text/event-stream":
                self._phase = "peek"
                self._gate = self._work.gate(self._plane.limits.peek_bytes)
            else:
                self._phase = "collect"
        elif status in FULL:
            self._attempt_failed("full")
        elif status >= 500 and status != 501:  # not implemented: the next engine would say the same
            self._attempt_failed("hard")
        else:
            self._phase = "collect"

    def engine_data(self, connection: EngineConnection, data: bytes) -> None:
        if connection is not self._connection:
            return
        if self._phase == "relay":
            self._relay(connection, data)
        elif self._phase == "peek":
            self._peek(connection, data)
        else:
            self._received_bytes += len(data)
            if self._received_bytes > self._plane.limits.plain_answer_bytes:
                self._fail_for_good(errors.engine_failed(), "engine_error")
            else:
                self._parts.append(data)

    def engine_whole(self, connection: EngineConnection, status: int, content_type: bytes, data: bytes) -> None:
        """A whole answer at once."""
        if (
            connection is self._connection
            and status == 200
            and not self._work.stream
            and len(data) <= self._plane.limits.plain_answer_bytes
        ):
            self._connection = None
            self._status, self._content_type = status, content_type
            self._phase = "collect"
            self._parts = [data]
            self._respond_plain()
        else:
            self.engine_head(connection, status, content_type)
            self.engine_data(connection, data)
            self.engine_complete(connection)

    def engine_complete(self, connection: EngineConnection) -> None:
        if connection is not self._connection:
            return
        if self._phase == "collect":
            self._connection = None
            self._respond_plain()
            return
        gate = self._gate
        assert gate is not None
        if self._phase == "peek":  # ended without one event: pass on what there is
            self._start_relay(connection, b"")
        self._connection = None
        if rest := gate.rest():
            gate.passed(rest, connection.last_byte_s)
            self._client.write_events(rest)
        self._settle("engine_error" if gate.failed else "ok", 200)
        self._client.end_stream(close=False, ended=self.end_passed)
        self._client.exchange_over(self)

    def engine_lost(self, connection: EngineConnection) -> None:
        """The connection broke, or what came over it was not HTTP."""
        if connection is not self._connection:
            return
        if self._phase == "relay":
            self._endpoint_failed()
            self._fail_for_good(errors.engine_failed(), "engine_error")
            return
        self._connection = None
        if connection.answers and not connection.bytes_seen and not self._retried_stale:
            # an idle connection that the engine closed just as we wrote: not a failure of the engine
            assert self._endpoint is not None
            self._retried_stale = True
            self._connect(self._endpoint)
        else:
            self._attempt_failed("hard")

    def _peek(self, connection: EngineConnection, data: bytes) -> None:
        gate = self._gate
        assert gate is not None
        verdict = gate.look(data)
        if verdict == "relay":
            self._start_relay(connection, gate.take(b""))
        elif verdict != "wait":
            self._attempt_failed(verdict)

    def _start_relay(self, connection: EngineConnection, first: bytes) -> None:
        gate, endpoint = self._gate, self._endpoint
        assert gate is not None
        assert endpoint is not None
        self._phase = "relay"
        endpoint.answered()
        self._plane.governance.began(self._ticket)
        self._first_byte_s = connection.last_byte_s
        if first:
            gate.passed(first, connection.last_byte_s)
        if self._plane.billing is not None:  # before a byte of it goes out
            self._slot = self._plane.billing.begin(self._work, endpoint.url, gate, self._started_s)
        self._client.begin_stream(
            self._request,
            content_type=self._content_type,
            headers=self._own_headers(),
            exchange=self,
            first=first,
        )
        self._pass_whole_reads(connection, gate)

    def _relay(self, connection: EngineConnection, data: bytes) -> None:
        gate = self._gate
        assert gate is not None
        passed = gate.take(data)
        if passed:
            gate.passed(passed, connection.last_byte_s)
            self._client.write_events(passed)
        self._pass_whole_reads(connection, gate)

    def _pass_whole_reads(self, connection: EngineConnection, gate: EventGate) -> None:
        """From here on reads of whole events need no look, if client and engine frame them alike."""
        write = self._client.raw_write
        if write is not None and gate.empty:
            connection.relay_to(write, gate)

    def _respond_plain(self) -> None:
        parts = self._parts
        answer = parts[0] if len(parts) == 1 else b"".join(parts)
        status = self._status
        assert self._endpoint is not None
        self._endpoint.answered()
        self._received_bytes = len(answer)
        if status < 400:
            self._settle("ok", status, usage_of(answer))
        else:
            self._settle("rejected", status)
            answer = self._plane.readable_error(answer, status, self._request)
        self._client.respond(status, answer, self._request, self._own_headers(), self._content_type)
        self._client.exchange_over(self)

    def _own_headers(self) -> bytes:
        work = self._work
        return self._plane.own_headers(work.decision or self._outcome, work.route.model, work.why)

    # what the client does

    def client_left(self) -> None:
        """The client is gone: close the engine's connection at once, which makes the engine stop."""
        if self._phase == "over":
            return
        status = self._status if self._phase == "relay" else CLIENT_LEFT_STATUS
        self._abandon()
        self._settle("client_left", status)

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
        limits, connection, gate = self._plane.limits, self._connection, self._gate
        if gate is not None:
            gate.fold()
            self._tell_events(gate)
            if (permit := self._ticket.permit) is not None:
                permit.streamed(gate.tokens_so_far)
        if self._paused_s is not None:
            if now_s - self._paused_s > limits.client_stall_s:
                self._abandon()
                self._settle("client_stalled", self._status)
                self._client.abort()
        elif connection is not None:
            silent_s = now_s - connection.last_byte_s
            if silent_s > limits.engine_silence_s or (silent_s > limits.first_byte_s and not connection.bytes_seen):
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

    def _let_go(self, *, answered: bool, prompt_tokens: int | None = None) -> None:
        if self._connection is not None or self._connect_task is not None:
            self._drop_connection()
        endpoint, self._endpoint = self._endpoint, None
        if endpoint is not None:
            endpoint.end()
        placement, self._placement = self._placement, None
        if placement is not None:
            self._plane.routing.ended(placement, answered=answered, prompt_tokens=prompt_tokens)

    def _endpoint_failed(self) -> None:
        if self._endpoint is not None:
            self._endpoint.failed(to_connect=False)

    def _endpoint_abandoned(self) -> None:
        if self._endpoint is not None:
            self._endpoint.breaker.abandoned()

    def _tell_events(self, gate: EventGate) -> None:
        self._plane.stream_events += gate.events - gate.events_told
        gate.events_told = gate.events

    def _settle(self, ending: Ending, status: int, usage: Usage | None = None) -> None:
        """Runs once, whatever the way out."""
        if self._phase == "over":
            return
        gate, endpoint, work = self._gate, self._endpoint, self._work
        url = endpoint.url if endpoint is not None else (self._tried[-1] if self._tried else "")
        sent_bytes, events, itl_p99_s = self._received_bytes, 0, None
        if gate is not None:
            usage = gate.usage()
            sent_bytes, events, itl_p99_s = gate.passed_bytes, gate.events, gate.itl_p99_s()
            self._tell_events(gate)
        self._let_go(
            answered=self._phase == "relay" or ending == "ok",
            prompt_tokens=usage.prompt_tokens or None if usage is not None else None,
        )
        self._phase = "over"
        started_s, first_s = self._started_s, self._first_byte_s
        block_tokens = endpoint.block_tokens if endpoint is not None else 0
        if usage is None:
            usage, estimated = Usage(0, max(0, events - 1)), True  # less [DONE]
        else:
            estimated = gate is not None and gate.estimated
        route, permit = work.route, self._ticket.permit
        record = RequestRecord(
            request_id=route.request_id,
            tenant_id=route.tenant_id,
            operation=work.operation,
            model=route.model,
            endpoint=url,
            decision=self._outcome if self._attempts == 0 else work.decision or self._outcome,
            by=self._by,
            ending=ending,
            status=status,
            stream=work.stream,
            attempts=self._attempts,
            request_bytes=self._request.body_bytes,
            response_bytes=sent_bytes,
            started_s=started_s,
            ttft_s=None if first_s is None else first_s - started_s,
            duration_s=self._plane.now_s() - started_s,
            waited_s=self._sent_s - started_s,
            itl_p99_s=itl_p99_s,
            prompt_tokens=usage.prompt_tokens,
            output_tokens=usage.output_tokens,
            cached_tokens=usage.cached_tokens,
            tokens_estimated=estimated,
            queue_s=usage.queue_s,
            prefill_s=usage.prefill_s,
            decode_s=usage.decode_s,
            kv_blocks_estimate=-(-(usage.prompt_tokens + usage.output_tokens) // block_tokens) if block_tokens else 0,
            io_wait_s=work.io_wait_s,
            queue_class=permit.queue_class if permit is not None else "",
            borrowed=permit.borrowed if permit is not None else False,
            why=work.why,
            trace=work.trace,
        )
        self._plane.governance.close(self._ticket, record, started_s + record.duration_s)
        if self._plane.billing is not None:  # before a byte of an answer that is no stream
            self._plane.billing.end(self._slot, record)
        self._plane.finished(self, record)
