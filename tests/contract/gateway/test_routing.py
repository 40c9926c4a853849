"""Where requests go: conversations stay together, prompts follow their beginnings, long ones keep to their lane."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import AsyncExitStack

import msgspec
import pytest
import zmq

from fakes.engine import Answer, Asked, FakeEngine, completion, hang, plain
from roadworthy.gateway import metrics
from roadworthy.gateway.poller import PollPolicy
from roadworthy.route.settings import LongLane, RoutingSettings
from roadworthy.spec.values import Tenant
from support.gateway import RawClient, chat, client_of, gateway_before, post, run, until

SESSION_ONLY = RoutingSettings(policy="session")
OTHER = Tenant(id="other", key="sk-other")


async def engines(stack: AsyncExitStack, count: int = 4, answer: Answer | None = None) -> list[FakeEngine]:
    return [await stack.enter_async_context(FakeEngine(answer or plain())) for _ in range(count)]


def served(fleet: list[FakeEngine]) -> list[int]:
    return [len(engine.requests) for engine in fleet]


def asking(words: str, **fields: object) -> dict[str, object]:
    return chat(stream=False) | {"messages": [{"role": "user", "content": words}]} | fields


async def ask_ok(client: RawClient, data: bytes) -> None:
    answer = await client.ask(data)
    assert answer.status == 200, answer.body


@pytest.mark.parametrize(
    "name",
    [
        lambda n: {"headers": [f"X-Session-ID: {n}"]},
        lambda n: {"fields": {"session_id": n}},
        lambda n: {"fields": {"prompt_cache_key": n}},
        lambda n: {"fields": {"user": n}},
    ],
    ids=["header", "session_id", "prompt_cache_key", "user"],
)
def test_requests_of_one_conversation_go_to_one_engine_however_it_is_named(name: object) -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack)
            gateway = await stack.enter_async_context(gateway_before(*fleet, routing=SESSION_ONLY))
            client = await stack.enter_async_context(client_of(gateway))
            homes = set()
            for conversation in range(12):
                before = served(fleet)
                named = name(f"s{conversation}")  # type: ignore[operator]
                for turn in range(3):
                    body = asking(f"turn {turn}", **named.get("fields", {}))
                    await ask_ok(client, post(body, headers=named.get("headers", ())))
                grown = [after - was for was, after in zip(before, served(fleet), strict=True)]
                assert sorted(grown) == [0, 0, 0, 3]
                homes.add(grown.index(3))
            assert len(homes) > 1
            assert not any("session_id" in asked.json() for engine in fleet for asked in engine.requests)

    run(test)


def test_the_header_goes_before_the_body_and_may_have_another_name() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack)
            gateway = await stack.enter_async_context(
                gateway_before(*fleet, routing=SESSION_ONLY, session_header="x-conversation")
            )
            client = await stack.enter_async_context(client_of(gateway))
            for number in range(12):
                body = asking("hi", user=f"user-{number}")
                await ask_ok(client, post(body, headers=["X-Conversation: one", f"X-Session-ID: {number}"]))
            assert sorted(served(fleet)) == [0, 0, 0, 12]

    run(test)


def test_two_tenants_conversations_of_one_name_are_told_apart() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack)
            tenants = tuple(Tenant(id=f"t{number}", key=f"sk-{number}") for number in range(16))
            gateway = await stack.enter_async_context(gateway_before(*fleet, tenants=tenants, routing=SESSION_ONLY))
            client = await stack.enter_async_context(client_of(gateway))
            for number in range(16):
                await ask_ok(client, post(asking("hi"), key=f"sk-{number}", headers=["X-Session-ID: same"]))
            assert sum(count > 0 for count in served(fleet)) > 1

    run(test)


def test_a_conversation_without_a_name_is_found_by_its_beginning() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack)
            gateway = await stack.enter_async_context(gateway_before(*fleet))
            client = await stack.enter_async_context(client_of(gateway))
            homes = []
            for conversation in range(4):
                text = f"conversation {conversation}: " + "many words " * 400
                before = served(fleet)
                for turn in range(4):
                    text += f" and turn {turn}" * 20
                    await ask_ok(client, post(asking(text)))
                grown = [after - was for was, after in zip(before, served(fleet), strict=True)]
                assert sorted(grown) == [0, 0, 0, 4]
                homes.append(grown.index(4))
            assert Counter(homes).most_common(1)[0][1] == 1, "new conversations go where there is least"

    run(test)


def test_when_the_engine_of_a_conversation_dies_it_goes_on_elsewhere_and_stays_there() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack, 3)
            gateway = await stack.enter_async_context(gateway_before(*fleet, routing=SESSION_ONLY))
            client = await stack.enter_async_context(client_of(gateway))
            headers = ["X-Session-ID: s"]
            await ask_ok(client, post(asking("hi"), headers=headers))
            home = served(fleet).index(1)
            await fleet[home].stop()
            for _ in range(6):
                await ask_ok(client, post(asking("hi"), headers=headers))
            assert sorted(served(fleet)) == [0, 1, 6]

    run(test)


def test_an_engine_that_leaves_moves_its_own_conversations_alone_and_gets_them_back() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack)
            quick = PollPolicy(interval_s=0.05, retry_s=0.02)
            gateway = await stack.enter_async_context(gateway_before(*fleet, poll=quick))
            client = await stack.enter_async_context(client_of(gateway))

            async def homes() -> list[int]:
                found = []
                for number in range(60):
                    before = served(fleet)
                    await ask_ok(client, post(asking("hi"), headers=[f"X-Session-ID: {number}"]))
                    found.append(next(at for at, was in enumerate(before) if served(fleet)[at] > was))
                return found

            before = await homes()
            assert set(before) == {0, 1, 2, 3}
            assert await homes() == before
            await fleet[1].stop()
            without = await homes()
            assert [new for old, new in zip(before, without, strict=True) if old != 1] == [
                old for old in before if old != 1
            ]
            assert len({new for old, new in zip(before, without, strict=True) if old == 1}) > 1, "spread over the rest"
            await fleet[1].start()
            await until(lambda: gateway.status().endpoints[1].healthy)
            assert await homes() == before

    run(test)


def test_with_many_requests_at_once_no_engine_gets_more_than_its_bound() -> None:
    """Every request waits at its engine, so load is what was sent; one conversation of two is the same one."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack, 4, hang())
            gateway = await stack.enter_async_context(gateway_before(*fleet))
            for number in range(48):
                client = await stack.enter_async_context(client_of(gateway))
                name = "popular" if number % 2 else str(number)
                client.send(post(asking("hi"), headers=[f"X-Session-ID: {name}"]))
                await until(lambda: sum(served(fleet)) == number + 1)  # noqa: B023
                assert max(served(fleet)) <= max(4, math.ceil(1.25 * (number + 1) / 4))

    run(test)


def test_long_prompts_keep_to_their_engines_and_others_leave_those_alone() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack, 3, plain(body=completion(usage=(2000, 2))))
            lane = LongLane(above_tokens=1000, engines=(fleet[2].url,))
            gateway = await stack.enter_async_context(gateway_before(*fleet, routing=RoutingSettings(long_lane=lane)))
            client = await stack.enter_async_context(client_of(gateway))
            for number in range(6):
                await ask_ok(client, post(asking(f"{number} long " * 2000)))
                await ask_ok(client, post(asking(f"{number} short")))
            assert served(fleet) == [3, 3, 6]

    run(test)


def test_a_long_prompt_beyond_the_slots_is_told_to_come_again_and_a_short_one_passes() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack, 2, hang())
            settings = RoutingSettings(long_lane=LongLane(above_tokens=1000, slots=1))
            gateway = await stack.enter_async_context(gateway_before(*fleet, routing=settings))
            waiting = [await stack.enter_async_context(client_of(gateway)) for _ in range(2)]
            for number, client in enumerate(waiting):
                client.send(post(asking(f"{number} " * 4000)))
            await until(lambda: served(fleet) == [1, 1])
            late = await stack.enter_async_context(client_of(gateway))
            refused = await late.ask(post(asking("x" * 9000)))
            assert (refused.status, refused.code) == (503, "long_lane_full")
            assert refused.headers["retry-after"] == "1"
            short = await stack.enter_async_context(client_of(gateway))
            short.send(post(asking("short")))
            await until(lambda: sum(served(fleet)) == 3)
            waiting[0].leave()
            await until(lambda: sum(one.in_flight for one in gateway.status().endpoints) == 2)
            late.send(post(asking("x" * 9000)))
            await until(lambda: sum(served(fleet)) == 4)

    run(test)


def test_only_engines_that_publish_get_a_session_and_it_is_ours() -> None:
    async def test() -> None:
        async with AsyncExitStack() as stack:
            fleet = await engines(stack, 2)
            gateway = await stack.enter_async_context(
                gateway_before(*fleet, kv_events=((fleet[0].url, ("tcp://127.0.0.1:1",)),))
            )
            client = await stack.enter_async_context(client_of(gateway))
            for number in range(12):
                await ask_ok(client, post(asking("hi"), headers=[f"X-Session-ID: theirs-{number}"]))
            (publishing, silent) = fleet
            assert publishing.requests
            assert silent.requests
            for asked in publishing.requests:
                assert asked.header("x-session-id") == asked.header("x-request-id") is not None
            assert [asked.header("x-session-id") for asked in silent.requests] == [None] * len(silent.requests)

    run(test)


class Publisher:
    """What an engine publishes beside its answers."""

    def __init__(self, context: zmq.Context[zmq.Socket[bytes]]) -> None:
        self.socket = context.socket(zmq.PUB)
        self.address = f"tcp://127.0.0.1:{self.socket.bind_to_random_port('tcp://127.0.0.1')}"
        self.sent = 0

    def say(self, *events: dict[str, object]) -> None:
        payload = msgspec.msgpack.encode([0.0, list(events), 0])
        self.socket.send_multipart([b"", self.sent.to_bytes(8, "big"), payload])
        self.sent += 1

    def stores(self, blocks: int) -> Answer:
        """Answers, and says that it stored the first ``blocks`` blocks of 16 tokens of the prompt."""

        async def answer(asked: Asked) -> None:
            self.say(
                {
                    "type": "BlockStored", "block_hashes": list(range(1, blocks + 1)), "parent_block_hash": None,
                    "token_ids": [], "block_size": 16, "medium": "GPU", "session_id": asked.header("x-session-id"),
                }
            )  # fmt: skip
            await asyncio.sleep(0.05)  # events and answers take different ways
            await plain(body=completion(usage=(2000, 2)))(asked)

        return answer


def test_what_an_engine_evicts_is_no_longer_looked_for_there() -> None:
    """Events over a real socket: a prompt is stored and followed, then evicted, and the next request goes by load."""

    async def test() -> None:
        async with AsyncExitStack() as stack:
            context: zmq.Context[zmq.Socket[bytes]] = zmq.Context()
            stack.callback(context.term)
            publisher = Publisher(context)
            stack.callback(publisher.socket.close, 0)
            first, second = await engines(stack, 2, plain(body=completion(usage=(2000, 2))))
            first.answer = publisher.stores(125)
            events = ((first.url, (publisher.address,)),)
            gateway = await stack.enter_async_context(gateway_before(first, second, kv_events=events))
            client = await stack.enter_async_context(client_of(gateway))
            stream = gateway._kv_events.streams[0]
            while not stream.messages:  # a subscription takes a moment, and what is sent before is lost
                publisher.say()
                await asyncio.sleep(0.01)

            prompt = post(asking("some words " * 730))  # 8 KiB
            for count in (1, 2, 3):
                await ask_ok(client, prompt)
                assert served([first, second]) == [count, 0]
            page = metrics.render(gateway.snapshot()).decode()
            assert f'roadworthy_gateway_engine_prefix_confirmed{{endpoint="{first.url}"}} 7.0' in page
            publisher.say({"type": "BlockRemoved", "block_hashes": list(range(10, 126)), "medium": "GPU"})
            await until(lambda: stream.expected == publisher.sent)
            page = metrics.render(gateway.snapshot()).decode()
            assert f'roadworthy_gateway_engine_kv_events_missed{{endpoint="{first.url}"}} 0.0' in page
            assert f'roadworthy_gateway_engine_prefix_confirmed{{endpoint="{first.url}"}} 0.0' in page
            await ask_ok(client, prompt)
            assert served([first, second]) == [3, 1]
            page = metrics.render(gateway.snapshot()).decode()
            assert 'roadworthy_gateway_routed_total{by="prefix"} 2.0' in page
            assert 'roadworthy_gateway_routed_total{by="load"} 2.0' in page

    run(test)
