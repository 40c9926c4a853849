"""Every kind of meter behind one face, in virtual time: what one is held to, all are."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from roadworthy.adapters.state.meter import SharedMeter
from roadworthy.adapters.state.meters import store_at
from roadworthy.route.govern.meter import LocalMeter
from roadworthy.route.govern.values import Charge, Grant, Held, Limits

KINDS = ("local", "sqlite", "postgres", "redis", "valkey")
SHARED = KINDS[1:]
TTL_S = 30.0
TICK_US = 15_625
"""1/64 s: multiples of it are exact as doubles of seconds, so that every meter can be held to the microsecond."""

START_US = 20_700 * 86_400_000_000 + 36_000_000_000
BOOT_US = START_US - 10 * 86_400_000_000
"""Zero on the clock of the meter in process: a host that has been up for ten days."""

Answer = TypeVar("Answer")


class VirtualClock:
    """Microseconds of the epoch, moved by the test."""

    def __init__(self) -> None:
        self.now_us = START_US

    def __call__(self) -> int:
        return self.now_us

    def advance(self, seconds: float) -> None:
        ticks = round(seconds * 1_000_000 / TICK_US)
        self.now_us += ticks * TICK_US


class AsyncLocal:
    """LocalMeter with the face of a shared one."""

    def __init__(self, clock: VirtualClock) -> None:
        self._meter = LocalMeter(wall_offset_s=BOOT_US / 1e6)
        self._clock = clock
        self.ttl_s = float("inf")

    @property
    def _now_s(self) -> float:
        return (self._clock.now_us - BOOT_US) / 1e6

    async def acquire(self, limits: Limits, charge: Charge, lease_id: str) -> Grant:
        return self._meter.acquire(limits, charge, lease_id, self._now_s)

    async def settle(self, grant: Grant, *, prompt_tokens: int, output_tokens: int) -> None:
        self._meter.settle(grant, prompt_tokens=prompt_tokens, output_tokens=output_tokens, now_s=self._now_s)

    async def renew(self, grants: Iterable[Grant]) -> tuple[Grant, ...]:
        return self._meter.renew(grants, self._now_s)

    async def held(self, tenant_id: str) -> Held:
        return self._meter.held(tenant_id, self._now_s)

    async def close(self) -> None:
        pass


class Bench:
    """A meter, its clock and the loop it lives on; tests stay synchronous."""

    def __init__(self, kind: str, url: str) -> None:
        self.kind, self.url = kind, url
        self.clock = VirtualClock()
        self._runner = asyncio.Runner()
        self.meter = self.another()

    @property
    def shared(self) -> bool:
        return self.kind != "local"

    def another(self, **more: Any) -> Any:
        """One more meter on the same store, as another worker has it."""
        if not self.shared:
            return AsyncLocal(self.clock)
        # virtual time stands still while a busy machine makes us wait, and so no answer comes too late
        settings: dict[str, Any] = {"ttl_s": TTL_S, "answer_timeout_s": 20.0, **more}
        return SharedMeter(store_at(self.url, clock=self.clock), **settings)

    def do(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        return self._runner.run(work)

    def close(self) -> None:
        self.do(self.meter.close())
        self._runner.close()


def charge(tenant_id: str, prompt_tokens: int = 10, output_tokens: int = 20, blocks: int = 3) -> Charge:
    return Charge(
        tenant_id=tenant_id, model="m", prompt_tokens=prompt_tokens, output_tokens=output_tokens, blocks=blocks
    )
