"""The API server between clients and an engine core, which takes time of its own: when it is busy, the first token of a
new request waits for the streams of all others.

vLLM's API server is one process with one event loop (``--api-server-count`` makes them more). Each turn of the loop
takes what has come by its beginning, one thing after the other: streams that have something to write, then what the
core has put out (a message a step, a token for each of its requests, which wakes their streams for the next turn),
then requests on their way in. A request passes the loop several times before the core has it: its connection, its
head, its body, its tokens, its parameters. A stream that is woken again before it has written writes all its tokens at
once, as vLLM's ``RequestOutputCollector`` merges them.

So a server with room adds what a request costs and the rest of a turn or two; nearer to its limit turns grow with the
streams in them, and a request waits for as many turns as it passes; beyond it, tokens wait.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import cycle, pairwise
from typing import TYPE_CHECKING, NamedTuple

from roadworthy.twin.engine import Engine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from roadworthy.twin.config import TwinConfig
    from roadworthy.twin.requests import Finished, Output, TwinRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiServerTime:
    """What a server's work takes.

    Args:
        request_s: a request on its way to the core, all turns together.
        request_turns: turns of the loop that it passes.
        message_s: what the core puts out in one step, however many tokens.
        token_s: each token of it: text, counters, the stream that is woken.
        chunk_s: each write to a stream, however many tokens.

    Raises:
        ValueError: a time is negative, or a request passes no turn.
    """

    request_s: float
    request_turns: int
    message_s: float
    token_s: float
    chunk_s: float

    def __post_init__(self) -> None:
        for name in ("request_s", "message_s", "token_s", "chunk_s"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} {getattr(self, name)} is negative")
        if self.request_turns < 1:
            raise ValueError(f"request_turns {self.request_turns} is not positive")


class Served(NamedTuple):
    """How a request went for its client: when each write of its stream came, and how it went in the core."""

    chunks_s: tuple[float, ...]
    core: Finished

    @property
    def first_s(self) -> float:
        return self.chunks_s[0]

    @property
    def last_s(self) -> float:
        return self.chunks_s[-1]


def served(
    config: TwinConfig, time: ApiServerTime, arrivals: Sequence[tuple[float, TwinRequest]], *, servers: int = 1
) -> dict[str, Served]:
    """Every request's way through a server and the core behind all of them.

    Args:
        arrivals: moments at which requests reach their server, in their order, of different ids.
        servers: ``api_server_count``; requests go to them in turn.

    Raises:
        Refused, ValueError: as :meth:`Engine.add`; ValueError too where arrivals are out of order.
    """
    if any(later < sooner for (sooner, _), (later, _) in pairwise(arrivals)):
        raise ValueError("arrivals: a later one comes sooner")
    core = Engine(config, detail="tokens")
    all_of_them = [_Server(core, time) for _ in range(servers)]
    owners: dict[str, _Server] = {}
    coming = iter(zip(arrivals, cycle(all_of_them)))
    arriving = next(coming, None)
    while True:
        server = min(all_of_them, key=lambda one: one.at_s)
        arrives_s = math.inf if arriving is None else arriving[0][0]
        due_s = core.next_event_s()
        if due_s is not None and due_s <= min(arrives_s, server.at_s):
            told: dict[_Server, list[Output]] = {}
            for output in core.advance(due_s, stop_at_output=True):
                told.setdefault(owners[output.request_id], []).append(output)
            for owner, message in told.items():
                owner.read(message, due_s)
        elif arriving is not None and arrives_s <= server.at_s:
            (_, request), owner = arriving
            owners[request.id] = owner
            owner.accept(request, arrives_s)
            arriving = next(coming, None)
        elif server.at_s < math.inf:
            core.advance(server.at_s)
            server.go_on()
        else:
            break
    return {name: one for server in all_of_them for name, one in server.served()}


class _Server:
    """One event loop. ``at_s`` is when it does something next, infinity while it sleeps.

    ``inbox`` are messages of the core that nobody has read; ``woken`` streams with something to write; ``coming``
    requests with the turns that they have passed; ``chunks_s`` what streams wrote when.
    """

    def __init__(self, core: Engine, time: ApiServerTime) -> None:
        self._core = core
        self._time = time
        self._inbox: list[list[Output]] = []
        self._woken: dict[str, None] = {}
        self._coming: list[tuple[TwinRequest, int]] = []
        self._chunks_s: dict[str, list[float]] = {}
        self._ended: dict[str, Finished] = {}
        self._turns = self._loop()
        self.at_s = next(self._turns)

    def read(self, message: list[Output], now_s: float) -> None:
        """The core has put something out for streams of this server."""
        self._inbox.append(message)
        self._wake(now_s)

    def accept(self, request: TwinRequest, now_s: float) -> None:
        """A request has reached it."""
        self._coming.append((request, 0))
        self._wake(now_s)

    def go_on(self) -> None:
        """Do what is due at ``at_s``, to which the core has come."""
        self.at_s = next(self._turns)

    def served(self) -> Iterator[tuple[str, Served]]:
        for name, core in self._ended.items():
            yield name, Served(tuple(self._chunks_s[name]), core)

    def _wake(self, now_s: float) -> None:
        if self.at_s == math.inf:
            self.at_s = now_s

    def _loop(self) -> Iterator[float]:
        """Turn after turn; yields the moments at which it has to do with others."""
        time = self._time
        while True:
            if not (self._inbox or self._woken or self._coming):
                yield math.inf
            at_s = self.at_s
            writing, self._woken = self._woken, {}
            messages, self._inbox = self._inbox, []
            coming, self._coming = self._coming, []
            for name in writing:
                at_s += time.chunk_s
                self._chunks_s[name].append(at_s)
            for message in messages:
                at_s += time.message_s + time.token_s * len(message)
                for output in message:
                    self._woken[output.request_id] = None
                    if output.finished is not None:
                        self._ended[output.request_id] = output.finished
            for request, passed in coming:
                at_s += time.request_s / time.request_turns
                if passed + 1 < time.request_turns:
                    self._coming.append((request, passed + 1))
                else:
                    yield at_s
                    self._chunks_s[request.id] = []
                    self._core.add(request, at_s)
            yield at_s
