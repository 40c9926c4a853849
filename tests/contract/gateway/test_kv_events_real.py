"""KV events of real vLLM: what it stored is matched to requests by our id, and what it drops is forgotten."""

from __future__ import annotations

import asyncio
import json
import time
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from fakes.engine import FakeEngine
from roadworthy.adapters.ports import free_ports
from roadworthy.gateway import probe
from roadworthy.gateway.endpoints import Endpoint, host_and_port
from roadworthy.gateway.kv_events import KvEvents
from roadworthy.gateway.poller import Poller, PollPolicy
from roadworthy.gateway.scrape import read_metrics
from roadworthy.route.breaker import BreakerPolicy
from roadworthy.route.settings import RoutingSettings
from roadworthy.route.state import Placement, RoutingState
from support.gateway import client_of, gateway_before, post, run, until
from support.vllm_process import running_vllm

pytestmark = [pytest.mark.engine, pytest.mark.timeout(400)]  # most of it is for vLLM to start on a busy machine

OTHER = "http://elsewhere:1"  # with one engine alone there is nothing to choose, and no keys
KV_BYTES = 16 * 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class Publishing:
    """A real engine and where it publishes."""

    url: str
    events: str


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publishing]:
    (port,) = free_ports("127.0.0.1", 1)
    events = {"enable_kv_cache_events": True, "endpoint": f"tcp://*:{port}", "topic": "kv"}
    arguments = [
        "--kv-cache-memory-bytes", str(KV_BYTES), "--kv-events-config", json.dumps(events), "--block-size", "32",
    ]  # fmt: skip
    folder = tmp_path_factory.mktemp("vllm-events")
    with running_vllm(folder, arguments, environment={"VLLM_SERVER_DEV_MODE": "1"}) as one:
        yield Publishing(url=one.url, events=f"tcp://127.0.0.1:{port}")


def text(words: int, seed: int) -> str:
    return " ".join(f"{(at * 7919 + seed * 104729) % 9973:x}" for at in range(words))


def call(url: str, body: bytes = b"", headers: Mapping[str, str] | None = None) -> Any:
    """A POST, answered with JSON or nothing."""
    request = urllib.request.Request(
        url, data=body, headers={"Content-Type": "application/json", **(headers or {})}, method="POST"
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.loads(answer.read() or b"{}")


class Driver:
    """Sends requests as the gateway does: described, dispatched, with our id as the session, and settled."""

    def __init__(self, engine: Publishing) -> None:
        self.url = engine.url
        self.state = RoutingState(RoutingSettings(), [engine.url, OTHER])
        self.events = KvEvents({engine.url: [engine.events]}, self.state)
        self._number = 0

    async def __aenter__(self) -> Driver:
        self.events.start()
        for warming in range(50):  # the first message says that events come
            await self.ask(text(220, 1000 + warming))
            if self.events.streams[0].messages:
                return self
        raise AssertionError("no event came")

    async def __aexit__(self, *exc: object) -> None:
        await self.events.stop()

    async def ask(self, prompt: str) -> tuple[Placement, int]:
        """One request to its end: how it was placed, and the engine's count of prompt tokens."""
        self._number += 1
        request_id = f"request-{self._number}"
        body = json.dumps({"model": "tiny", "prompt": prompt, "max_tokens": 1}).encode()
        route = self.state.describe(tenant_id="acme", model="tiny", stream=False, body=body, request_id=request_id)
        placement = self.state.dispatched(route, self.url)
        answer = await asyncio.to_thread(call, f"{self.url}/v1/completions", body, {"X-Session-ID": request_id})
        before = self.events.streams[0].messages
        await asyncio.sleep(0.05)  # events and answer take different ways
        assert self.events.streams[0].messages >= before
        tokens = int(answer["usage"]["prompt_tokens"])
        self.state.ended(placement, answered=True, prompt_tokens=tokens)
        return placement, tokens

    def matched(self, placement: Placement) -> tuple[int, int]:
        keys = placement.request.prefix_keys
        return self.state.matched(self.url, keys), len(keys)

    async def reset(self) -> None:
        await asyncio.to_thread(call, f"{self.url}/reset_prefix_cache")


def test_stored_blocks_are_matched_to_the_request_that_caused_them(engine: Publishing) -> None:
    async def test() -> None:
        async with Driver(engine) as driver:
            _, confirmed_before, _ = driver.state.kv_confirmed(engine.url)
            placement, _ = await driver.ask(text(800, 1))
            _, confirmed, refuted = driver.state.kv_confirmed(engine.url)
            matched, keys = driver.matched(placement)
            assert keys >= 3
            assert confirmed - confirmed_before >= keys - 1
            assert refuted == 0
            assert matched == keys
            assert driver.events.streams[0].unreadable == driver.events.streams[0].missed == 0

    run(test, limit_s=90)


def test_the_gateway_confirms_a_conversation_and_the_engine_finds_it_in_its_cache(engine: Publishing) -> None:
    """The whole way: our id goes out as the session, comes back in events, and the next turn is a hit."""

    async def test() -> None:
        async with FakeEngine(models=("tiny",)) as other:
            events = ((engine.url, (engine.events,)),)
            async with gateway_before(engine.url, other, kv_events=events) as gateway, client_of(gateway) as client:
                gateway.set_draining(other.url, True)  # two engines to choose from, and one answer
                stream, routing = gateway._kv_events.streams[0], gateway._plane.routing

                async def ask(prompt: str) -> dict[str, int]:
                    body = {"model": "tiny", "prompt": prompt, "max_tokens": 1, "stream": False}
                    answer = await client.ask(post(body, path="/v1/completions"))
                    assert answer.status == 200, answer.body
                    usage: dict[str, int] = answer.json()["usage"]
                    return usage

                for warming in range(50):
                    await ask(text(220, 2000 + warming))
                    await asyncio.sleep(0.05)
                    if stream.messages:
                        break
                prompt = text(700, 4)
                _, confirmed, _ = routing.kv_confirmed(engine.url)
                await ask(prompt)
                for _ in range(20):  # events may be later than the answer, and then the next turn confirms
                    await ask(prompt + " and more")
                    if routing.kv_confirmed(engine.url)[1] > confirmed:
                        break
                assert routing.kv_confirmed(engine.url)[1] > confirmed
                assert stream.unreadable == stream.missed == 0
                gateway.set_draining(other.url, False)
                for _ in range(6):
                    await ask(prompt + " and more")
                assert not other.requests, "the conversation stays where its blocks are"

    run(test, limit_s=110)


def test_when_the_engine_drops_its_cache_nothing_is_expected_of_it(engine: Publishing) -> None:
    async def test() -> None:
        async with Driver(engine) as driver:
            placement, _ = await driver.ask(text(800, 2))
            assert driver.matched(placement)[0] > 0
            await driver.reset()
            after, _ = await driver.ask(text(800, 20))  # vLLM publishes with its steps, so it says so with the next one
            await until(lambda: driver.matched(placement)[0] == 0)
            matched, keys = driver.matched(after)
            assert matched == keys

    run(test, limit_s=90)


def test_what_the_engine_evicts_is_forgotten_and_what_it_keeps_is_not(engine: Publishing) -> None:
    async def test() -> None:
        async with Driver(engine) as driver:
            old, tokens = await driver.ask(text(800, 3))
            assert driver.matched(old)[0] > 0
            newest = old
            for number in range(200):  # fill the pool until the engine must evict the oldest
                newest, _ = await driver.ask(text(800, 100 + number))
                if not driver.matched(old)[0]:
                    break
            assert driver.matched(old)[0] == 0
            matched, keys = driver.matched(newest)
            assert matched == keys
            assert tokens > 0

    run(test, limit_s=110)


def test_the_metrics_page_of_a_real_engine_tells_its_pool_its_blocks_and_its_process(engine: Publishing) -> None:
    async def test() -> None:
        host, port = host_and_port(engine.url)
        answer = await probe.get(host, port, f"{host}:{port}", "/metrics", timeout_s=20)
        scrape = read_metrics(answer.body)
        assert scrape.loaded
        assert scrape.block_tokens == 32
        assert scrape.kv_tokens is not None
        assert scrape.kv_tokens % 32 == 0
        assert scrape.kv_tokens > 4096
        assert scrape.started_s is not None
        assert scrape.started_s > 1.7e9
        assert not scrape.asleep

    run(test, limit_s=60)


def test_a_real_engine_that_is_paused_is_left_out_until_it_goes_on(engine: Publishing) -> None:
    async def test() -> None:
        endpoint = Endpoint(engine.url, policy=BreakerPolicy(), now_s=time.monotonic)
        policy = PollPolicy(interval_s=0.1, retry_s=0.1, timeout_s=20, retry_timeout_s=20, models_every=1, stale_s=60)
        poller = Poller([endpoint], policy=policy, now_s=time.monotonic)
        await poller.start()
        try:
            await until(lambda: endpoint.health.reachable is True and endpoint.healthy, within_s=40)
            await asyncio.to_thread(call, f"{engine.url}/pause?mode=keep")
            try:
                await until(lambda: not endpoint.healthy, within_s=40)
                assert (endpoint.health.reachable, endpoint.health.note) == (True, "paused")
            finally:
                await asyncio.to_thread(call, f"{engine.url}/resume")
            await until(lambda: endpoint.healthy, within_s=40)
        finally:
            await poller.stop()

    run(test, limit_s=110)
