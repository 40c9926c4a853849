"""What is to be done for one request, apart from who does it: its routing facts, and the bytes an engine gets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from roadworthy.gateway.data.body import with_model
from roadworthy.gateway.data.exact import DeltaGate, ExactGate
from roadworthy.gateway.data.stream import EventGate

if TYPE_CHECKING:
    from roadworthy.gateway.data.request import Request
    from roadworthy.gateway.data.response_ids import ResponseIds
    from roadworthy.gateway.data.stream_options import Counting
    from roadworthy.gateway.endpoints import Endpoint
    from roadworthy.route.values import RouteRequest


class Work:
    """One request, read and admitted.

    Args:
        body: as it is passed on, but for what is put in front of its fields.
        fields: put there, such as ``b'"cache_salt":"...",'``.
        engine_url: the only engine that can do it, because it holds what is asked for; None for any.
        response_ids: makes the id of the response, which names its engine; None where the engine keeps none.
        io_wait_s: what a trusted caller said it waited for.
        trace: trace and span id of ours, as in ``traceparent``; empty where nothing is traced.
        counting: how the tokens of a stream of chat or completions are counted; None for as they come.
        counts_deltas: count the pieces of text of a stream that has no running count.

    ``priority`` is the engine's (None where it knows none); ``decision`` and ``why`` are set where a business rule
    changed what is done.
    """

    __slots__ = (
        "body",
        "counting",
        "counts_deltas",
        "decision",
        "engine_url",
        "fields",
        "io_wait_s",
        "operation",
        "path",
        "priority",
        "response_ids",
        "route",
        "stream",
        "trace",
        "why",
    )

    def __init__(
        self,
        *,
        route: RouteRequest,
        operation: str,
        path: str,
        body: bytes,
        stream: bool,
        fields: bytes = b"",
        engine_url: str | None = None,
        response_ids: ResponseIds | None = None,
        io_wait_s: float | None = None,
        trace: str = "",
        counting: Counting | None = None,
        counts_deltas: bool = False,
    ) -> None:
        self.route = route
        self.operation = operation
        self.path = path
        self.body = body
        self.fields = fields
        self.stream = stream
        self.engine_url = engine_url
        self.response_ids = response_ids
        self.io_wait_s = io_wait_s
        self.trace = trace
        self.counting = counting
        self.counts_deltas = counts_deltas
        self.priority: int | None = None
        self.decision = self.why = ""

    def degrade(self, model: str, why: str) -> None:
        """Send it to ``model`` instead, and say so."""
        self.route.model = model
        self.body = with_model(self.body, model)
        self.decision, self.why = "degraded", why

    def gate(self, hold_bytes: int) -> EventGate:
        """What the events of its stream go through."""
        if self.counting is not None:
            return ExactGate(hold_bytes, self.counting)
        return DeltaGate(hold_bytes) if self.counts_deltas else EventGate(hold_bytes)

    def for_engine(self, endpoint: Endpoint, request: Request) -> tuple[bytes, bytes | memoryview]:
        """Head and body for ``endpoint``, to be sent one after the other: our framing and our headers, none of the
        client's but the trace. The head has the body's first bytes in it, so that a long body need not be copied."""
        body, fields = self.body, self.fields
        if self.response_ids is not None:
            response_id = self.response_ids.make(self.route.tenant_id, endpoint.url, request.id)
            fields += b'"request_id":"%b",' % response_id
        more = b"traceparent: %b\r\n" % request.trace if request.trace is not None else b""
        if endpoint.publishes:
            more += b"X-Session-ID: %b\r\n" % request.id
        if self.priority is not None:
            more += b"X-Vllm-Priority: %d\r\n" % self.priority
        head = endpoint.head(request.head.method, self.path) % (len(body) + len(fields), request.id, more)
        if not fields:
            return head, body
        at = body.index(b"{") + 1
        return b"%b%b%b" % (head, body[:at], fields), memoryview(body)[at:]
