"""The poller before engines that pause, hang, restart and fall silent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest

from fakes.engine import FakeEngine
from roadworthy.gateway.endpoints import Endpoint
from roadworthy.gateway.poller import Poller, PollPolicy, says_paused
from roadworthy.route.breaker import BreakerPolicy
from support.gateway import run, until

QUICK = PollPolicy(interval_s=0.02, retry_s=0.01, timeout_s=0.2, retry_timeout_s=0.1, models_every=2)
PATIENT = replace(QUICK, timeout_s=20, retry_timeout_s=20)
"""For engines that always answer: a machine that stands still for a moment is not theirs to answer for."""


def metrics(started_s: float = 1e9, blocks: int = 101) -> str:
    return (
        "vllm:num_requests_running 1.0\nvllm:num_requests_waiting 2.0\nvllm:kv_cache_usage_perc 0.5\n"
        f'vllm:cache_config_info{{block_size="16",num_gpu_blocks="{blocks}"}} 1.0\n'
        f"process_start_time_seconds {started_s}\n"
    )


class Heard:
    """Writes down what the poller tells."""

    def __init__(self) -> None:
        self.calls: list[tuple[object, ...]] = []

    def capacity(self, url: str, kv_tokens: int) -> None:
        self.calls.append(("capacity", kv_tokens))

    def engine_gone(self, url: str) -> None:
        self.calls.append(("gone",))


class Clock:
    """Seconds that only the test moves."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


def endpoint_of(engine: FakeEngine | str, clock: Clock) -> Endpoint:
    return Endpoint(engine if isinstance(engine, str) else engine.url, policy=BreakerPolicy(), now_s=clock)


@asynccontextmanager
async def listening(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """The URL of an engine that does ``serve`` on each connection and then closes it; at the end none is open."""
    open_ones: set[asyncio.Task[object]] = set()

    async def one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        open_ones.add(task)
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionResetError):
            await serve(reader, writer)
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()
        open_ones.discard(task)

    server = await asyncio.start_server(one, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()
    try:
        yield f"http://{host}:{port}"
    finally:
        server.close()
        await asyncio.sleep(0)  # one that was just accepted begins
        await until(lambda: not open_ones)


@asynccontextmanager
async def polled(
    engine: FakeEngine | str, *, policy: PollPolicy = QUICK, heard: Heard | None = None, clock: Clock | None = None
) -> AsyncIterator[Endpoint]:
    clock = clock or Clock()
    endpoint = endpoint_of(engine, clock)
    poller = Poller([endpoint], policy=policy, now_s=clock, observer=heard)
    await poller.start()
    try:
        yield endpoint
    finally:
        await poller.stop()


def test_after_the_first_round_loads_and_models_are_known() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.metrics = metrics()
            async with polled(engine) as endpoint:
                assert (endpoint.waiting, endpoint.kv_usage_ratio, endpoint.health.running) == (2, 0.5, 1)
                assert endpoint.models == {"m"}
                assert endpoint.healthy

    run(test)


def test_an_engine_that_hangs_holds_up_neither_the_start_nor_the_others() -> None:
    async def test() -> None:
        async with FakeEngine() as hung, FakeEngine() as well:
            hung.pages["/health"] = None
            clock = Clock()
            slow, quick = endpoint_of(hung, clock), endpoint_of(well, clock)
            poller = Poller([slow, quick], policy=QUICK, now_s=clock)
            await poller.start()
            rounds = well.looked_at.count("/health")
            await until(lambda: well.looked_at.count("/health") > rounds + 3)
            assert quick.healthy
            await until(lambda: not slow.healthy)
            assert slow.health.note.startswith("no answer within")
            await poller.stop()

    run(test)


def test_an_engine_that_hung_is_used_again_at_its_next_answer() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.pages["/health"] = None
            async with polled(engine) as endpoint:
                await until(lambda: not endpoint.healthy)
                del engine.pages["/health"]
                await until(lambda: endpoint.healthy)

    run(test)


def test_an_engine_too_busy_for_new_connections_stays_in_use() -> None:
    """vLLM's API process, streaming to many, answers on open connections and accepts new ones only after seconds."""

    async def test() -> None:
        accepted, answered = 0, 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted, answered
            accepted += 1
            if accepted > 1:
                await reader.read()  # for ever
            while await reader.readuntil(b"\r\n\r\n"):
                answered += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        async with listening(serve) as url, polled(url, policy=PATIENT) as endpoint:
            await until(lambda: answered > 40 or not endpoint.healthy)
            assert endpoint.healthy
            assert accepted == 1

    run(test)


def test_a_connection_that_the_engine_closed_between_two_rounds_is_opened_again() -> None:
    async def test() -> None:
        accepted = 0

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal accepted
            accepted += 1
            for _ in range(5):
                await reader.readuntil(b"\r\n\r\n")
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

        async with listening(serve) as url, polled(url, policy=PATIENT) as endpoint:
            await until(lambda: accepted > 5 or not endpoint.healthy)
            assert endpoint.healthy

    run(test)


def test_by_default_an_engine_that_is_back_is_found_within_two_seconds() -> None:
    policy = PollPolicy()
    assert policy.pause_s(ready=False, drawn=1.0) + policy.retry_timeout_s < 2.0


def test_a_paused_engine_is_not_ready_until_it_goes_on() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.pages["/is_paused"] = (200, b'{"is_paused": true}')
            async with polled(engine) as endpoint:
                assert (endpoint.healthy, endpoint.health.reachable, endpoint.health.note) == (False, True, "paused")
                engine.pages["/is_paused"] = (200, b'{"is_paused": false}')
                await until(lambda: endpoint.healthy)

    run(test)


def test_one_that_is_paused_later_is_noticed() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.pages["/is_paused"] = (200, b'{"is_paused": false}')
            async with polled(engine) as endpoint:
                assert endpoint.healthy
                engine.pages["/is_paused"] = (200, b'{"is_paused": true}')
                await until(lambda: not endpoint.healthy)

    run(test)


def test_an_engine_without_that_page_is_asked_for_it_seldom() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            policy = PollPolicy(interval_s=0.01, models_every=10)
            async with polled(engine, policy=policy) as endpoint:
                await until(lambda: engine.looked_at.count("/health") >= 25)
                assert endpoint.healthy
                assert engine.looked_at.count("/is_paused") <= 1 + engine.looked_at.count("/health") // 10

    run(test)


def test_an_engine_asleep_is_not_ready() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.metrics = metrics() + 'vllm:engine_sleep_state{sleep_state="awake"} 0.0\n'
            async with polled(engine) as endpoint:
                assert (endpoint.healthy, endpoint.health.note) == (False, "asleep")
                engine.metrics = metrics() + 'vllm:engine_sleep_state{sleep_state="awake"} 1.0\n'
                await until(lambda: endpoint.healthy)

    run(test)


@pytest.mark.parametrize("page", [(500, b""), None])
def test_metrics_that_stop_coming_count_for_a_while_and_then_the_engine_is_not_ready(
    page: tuple[int, bytes] | None,
) -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.metrics = metrics()
            clock = Clock()
            async with polled(engine, clock=clock) as endpoint:
                engine.pages["/metrics"] = page
                looked = engine.looked_at.count("/metrics")
                await until(lambda: engine.looked_at.count("/metrics") > looked + 2)
                assert endpoint.healthy
                assert endpoint.waiting == 2
                clock.now_s += QUICK.stale_s + 1
                await until(lambda: not endpoint.healthy)
                assert (endpoint.health.reachable, endpoint.health.note) == (True, "its metrics are old")
                del engine.pages["/metrics"]
                await until(lambda: endpoint.healthy)

    run(test)


def test_an_engine_that_never_had_metrics_has_none_to_be_stale() -> None:
    async def test() -> None:
        async with FakeEngine() as engine:
            engine.pages["/metrics"] = (404, b"")
            clock = Clock()
            async with polled(engine, clock=clock) as endpoint:
                clock.now_s += 1000
                looked = engine.looked_at.count("/health")
                await until(lambda: engine.looked_at.count("/health") > looked + 2)
                assert endpoint.healthy

    run(test)


def test_the_observer_hears_of_the_pool_and_of_a_process_that_is_another() -> None:
    async def test() -> None:
        heard = Heard()
        async with FakeEngine() as engine:
            engine.metrics = metrics()
            async with polled(engine, heard=heard):
                assert heard.calls == [("capacity", 1600)]
                looked = engine.looked_at.count("/metrics")
                await until(lambda: engine.looked_at.count("/metrics") > looked + 2)
                assert heard.calls == [("capacity", 1600)]
                engine.metrics = metrics(started_s=2e9, blocks=201)
                await until(lambda: len(heard.calls) == 3)
                assert heard.calls[1:] == [("gone",), ("capacity", 3200)]

    run(test)


def test_the_observer_hears_of_an_engine_that_refuses_connections() -> None:
    async def test() -> None:
        heard = Heard()
        async with FakeEngine() as engine, polled(engine, heard=heard) as endpoint:
            await engine.stop()
            await until(lambda: ("gone",) in heard.calls)
            assert not endpoint.healthy
            await engine.start()
            await until(lambda: endpoint.healthy)

    run(test)


def test_engines_can_be_exchanged_while_it_runs() -> None:
    async def test() -> None:
        async with FakeEngine() as old, FakeEngine() as kept, FakeEngine() as new:
            clock = Clock()
            endpoints = [endpoint_of(engine, clock) for engine in (old, kept, new)]
            poller = Poller(endpoints[:2], policy=QUICK, now_s=clock)
            await poller.start()
            poller.watch(endpoints[1:])
            await until(lambda: endpoints[2].models == {"m"})
            seen = old.looked_at.count("/health")
            kept_seen = kept.looked_at.count("/health")
            await until(lambda: kept.looked_at.count("/health") > kept_seen + 3)
            assert old.looked_at.count("/health") <= seen + 1
            await poller.stop()

    run(test)


def test_rounds_are_spread_by_a_tenth_around_the_interval() -> None:
    policy = PollPolicy(interval_s=1.0, retry_s=0.5)
    assert [policy.pause_s(ready=True, drawn=drawn) for drawn in (0.0, 0.5, 1.0)] == pytest.approx([0.9, 1.0, 1.1])
    assert [policy.pause_s(ready=False, drawn=drawn) for drawn in (0.0, 1.0)] == pytest.approx([0.45, 0.55])
    assert PollPolicy(interval_s=0.1).pause_s(ready=False, drawn=0.5) == 0.1


@pytest.mark.parametrize(
    ("body", "paused"),
    [
        (b'{"is_paused": true}', True),
        (b'{"is_paused": false}', False),
        (b'{"is_paused": "true"}', False),
        (b"[]", False),
        (b"", False),
        (b"true", False),
    ],
)
def test_only_a_plain_yes_is_paused(body: bytes, paused: Sequence[object]) -> None:
    assert says_paused(body) is paused


def test_a_poller_of_nothing_starts_and_stops() -> None:
    async def test() -> None:
        poller = Poller([], policy=QUICK, now_s=Clock())
        await poller.start()
        await asyncio.sleep(0)
        await poller.stop()

    run(test)
