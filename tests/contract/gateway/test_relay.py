"""What reaches the client and the engine, byte for byte."""

from __future__ import annotations

import json
from itertools import pairwise

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fakes.engine import (
    END,
    STREAM_HEAD,
    FakeEngine,
    chat_events,
    chunk,
    completion,
    hang,
    in_turn,
    plain,
    response,
    stream_of,
    wire,
)
from roadworthy.spec.values import Tenant
from support.gateway import KEY, chat, client_of, gateway_before, get, post, run, unsalted

EVENTS = chat_events("Grüße, ", "wörld 🚗", "!", usage=(7, 3))
STREAM = b"".join(EVENTS)


def test_a_stream_arrives_byte_for_byte_and_chunk_for_chunk() -> None:
    async def test() -> None:
        async with (
            FakeEngine(stream_of(EVENTS)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.body) == (200, STREAM)
            again = await client.ask(post(chat()))
            assert again.body == STREAM
            assert engine.connections == 1 + 1, "one connection for both requests, one for the first probes"

    run(test)


@settings(max_examples=30, deadline=None)
@given(cuts=st.lists(st.integers(1, len(STREAM) - 1), max_size=12, unique=True), http_cut=st.integers(1, 60))
def test_a_stream_split_anywhere_arrives_whole(cuts: list[int], http_cut: int) -> None:
    """TCP and HTTP framing may cut an event, a character or a line end; the client gets the same bytes."""
    edges = [0, *sorted(cuts), len(STREAM)]
    framed = b"".join(chunk(STREAM[start:end]) for start, end in pairwise(edges)) + END
    pieces = [framed[at : at + http_cut] for at in range(0, len(framed), http_cut)]

    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, *pieces)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
        assert answer.body == STREAM
        assert all(part.endswith(b"\n\n") for part in answer.chunks), "only whole events are passed on"

    run(test)


def test_crlf_comments_and_multi_line_data_pass_unchanged() -> None:
    stream = b": ping\r\n\r\ndata: {\r\ndata: }\r\n\r\nevent: x\r\n: note\r\ndata: 1\r\n\r\ndata: [DONE]\r\n\r\n"

    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, *(chunk(stream[i : i + 1]) for i in range(len(stream))), END)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat()))).body == stream

    run(test)


def test_a_stream_that_ends_without_a_blank_line_is_not_mended() -> None:
    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, chunk(b"data: 1\n\ndata: half"), END)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat()))).body == b"data: 1\n\ndata: half"

    run(test)


def test_a_plain_answer_is_relayed_with_its_status_and_only_our_headers() -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(post(chat(stream=False)))
            assert (answer.status, answer.body) == (200, completion())
            assert set(answer.headers) == {
                "content-type", "content-length", "x-request-id", "x-roadworthy-decision", "x-roadworthy-model",
            }  # fmt: skip
            assert answer.headers["x-roadworthy-decision"] == "routed"
            assert answer.headers["x-roadworthy-model"] == "m"

    run(test)


def test_the_engines_4xx_is_the_clients_to_read() -> None:
    body = b'{"error": {"message": "max_tokens is too large", "type": "BadRequestError", "code": 400}}'

    async def test() -> None:
        async with (
            FakeEngine(plain(400, body)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.body) == (400, body)

    run(test)


def test_the_engine_sees_our_framing_and_none_of_the_clients_headers() -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    sent = [
        "X-Vllm-Priority: -5", "X-data-parallel-rank: 1", "X-Session-ID: s", "X-Request-Id: mine",
        "Cookie: c=1",
        "Connection: keep-alive, X-Secret", "X-Secret: s", "endpoint-load-metrics-format: TEXT",
        f"traceparent: {trace}",
        "Content-Type: text/plain",
    ]  # fmt: skip

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(post(chat(stream=False), path="/v1/completions?debug=1", headers=sent))
            (seen,) = engine.requests
            headers = dict(seen.headers)
            assert len(headers) == len(seen.headers)
            assert set(headers) == {"host", "content-type", "content-length", "x-request-id", "traceparent"}
            assert headers["host"] == engine.url.removeprefix("http://")
            assert headers["content-type"] == "application/json"
            assert headers["traceparent"] == trace
            assert headers["x-request-id"] == answer.headers["x-request-id"] != "mine"
            assert seen.path == "/v1/completions"

    run(test)


def test_the_body_reaches_the_engine_byte_for_byte() -> None:
    body = b'{ "model" :"m",\r\n "messages":[{"role":"user","content":"\\u00e9 \xc3\xa9"}] , "seed":1e400 }'

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            await client.ask(post(body))
            assert unsalted(engine.requests[0].body) == body

    run(test)


def test_fields_that_steer_the_engine_are_dropped_and_the_rest_kept() -> None:
    kept = chat(stream=False, temperature=0.5, chat_template_kwargs={"enable_thinking": False})
    asked = {
        **kept, "priority": -1, "cache_salt": "x", "request_id": "r", "kv_transfer_params": {}, "vllm_xargs": {},
        "chat_template": "{{ x }}", "prompt_embeds": "AA",
        "chat_template_kwargs": {"enable_thinking": False, "builtins": "x"},
    }  # fmt: skip

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            await client.ask(post(asked))
            assert json.loads(unsalted(engine.requests[0].body)) == kept

    run(test)


def test_a_chunked_request_body_is_decoded() -> None:
    body = json.dumps(chat(stream=False)).encode()
    head = (
        f"POST /v1/chat/completions HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {KEY}\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            framed = b"".join(chunk(body[at : at + 7]) for at in range(0, len(body), 7)) + b"0\r\n\r\n"
            assert (await client.ask(head.encode() + framed)).status == 200
            seen = engine.requests[0]
            assert unsalted(seen.body) == body
            assert seen.header("content-length") == str(len(seen.body))

    run(test)


def test_a_client_that_waits_for_100_continue_gets_it() -> None:
    request = post(chat(stream=False), headers=["Expect: 100-continue"])
    head, _, body = request.partition(b"\r\n\r\n")

    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            client.send(head + b"\r\n\r\n")
            assert (await client.head())[0] == 100
            client.send(body)
            assert (await client.response()).status == 200

    run(test)


def test_pipelined_requests_are_answered_in_order() -> None:
    slow = stream_of(chat_events("first"))

    async def test() -> None:
        async with (
            FakeEngine(in_turn(slow, plain())) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat()) + get("/v1/models") + post(chat(stream=False)) + get("/nowhere"))
            first, models, second, nowhere = [await client.response() for _ in range(4)]
            assert first.body == b"".join(chat_events("first"))
            assert models.json()["object"] == "list"
            assert second.body == completion()
            assert nowhere.code == "not_found"
            assert [seen.json()["stream"] for seen in engine.requests] == [True, False]

    run(test)


def test_bytes_sent_during_a_stream_are_the_next_request() -> None:
    events = chat_events("x")

    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            ahead = post(chat())

            async def answer(asked) -> None:  # type: ignore[no-untyped-def]
                await asked.send(STREAM_HEAD + chunk(events[0]))
                client.send(ahead[:20])
                await stream_rest(asked)

            async def stream_rest(asked) -> None:  # type: ignore[no-untyped-def]
                for event in events[1:]:
                    await asked.send(chunk(event))
                await asked.send(END)

            engine.answer = in_turn(answer, stream_of(events))
            assert (await client.ask(post(chat()))).body == b"".join(events)
            client.send(ahead[20:])
            assert (await client.response()).body == b"".join(events)

    run(test)


def test_an_http_1_0_client_gets_the_stream_until_the_connection_closes() -> None:
    async def test() -> None:
        async with (
            FakeEngine(stream_of(EVENTS)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat()).replace(b"HTTP/1.1", b"HTTP/1.0"))
            status, headers = await client.head()
            assert status == 200
            assert "transfer-encoding" not in headers
            assert await client.reader.read() == STREAM

    run(test)


def test_connection_close_is_honoured() -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(post(chat(stream=False), headers=["Connection: close"]))
            assert answer.headers["connection"] == "close"
            assert await client.at_end()

    run(test)


def test_an_answer_without_a_length_ends_with_its_connection() -> None:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n"

    async def test() -> None:
        async with (
            FakeEngine(wire(head, completion(), cut=True)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False)))).body == completion()

    run(test)


def test_models_are_merged_and_only_those_of_the_tenant() -> None:
    tenants = (Tenant(id="all", key="k-all"), Tenant(id="one", key="k-one", models=("b",)))

    async def test() -> None:
        async with (
            FakeEngine(models=("a", "b")) as first,
            FakeEngine(models=("b", "c")) as second,
            gateway_before(first, second, tenants=tenants) as gateway,
            client_of(gateway) as client,
        ):
            everything = await client.ask(get("/v1/models", key="k-all"))
            assert [card["id"] for card in everything.json()["data"]] == ["a", "b", "c"]
            assert b"secret" not in everything.body, "a card's root tells a path on the engine's host"
            one = await client.ask(get("/v1/models", key="k-one"))
            assert [card["id"] for card in one.json()["data"]] == ["b"]

    run(test)


def test_a_request_goes_to_the_engine_that_serves_its_model() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain(), models=("a",)) as first,
            FakeEngine(plain(), models=("b",)) as second,
            gateway_before(first, second) as gateway,
            client_of(gateway) as client,
        ):
            for _ in range(3):
                assert (await client.ask(post(chat(stream=False, model="b")))).status == 200
            assert (len(first.requests), len(second.requests)) == (0, 3)
            missing = await client.ask(post(chat(model="c")))
            assert (missing.status, missing.code) == (404, "model_not_found")

    run(test)


def test_load_spreads_over_engines_by_requests_in_flight() -> None:
    async def test() -> None:
        async with FakeEngine(hang(STREAM_HEAD, chunk(EVENTS[0]))) as first, FakeEngine() as second:
            second.answer = first.answer
            async with (
                gateway_before(first, second) as gateway,
                client_of(gateway) as a,
                client_of(gateway) as b,
                client_of(gateway) as c,
                client_of(gateway) as d,
            ):
                for client in (a, b, c, d):
                    client.send(post(chat()))
                    await client.head()
                assert (len(first.requests), len(second.requests)) == (2, 2)

    run(test)


def test_the_openai_client_streams_through_the_gateway() -> None:
    async def test() -> None:
        async with (
            FakeEngine(stream_of(EVENTS)) as engine,
            gateway_before(engine) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.data_url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            stream = await client.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "hi"}], stream=True
            )
            text = "".join([part.choices[0].delta.content or "" async for part in stream if part.choices])
            assert text == "Grüße, wörld 🚗!"
            assert [model.id async for model in client.models.list()] == ["m"]

    run(test)


def test_the_openai_client_reads_our_errors_as_its_own_kinds() -> None:
    async def test() -> None:
        async with (
            FakeEngine() as engine,
            gateway_before(engine) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.data_url}/v1", api_key="wrong", max_retries=0) as client,
        ):
            with pytest.raises(openai.AuthenticationError) as refused:
                await client.models.list()
            assert refused.value.code == "invalid_api_key"

    run(test)


def test_a_failed_answer_in_mid_air_is_not_mixed_into_the_next() -> None:
    """An engine that sends more than its length loses the connection, and the next request gets its own answer."""

    async def test() -> None:
        async with (
            FakeEngine(in_turn(wire(response(200, completion()) + b"HTTP/1.1 200 OK\r\n"), plain())) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False)))).body == completion()
            assert (await client.ask(post(chat(stream=False)))).body == completion()

    run(test)
