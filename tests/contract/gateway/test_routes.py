"""Every route of the data port, spoken to as its clients do."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import anthropic
import openai
import pytest

from fakes.engine import END, STREAM_HEAD, Asked, FakeEngine, chunk, hang, in_turn, plain, response, wire
from roadworthy.spec.values import Tenant
from support.gateway import KEY, TENANT, client_of, gateway_before, get, post, run, unsalted

if TYPE_CHECKING:
    from roadworthy.gateway.service import Gateway

OTHER = Tenant(id="other", key="sk-other")


def event(name: str, **fields: object) -> bytes:
    return f"event: {name}\ndata: {json.dumps({'type': name, **fields})}\n\n".encode()


MESSAGE = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn",
    "stop_sequence": None, "content": [{"type": "text", "text": "hello"}],
    "usage": {"input_tokens": 9, "output_tokens": 2},
}  # fmt: skip
MESSAGE_EVENTS = [
    event(
        "message_start",
        message={**MESSAGE, "content": [], "stop_reason": None, "usage": {"input_tokens": 9, "output_tokens": 0}},
    ),
    event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
    event("content_block_delta", index=0, delta={"type": "text_delta", "text": "hello"}),
    event("content_block_stop", index=0),
    event("message_delta", delta={"stop_reason": "end_turn", "stop_sequence": None}, usage={"output_tokens": 2}),
    event("message_stop"),
]
EMBEDDINGS = {
    "object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}],
    "usage": {"prompt_tokens": 4, "total_tokens": 4},
}  # fmt: skip


async def respond(asked: Asked) -> None:
    """A response with the id that the request names, as vLLM does."""
    body: dict[str, object] = json.loads(asked.body or b"{}")
    answer = {"id": body.get("request_id", asked.path), "object": "response", "created_at": 1, "model": "m"}
    answer |= {"status": "completed", "output": [], "parallel_tool_calls": True, "tool_choice": "auto", "tools": []}
    answer |= {"usage": {"input_tokens": 3, "output_tokens": 2, "total_tokens": 5}}
    await asked.send(response(200, json.dumps(answer).encode()))


def anthropic_client(gateway: Gateway, key: str = KEY) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=gateway.data_url, api_key=key, max_retries=0)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/embeddings", {"model": "m", "input": ["a", "b"], "encoding_format": "float"}),
        ("/v1/rerank", {"model": "m", "query": "q", "documents": ["a", {"text": "b"}], "top_n": 1}),
        ("/rerank", {"model": "m", "query": "q", "documents": ["a"]}),
        ("/v2/rerank", {"model": "m", "query": "q", "documents": ["a"]}),
        ("/v1/score", {"model": "m", "text_1": "a", "text_2": ["b", "c"]}),
        ("/score", {"model": "m", "queries": "a", "documents": ["b"]}),
    ],
)
def test_pooling_routes_reach_the_engine_with_a_salt_and_nothing_lost(path: str, body: dict[str, object]) -> None:
    async def test() -> None:
        answer = json.dumps(EMBEDDINGS).encode()
        async with FakeEngine(plain(200, answer)) as engine, gateway_before(engine) as gateway:
            async with client_of(gateway) as client:
                got = await client.ask(post(body, path=path))
            assert (got.status, got.body) == (200, answer)
            (seen,) = engine.requests
            assert (seen.path, json.loads(unsalted(seen.body))) == (path, body)
            assert gateway.status().tenants[0].prompt_tokens == 4

    run(test)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"model": "m", "prompt": "hi", "add_special_tokens": False}),
        ("/tokenize", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
        ("/detokenize", {"model": "m", "tokens": [1, 2, 3]}),
        ("/v1/messages/count_tokens", {"model": "m", "messages": [{"role": "user", "content": "hi"}]}),
    ],
)
def test_counting_routes_reach_the_engine_byte_for_byte(path: str, body: dict[str, object]) -> None:
    async def test() -> None:
        async with FakeEngine(plain(200, b'{"count":3}')) as engine, gateway_before(engine) as gateway:
            async with client_of(gateway) as client:
                assert (await client.ask(post(body, path=path))).body == b'{"count":3}'
            assert engine.requests[0].body == json.dumps(body).encode()

    run(test)


def test_the_salt_is_the_tenants_own_and_stays_the_same() -> None:
    async def salts(gateway: Gateway, engine: FakeEngine) -> list[object]:
        async with client_of(gateway) as client:
            for key in (KEY, KEY, "sk-other"):
                assert (await client.ask(post({"model": "m", "messages": []}, key=key))).status == 200
        return [one.json()["cache_salt"] for one in engine.requests]

    async def test() -> None:
        tenants = (TENANT, OTHER)
        async with FakeEngine(plain()) as engine:
            async with gateway_before(engine, tenants=tenants) as gateway:
                first, again, other = await salts(gateway, engine)
            assert first == again != other
            assert re.fullmatch(r"[0-9a-f]{32}", str(first))
            async with gateway_before(engine, tenants=tenants) as gateway:
                assert (await salts(gateway, engine))[3] == first, "a restart leaves the engines' caches warm"

    run(test)


def test_the_anthropic_client_gets_an_answer_and_its_tokens_are_counted() -> None:
    async def test() -> None:
        async with FakeEngine(plain(200, json.dumps(MESSAGE).encode())) as engine, gateway_before(engine) as gateway:
            async with anthropic_client(gateway) as client:
                message = await client.messages.create(
                    model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]
                )
            assert message.content[0].text == "hello"  # type: ignore[union-attr]
            assert json.loads(unsalted(engine.requests[0].body))["max_tokens"] == 9
            tenant = gateway.status().tenants[0]
            assert (tenant.prompt_tokens, tenant.output_tokens) == (9, 2)

    run(test)


def test_the_anthropic_client_streams_and_the_prompt_is_counted_from_the_first_event() -> None:
    async def test() -> None:
        answer = wire(STREAM_HEAD, *(chunk(one) for one in MESSAGE_EVENTS), END)
        async with FakeEngine(answer) as engine, gateway_before(engine) as gateway:
            async with (
                anthropic_client(gateway) as client,
                client.messages.stream(model="m", max_tokens=9, messages=[{"role": "user", "content": "hi"}]) as stream,
            ):
                assert await stream.get_final_text() == "hello"
            tenant = gateway.status().tenants[0]
            assert (tenant.prompt_tokens, tenant.output_tokens, tenant.output_tokens_estimated) == (9, 2, 0)

    run(test)


def test_the_anthropic_client_reads_our_errors_as_its_own_kinds() -> None:
    async def test() -> None:
        async with FakeEngine(plain(503, b"")) as engine, gateway_before(engine) as gateway:
            ask = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}
            async with anthropic_client(gateway, "sk-wrong") as client:
                with pytest.raises(anthropic.AuthenticationError):
                    await client.messages.create(**ask)  # type: ignore[call-overload]
            async with anthropic_client(gateway) as client:
                with pytest.raises(anthropic.NotFoundError, match="no engine serves"):
                    await client.messages.create(**{**ask, "model": "other"})  # type: ignore[call-overload]
                with pytest.raises(anthropic.BadRequestError, match="max_tokens"):
                    await client.messages.create(**{**ask, "max_tokens": -1})  # type: ignore[call-overload]
                with pytest.raises(anthropic.InternalServerError) as busy:
                    await client.messages.create(**ask)  # type: ignore[call-overload]
            assert busy.value.body["type"] == "error"  # type: ignore[index, call-overload]
            assert busy.value.body["error"]["type"] == "overloaded_error"  # type: ignore[index, call-overload]

    run(test)


def test_a_message_stream_that_dies_ends_with_anthropics_error_event() -> None:
    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, chunk(MESSAGE_EVENTS[0]), cut=True)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            body: dict[str, object] = {"model": "m", "stream": True, "messages": []}
            answer = await client.ask(post(body, path="/v1/messages"))
            start, _, end = answer.body.partition(MESSAGE_EVENTS[0])
            assert start == b""
            assert end.startswith(b'event: error\ndata: {"type":"error","error":{"type":"api_error"')

    run(test)


def test_the_openai_client_embeds_and_responds() -> None:
    async def test() -> None:
        answers = in_turn(plain(200, json.dumps(EMBEDDINGS).encode()), respond)
        async with FakeEngine(answers) as engine, gateway_before(engine) as gateway:
            async with openai.AsyncOpenAI(base_url=f"{gateway.data_url}/v1", api_key=KEY, max_retries=0) as client:
                vectors = await client.embeddings.create(model="m", input="hi", encoding_format="float")
                assert vectors.data[0].embedding == [0.5, 0.25]
                made = await client.responses.create(model="m", input="hi")
                assert (await client.responses.retrieve(made.id)).id == f"/v1/responses/{made.id}"
                assert (await client.responses.cancel(made.id)).id == f"/v1/responses/{made.id}/cancel"
                follow = await client.responses.create(model="m", input="and?", previous_response_id=made.id)
                assert follow.id != made.id
            tenant = gateway.status().tenants[0]
            assert (tenant.prompt_tokens, tenant.output_tokens) == (4 + 3 * 4, 2 * 4)

    run(test)


def test_a_response_belongs_to_its_tenant_and_is_asked_for_where_it_is_kept() -> None:
    async def test() -> None:
        async with (
            FakeEngine(respond) as first,
            FakeEngine(respond) as second,
            gateway_before(first, second, tenants=(TENANT, OTHER)) as gateway,
            client_of(gateway) as client,
        ):
            ids = []
            for _ in range(4):
                made = await client.ask(post({"model": "m", "input": "x"}, path="/v1/responses"))
                ids.append(made.json()["id"])
            made_by = {one.json()["request_id"]: engine for engine in (first, second) for one in engine.requests}
            assert set(made_by) == set(ids)
            assert {id(one) for one in made_by.values()} == {id(first), id(second)}
            for response_id in ids:
                engine = made_by[response_id]
                before = len(engine.requests)
                for method in ("GET", "DELETE"):
                    request = get(f"/v1/responses/{response_id}").replace(b"GET", method.encode())
                    assert (await client.ask(request)).status == 200
                assert [one.path for one in engine.requests[before:]] == [f"/v1/responses/{response_id}"] * 2
            seen = len(first.requests) + len(second.requests)
            forged = ids[0][:-1] + ("1" if ids[0].endswith("0") else "0")
            refused = [
                await client.ask(get(f"/v1/responses/{ids[0]}", key="sk-other")),
                await client.ask(get(f"/v1/responses/{forged}")),
                await client.ask(get("/v1/responses/resp_1")),
                await client.ask(get("/v1/responses/..%2f..%2fmetrics")),
                await client.ask(
                    post({"model": "m", "previous_response_id": ids[0]}, path="/v1/responses", key="sk-other")
                ),
            ]
            assert [(one.status, one.code) for one in refused] == [(404, "response_not_found")] * 5
            assert len(first.requests) + len(second.requests) == seen, "none of them reached an engine"

    run(test)


def test_an_adapter_is_a_model_with_a_list_of_its_own() -> None:
    async def test() -> None:
        limited = Tenant(id="limited", key="sk-limited", models=("base-lora",))
        async with (
            FakeEngine(plain(), models=("base", "base-lora")) as engine,
            gateway_before(engine, tenants=(TENANT, limited)) as gateway,
            client_of(gateway) as client,
        ):
            cards = (await client.ask(get("/v1/models", key="sk-limited"))).json()["data"]
            assert [one["id"] for one in cards] == ["base-lora"]
            body: dict[str, object] = {"model": "base-lora", "messages": []}
            assert (await client.ask(post(body, key="sk-limited"))).status == 200
            refused = await client.ask(post({**body, "model": "base"}, key="sk-limited"))
            assert (refused.status, refused.code) == (403, "model_not_allowed")

    run(test)


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        pytest.param(
            b'{"error":{"message":"bad, see http://10.1.2.3:8000/v1 and /srv/models/x.py","code":400}}',
            b'{"error":{"message":"bad, see [hidden] and [hidden]","code":400}}',
            id="addresses and paths",
        ),
        pytest.param(
            b'{"error":{"message":"node-7.rack:29500 failed, 1/2 of [fd00::1]:80","code":400}}',
            b'{"error":{"message":"[hidden] failed, 1/2 of [hidden]","code":400}}',
            id="host and port",
        ),
        pytest.param(
            b'{"error":{"message":"max_tokens=5 > 4.5, and/or 12:30","code":400}}',
            b'{"error":{"message":"max_tokens=5 > 4.5, and/or 12:30","code":400}}',
            id="nothing to hide",
        ),
    ],
)
def test_an_engines_refusal_is_readable_and_tells_no_address(said: bytes, shown: bytes) -> None:
    async def test() -> None:
        async with FakeEngine(plain(400, said)) as engine, gateway_before(engine) as gateway:
            async with client_of(gateway) as client:
                answer = await client.ask(post({"model": "m", "messages": []}))
            assert (answer.status, answer.body) == (400, shown)

    run(test)


def test_a_refusal_that_is_no_json_becomes_ours() -> None:
    async def test() -> None:
        async with FakeEngine(plain(404, b"<h1>nginx at 10.0.0.7</h1>")) as engine, gateway_before(engine) as gateway:
            async with client_of(gateway) as client:
                answer = await client.ask(post({"model": "m", "messages": []}))
            assert (answer.status, answer.code) == (404, "engine_refused")
            assert b"10.0.0.7" not in answer.body

    run(test)


def test_each_route_has_its_own_limit_of_a_body() -> None:
    async def test() -> None:
        async with FakeEngine(plain()) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            head = post(b"", path="/tokenize").replace(b"Content-Length: 0", b"Content-Length: 2097153")
            answer = await client.ask(head)
            assert (answer.status, answer.code) == (413, "body_too_large")
            assert not engine.requests

    run(test)


def test_a_silent_engine_is_given_up_after_the_time_to_a_first_byte() -> None:
    from roadworthy.gateway.data.limits import Limits

    async def test() -> None:
        limits = Limits(first_byte_s=0.05, sweep_s=0.01)
        async with FakeEngine(hang()) as engine, gateway_before(engine, limits=limits) as gateway:
            async with client_of(gateway) as client:
                answer = await client.ask(post({"model": "m", "messages": []}))
            assert (answer.status, answer.code) == (504, "engine_timeout")
            async with client_of(gateway) as client:
                engine.answer = hang(STREAM_HEAD, chunk(b"data: 1\n\n"))
                client.send(post({"model": "m", "messages": [], "stream": True}))
                await client.head()
                assert await client.chunk() == b"data: 1\n\n"
                # silence after the first byte is another limit, of ten minutes: the stream goes on until we leave

    run(test)
