"""Asks every engine once a second how it does: ``/health``, ``/metrics``, and now and then ``/v1/models``."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from roadworthy.gateway import probe
from roadworthy.gateway.endpoints import Endpoint, Health

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

CARD_FIELDS = ("id", "object", "created", "owned_by", "max_model_len")
"""What clients see of an engine's model card: ``root`` would tell a path on its host, ``permission`` says nothing."""

_GAUGES = re.compile(
    rb"^vllm:(num_requests_running|num_requests_waiting|kv_cache_usage_perc)(?:\{[^}\n]*\})? (\S+)", re.MULTILINE
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PollPolicy:
    """How often and how patiently.

    Args:
        interval_s: from the end of one round to the start of the next, for each engine.
        timeout_s: for each of a round's questions.
        timeouts: this many rounds in a row without an answer in time make an engine unhealthy. A refused connection or
            a 5xx does at once; a busy engine may be slow.
        models_every: rounds between two looks at the model list, once it is known.
    """

    interval_s: float = 1.0
    timeout_s: float = 2.0
    timeouts: int = 3
    models_every: int = 10


class Poller:
    """Keeps the endpoints' ``health`` and ``models`` current until it is stopped."""

    def __init__(self, endpoints: Iterable[Endpoint], *, policy: PollPolicy, now_s: Callable[[], float]) -> None:
        self._endpoints = tuple(endpoints)
        self._policy = policy
        self._now_s = now_s
        self._timeouts = dict.fromkeys((one.url for one in self._endpoints), 0)
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """One round for every engine, then go on in the background."""
        await asyncio.gather(*(self._round(endpoint, look_at_models=True) for endpoint in self._endpoints))
        self._tasks = [asyncio.create_task(self._keep_asking(endpoint)) for endpoint in self._endpoints]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _keep_asking(self, endpoint: Endpoint) -> None:
        rounds = 0
        while True:
            await asyncio.sleep(self._policy.interval_s)
            rounds += 1
            await self._round(endpoint, look_at_models=rounds % self._policy.models_every == 0)

    async def _round(self, endpoint: Endpoint, *, look_at_models: bool) -> None:
        was = endpoint.health
        try:
            health = await self._get(endpoint, "/health")
        except TimeoutError:
            self._timeouts[endpoint.url] += 1
            reachable = False if self._timeouts[endpoint.url] >= self._policy.timeouts else was.reachable
            note = f"no answer within {self._policy.timeout_s:g} s"
            endpoint.probed(replace(was, reachable=reachable, note=note, checked_s=self._now_s()))
            return
        except OSError as error:
            endpoint.probed(self._unreachable(error.strerror or str(error)))
            return
        self._timeouts[endpoint.url] = 0
        if health.status >= 500:  # vLLM says 503 when its core is dead; a 404 is an engine without that route
            endpoint.probed(self._unreachable(f"/health says {health.status}"))
            return
        running, waiting, kv_usage_ratio = await self._load(endpoint)
        endpoint.probed(
            Health(
                reachable=True, note="", running=running, waiting=waiting, kv_usage_ratio=kv_usage_ratio,
                checked_s=self._now_s(),
            )
        )  # fmt: skip
        if look_at_models or not was.reachable or not endpoint.models:
            await self._look_at_models(endpoint)

    def _unreachable(self, note: str) -> Health:
        return Health(reachable=False, note=note, checked_s=self._now_s())

    async def _load(self, endpoint: Endpoint) -> tuple[int, int, float]:
        try:
            answer = await self._get(endpoint, "/metrics")
        except OSError:
            return 0, 0, 0.0
        return load_of(answer.body) if answer.status == 200 else (0, 0, 0.0)

    async def _look_at_models(self, endpoint: Endpoint) -> None:
        try:
            answer = await self._get(endpoint, "/v1/models")
        except OSError:
            return
        cards = model_cards(answer.body) if answer.status == 200 else ()
        if cards:
            endpoint.model_cards = cards
            endpoint.models = frozenset(str(card["id"]) for card in cards)

    async def _get(self, endpoint: Endpoint, path: str) -> probe.Answer:
        return await probe.get(endpoint.host, endpoint.port, endpoint.authority, path, timeout_s=self._policy.timeout_s)


def load_of(metrics: bytes) -> tuple[int, int, float]:
    """Running and waiting requests and KV usage out of an engine's ``/metrics``; zeros where it says nothing.

    Ranks under data parallelism have a line each: requests add up, of usage the highest counts.
    """
    running = waiting = 0
    usage = 0.0
    for name, text in _GAUGES.findall(metrics):
        try:
            value = float(text)
        except ValueError:
            continue
        if not 0 <= value < 1e9:  # NaN included
            continue
        if name == b"num_requests_running":
            running += int(value)
        elif name == b"num_requests_waiting":
            waiting += int(value)
        else:
            usage = max(usage, min(1.0, value))
    return running, waiting, usage


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
