"""Everything at once: clients that leave, engines that refuse, die and come back; nothing may be left behind."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

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
    response,
)
from roadworthy.gateway.data.limits import Limits
from roadworthy.gateway.poller import PollPolicy
from support.gateway import RawClient, chat, client_of, gateway_before, post, run, until

CLIENTS, REQUESTS = 40, 12
EVENTS = chat_events(*"abcdefgh", usage=(3, 8))
STREAM = b"".join(EVENTS)


def moody(rng: random.Random) -> Answer:
    """An engine that answers well four times out of five."""

    async def answer(asked: Asked) -> None:
        mood = rng.random()
        stream = b'"stream": true' in asked.body
        if mood < 0.05:
            await asked.send(response(503, b"{}"))
        elif mood < 0.1 and stream:
            await asked.send(STREAM_HEAD + chunk(error_event(503)) + END)
        elif mood < 0.15:
            asked.cut()
        elif mood < 0.2 and stream:
            await asked.send(STREAM_HEAD + chunk(EVENTS[0]))
            asked.cut()
        elif not stream:
            await asked.send(response(200, completion()))
        else:
            await asked.send(STREAM_HEAD)
            for event in EVENTS:
                await asked.send(chunk(event))
            await asked.send(END)

    return answer


async def behave(client: RawClient, rng: random.Random, seen: Counter[str]) -> None:
    """A client's life; it leaves in the middle of something one time in six."""
    for _ in range(REQUESTS):
        stream = rng.random() < 0.7
        client.send(post(chat(stream=stream)))
        if rng.random() < 1 / 6:
            for _ in range(rng.randrange(5)):
                await asyncio.sleep(0)
            client.leave()
            seen["left"] += 1
            return
        answer = await client.response()
        if answer.status == 200 and answer.body in (STREAM, completion()):
            seen["whole"] += 1
        elif answer.status == 200:
            assert answer.body.startswith(EVENTS[0])
            assert b'{"error":{' in answer.body
            assert not answer.body.endswith(b"data: [DONE]\n\n")
            seen["died"] += 1
            return
        else:
            assert answer.code in ("engine_error", "engines_busy", "engines_unavailable")
            seen["error"] += 1


def open_descriptors() -> int:
    """How many files and sockets this process has open; 0 where the system does not tell."""
    folder = Path("/proc/self/fd")
    return len(list(folder.iterdir())) if folder.is_dir() else 0


def test_under_chaos_every_request_ends_and_nothing_leaks() -> None:
    rng = random.Random(20260)

    async def test() -> None:
        seen: Counter[str] = Counter()

        async def one() -> None:
            async with client_of(gateway) as client:
                await behave(client, rng, seen)

        async def restart() -> None:
            for _ in range(3):
                await until(lambda: gateway.status().in_flight > 0 or seen.total() > CLIENTS)
                await flaky.stop()
                await flaky.start()

        async with (
            FakeEngine(moody(rng)) as flaky,
            FakeEngine(moody(rng)) as a,
            FakeEngine(moody(rng)) as b,
            gateway_before(flaky, a, b, limits=Limits(sweep_s=0.01), poll=PollPolicy(interval_s=0.02)) as gateway,
        ):
            descriptors = open_descriptors()
            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(one())
                group.create_task(restart())
            await until(lambda: gateway.status().in_flight == 0 and gateway.status().client_connections == 0)
            status = gateway.status()
            assert [one.in_flight for one in status.endpoints] == [0, 0, 0]
            assert status.tenants[0].in_flight == 0
            assert seen["whole"] > 50, seen
            assert seen["left"] > 5, seen
            assert seen["died"] >= 1, seen
            # both ends of each idle engine connection are ours here, and probes come and go
            idle = sum(len(one.open) for one in (flaky, a, b))
            assert open_descriptors() <= descriptors + 2 * idle + 12

    run(test)
