"""Live state of one engine: where it is, how it does, what we have sent it, and its unused connections."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from roadworthy.core.errors import Problem, SpecError
from roadworthy.gateway.data.routes import ROUTES
from roadworthy.route.breaker import Breaker, BreakerPolicy, BreakerState

if TYPE_CHECKING:
    from collections.abc import Callable

    from roadworthy.gateway.data.engine import EngineConnection

REST_S = 0.25
"""How long an engine that said "full" is passed over while another is open to us."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    """What one round of probes saw of an engine.

    ``reachable`` None means not probed yet. Loads are of the engine's own metrics, all of its data-parallel ranks
    added up, KV usage of the fullest. ``paused`` is an engine that answers and holds requests back (paused, or asleep);
    ``stale`` one whose metrics, once there, have not come for too long.
    """

    reachable: bool | None = None
    note: str = "not probed yet"
    running: int = 0
    waiting: int = 0
    kv_usage_ratio: float = 0.0
    checked_s: float | None = None
    paused: bool = False
    stale: bool = False

    @property
    def ready(self) -> bool:
        """Whether requests should go there; an engine not probed yet gets the benefit of the doubt."""
        return self.reachable is not False and not self.paused and not self.stale


class Endpoint:
    """One engine, as the data plane uses it and the poller updates it. Satisfies ``route.values.EndpointView``."""

    def __init__(self, url: str, *, policy: BreakerPolicy, now_s: Callable[[], float]) -> None:
        self.url = url
        self.host, self.port = host_and_port(url)
        self.authority = f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"
        self.breaker = Breaker(policy)
        self.health = Health()
        self.models: frozenset[str] = frozenset()
        self.model_cards: tuple[dict[str, object], ...] = ()
        self.draining = False
        self.retired = False
        self.version = ""  # as it says; empty while it has not
        self.publishes = False  # KV events; it repeats in them the session that we name, which is our request's id
        self.block_tokens = 0  # of its KV cache; 0 while not known
        self.kv_blocks: int | None = None  # of its pools together; None while not known
        self._heads: dict[tuple[str, str], bytes] = {}
        self.backlogged = False  # governance's word
        self.in_flight = 0
        self.last_dispatch = 0
        self.dispatched_total = 0
        self.idle: list[EngineConnection] = []
        self._now_s = now_s
        self._rest_until_s = 0.0
        self._cannot_connect = False
        self._ready = True
        self._suspect = False  # it failed or refused since it last answered: breaker and rest have a say
        self.waiting = 0
        self.kv_usage_ratio = 0.0

    @property
    def healthy(self) -> bool:
        """Probes and breaker let requests through; an engine not probed yet gets the benefit of the doubt."""
        if not self._suspect:
            return self._ready
        now_s = self._now_s()
        return self._ready and now_s >= self._rest_until_s and self.breaker.allows(now_s)

    @property
    def breaker_state(self) -> BreakerState:
        return self.breaker.state(self._now_s())

    def begin(self, ordinal: int) -> None:
        """A request is about to be sent; ``end`` must follow."""
        self.in_flight += 1
        self.dispatched_total += 1
        self.last_dispatch = ordinal
        if self._suspect:
            self.breaker.dispatched(self._now_s())

    def end(self) -> None:
        self.in_flight -= 1

    def answered(self) -> None:
        """It gave a proper answer, or the first event of one."""
        if self._suspect:
            self._cannot_connect = False
            self._suspect = self._now_s() < self._rest_until_s  # it rests to the end, whatever came meanwhile
            self.breaker.succeeded()

    def said_full(self) -> None:
        """It refused: alive, so not for the breaker, but others come first for a moment."""
        self._suspect = True
        self._rest_until_s = self._now_s() + REST_S
        self.breaker.abandoned()

    def failed(self, *, to_connect: bool) -> None:
        """No connection (``to_connect``), or died or answered 5xx."""
        self._suspect = True
        self._cannot_connect = to_connect
        self.breaker.failed(self._now_s())

    def probed(self, health: Health) -> None:
        """Take over what the poller saw. A probe that gets through heals a breaker that opened on refused connections;
        one that opened on failed requests is closed by a request alone, since ``/health`` may be fine meanwhile."""
        if health.reachable and self._cannot_connect:
            self.answered()
        self.health = health
        self._ready = health.ready
        self.waiting, self.kv_usage_ratio = health.waiting, health.kv_usage_ratio

    def head(self, method: str, path: str) -> bytes:
        """The head of a request to this engine, with places for the body's length, the request's id and more lines."""
        head = self._heads.get((method, path))
        if head is None:
            kind = "Content-Type: application/json\r\n" if method == "POST" else ""
            head = (
                f"{method} {path.replace('%', '%%')} HTTP/1.1\r\nHost: {self.authority.replace('%', '%%')}\r\n{kind}"
                "Content-Length: %d\r\nX-Request-Id: %b\r\n%b\r\n"
            ).encode("ascii")
            if path in ROUTES:
                self._heads[method, path] = head
        return head

    def take_idle(self) -> EngineConnection | None:
        """The most recently used idle connection that is still open."""
        while self.idle:
            connection = self.idle.pop()
            if not connection.closing:
                return connection
        return None

    def retire(self) -> None:
        """It is no longer in the document: what is in progress goes on, and then its connections close."""
        self.retired = True
        self.close_idle()

    def close_idle(self, *, older_than_s: float = 0.0) -> None:
        """Close connections that have been idle for longer than that."""
        now_s = self._now_s()
        expired = [one for one in self.idle if now_s - one.last_byte_s >= older_than_s]
        if expired:
            self.idle = [one for one in self.idle if one not in expired]
            for connection in expired:
                connection.abort()


def host_and_port(url: str) -> tuple[str, int]:
    """Host and port of an engine's URL. Raises SpecError unless it is ``http://host[:port]``."""
    try:
        parts = urlsplit(url)
        port = parts.port or 80
        (parts.hostname or "").encode("idna")  # what name resolution would otherwise stumble over at every request
    except ValueError:
        parts, port = urlsplit(""), 0
    if parts.scheme != "http" or not parts.hostname or parts.path not in ("", "/") or parts.query or parts.username:
        raise SpecError(
            f"engine.endpoints: {url!r} is not an engine's address",
            problems=(
                Problem(
                    path="engine.endpoints[].url",
                    seen=repr(url),
                    wanted="http://host:port, without path or credentials",
                    hint="engines are spoken to in clear on a private network; http://127.0.0.1:8000 is vLLM's default",
                ),
            ),
        )
    return parts.hostname, port
