"""Limits on Redis or Valkey: one Lua script a step, several steps a round trip.

What is asked while an answer is awaited goes out together as soon as it is there, so one connection serves a worker
however many requests it admits at once.
"""

from __future__ import annotations

import asyncio
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import NoScriptError, RedisError

from roadworthy.adapters.state.trouble import trouble
from roadworthy.core.errors import SpecError, Temporary

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from roadworthy.adapters.state.meter import Reply
    from roadworthy.route.govern.values import Charge, Grant, Limits

CONNECT_TIMEOUT_S = 5.0
"""Who asks has given up long before; this only ends an attempt that nobody waits for any more."""

STEPS = ("acquire", "settle", "renew", "held", "probe")
MOST_TOGETHER = 256
"""Steps of one round trip: a store serves nobody else while it works on what came in at once."""

_Step = tuple[str, tuple[Any, ...], "asyncio.Future[Reply]"]


class RedisStore:
    """The five steps on the server at ``url``.

    Args:
        url: ``redis://``, ``rediss://``, ``valkey://``, ``valkeys://`` or ``unix://``.
        namespace: what keys begin with; deployments that share a server and not their tenants need one each.
        clock: microseconds of the epoch in place of the server's own time, for tests.

    Raises:
        SpecError: the URL cannot be used.
    """

    def __init__(self, url: str, *, namespace: str = "roadworthy", clock: Callable[[], int] | None = None) -> None:
        scheme, _, rest = url.partition("://")
        known = {"valkey": "redis", "valkeys": "rediss"}.get(scheme, scheme)
        self.place = f"{scheme}://{rest.rpartition('@')[2]}"
        try:
            self._client = Redis.from_url(
                f"{known}://{rest}",
                socket_connect_timeout=CONNECT_TIMEOUT_S,
                retry=Retry(NoBackoff(), 0),
                client_name="roadworthy",
                **({} if known == "unix" else {"socket_keepalive": True}),
            )
        except ValueError as error:
            raise SpecError(f"gateway.shared_url: {self.place}: {error}", hint="redis://HOST:PORT/0") from error
        self._namespace = namespace
        self._clock = clock
        begin = files(__package__).joinpath("lua/tenant.lua").read_text(encoding="utf-8")
        self._scripts = {
            step: begin + files(__package__).joinpath(f"lua/{step}.lua").read_text(encoding="utf-8") for step in STEPS
        }
        self._shas: dict[str, str] = {}
        self._asked: list[_Step] = []
        self._under_way: list[_Step] = []
        self._sending: asyncio.Task[None] | None = None

    def acquire(
        self, lease_id: str, charge: Charge, limits: Limits, *, ttl_us: int, seed: int
    ) -> asyncio.Future[Reply]:
        return self._ask(
            "acquire", charge.tenant_id, seed,
            lease_id, charge.prompt_tokens, charge.output_tokens, charge.blocks, ttl_us,
            *(
                -1 if limit is None else limit
                for limit in (
                    limits.concurrency, limits.daily_tokens, limits.requests_per_minute, limits.tokens_per_minute,
                    limits.kv_blocks,
                )
            ),
        )  # fmt: skip

    def settle(self, tenant_id: str, lease_id: str, tokens: int) -> asyncio.Future[Reply]:
        return self._ask("settle", tenant_id, -1, lease_id, tokens)

    def renew(self, tenant_id: str, grants: Sequence[Grant], *, ttl_us: int, seed: int) -> asyncio.Future[Reply]:
        leases: list[Any] = []
        for grant in grants:
            charge = grant.charge
            leases += (
                grant.lease_id, grant.epoch, charge.prompt_tokens, charge.output_tokens, charge.blocks,
                int(grant.borrowed), grant.day,
            )  # fmt: skip
        return self._ask("renew", tenant_id, seed, ttl_us, *leases)

    def held(self, tenant_id: str, *, seed: int) -> asyncio.Future[Reply]:
        return self._ask("held", tenant_id, seed)

    def probe(self) -> asyncio.Future[Reply]:
        return self._ask("probe", "", 0)

    async def give_up(self) -> None:
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
            self._sending = None
        lost, self._asked, self._under_way = self._under_way + self._asked, [], []
        for _, _, answer in lost:
            if not answer.done():
                answer.set_exception(Temporary(f"{self.place}: no answer"))
                answer.exception()  # who asked may be gone, and that is no mistake
        await self._client.connection_pool.disconnect()

    async def close(self) -> None:
        await self.give_up()
        await self._client.aclose()

    def _ask(self, step: str, tenant_id: str, seed: int, *arguments: Any) -> asyncio.Future[Reply]:
        tenant = f"{self._namespace}:{{{tenant_id}}}"  # the braces keep a tenant's keys on one node of a cluster
        now = self._clock() if self._clock is not None else 0
        answer: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        keys = (f"{tenant}:row", f"{tenant}:leases", f"{tenant}:charges", f"{tenant}:over")
        self._asked.append((step, (4, *keys, now, seed, *arguments), answer))
        if self._sending is None or self._sending.done():
            self._sending = asyncio.create_task(self._send())
        return answer

    async def _send(self) -> None:
        while self._asked:
            self._under_way, self._asked = self._asked[:MOST_TOGETHER], self._asked[MOST_TOGETHER:]
            try:
                replies = await self._answers(self._under_way)
            except (RedisError, OSError) as error:
                replies = [error] * len(self._under_way)
            for (_, _, answer), reply in zip(self._under_way, replies, strict=True):
                if answer.done():
                    continue
                if isinstance(reply, Exception):
                    answer.set_exception(trouble(self.place, reply))
                else:
                    answer.set_result(reply if isinstance(reply, list) else [reply])
            self._under_way = []

    async def _answers(self, steps: Sequence[_Step]) -> list[Any]:
        """The replies, or the errors in their place. A connection that broke, and scripts that a restart swept away,
        are mended once: every step may be asked again."""
        try:
            replies = await self._round_trip(steps)
        except (Disconnected, OSError):
            await self._client.connection_pool.disconnect()
            replies = await self._round_trip(steps)
        again = [at for at, reply in enumerate(replies) if isinstance(reply, NoScriptError)]
        if again:
            self._shas.clear()
            for at, reply in zip(again, await self._round_trip([steps[at] for at in again]), strict=True):
                replies[at] = reply
        return replies

    async def _round_trip(self, steps: Sequence[_Step]) -> list[Any]:
        if not self._shas:
            self._shas = {step: str(await self._client.script_load(text)) for step, text in self._scripts.items()}
        pipeline = self._client.pipeline(transaction=False)
        for step, arguments, _ in steps:
            pipeline.execute_command("EVALSHA", self._shas[step], *arguments)
        replies: list[Any] = await pipeline.execute(raise_on_error=False)
        return replies
