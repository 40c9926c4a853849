"""Exact billing before real vLLM: clients see what vLLM would have sent them, and are billed the tokens they got."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Protocol

import pytest

from roadworthy.gateway.stores import Stores
from roadworthy.spec.governance_values import GovernanceSpec
from support.gateway import LIMIT_S, RawClient, client_of, gateway_before, post, run, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from roadworthy.route.ledger import LedgerRow


class RunningEngine(Protocol):
    """What is used of the ``vllm_engine`` fixture."""

    url: str


pytestmark = pytest.mark.engine

EXACT = GovernanceSpec(billing="exact")
GREEDY = {"model": "tiny", "temperature": 0, "max_tokens": 12, "ignore_eos": True, "stream": True, "seed": 3}
CHAT = {**GREEDY, "messages": [{"role": "user", "content": "hello there"}]}
BODIES = [
    pytest.param("/v1/chat/completions", CHAT, id="chat"),
    pytest.param(
        "/v1/chat/completions", {**CHAT, "n": 2, "temperature": 0.7, "logprobs": True}, id="choices, logprobs"
    ),
    pytest.param("/v1/chat/completions", {**CHAT, "return_token_ids": True}, id="token ids"),
    pytest.param("/v1/completions", {**GREEDY, "prompt": "once upon"}, id="completion"),
    pytest.param("/v1/completions", {**GREEDY, "prompt": ["a b", "c d e"], "echo": True}, id="prompts, echo"),
]


class Rows:
    """A ledger in memory."""

    waiting = dropped = 0
    failing = ""
    full = False

    def __init__(self) -> None:
        self.rows: list[LedgerRow] = []

    @property
    def settled(self) -> int:
        return len(self.rows)

    def put(self, rows: Sequence[LedgerRow]) -> None:
        self.rows.extend(rows)

    def close(self, timeout_s: float) -> None:
        pass


def said(stream: bytes) -> tuple[dict[int, str], set[tuple[str, ...]], int, bytes]:
    """Each choice's text, every shape that an event has, the events without choices, and how the stream ends.

    Not event by event: a busy vLLM puts several tokens into one.
    """
    texts: dict[int, str] = {}
    shapes: set[tuple[str, ...]] = set()
    finals = 0
    *chunks, last, _ = stream.split(b"\n\n")
    for chunk in chunks:
        value = json.loads(chunk.removeprefix(b"data: "))
        value.pop("system_fingerprint", None)  # vLLM moves it from the last event into the final count
        finals += not value["choices"]
        for choice in value["choices"]:
            texts[choice["index"]] = texts.get(choice["index"], "") + (
                choice["text"] if "text" in choice else choice["delta"].get("content") or ""
            )
            shapes.add((*value, *choice))
    return texts, shapes, finals, last


async def streamed(client: RawClient, path: str, body: dict[str, Any]) -> bytes:
    answer = await client.ask(post(body, path=path))
    assert answer.status == 200, answer.body
    return answer.body


@pytest.mark.parametrize(("path", "body"), BODIES)
def test_what_the_client_gets_is_what_vllm_would_have_sent_it(
    vllm_engine: RunningEngine, path: str, body: dict[str, Any]
) -> None:
    async def test() -> None:
        ledger = Rows()
        async with (
            gateway_before(vllm_engine.url) as plain,
            gateway_before(vllm_engine.url, governance=EXACT, stores=Stores(ledger=lambda: ledger)) as exact,
            client_of(plain) as direct,
            client_of(exact) as counted,
        ):
            expected = await streamed(direct, path, body)
            got = await streamed(counted, path, body)
            assert b'"usage"' not in got
            assert said(got) == said(expected)
            final = await streamed(direct, path, {**body, "stream_options": {"include_usage": True}})
            counted_too = await streamed(counted, path, {**body, "stream_options": {"include_usage": True}})
            assert said(counted_too) == said(final)
            usage = json.loads(final.split(b"\n\n")[-3].removeprefix(b"data: "))["usage"]
            await until(lambda: len(ledger.rows) == 2)
        for row in ledger.rows:
            assert (row.prompt_tokens, row.output_tokens) == (usage["prompt_tokens"], usage["completion_tokens"])
            assert not row.estimated

    run(test, limit_s=120)


def test_a_client_that_leaves_real_vllm_is_billed_the_tokens_it_got(vllm_engine: RunningEngine) -> None:
    """On a busy machine an engine may have sent all before the client is heard to leave: what is billed is right then
    too, and the next client tries again."""

    async def leave() -> str:
        ledger = Rows()
        async with (
            gateway_before(vllm_engine.url, governance=EXACT, stores=Stores(ledger=lambda: ledger)) as gateway,
            client_of(gateway, limit=2**20) as client,
        ):
            client.send(post({**CHAT, "max_tokens": 3000, "return_token_ids": True}))
            await client.head()
            parts = [await client.chunk() for _ in range(6)]
            client.writer.write_eof()
            try:
                while part := await client.chunk():
                    parts.append(part)
            except (EOFError, ValueError):  # the connection ends without a last chunk
                pass
            await until(lambda: bool(ledger.rows), LIMIT_S)
        delivered = 0
        for event in b"".join(parts).split(b"\n\n"):
            if event.startswith(b"data: {"):
                value = json.loads(event.removeprefix(b"data: "))
                assert "usage" not in value
                delivered += sum(len(choice.get("token_ids") or ()) for choice in value["choices"])
        (row,) = ledger.rows
        assert delivered > 0
        assert row.output_tokens == delivered
        return row.ending

    async def test() -> None:
        endings = []
        while "client_left" not in endings:
            endings.append(await leave())
            assert len(endings) < 6, f"nobody was heard to leave: {endings}"

    run(test, limit_s=120)
