"""Clients that leave, engines that refuse, die, stall or lie: who notices what, and what is never lost or leaked."""

from __future__ import annotations

import asyncio
import json
import socket
from dataclasses import replace

import pytest

from fakes.engine import (
    END,
    STREAM_HEAD,
    Answer,
    Asked,
    FakeEngine,
    chat_events,
    chunk,
    completion,
    error_event,
    hang,
    in_turn,
    plain,
    response,
    stream_of,
    wire,
)
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.poller import PollPolicy
from support.gateway import LIMIT_S, chat, client_of, gateway_before, post, run, until

EVENTS = chat_events("a", "b", usage=(5, 2))
STREAM = b"".join(EVENTS)
REFUSED_STREAM = wire(STREAM_HEAD, chunk(error_event(503)), chunk(b"data: [DONE]\n\n"), END)
NOTICED_S = 0.5
QUICK = Limits(sweep_s=0.01)


async def soon(event: asyncio.Event, within_s: float = LIMIT_S) -> None:
    async with asyncio.timeout(within_s):
        await event.wait()


async def asked(engine: FakeEngine, count: int = 1) -> Asked:
    """The ``count``-th request that reached the engine."""
    async with asyncio.timeout(LIMIT_S):
        while len(engine.requests) < count:
            engine.asked.clear()
            await engine.asked.wait()
    return engine.requests[count - 1]


# a client that leaves


@pytest.mark.parametrize(
    ("pieces", "stream"),
    [
        pytest.param((), True, id="before the head"),
        pytest.param((STREAM_HEAD,), True, id="before the first token"),
        pytest.param((STREAM_HEAD, chunk(EVENTS[0]), chunk(EVENTS[1])), True, id="mid-stream"),
        pytest.param((), False, id="plain"),
        pytest.param((b"HTTP/1.1 200 OK\r\ncontent-length: 99\r\n\r\n{",), False, id="inside a plain answer"),
    ],
)
@pytest.mark.parametrize("politely", [False, True], ids=["reset", "closed"])
def test_the_engine_is_left_at_once_when_the_client_leaves(
    pieces: tuple[bytes, ...], stream: bool, politely: bool
) -> None:
    async def test() -> None:
        async with (
            FakeEngine(hang(*pieces)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat(stream=stream)))
            seen = await asked(engine)
            if len(pieces) > 1:
                await client.head()
            if politely:
                client.writer.close()
            else:
                client.leave()
            await soon(seen.left, NOTICED_S)
            status = gateway.status()
            assert (status.in_flight, status.endpoints[0].in_flight, status.tenants[0].in_flight) == (0, 0, 0)
            assert b'outcome="client_left"' in await gateway.metrics_text()
            assert status.endpoints[0].healthy, "a client that leaves says nothing about the engine"

    run(test)


def test_a_client_that_leaves_while_we_connect_leaves_nothing_behind() -> None:
    async def test() -> None:
        # a listener whose queue is full never completes a connection
        with socket.socket() as full:
            full.bind(("127.0.0.1", 0))
            full.listen(0)
            fillers = []
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(full.getsockname())
                fillers.append(filler)
            url = f"http://127.0.0.1:{full.getsockname()[1]}"
            async with gateway_before(url, poll=PollPolicy(timeout_s=0.05)) as gateway, client_of(gateway) as client:
                client.send(post(chat()))
                await until(lambda: gateway.status().in_flight > 0)
                client.leave()
                await until(lambda: gateway.status().in_flight == 0, NOTICED_S)
            for filler in fillers:
                filler.close()

    run(test)


# engines that fail while the client has seen nothing


@pytest.mark.parametrize(
    "failure",
    [
        pytest.param(plain(503, b"{}"), id="503"),
        pytest.param(plain(429, b"{}"), id="429"),
        pytest.param(plain(500, b"{}"), id="500"),
        pytest.param(REFUSED_STREAM, id="refused stream"),
        pytest.param(
            wire(STREAM_HEAD, chunk(b": ping\n\n"), chunk(error_event(503)), END), id="refused after a comment"
        ),
        pytest.param(wire(STREAM_HEAD, chunk(error_event(500)), END), id="failed stream"),
        pytest.param(wire(cut=True), id="closed without a byte"),
        pytest.param(wire(b"HTTP/1.1 200 OK\r\ncontent-le", cut=True), id="cut inside the head"),
        pytest.param(wire(STREAM_HEAD, cut=True), id="cut before the first event"),
        pytest.param(wire(STREAM_HEAD, chunk(EVENTS[0][:9]), cut=True), id="cut inside the first event"),
        pytest.param(wire(b"\x16\x03\x01 not http\r\n\r\n"), id="garbage"),
    ],
)
def test_a_failure_before_the_first_event_is_tried_elsewhere_unseen(failure: Answer) -> None:
    async def test() -> None:
        async with (
            FakeEngine(failure) as bad,
            FakeEngine(stream_of(EVENTS)) as good,
            gateway_before(bad, good) as gateway,
            client_of(gateway) as client,
        ):
            for _ in range(2):
                answer = await client.ask(post(chat()))
                assert (answer.status, answer.body) == (200, STREAM)
            assert bad.requests, "the first of two equal engines is asked first"
            assert gateway.status().tenants[0].failed == 0

    run(test)


def test_a_rerouted_request_says_so() -> None:
    async def test() -> None:
        async with (
            FakeEngine(REFUSED_STREAM) as bad,
            FakeEngine(stream_of(EVENTS)) as good,
            gateway_before(bad, good) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat()))).headers["x-roadworthy-decision"] == "rerouted"

    run(test)


def test_a_plain_answer_that_is_cut_is_tried_elsewhere_unseen() -> None:
    cut = wire(response(200, completion())[:-5], cut=True)

    async def test() -> None:
        async with (
            FakeEngine(cut) as bad,
            FakeEngine(plain()) as good,
            gateway_before(bad, good) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat(stream=False)))).body == completion()
            assert len(bad.requests) == len(good.requests) == 1

    run(test)


def test_no_request_is_lost_with_one_of_four_engines_down() -> None:
    async def test() -> None:
        async with (
            FakeEngine() as a,
            FakeEngine() as b,
            FakeEngine() as c,
            FakeEngine() as down,
            gateway_before(down, a, b, c, poll=PollPolicy(interval_s=60)) as gateway,
        ):
            await down.stop()
            async with client_of(gateway) as client:
                statuses = [(await client.ask(post(chat()))).status for _ in range(40)]
            assert statuses == [200] * 40
            assert gateway.status().endpoints[0].breaker != "closed"

    run(test)


def test_an_idle_connection_that_went_stale_costs_nothing() -> None:
    async def test() -> None:
        async with FakeEngine() as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            assert (await client.ask(post(chat()))).status == 200
            engine.answer = in_turn(wire(cut=True), stream_of(EVENTS))  # closes just as it is asked again
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.body) == (200, STREAM)
            assert answer.headers["x-roadworthy-decision"] == "routed"
            assert b"retries_total{" not in await gateway.metrics_text()

    run(test)


@pytest.mark.parametrize(
    ("failure", "status", "code"),
    [
        pytest.param(plain(503, b"{}"), 503, "engines_busy", id="full"),
        pytest.param(REFUSED_STREAM, 503, "engines_busy", id="refused stream"),
        pytest.param(plain(500, b'{"error": {"message": "boom at 10.0.0.7"}}'), 502, "engine_error", id="500"),
        pytest.param(wire(STREAM_HEAD, cut=True), 502, "engine_error", id="died"),
    ],
)
def test_when_no_engine_is_left_the_error_is_ours(failure: Answer, status: int, code: str) -> None:
    async def test() -> None:
        async with FakeEngine(failure) as engine, gateway_before(engine) as gateway, client_of(gateway) as client:
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.code) == (status, code)
            assert answer.headers["x-roadworthy-decision"] == code
            assert b"10.0.0.7" not in answer.body
            assert ("retry-after" in answer.headers) == (status == 503)

    run(test)


def test_a_plain_answer_that_is_cut_is_an_error_and_never_half_an_answer() -> None:
    async def test() -> None:
        async with (
            FakeEngine(wire(response(200, completion())[:-5], cut=True)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat(stream=False)))
            assert (answer.status, answer.code) == (502, "engine_error")

    run(test)


def test_a_poisonous_request_meets_two_engines_at_most() -> None:
    """A request that kills engines must not be carried through the whole fleet."""

    async def test() -> None:
        async with (
            FakeEngine(wire(cut=True)) as a,
            FakeEngine(wire(cut=True)) as b,
            FakeEngine(wire(cut=True)) as c,
            gateway_before(a, b, c) as gateway,
            client_of(gateway) as client,
        ):
            assert (await client.ask(post(chat()))).status == 502
            assert len(a.requests) + len(b.requests) + len(c.requests) == 2

    run(test)


def test_engines_that_appear_later_are_used() -> None:
    async def test() -> None:
        engine = FakeEngine()
        await engine.start()
        await engine.stop()
        async with gateway_before(engine, poll=PollPolicy(interval_s=0.01)) as gateway, client_of(gateway) as client:
            assert not gateway.ready
            answer = await client.ask(post(chat()))
            assert (answer.status, answer.code) == (503, "engines_unavailable")
            async with engine:
                await until(lambda: gateway.ready)
                assert (await client.ask(post(chat()))).status == 200

    run(test)


# engines that fail later


@pytest.mark.parametrize("partial", [b"", EVENTS[2][:20]], ids=["between events", "inside an event"])
def test_a_stream_that_dies_ends_with_an_error_event_and_a_clean_close(partial: bytes) -> None:
    pieces = [chunk(EVENTS[0]), chunk(EVENTS[1])] + ([chunk(partial)] if partial else [])

    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, *pieces, cut=True)) as bad,
            FakeEngine() as other,
            gateway_before(bad, other) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert answer.status == 200
            received = answer.body.split(b"\n\n")
            assert received[:2] == [EVENTS[0][:-2], EVENTS[1][:-2]]
            assert received[3:] == [b""], "no [DONE] that the engine did not say"
            error = json.loads(received[2].removeprefix(b"data: "))["error"]
            assert error["code"] == "engine_error"
            assert await client.at_end()
            assert not other.requests, "after the first byte nothing is tried again"

    run(test)


def test_an_event_too_long_to_hold_back_is_ended_before_the_error() -> None:
    long = b"data: " + b"x" * 2000

    async def test() -> None:
        limits = replace(QUICK, peek_bytes=1000)
        async with (
            FakeEngine(wire(STREAM_HEAD, chunk(EVENTS[0]), chunk(long), cut=True)) as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert answer.body.startswith(EVENTS[0] + long + b'\n\ndata: {"error"')

    run(test)


def test_an_error_that_the_engine_reports_in_the_stream_passes_without_its_addresses() -> None:
    stream = EVENTS[0] + error_event(500) + b"data: [DONE]\n\n"

    async def test() -> None:
        async with (
            FakeEngine(wire(STREAM_HEAD, chunk(EVENTS[0]), chunk(stream[len(EVENTS[0]) :]), END)) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            answer = await client.ask(post(chat()))
            assert answer.body == stream.replace(b"10.0.0.7", b"[hidden]")
            assert gateway.status().tenants[0].failed == 1

    run(test)


@pytest.mark.parametrize(
    ("answer", "status"),
    [(hang(), 504), (hang(STREAM_HEAD, chunk(b": ping\n\n")), 504), (hang(STREAM_HEAD, chunk(EVENTS[0])), 200)],
    ids=["no head", "no event", "mid-stream"],
)
def test_a_silent_engine_is_given_up(answer: Answer, status: int) -> None:
    async def test() -> None:
        limits = replace(QUICK, engine_silence_s=0.05)
        async with (
            FakeEngine(answer) as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway) as client,
        ):
            got = await client.ask(post(chat()))
            assert got.status == status
            assert b"engine_timeout" in got.body
            await soon(engine.requests[0].left)

    run(test)


# slow clients


def test_a_client_that_does_not_read_stops_the_engine_and_no_one_else() -> None:
    event = b"data: " + b"x" * 16_000 + b"\n\n"
    sent = 0

    async def endless(asked: Asked) -> None:
        nonlocal sent
        await asked.send(STREAM_HEAD)
        while not asked.left.is_set():
            await asked.writable.wait()
            await asked.send(chunk(event))
            sent += len(event)

    async def test() -> None:
        async with (
            FakeEngine(in_turn(endless, stream_of(EVENTS))) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway, limit=1024) as slow,
            client_of(gateway) as other,
        ):
            slow.send(post(chat()))
            await slow.head()
            await until(lambda: not engine.requests[0].writable.is_set())  # the engine's own buffer is full
            assert sent < 40 * 2**20, "kernel buffers are all that holds unread data"
            assert (await other.ask(post(chat()))).body == STREAM
            slow.leave()
            await soon(engine.requests[0].left)

    run(test)


def test_a_client_that_does_not_read_and_then_leaves_is_noticed_although_our_buffer_is_full() -> None:
    async def endless(asked: Asked) -> None:
        await asked.send(STREAM_HEAD)
        while not asked.left.is_set():
            await asked.writable.wait()
            await asked.send(chunk(b"data: " + b"x" * 16_000 + b"\n\n"))

    async def test() -> None:
        async with (
            FakeEngine(endless) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway, limit=1024) as client,
        ):
            client.send(post(chat()))
            seen = await asked(engine)
            await until(lambda: not seen.writable.is_set())
            client.writer.write_eof()
            await soon(seen.left, NOTICED_S)

    run(test)


def test_a_client_that_never_reads_is_cut_off() -> None:
    async def endless(asked: Asked) -> None:
        await asked.send(STREAM_HEAD)
        while not asked.left.is_set():
            await asked.writable.wait()
            await asked.send(chunk(b"data: " + b"x" * 16_000 + b"\n\n"))

    async def test() -> None:
        limits = replace(QUICK, client_stall_s=0.05)
        async with (
            FakeEngine(endless) as engine,
            gateway_before(engine, limits=limits) as gateway,
            client_of(gateway, limit=1024) as client,
        ):
            client.send(post(chat()))
            await soon((await asked(engine)).left)
            assert b'outcome="client_stalled"' in await gateway.metrics_text()

    run(test)


def test_a_large_stream_reaches_a_slow_client_whole() -> None:
    event = b"data: " + b"y" * 30_000 + b"\n\n"

    async def generous(asked: Asked) -> None:
        await asked.send(STREAM_HEAD)
        for _ in range(300):
            await asked.writable.wait()
            await asked.send(chunk(event))
        await asked.send(END)

    async def test() -> None:
        async with (
            FakeEngine(generous) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway, limit=4096) as client,
        ):
            assert (await client.ask(post(chat()))).body == event * 300

    run(test)


# stopping


def test_stopping_lets_requests_in_progress_end() -> None:
    async def test() -> None:
        go_on = asyncio.Event()

        async def answer(asked: Asked) -> None:
            await asked.send(STREAM_HEAD + chunk(EVENTS[0]))
            await go_on.wait()
            for event in EVENTS[1:]:
                await asked.send(chunk(event))
            await asked.send(END)

        async with (
            FakeEngine(answer) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
            client_of(gateway) as idle,
        ):
            client.send(post(chat()))
            await client.head()
            stopping = asyncio.create_task(gateway.stop(drain_s=30))
            assert await idle.at_end()
            with pytest.raises(ConnectionRefusedError):
                await asyncio.open_connection("127.0.0.1", int(gateway.data_url.rsplit(":", 1)[1]))
            go_on.set()
            received = b""
            while part := await client.chunk():
                received += part
            assert received == STREAM
            assert await client.at_end()
            await stopping

    run(test)


def test_stopping_cuts_what_does_not_end_in_time() -> None:
    async def test() -> None:
        async with (
            FakeEngine(hang(STREAM_HEAD, chunk(EVENTS[0]))) as engine,
            gateway_before(engine) as gateway,
            client_of(gateway) as client,
        ):
            client.send(post(chat()))
            await client.head()
            await gateway.stop(drain_s=0.0)
            received = b""
            while part := await client.chunk():
                received += part
            assert b'"code":"shutting_down"' in received
            assert await client.at_end()
            await soon(engine.requests[0].left)

    run(test)


def test_a_draining_engine_gets_no_new_requests() -> None:
    async def test() -> None:
        async with FakeEngine() as first, FakeEngine() as second, gateway_before(first, second) as gateway:
            gateway.set_draining(first.url, True)
            async with client_of(gateway) as client:
                for _ in range(3):
                    assert (await client.ask(post(chat()))).status == 200
                assert (len(first.requests), len(second.requests)) == (0, 3)
                gateway.set_draining(first.url, False)
                await client.ask(post(chat()))
                assert len(first.requests) == 1

    run(test)
