"""A span for each request: the engine's own becomes its child, and the request's profile is in its attributes.

Spans are made of the record when a request is over, and exported by the SDK's batch processor on a thread of its own.
What it cannot take is dropped and counted; it never holds up the relay.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Any

from roadworthy.core.errors import Unsupported
from roadworthy.gateway import genai

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.gateway.data.record import RequestRecord

QUEUE_SPANS = 4096
"""Spans waiting to be exported; more are dropped."""

_FIELDS = (
    "prompt_tokens", "cached_tokens", "kv_blocks_estimate", "queue_s", "prefill_s", "decode_s", "itl_p99_s",
    "io_wait_s", "waited_s", "decision", "by", "endpoint", "attempts", "ending",
)  # fmt: skip


class Tracer:
    """Says under which trace a request runs, and exports its span when it is over.

    Args:
        processor: an OpenTelemetry span processor.
        now_s: the clock of the records, which only rises.
        worker: which of several processes this is.
    """

    def __init__(self, processor: Any, *, now_s: Any = time.monotonic, worker: str = "0") -> None:
        from opentelemetry.sdk.resources import Resource

        self._processor = processor
        self._now_s = now_s
        self._resource = Resource.create({"service.name": genai.SERVICE, "service.instance.id": worker})
        self.dropped = 0

    @classmethod
    def to_collector(cls, endpoint: str, *, worker: str = "0") -> Tracer:
        """Spans go to the OTLP/HTTP collector at ``endpoint``. Raises Unsupported without the extra ``otel``."""
        try:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise Unsupported(f"spans need {error.name}", hint="pip install 'roadworthy[otel]'") from error
        url = endpoint if endpoint.rstrip("/").endswith("/v1/traces") else endpoint.rstrip("/") + "/v1/traces"
        exporter = OTLPSpanExporter(endpoint=url)
        return cls(BatchSpanProcessor(exporter, max_queue_size=QUEUE_SPANS), worker=worker)

    def begin(self, traceparent: bytes | None) -> tuple[bytes, str]:
        """The ``traceparent`` for the engine, and the word by which ``export`` finds trace, span and parent again."""
        span = os.urandom(8).hex()
        if traceparent is None:
            trace, parent, flags = os.urandom(16).hex(), "", "01"
        else:
            _, trace, parent, flags = traceparent.decode("ascii").split("-")[:4]
        return f"00-{trace}-{span}-{flags}".encode("ascii"), f"{trace}-{span}-{parent}-{flags}"

    def export(self, records: Sequence[RequestRecord]) -> None:
        """Hand over the spans of requests that are over."""
        offset_s = time.time() - self._now_s()
        for record in records:
            if record.trace:
                self._export(record, offset_s)

    def _export(self, record: RequestRecord, offset_s: float) -> None:
        from opentelemetry.sdk.trace import ReadableSpan
        from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

        trace, span, parent, flags = record.trace.split("-")
        if not int(flags, 16) & 1:
            return  # the caller decided not to sample
        context = SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=TraceFlags(1))
        above = SpanContext(int(trace, 16), int(parent, 16), is_remote=True) if parent else None
        operation = genai.OPERATIONS.get(record.operation, record.operation)
        start_s = record.started_s + offset_s
        failed = record.status >= 500 or record.ending in ("engine_error", "engine_timeout", "client_stalled")
        before = self._waiting()
        self._processor.on_end(
            ReadableSpan(
                name=f"{operation} {record.model}".strip(),
                context=context,
                parent=above,
                resource=self._resource,
                attributes=attributes(record),
                kind=SpanKind.SERVER,
                status=Status(StatusCode.ERROR, record.ending) if failed else Status(StatusCode.UNSET),
                start_time=int(start_s * 1e9),
                end_time=int((start_s + record.duration_s) * 1e9),
            )
        )
        if before >= QUEUE_SPANS:
            self.dropped += 1

    def _waiting(self) -> int:
        inner = getattr(self._processor, "_batch_processor", None)
        queue = getattr(inner, "_queue", None)
        return len(queue) if queue is not None else 0

    def close(self) -> None:
        """Export what is left, for a few seconds at most."""
        self._processor.force_flush(3000)
        self._processor.shutdown()


def attributes(record: RequestRecord) -> dict[str, Any]:
    """A span's attributes: the conventions' own, and the profile under ``roadworthy.``."""
    found: dict[str, Any] = {
        genai.OPERATION: genai.OPERATIONS.get(record.operation, record.operation),
        genai.PROVIDER: genai.PROVIDER_VLLM,
        genai.REQUEST_MODEL: record.model,
        genai.HTTP_STATUS: record.status,
        genai.INPUT_TOKENS: record.prompt_tokens,
        genai.OUTPUT_TOKENS: record.output_tokens,
        genai.CACHED_TOKENS: record.cached_tokens,
        genai.OURS + "tenant": record.tenant_id,
        genai.OURS + "request_id": record.request_id,
    }
    if record.ttft_s is not None:
        found[genai.TIME_TO_FIRST_TOKEN] = record.ttft_s
    if record.ending != "ok":
        found[genai.ERROR_TYPE] = record.ending
    for name in _FIELDS:
        value = getattr(record, name)
        if value not in (None, ""):
            found[genai.OURS + name] = value
    return found
