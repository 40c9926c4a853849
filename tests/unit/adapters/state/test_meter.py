"""What a shared meter does about a store that is silent, late or empty, on a store that does as the test says."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from roadworthy.adapters.state.meter import LOOKS, PAID_TOGETHER, SharedMeter
from roadworthy.core.errors import Temporary
from roadworthy.route.govern.values import Charge, Grant, Limits

TIMEOUT_S = 0.1
GIVEN = [1, 77, 20_000, 0]


class FakeStore:
    """Answers what the test puts into the futures that it hands out."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, asyncio.Future[list[int]]]] = []
        self.settled: list[tuple[str, int]] = []
        self.well = True
        self.probes = self.given_up = 0

    def _future(self, step: str) -> asyncio.Future[list[int]]:
        answer: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
        self.asked.append((step, answer))
        return answer

    def acquire(self, lease_id, charge, limits, *, ttl_us, seed):
        return self._future(f"acquire {lease_id} {seed}")

    def settle(self, tenant_id, lease_id, tokens):
        self.settled.append((lease_id, tokens))
        return self._at_once([1])

    def renew(self, tenant_id, grants, *, ttl_us, seed):
        return self._future(f"renew {seed}")

    def held(self, tenant_id, *, seed):
        return self._future("held")

    def probe(self):
        self.probes += 1
        return self._at_once([1])

    def _at_once(self, reply):
        answer = asyncio.get_running_loop().create_future()
        if self.well:
            answer.set_result(reply)
        else:
            answer.set_exception(Temporary("refused"))
        return answer

    async def give_up(self):
        self.given_up += 1

    async def close(self):
        pass


CHARGE = Charge(tenant_id="a", model="m", prompt_tokens=10, output_tokens=20, blocks=3)


def run(test: Callable[[FakeStore, SharedMeter], Awaitable[None]], **more: object) -> None:
    async def limited() -> None:
        store = FakeStore()
        meter = SharedMeter(store, answer_timeout_s=TIMEOUT_S, **more)  # type: ignore[arg-type]
        async with asyncio.timeout(30):
            await test(store, meter)
        await meter.close()

    asyncio.run(limited())


async def until(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.005)


def asking(meter: SharedMeter, lease_id: str) -> asyncio.Task[Grant]:
    return asyncio.ensure_future(meter.acquire(Limits(), CHARGE, lease_id))


def test_answers_that_are_read_late_because_the_process_was_held_up_are_answers() -> None:
    """The store has long answered; the loop stood still, and gets to the answer a few turns after its timers."""

    async def test(store: FakeStore, meter: SharedMeter) -> None:
        loop = asyncio.get_running_loop()
        asked = asking(meter, "1")
        await until(lambda: bool(store.asked))

        def read(turns: int) -> None:
            if turns:
                loop.call_soon(read, turns - 1)
            else:
                store.asked[-1][1].set_result(GIVEN)

        loop.call_soon(time.sleep, 3 * TIMEOUT_S)
        loop.call_soon(read, LOOKS + 5)
        assert (await asked).epoch == 77
        assert meter.failing == ""

    run(test)


def test_a_silent_store_fails_everybody_who_waits_and_then_everybody_at_once() -> None:
    async def test(store: FakeStore, meter: SharedMeter) -> None:
        waiting = [asking(meter, str(at)) for at in range(3)]
        told = await asyncio.gather(*waiting, return_exceptions=True)
        assert {str(one) for one in told} == {"the store of limits did not answer within 0.1 s"}
        assert all(isinstance(one, Temporary) for one in told)
        before = len(store.asked)
        with pytest.raises(Temporary):
            await meter.acquire(Limits(), CHARGE, "4")
        assert len(store.asked) == before
        await until(lambda: not meter.failing)
        assert store.given_up == 1
        # each may have been given behind our back
        await until(lambda: len(store.settled) == 3 and meter.owed == 0)
        assert sorted(store.settled) == [("0", 0), ("1", 0), ("2", 0)]

    run(test)


def test_a_store_that_is_slow_and_answers_one_after_the_other_is_not_silent() -> None:
    async def test(store: FakeStore, meter: SharedMeter) -> None:
        waiting = [asking(meter, str(at)) for at in range(8)]
        await until(lambda: len(store.asked) == 8)
        for _, answer in store.asked:
            await asyncio.sleep(TIMEOUT_S / 2)
            answer.set_result(GIVEN)
        assert len(await asyncio.gather(*waiting)) == 8

    run(test)


def test_settlements_wait_for_the_store_and_none_is_lost_or_sent_before_it_is_well() -> None:
    said: list[str] = []

    async def test(store: FakeStore, meter: SharedMeter) -> None:
        store.well = False
        owed = PAID_TOGETHER * 2 + 5
        for at in range(owed):
            grant = Grant(lease_id=str(at), tenant_id="a", charge=CHARGE)
            await meter.settle(grant, prompt_tokens=at, output_tokens=1)
            await meter.settle(grant, prompt_tokens=999, output_tokens=1)
        assert meter.owed == owed
        assert len(store.settled) == 1, "after the first failure nobody asks"
        await until(lambda: store.probes >= 2)
        assert (meter.failing, meter.owed) == ("refused", owed)
        store.well = True
        await until(lambda: meter.owed == 0)
        assert sorted(store.settled[1:]) == sorted((str(at), at + 1) for at in range(owed))

    run(test, say=said.append)
    assert said[0] == "limits: refused"
    assert said[1].startswith("limits: the store is back")
    assert len(said) == 2


def test_an_empty_store_is_told_what_the_day_has_used_and_the_ledger_is_read_once_for_many() -> None:
    read: list[str] = []

    def tokens_of_day(day: str) -> dict[str, int]:
        read.append(day)
        return {"a": 500}

    async def test(store: FakeStore, meter: SharedMeter) -> None:
        for at in range(3):
            asked = asking(meter, str(at))
            await until(lambda at=at: len(store.asked) == 2 * at + 1)  # type: ignore[misc]
            store.asked[-1][1].set_result([2, 20_000])
            await until(lambda at=at: len(store.asked) == 2 * at + 2)  # type: ignore[misc]
            store.asked[-1][1].set_result(GIVEN)
            await asked
        assert [step for step, _ in store.asked[:2]] == ["acquire 0 -1", "acquire 0 500"]

    run(test, tokens_of_day=tokens_of_day)
    assert read == ["2024-10-04"]


def test_a_ledger_that_cannot_be_read_then_is_no_reason_to_give_a_new_day() -> None:
    def tokens_of_day(day: str) -> dict[str, int]:
        raise Temporary("the ledger is locked")

    async def test(store: FakeStore, meter: SharedMeter) -> None:
        asked = asking(meter, "1")
        await until(lambda: bool(store.asked))
        store.asked[-1][1].set_result([2, 20_000])
        with pytest.raises(Temporary, match="the ledger is locked"):
            await asked
        assert meter.failing == "", "the store of limits itself is well"

    run(test, tokens_of_day=tokens_of_day)
