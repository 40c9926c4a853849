"""What routing remembers between requests: the ring, prefixes by engine, long prompts in flight, bytes a token.

One object for one gateway worker, or one simulation. A request's way through it::

    describe   before anything is decided: lane, estimated tokens, prefix keys
    choose     (route.pick) reads
    dispatched once an engine was chosen
    ended      exactly once for each ``dispatched``, whatever came of it

The poller and the event subscriber tell it of engines: ``capacity``, ``engine_gone``, ``kv_*``.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

from roadworthy.route.confirm import Confirmations
from roadworthy.route.lanes import LongPrompts
from roadworthy.route.prefix import STEP_BYTES, EngineIndex, prefix_keys, prompt_start, salt_of
from roadworthy.route.ring import Ring
from roadworthy.route.values import Decision, RouteRequest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from roadworthy.route.settings import RoutingSettings
    from roadworthy.route.values import EndpointView

MODELS_REMEMBERED = 256
"""Models whose bytes a token are learned, and (tenant, model) pairs whose salt is kept."""

BYTES_PER_TOKEN_LEAST, BYTES_PER_TOKEN_MOST = 1.0, 16.0
LEARN_RATIO = 0.05
LEARN_FROM_BYTES = 512
"""Below it the chat template's own tokens and JSON's quotes are most of the prompt."""


class Placement:
    """One request on one engine, from ``dispatched`` to ``ended``."""

    __slots__ = ("known", "request", "url")

    def __init__(self, request: RouteRequest, url: str, known: int) -> None:
        self.request = request
        self.url = url
        self.known = known  # keys that the engine was supposed to hold before


class KnownEngine:
    """What is remembered of one engine."""

    __slots__ = ("confirmations", "events_live", "index", "ring_index")

    def __init__(self, ring_index: int, entries: int) -> None:
        self.ring_index = ring_index
        self.index = EngineIndex(entries=entries)
        self.confirmations = Confirmations(self.index)
        self.events_live = False


class RoutingState:
    """See the module. ``urls`` are the engines in the document's order; ``set_engines`` replaces them."""

    def __init__(self, settings: RoutingSettings, urls: Iterable[str] = ()) -> None:
        self.settings = settings
        self.sessions = settings.policy in ("affinity", "session")
        self.prefixes = settings.policy in ("affinity", "prefix")
        self.long_prompts = LongPrompts()
        self._long_lane = settings.long_lane
        self._assumed_bytes_per_token = settings.bytes_per_token
        self.plain: dict[str, Decision] = {}  # by engine: routed by load, with nothing to say
        self.known: dict[str, KnownEngine] = {}
        self._capacity_tokens: dict[str, int] = {}
        self._bytes_per_token: OrderedDict[str, float] = OrderedDict()
        self._salts: OrderedDict[tuple[str, str], int] = OrderedDict()
        self._seen: Sequence[EndpointView] | None = None
        self.ring = Ring((), points=1)
        self.set_engines(urls)

    # engines

    def set_engines(self, urls: Iterable[str]) -> None:
        """These are the engines from now on; what is known of those that stay is kept."""
        names = tuple(dict.fromkeys(urls))
        entries = max(1, self.settings.index_entries // max(1, len(names)))
        engines: dict[str, KnownEngine] = {}
        for at, url in enumerate(names):
            engine = self.known.get(url)
            if engine is None:
                engine = KnownEngine(at, entries)
            engine.ring_index = at
            engine.index.entries = entries
            engines[url] = engine
        self.known = engines
        self.plain = {url: Decision(outcome="routed", endpoint=url) for url in names}
        self.ring = Ring(names, points=self.settings.ring_points)
        self._seen = None

    def see(self, endpoints: Sequence[EndpointView]) -> None:
        """Follow a list of engines that has changed since; costs nothing while it is the same object."""
        if endpoints is not self._seen:
            names = tuple([one.url for one in endpoints])
            if names != self.ring.names:
                self.set_engines(names)
            self._seen = endpoints

    def capacity(self, url: str, kv_tokens: int) -> None:
        """The engine's KV pool holds so many tokens; the index forgets what no longer fits in it."""
        self._capacity_tokens[url] = kv_tokens
        self._fit(url)

    def engine_gone(self, url: str) -> None:
        """The engine stopped or restarted: it holds nothing."""
        engine = self.known.get(url)
        if engine is not None:
            engine.index.clear()
            engine.confirmations.clear()
            engine.events_live = False  # until the next one comes: another process may publish none
            self._fit(url)

    # requests

    def describe(
        self,
        *,
        tenant_id: str,
        model: str,
        stream: bool,
        body: bytes,
        max_tokens: int | None = None,
        session_id: str | None = None,
        request_id: str = "",
    ) -> RouteRequest:
        """The request as routing sees it, its lane decided. ``body`` is the request's, as it came."""
        start = prompt_start(body)
        text_bytes = len(body) - start
        tokens = int(text_bytes / self._bytes_per_token.get(model, self._assumed_bytes_per_token))
        keys: tuple[int, ...] = ()
        if text_bytes >= STEP_BYTES and self.prefixes and len(self.known) > 1:  # one engine: nothing to choose
            keys = prefix_keys(body, self._salt(tenant_id, model), start)
        long_lane = self._long_lane
        return RouteRequest(
            tenant_id=tenant_id,
            model=model,
            stream=stream,
            max_tokens=max_tokens,
            prompt_bytes=len(body),
            session_id=session_id,
            prompt_tokens=tokens,
            prefix_keys=keys,
            text_bytes=text_bytes,
            lane="long" if long_lane is not None and tokens > long_lane.above_tokens else "main",
            request_id=request_id,
        )

    def matched(self, url: str, keys: Sequence[int]) -> int:
        """How many of a prompt's keys the engine at ``url`` should hold."""
        return self.known[url].index.matched(keys)

    def dispatched(self, request: RouteRequest, url: str) -> Placement:
        """``request`` goes to the engine at ``url``; what the engine will hold of it is remembered at once, so that
        requests right behind it with the same beginning follow."""
        known = 0
        engine = self.known.get(url)
        keys = request.prefix_keys
        if engine is not None and keys:
            known = engine.index.matched(keys)
            engine.index.add(keys)
            if engine.events_live and request.request_id:
                engine.confirmations.expect(request.request_id)
        if request.lane == "long":
            self.long_prompts.started(url)
        return Placement(request, url, known)

    def ended(self, placement: Placement, *, answered: bool, prompt_tokens: int | None = None) -> None:
        """It is over. ``answered`` is whether the engine computed the prompt (it sent a first token or an answer);
        ``prompt_tokens`` is what ``usage`` said, None when it said nothing."""
        request, url = placement.request, placement.url
        if request.lane == "long":
            self.long_prompts.ended(url)
        engine = self.known.get(url)
        keys = request.prefix_keys
        if not answered:
            prompt_tokens = None
        elif prompt_tokens:
            self.learn(request.model, prompt_bytes=request.text_bytes, prompt_tokens=prompt_tokens)
        if engine is None or not keys:
            return
        if not answered:
            for key in keys[placement.known :]:
                engine.index.forget(key)
        if engine.events_live and request.request_id:
            engine.confirmations.settle(
                request.request_id, keys, prompt_bytes=request.text_bytes, prompt_tokens=prompt_tokens
            )

    def bytes_per_token(self, model: str) -> float:
        """Bytes of a request's body for each token of its prompt, as learned from answers' ``usage``."""
        return self._bytes_per_token.get(model, self.settings.bytes_per_token)

    def learn(self, model: str, *, prompt_bytes: int, prompt_tokens: int) -> None:
        """A prompt of so many bytes was so many tokens."""
        if prompt_bytes < LEARN_FROM_BYTES or prompt_tokens < 1:
            return
        seen = min(BYTES_PER_TOKEN_MOST, max(BYTES_PER_TOKEN_LEAST, prompt_bytes / prompt_tokens))
        learned = self._bytes_per_token
        before = learned.get(model)
        learned[model] = seen if before is None else before + LEARN_RATIO * (seen - before)
        if len(learned) > MODELS_REMEMBERED:
            learned.popitem(last=False)
        if before is None:
            for url in self._capacity_tokens:
                self._fit(url)

    # what engines publish of their blocks

    def kv_live(self, url: str, live: bool) -> None:
        """The engine's events are received from now on, or no longer are."""
        engine = self.known.get(url)
        if engine is not None:
            engine.events_live = live
            if not live:
                engine.confirmations.clear()
            self._fit(url)

    def kv_stored(
        self, url: str, request_id: str | None, parent: int | None, blocks: Sequence[int], block_tokens: int
    ) -> None:
        engine = self.known.get(url)
        if engine is not None:
            if not engine.events_live:
                self.kv_live(url, True)
            engine.confirmations.stored(request_id, parent, blocks, block_tokens)

    def kv_removed(self, url: str, blocks: Sequence[int]) -> None:
        engine = self.known.get(url)
        if engine is not None:
            engine.confirmations.removed(blocks)

    def kv_dropped(self, url: str) -> None:
        """The engine has dropped its whole cache and goes on."""
        engine = self.known.get(url)
        if engine is not None:
            engine.index.clear()
            engine.confirmations.dropped()

    def kv_missed(self, url: str) -> None:
        """Some events were lost: what was confirmed is supposition again."""
        engine = self.known.get(url)
        if engine is not None:
            engine.confirmations.clear()

    def kv_confirmed(self, url: str) -> tuple[int, int, int]:
        """Keys whose blocks are known now, and how many were ever confirmed and refuted."""
        known = self.known[url].confirmations
        return len(known), known.confirmed_total, known.refuted_total

    def held_bytes(self, url: str) -> int:
        """Bytes of prompts that the engine at ``url`` should hold."""
        return self.known[url].index.held_bytes

    # within

    def _fit(self, url: str) -> None:
        """Bound the index by the engine's pool, unless the engine itself tells what it drops."""
        engine, tokens = self.known.get(url), self._capacity_tokens.get(url)
        if engine is None:
            return
        if tokens is None or engine.events_live:
            engine.index.capacity_bytes = None
        else:
            learned = self._bytes_per_token.values()
            per_token = sum(learned) / len(learned) if learned else self.settings.bytes_per_token
            engine.index.capacity_bytes = int(tokens * per_token)

    def _salt(self, tenant_id: str, model: str) -> int:
        salt = self._salts.get((tenant_id, model))
        if salt is None:
            salt = self._salts[tenant_id, model] = salt_of(tenant_id, model)
            if len(self._salts) > MODELS_REMEMBERED:
                self._salts.popitem(last=False)
        return salt
