"""A span for each request, as a collector receives it over OTLP."""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from fakes.engine import FakeEngine, chat_events, plain, stream_of
from roadworthy.gateway.config import GatewayConfig
from roadworthy.gateway.service import Gateway
from support.gateway import TENANT, chat, client_of, post, run

TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


class Collector(asyncio.Protocol):
    """Keeps the spans that it gets."""

    spans: list[Any]

    def __init__(self, spans: list[Any]) -> None:
        self.spans = spans
        self.body = b""
        self.path = b""
        self.parser = httptools.HttpRequestParser(self)

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self.path, self.body = url, b""

    def on_body(self, part: bytes) -> None:
        self.body += part

    def on_message_complete(self) -> None:
        assert self.path == b"/v1/traces"
        for resource in ExportTraceServiceRequest.FromString(self.body).resource_spans:
            for scope in resource.scope_spans:
                self.spans += [(resource, span) for span in scope.spans]
        self.transport.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")


def values_of(attributes: Any) -> dict[str, Any]:
    return {one.key: getattr(one.value, one.value.WhichOneof("value")) for one in attributes}


def test_the_profile_of_a_request_is_in_its_span_and_the_engines_is_its_child() -> None:
    spans: list[Any] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        collector = await loop.create_server(lambda: Collector(spans), "127.0.0.1", 0)
        port = collector.sockets[0].getsockname()[1]
        async with FakeEngine(stream_of(chat_events(*"ab" * 15, usage=(7, 30)))) as engine:
            config = GatewayConfig(endpoints=(engine.url,), tenants=(TENANT,), otlp_endpoint=f"http://127.0.0.1:{port}")
            async with Gateway(config) as gateway, client_of(gateway) as client:
                traced = [f"traceparent: 00-{TRACE}-{PARENT}-01"]
                answer = await client.ask(post(chat(), headers=traced))
                await client.ask(post(chat(), headers=[f"traceparent: 00-{TRACE}-{PARENT}-00"]))
                engine.answer = plain(500)
                await client.ask(post(chat(stream=False)))
            told = [one.header("traceparent") for one in engine.requests]
        collector.close()
        await collector.wait_closed()

        (resource, span), (_, failed) = sorted(spans, key=lambda one: one[1].start_time_unix_nano)
        assert values_of(resource.resource.attributes)["service.name"] == "roadworthy-gateway"
        assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, PARENT)
        assert told[0] == f"00-{TRACE}-{span.span_id.hex()}-01", "the engine's span is a child of ours"
        assert told[1] is not None
        assert told[1].endswith("-00"), "what the caller does not sample is not sampled"
        found = values_of(span.attributes)
        assert span.name == "chat m"
        assert found["gen_ai.operation.name"] == "chat"
        assert found["gen_ai.provider.name"] == "vllm"
        assert found["gen_ai.request.model"] == "m"
        assert (found["gen_ai.usage.input_tokens"], found["gen_ai.usage.output_tokens"]) == (7, 30)
        assert found["gen_ai.server.time_to_first_token"] > 0
        assert found["roadworthy.tenant"] == "acme"
        assert found["roadworthy.decision"] == "routed"
        assert found["roadworthy.endpoint"] == engine.url
        assert found["roadworthy.request_id"] == answer.headers["x-request-id"]
        assert found["roadworthy.itl_p99_s"] >= 0
        assert span.end_time_unix_nano > span.start_time_unix_nano
        assert "error.type" not in found
        assert failed.trace_id.hex() != TRACE
        assert values_of(failed.attributes)["error.type"] == "engine_error"
        assert failed.status.code == failed.status.STATUS_CODE_ERROR

    run(test)
