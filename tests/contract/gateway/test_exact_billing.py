"""Billing by the engine's running count: what the engine is asked, what the client sees of it, what is written down."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from fakes.engine import END, STREAM_HEAD, Asked, FakeEngine, chunk, hang, plain, wire
from roadworthy.gateway.journal import WORKER_DIED, left_behind
from roadworthy.gateway.stores import Stores
from roadworthy.spec.governance_values import GovernanceSpec
from support.gateway import RawClient, chat, client_of, gateway_before, post, run, until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from roadworthy.route.ledger import LedgerRow

EXACT = GovernanceSpec(billing="exact")
BASE = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m"}
PROMPT_TOKENS = 11
MESSAGES = [{"role": "user", "content": "hi"}]


class Rows:
    """A ledger in memory; ``hold`` keeps it from taking anything."""

    waiting = dropped = 0
    failing = ""

    def __init__(self) -> None:
        self.rows: list[LedgerRow] = []
        self.hold = self.full = False
        self.closed = False

    @property
    def settled(self) -> int:
        return 0 if self.hold else len(self.rows)

    def put(self, rows: Sequence[LedgerRow]) -> None:
        self.rows.extend(rows)

    def close(self, timeout_s: float) -> None:
        self.closed = True


def event(tokens: int, text: str = "x", *, index: int = 0, counted: bool = True) -> bytes:
    value: dict[str, Any] = {**BASE, "choices": [{"index": index, "delta": {"content": text}, "finish_reason": None}]}
    if counted:
        value["usage"] = {
            "prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens,
        }  # fmt: skip
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


def last(tokens: int) -> bytes:
    usage = {"prompt_tokens": PROMPT_TOKENS, "total_tokens": PROMPT_TOKENS + tokens, "completion_tokens": tokens}
    value = {**BASE, "choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": 4}}}
    return b"data: " + json.dumps(value, separators=(",", ":")).encode() + b"\n\n"


DONE = b"data: [DONE]\n\n"


async def counting(asked: Asked) -> None:
    """An engine that counts as vLLM does: as it is asked."""
    options: dict[str, Any] = asked.json().get("stream_options") or {}  # type: ignore[assignment]
    final = bool(options.get("include_usage"))
    running = final and bool(options.get("continuous_usage_stats"))
    await asked.send(STREAM_HEAD)
    for tokens in range(5):
        await asked.send(chunk(event(tokens, counted=running)))
    if final:
        await asked.send(chunk(last(4)))
    await asked.send(chunk(DONE))
    await asked.send(END)


def plain_stream(*, final: bool = False, running: bool = False) -> bytes:
    events = [event(tokens, counted=running) for tokens in range(5)]
    return b"".join([*events, *([last(4)] if final else []), DONE])


OPTIONS = [
    pytest.param(None, plain_stream(), id="nothing asked"),
    pytest.param({"include_usage": False}, plain_stream(), id="not wanted"),
    pytest.param({"include_usage": True}, plain_stream(final=True), id="the final count"),
    pytest.param(
        {"include_usage": True, "continuous_usage_stats": True}, plain_stream(final=True, running=True), id="all counts"
    ),
    pytest.param({"continuous_usage_stats": True}, plain_stream(), id="what vLLM ignores"),
]


@pytest.mark.parametrize(("options", "expected"), OPTIONS)
@pytest.mark.parametrize("billing", ["exact", "final"])
def test_the_client_sees_the_stream_that_it_asked_for_and_the_ledger_what_was_delivered(
    options: dict[str, bool] | None, expected: bytes, billing: Any
) -> None:
    async def test() -> None:
        ledger = Rows()
        async with (
            FakeEngine(counting) as engine,
            gateway_before(
                engine, governance=GovernanceSpec(billing=billing), stores=Stores(ledger=lambda: ledger)
            ) as gateway,
            client_of(gateway) as client,
        ):
            body = chat() if options is None else chat(stream_options=options)
            answer = await client.ask(post(body))
            assert answer.body == expected
            asked = engine.requests[0].json()["stream_options"]
            assert asked["include_usage"] is True  # type: ignore[index]
            assert engine.requests[0].body.count(b"stream_options") == 1
            await until(lambda: bool(ledger.rows))
        (row,) = ledger.rows
        assert (row.prompt_tokens, row.output_tokens, row.cached_tokens) == (PROMPT_TOKENS, 4, 4)
        assert not row.estimated
        assert row.ending == "ok"

    run(test)


def test_old_clients_without_chunks_see_the_same() -> None:
    async def test() -> None:
        async with (
            FakeEngine(counting) as engine,
            gateway_before(engine, governance=EXACT) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat()).replace(b"HTTP/1.1", b"HTTP/1.0"))
            status, _ = await client.head()
            assert status == 200
            assert await client.reader.read() == plain_stream()

    run(test)


def test_a_plain_answer_and_other_routes_are_asked_nothing() -> None:
    async def test() -> None:
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, governance=EXACT) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False)))).status == 200
            assert b"stream_options" not in engine.requests[0].body
            assert (await client.ask(post({"model": "m", "input": "x"}, path="/v1/embeddings"))).status == 200
            assert b"stream_options" not in engine.requests[1].body

    run(test)


def test_without_exact_billing_the_body_and_the_stream_are_untouched() -> None:
    async def test() -> None:
        async with FakeEngine(counting) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            assert (await client.ask(post(chat()))).body == plain_stream()
            assert b"stream_options" not in engine.requests[0].body

    run(test)


def test_options_that_are_no_object_are_refused_with_the_field_named() -> None:
    async def test() -> None:
        async with (
            FakeEngine(counting) as engine,
            gateway_before(engine, governance=EXACT) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat(stream_options="all")))
            assert (answer.status, answer.code) == (400, "invalid_value")
            assert answer.json()["error"]["param"] == "stream_options"
            assert engine.requests == []

    run(test)


@pytest.mark.parametrize("events", range(6))
def test_a_client_that_leaves_is_billed_what_it_got(events: int) -> None:
    """A half-closed connection can still be read to its end: that is how a client knows what it got."""

    async def test() -> None:
        ledger = Rows()
        pieces = [chunk(event(tokens)) for tokens in range(events)]
        async with (
            FakeEngine(hang(STREAM_HEAD, *pieces)) as engine,
            gateway_before(engine, governance=EXACT, stores=Stores(ledger=lambda: ledger)) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat()))
            await engine.asked.wait()
            if events:
                await client.head()
                for _ in range(events):
                    assert await client.chunk()
            client.writer.write_eof()
            assert await client.reader.read() == b""
            await until(lambda: bool(ledger.rows))
        (row,) = ledger.rows
        assert row.output_tokens == max(0, events - 1)
        assert row.prompt_tokens == (PROMPT_TOKENS if events else 0)
        assert row.ending == "client_left"

    run(test)


def test_an_engine_that_dies_is_billed_what_it_delivered() -> None:
    async def test() -> None:
        ledger = Rows()
        half = chunk(event(3))[:60]
        async with (
            FakeEngine(wire(STREAM_HEAD, chunk(event(1)), chunk(event(2)), half, cut=True)) as engine,
            gateway_before(engine, governance=EXACT, stores=Stores(ledger=lambda: ledger)) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert answer.body.startswith(event(1, counted=False) + event(2, counted=False))
            await until(lambda: bool(ledger.rows))
        (row,) = ledger.rows
        assert (row.output_tokens, row.ending) == (2, "engine_error")

    run(test)


def test_choices_and_prompts_of_one_request_are_added_up() -> None:
    async def test() -> None:
        ledger = Rows()
        events = [event(1, index=0), event(1, index=1), event(2, index=1), event(3, index=0)]
        async with (
            FakeEngine(hang(STREAM_HEAD, *map(chunk, events))) as engine,
            gateway_before(engine, governance=EXACT, stores=Stores(ledger=lambda: ledger)) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post({"model": "m", "stream": True, "prompt": ["a", "b"]}, path="/v1/completions"))
            await client.head()
            for _ in events:
                assert b"usage" not in await client.chunk()
            client.leave()
            await until(lambda: bool(ledger.rows))
        (row,) = ledger.rows
        assert (row.prompt_tokens, row.output_tokens) == (2 * PROMPT_TOKENS, 5)

    run(test)


# the journal


async def _streaming(client: RawClient, events: int) -> None:
    client.send(post(chat()))
    await client.head()
    for _ in range(events):
        await client.chunk()


def _copied(folder: Path) -> Path:
    """A folder with the journals of ``folder`` as they are now, and nobody's lock on them."""
    copy = folder / "copy"
    copy.mkdir()
    for path in folder.glob("*.journal"):
        shutil.copy(path, copy)
    return copy


def test_the_journal_holds_what_was_delivered_while_a_stream_runs(tmp_path: Path) -> None:
    """Read as somebody else would after the process was killed: through the file, without its owner's help."""

    async def test() -> None:
        ledger = Rows()
        stores = Stores(ledger=lambda: ledger, journal=tmp_path)
        async with (
            FakeEngine(hang(STREAM_HEAD, *(chunk(event(tokens)) for tokens in range(8)))) as engine,
            gateway_before(engine, governance=EXACT, stores=stores) as gateway,
            client_of(gateway) as client,
        ):
            await _streaming(client, 8)
            assert list(left_behind(tmp_path)) == []  # its owner lives
            (found,) = left_behind(_copied(tmp_path))
            found.done()
            (row,) = found.rows
            assert (row.prompt_tokens, row.output_tokens, row.ending) == (PROMPT_TOKENS, 7, WORKER_DIED)
            assert (row.tenant_id, row.model, row.endpoint, row.operation) == ("acme", "m", engine.url, "chat")
            assert not row.estimated
        assert ledger.closed

    run(test)
    assert list(tmp_path.glob("*.journal")) == []


def test_a_request_stays_in_the_journal_until_the_ledger_has_it(tmp_path: Path) -> None:
    async def test() -> None:
        ledger = Rows()
        ledger.hold = True
        stores = Stores(ledger=lambda: ledger, journal=tmp_path)
        async with (
            FakeEngine(plain()) as engine,
            gateway_before(engine, governance=EXACT, stores=stores) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False)))).status == 200
            await until(lambda: bool(ledger.rows))
        # it stopped, and the ledger never took the row: the next process finds it
        (found,) = left_behind(tmp_path)
        (row,) = ledger.rows
        assert found.rows == (replace(row, started_s=found.rows[0].started_s),)
        assert found.rows[0].started_s == pytest.approx(row.started_s, abs=1e-3)
        found.let_go()
        assert len(list(left_behind(tmp_path))) == 1

    run(test)
