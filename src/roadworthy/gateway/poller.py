"""Asks every engine once a second how it does: ``/health``, ``/metrics``, and now and then ``/v1/models``.

Each engine is asked by a task of its own, so a slow answer holds up no other engine and no request. Ready is an engine
that answers, is not paused, and whose metrics are fresh: vLLM's ``/health`` is 200 while its scheduler is paused or
asleep, and 503 only when its core is dead. One that is not ready is asked twice as often, so that it is used again
within two seconds of being back.
"""

from __future__ import annotations

import asyncio
import json
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

from roadworthy.gateway.endpoints import Endpoint, Health
from roadworthy.gateway.probe import Answer, Connection
from roadworthy.gateway.scrape import Scrape, read_metrics
from roadworthy.gateway.versions import version_in

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CARD_FIELDS = ("id", "object", "created", "owned_by", "max_model_len")
"""What clients see of an engine's model card: ``root`` would tell a path on its host, ``permission`` says nothing."""

JITTER_RATIO = 0.1
"""Rounds are this much shorter or longer at random: workers and gateways that started together do not ask together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """How often and how patiently.

    Args:
        interval_s: from the end of one round to the start of the next, for each engine.
        retry_s: the same for an engine that is not ready.
        timeout_s: for each of a round's questions.
        retry_timeout_s: the same for an engine that is not ready: one that hung must not hold up the next look.
        timeouts: this many rounds in a row without an answer in time make an engine unhealthy. A refused connection or
            a 5xx does at once; a busy engine may be slow.
        models_every: rounds between two looks at what changes seldom: the model list, whether it can be paused.
        stale_s: an engine whose metrics have come before and have not for so long is not ready.
    """

    interval_s: float = 1.0
    retry_s: float = 0.5
    timeout_s: float = 2.0
    retry_timeout_s: float = 1.0
    timeouts: int = 3
    models_every: int = 10
    stale_s: float = 10.0

    def pause_s(self, *, ready: bool, drawn: float) -> float:
        """From one round to the next; ``drawn`` is random, from 0 to 1."""
        return (self.interval_s if ready else min(self.retry_s, self.interval_s)) * (1 + JITTER_RATIO * (2 * drawn - 1))


class Observer(Protocol):
    """Who else wants to know, such as ``route.state.RoutingState``."""

    def capacity(self, url: str, kv_tokens: int) -> None: ...
    def engine_gone(self, url: str) -> None: ...


class Poller:
    """Keeps the endpoints' ``health`` and ``models`` current until it is stopped.

    Args:
        observer: hears of KV pools and of engines that stopped or started anew.
        jitter: a random number from 0 to 1.
    """

    def __init__(
        self,
        endpoints: Iterable[Endpoint],
        *,
        policy: PollPolicy,
        now_s: Callable[[], float],
        observer: Observer | None = None,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._policy = policy
        self._now_s = now_s
        self._observer = observer
        self._jitter = jitter
        self._engines = {one.url: self._engine(one) for one in endpoints}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def start(self) -> None:
        """A first round for every engine, then go on in the background. Engines that are slow to answer are not waited
        for longer than one question may take."""
        self._go_on()
        first = [asyncio.create_task(one.first_round_over.wait()) for one in self._engines.values()]
        if first:
            _, slow = await asyncio.wait(first, timeout=self._policy.timeout_s)
            for task in slow:
                task.cancel()

    def watch(self, endpoints: Iterable[Endpoint]) -> None:
        """These are the engines from now on; those that stay are asked on as before."""
        wanted = {one.url: one for one in endpoints}
        for url in self._engines.keys() - wanted.keys():
            del self._engines[url]
            if task := self._tasks.pop(url, None):
                task.cancel()
        for url, endpoint in wanted.items():
            known = self._engines.get(url)
            if known is None or known.endpoint is not endpoint:
                if task := self._tasks.pop(url, None):
                    task.cancel()
                self._engines[url] = self._engine(endpoint)
        self._go_on()

    async def stop(self) -> None:
        tasks, self._tasks = tuple(self._tasks.values()), {}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _engine(self, endpoint: Endpoint) -> _Polled:
        return _Polled(endpoint, self._policy, self._now_s, self._observer)

    def _go_on(self) -> None:
        for url, engine in self._engines.items():
            if url not in self._tasks:
                self._tasks[url] = asyncio.create_task(self._keep_asking(engine))

    async def _keep_asking(self, engine: _Polled) -> None:
        try:
            while True:
                await engine.round()
                await asyncio.sleep(self._policy.pause_s(ready=engine.endpoint.health.ready, drawn=self._jitter()))
        finally:
            engine.close()


class _Polled:
    """One engine and what is remembered of it between rounds."""

    def __init__(
        self, endpoint: Endpoint, policy: PollPolicy, now_s: Callable[[], float], observer: Observer | None
    ) -> None:
        self.endpoint = endpoint
        self.first_round_over = asyncio.Event()
        self._connection = Connection(endpoint.host, endpoint.port, endpoint.authority)
        self._policy, self._now_s, self._observer = policy, now_s, observer
        self._rounds = 0
        self._timeouts = 0
        self._scrape = Scrape()
        self._scraped_s: float | None = None  # when metrics last came
        self._can_be_paused = True  # until it says that it has no such page
        self._started_s: float | None = None
        self._kv_tokens: int | None = None

    async def round(self) -> None:
        """Look once at everything that is due."""
        try:
            await self._look(self._connection)
        finally:
            self._rounds += 1
            self.first_round_over.set()

    def close(self) -> None:
        """End the connection that is kept from one round to the next."""
        self._connection.close()

    async def _look(self, connection: Connection) -> None:
        endpoint, policy = self.endpoint, self._policy
        was = endpoint.health
        due = self._rounds % policy.models_every == 0
        timeout_s = policy.timeout_s if was.ready else min(policy.timeout_s, policy.retry_timeout_s)
        try:
            health = await connection.get("/health", timeout_s=timeout_s)
        except TimeoutError:
            self._timeouts += 1
            reachable = False if self._timeouts >= policy.timeouts else was.reachable
            note = f"no answer within {timeout_s:g} s"
            endpoint.probed(replace(was, reachable=reachable, note=note, checked_s=self._now_s()))
            return
        except OSError as error:
            if isinstance(error, ConnectionRefusedError):
                self._gone()
            self._unreachable(error.strerror or str(error))
            return
        self._timeouts = 0
        if health.status >= 500:  # vLLM says 503 when its core is dead; a 404 is an engine without that route
            self._unreachable(f"/health says {health.status}")
            return
        stale = await self._look_at_metrics(connection, timeout_s)
        paused = await self._look_whether_paused(connection, timeout_s, due=due or not was.reachable or was.paused)
        note = "paused" if paused else "asleep" if self._scrape.asleep else "its metrics are old" if stale else ""
        endpoint.probed(
            Health(
                reachable=True,
                note=note,
                running=self._scrape.running,
                waiting=self._scrape.waiting,
                kv_usage_ratio=self._scrape.kv_usage_ratio,
                checked_s=self._now_s(),
                paused=paused or self._scrape.asleep,
                stale=stale,
            )
        )
        if due or not was.reachable or not endpoint.models:
            await self._look_at_models(connection, timeout_s)

    def _unreachable(self, note: str) -> None:
        self.endpoint.probed(Health(reachable=False, note=note, checked_s=self._now_s()))

    async def _look_at_metrics(self, connection: Connection, timeout_s: float) -> bool:
        """Whether the metrics are stale: they came before, and have not for too long. What came last counts till then;
        an engine without metrics has none to be stale."""
        now_s = self._now_s()
        answer = await _asked(connection, "/metrics", timeout_s)
        if answer is not None and answer.status == 200:
            self._scrape = read_metrics(answer.body)
            self._scraped_s = now_s if self._scrape.loaded else None
            self._tell()
        elif answer is not None and answer.status == 404:
            self._scrape, self._scraped_s = Scrape(), None
        return self._scraped_s is not None and now_s - self._scraped_s > self._policy.stale_s

    def _tell(self) -> None:
        """Tell the endpoint and the observer what is new of the process and its pool."""
        scrape, observer = self._scrape, self._observer
        self.endpoint.block_tokens, self.endpoint.kv_blocks = scrape.block_tokens, scrape.kv_blocks
        if observer is None:
            return
        if scrape.started_s is not None and scrape.started_s != self._started_s:
            if self._started_s is not None:
                self._gone()
            self._started_s = scrape.started_s
        if scrape.kv_tokens is not None and scrape.kv_tokens != self._kv_tokens:
            self._kv_tokens = scrape.kv_tokens
            observer.capacity(self.endpoint.url, scrape.kv_tokens)

    def _gone(self) -> None:
        self._can_be_paused = True  # the next process may be started otherwise
        if self._observer is not None:
            self._observer.engine_gone(self.endpoint.url)

    async def _look_whether_paused(self, connection: Connection, timeout_s: float, *, due: bool) -> bool:
        """Only engines in development mode, or with our own routes, can be paused; the others have no such page."""
        if not self._can_be_paused and not due:
            return False
        answer = await _asked(connection, "/is_paused", timeout_s)
        if answer is None:
            return self.endpoint.health.paused and not self._scrape.asleep
        self._can_be_paused = answer.status == 200
        return self._can_be_paused and says_paused(answer.body)

    async def _look_at_models(self, connection: Connection, timeout_s: float) -> None:
        answer = await _asked(connection, "/v1/models", timeout_s)
        cards = model_cards(answer.body) if answer is not None and answer.status == 200 else ()
        if cards:
            self.endpoint.model_cards = cards
            self.endpoint.models = frozenset(str(card["id"]) for card in cards)
        version = await _asked(connection, "/version", timeout_s)
        if version is not None and version.status == 200:
            self.endpoint.version = version_in(version.body)


async def _asked(connection: Connection, path: str, timeout_s: float) -> Answer | None:
    """The answer, or None when there was none: what comes after ``/health`` may fail without the engine being ill."""
    try:
        return await connection.get(path, timeout_s=timeout_s)
    except OSError:
        return None


def load_of(metrics: bytes) -> tuple[int, int, float]:
    """Running and waiting requests and KV usage out of an engine's ``/metrics``; zeros where it says nothing."""
    scrape = read_metrics(metrics)
    return scrape.running, scrape.waiting, scrape.kv_usage_ratio


def says_paused(body: bytes) -> bool:
    """Whether ``/is_paused`` says yes; anything that is no such answer is no."""
    try:
        return json.loads(body)["is_paused"] is True
    except (ValueError, KeyError, TypeError):
        return False


def model_cards(body: bytes) -> tuple[dict[str, object], ...]:
    """The cards of an engine's model list, cut to what clients may see; empty when it is no such list."""
    try:
        listing = json.loads(body)
        entries = listing["data"]
        return tuple(
            {field: entry[field] for field in CARD_FIELDS if field in entry}
            for entry in entries
            if isinstance(entry["id"], str)
        )
    except (ValueError, KeyError, TypeError):
        return ()
