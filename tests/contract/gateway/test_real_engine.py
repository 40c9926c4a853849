"""The gateway before real vLLM: streams arrive, and work stops when the client leaves."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any, Protocol

import anthropic
import openai
import pytest

from roadworthy.gateway import probe
from roadworthy.gateway.endpoints import host_and_port
from roadworthy.gateway.poller import load_of
from roadworthy.spec.values import Tenant
from support.gateway import KEY, TENANT, RawClient, client_of, gateway_before, post, run, until

if TYPE_CHECKING:
    from roadworthy.gateway.service import Gateway


class RunningEngine(Protocol):
    """What is used of the ``vllm_engine`` fixture."""

    url: str


pytestmark = pytest.mark.engine

LONG: dict[str, Any] = {
    "model": "tiny",
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 3000,
    "ignore_eos": True,
}


async def metrics(url: str) -> bytes:
    host, port = host_and_port(url)
    return (await probe.get(host, port, f"{host}:{port}", "/metrics", timeout_s=20)).body


async def running(url: str) -> int:
    return load_of(await metrics(url))[0]


async def tokens_said(url: str) -> float:
    """Tokens that the engine has generated so far, once it runs nothing."""
    async with asyncio.timeout(20):
        while await running(url):
            await asyncio.sleep(0.02)
    found = re.search(rb"^vllm:generation_tokens_total\{[^}]*\} (\S+)", await metrics(url), re.MULTILINE)
    assert found is not None
    return float(found[1])


async def plain_request_running(client: RawClient, url: str) -> None:
    """Send plain requests until vLLM is seen running one.

    On a busy CPU vLLM's API process may not get to ``/metrics`` before a tiny model has said all its tokens.
    """
    for _ in range(8):
        client.send(post(LONG))
        answer = asyncio.ensure_future(client.response())
        while not answer.done():
            if await running(url):
                answer.cancel()
                return
    pytest.fail("vLLM was never seen running a plain request")


def test_the_openai_client_streams_from_real_vllm(vllm_engine: RunningEngine) -> None:
    async def test() -> None:
        async with (
            gateway_before(vllm_engine.url) as gateway,
            openai.AsyncOpenAI(base_url=f"{gateway.data_url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            assert [model.id async for model in client.models.list()] == ["tiny"]
            stream = await client.chat.completions.create(
                model="tiny",
                messages=[{"role": "user", "content": "hello"}],
                max_tokens=20,
                stream=True,
                stream_options={"include_usage": True},
                extra_body={"ignore_eos": True, "priority": 5},
            )
            parts = [part async for part in stream]
            assert parts[-1].usage is not None
            assert parts[-1].usage.completion_tokens == 20
            plain = await client.completions.create(
                model="tiny", prompt="a b c", max_tokens=5, extra_body={"ignore_eos": True}
            )
            assert plain.usage is not None
            tenant = gateway.status().tenants[0]
            assert tenant.output_tokens == 20 + 5
            assert tenant.output_tokens_estimated == 0
            assert tenant.prompt_tokens == parts[-1].usage.prompt_tokens + plain.usage.prompt_tokens

    run(test)


def test_the_anthropic_client_speaks_to_real_vllm(vllm_engine: RunningEngine) -> None:
    async def test() -> None:
        async with (
            gateway_before(vllm_engine.url) as gateway,
            anthropic.AsyncAnthropic(base_url=gateway.data_url, api_key=KEY, max_retries=0) as client,
        ):
            messages: list[anthropic.types.MessageParam] = [{"role": "user", "content": "hello"}]
            plain = await client.messages.create(model="tiny", max_tokens=6, messages=messages)
            assert 0 < plain.usage.output_tokens <= 6
            counted = await client.messages.count_tokens(model="tiny", messages=messages)
            assert counted.input_tokens == plain.usage.input_tokens
            async with client.messages.stream(model="tiny", max_tokens=6, messages=messages) as stream:
                final = await stream.get_final_message()
            assert 0 < final.usage.output_tokens <= 6
            tenant = gateway.status().tenants[0]
            assert tenant.prompt_tokens == 2 * plain.usage.input_tokens
            assert tenant.output_tokens == plain.usage.output_tokens + final.usage.output_tokens
            assert tenant.output_tokens_estimated == 0

    run(test)


def test_responses_and_tokens_of_real_vllm(vllm_engine: RunningEngine) -> None:
    async def test() -> None:
        async with (
            gateway_before(vllm_engine.url) as gateway,
            client_of(gateway) as raw,
            openai.AsyncOpenAI(base_url=f"{gateway.data_url}/v1", api_key=KEY, max_retries=0) as client,
        ):
            made = await client.responses.create(model="tiny", input="hello", max_output_tokens=6)
            assert re.fullmatch(r"resp_[0-9a-f]{64}", made.id), "the id is the one that the gateway made"
            assert made.usage is not None
            events = [
                one
                async for one in await client.responses.create(
                    model="tiny", input="hello", max_output_tokens=6, stream=True
                )
            ]
            last = events[-1]
            assert last.type in ("response.completed", "response.incomplete")
            assert last.response.usage is not None
            tenant = gateway.status().tenants[0]
            assert tenant.output_tokens == made.usage.output_tokens + last.response.usage.output_tokens
            assert tenant.output_tokens_estimated == 0
            tokens = (await raw.ask(post({"model": "tiny", "prompt": "a b"}, path="/tokenize"))).json()["tokens"]
            text = await raw.ask(post({"model": "tiny", "tokens": tokens}, path="/detokenize"))
            assert text.status == 200

    run(test)


def test_real_vllm_takes_every_field_that_is_put_in_front(vllm_engine: RunningEngine) -> None:
    """The same prompt under two tenants' salts shares nothing, under one tenant's it does."""
    tenants = (TENANT, Tenant(id="other", key="sk-other"))
    body = {**LONG, "max_tokens": 1, "messages": [{"role": "user", "content": "salted " * 400}]}

    async def hits(url: str) -> float:
        found = re.search(rb"^vllm:prefix_cache_hits_total\{[^}]*\} (\S+)", await metrics(url), re.MULTILINE)
        assert found is not None
        return float(found[1])

    async def test() -> None:
        async with gateway_before(vllm_engine.url, tenants=tenants) as gateway, client_of(gateway) as client:
            seen = []
            for key in (KEY, "sk-other", KEY):
                assert (await client.ask(post(body, key=key))).status == 200
                seen.append(await hits(vllm_engine.url))
            assert seen[1] == seen[0], "another tenant finds nothing"
            assert seen[2] > seen[1], "the same one does"

    run(test)


def test_the_engines_request_id_is_ours(vllm_engine: RunningEngine) -> None:
    async def test() -> None:
        async with gateway_before(vllm_engine.url) as gateway, client_of(gateway) as client:
            answer = await client.ask(post({**LONG, "max_tokens": 2}))
            assert answer.json()["id"] == f"chatcmpl-{answer.headers['x-request-id']}"

    run(test)


def test_the_engines_refusal_of_a_request_reaches_the_client(vllm_engine: RunningEngine) -> None:
    async def test() -> None:
        async with gateway_before(vllm_engine.url) as gateway, client_of(gateway) as client:
            answer = await client.ask(post({**LONG, "temperature": -1}))
            assert answer.status == 400
            assert "temperature" in answer.json()["error"]["message"]

    run(test)


@pytest.mark.parametrize("phase", ["before the first token", "mid-stream", "plain"])
def test_real_vllm_stops_work_when_the_client_leaves(vllm_engine: RunningEngine, phase: str) -> None:
    async def before_the_first_token(gateway: Gateway, client: RawClient) -> None:
        client.send(post({**LONG, "stream": True}))
        # leave as soon as the request has been sent to the engine
        await until(lambda: gateway.status().endpoints[0].in_flight > 0)

    async def mid_stream(gateway: Gateway, client: RawClient) -> None:
        client.send(post({**LONG, "stream": True}))
        await client.head()
        for _ in range(3):
            assert json.loads((await client.chunk()).split(b"\n\n")[0].removeprefix(b"data: "))["choices"]

    async def plain(gateway: Gateway, client: RawClient) -> None:
        await plain_request_running(client, vllm_engine.url)

    act = {"before the first token": before_the_first_token, "mid-stream": mid_stream, "plain": plain}[phase]

    async def test() -> None:
        async with gateway_before(vllm_engine.url) as gateway, client_of(gateway) as client:
            before = await tokens_said(vllm_engine.url)
            await act(gateway, client)
            client.leave()
            await asyncio.sleep(0.05)  # the engine may only now have read the request
            assert await tokens_said(vllm_engine.url) - before < LONG["max_tokens"]

    run(test, limit_s=100)
