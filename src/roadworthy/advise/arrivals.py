"""The load that a workload describes: a seeded schedule of multi-turn sessions.

It is an open loop unless the profile asks for users: a session starts when the schedule says, whatever the service
does meanwhile. Sessions start by the profile's pattern, Poisson unless it says otherwise; ``rate_per_s`` counts
requests, so sessions start at ``rate_per_s / turns``. A session's number of turns is geometric with that mean. Its
next turn is sent after the previous answer ended plus an exponential think time, and its prompt is the whole
conversation so far plus new text. In a closed loop every user starts a session when the last one has ended.

Lengths follow the document's quantiles: ``ln(tokens)`` is piecewise linear in the standard normal score, through
P50, P90 and P99. Between P50 and P90 that is a lognormal, mirrored below the median; above P90 the slope changes to
meet P99, and goes on beyond it. ``prompt_tokens`` describes a session's first prompt, of which
``shared_prefix_ratio`` is the beginning of one system prompt that all sessions share; a later turn adds the unshared
share of a new draw.

Every session draws from a generator of its own, seeded by (seed, session): the same seed plans the same
conversations in whatever order turns finish.
"""

from __future__ import annotations

import math
import random
from bisect import bisect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha512
from itertools import accumulate, count
from typing import TYPE_CHECKING, Protocol

from roadworthy.advise.mixes import SessionKind, mean_turns, session_kinds
from roadworthy.advise.patterns import ramp_length_s, start_times
from roadworthy.twin.prompt import Segment, new_segment, segment_tokens

if TYPE_CHECKING:
    from roadworthy.spec.values import Quantiles, RequestProfile, Tenant

_Z90, _Z99 = 1.2815515655446004, 2.3263478740408408
"""Standard normal scores of the 90th and 99th percentile."""

SHARED_SEGMENT = "system"

AFTER_FAILURE_S = 0.1
"""Pause of a user of a closed loop after a failed request, so that a service that is down is not asked in a spin."""


@dataclass(slots=True, kw_only=True)  # not frozen: a million of them are made in a simulation, at three times the cost
class PlannedRequest:
    """One request of the schedule. ``turn`` counts from 0, of ``turns`` in its session; ``segments`` name the text
    of the prompt, ``answer_id`` the text that the answer will be in the next turn's prompt. ``kind`` is its part of a
    mix. ``said`` are (role, text) pairs where the load replays real texts; they are then the prompt."""

    t_sched_s: float
    session: int
    turn: int
    turns: int
    prompt_tokens: int
    output_tokens: int
    segments: tuple[Segment, ...]
    tenant: str = ""
    kind: str = ""
    said: tuple[tuple[str, str], ...] = ()

    @property
    def answer_id(self) -> str:
        return f"s{self.session}.{self.turn}a"


def draw_tokens(quantiles: Quantiles, rng: random.Random) -> int:
    """One length through P50, P90 and P99 as the module describes; at least 1."""
    return length_at(quantiles)(rng.gauss(0.0, 1.0))


def length_at(quantiles: Quantiles) -> Callable[[float], int]:
    """The length that belongs to a standard normal score, with all that is the same for every score worked out."""
    middle = quantiles.p50
    to_p90 = math.log(quantiles.p90 / quantiles.p50) / _Z90
    to_p99 = math.log(quantiles.p99 / quantiles.p90) / (_Z99 - _Z90)
    exp = math.exp

    def tokens(z: float) -> int:
        log_ratio = to_p90 * z if z <= _Z90 else to_p90 * _Z90 + to_p99 * (z - _Z90)
        return round(middle * exp(log_ratio)) or 1

    return tokens


class Schedule(Protocol):
    """What a load is to the driver and to a simulation: synthetic (:class:`Arrivals`) or replayed."""

    @property
    def has_sessions(self) -> bool:
        """Whether conversations have several turns, so that a client names them."""

    @property
    def asked_rate_per_s(self) -> float | None:
        """Requests a second that the schedule was asked for; None when that is for the service to decide."""

    def first_turns(self) -> Iterator[PlannedRequest]:
        """Requests that start at their own time, by ``t_sched_s``, anew on each call."""

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        """What comes after ``request`` ended at ``finished_s`` with ``output_tokens``, if anything."""

    def after_failure(self, request: PlannedRequest, *, finished_s: float) -> PlannedRequest | None:
        """What comes after ``request`` failed, if anything."""


class Arrivals:
    """The schedule of one run. Iterate ``first_turns`` and, when a turn has ended, ask ``follow_up`` for the next.

    Args:
        requests: how many requests the planned sessions add up to; the last session is cut short to make it exact.
        duration_s: no session starts later than this. Give one of the two, or both (whichever ends first).
        tenants: sessions are spread over them by weight; none means requests without a tenant.
        max_context_tokens: prompt and answer of one request never exceed it; a session that would ends early, so
            that fewer than ``requests`` may be sent.

    Raises:
        ValueError: without a bound, or with one that is not positive.
    """

    def __init__(
        self,
        profile: RequestProfile,
        *,
        seed: int,
        requests: int | None = None,
        duration_s: float | None = None,
        tenants: Sequence[Tenant] = (),
        max_context_tokens: int | None = None,
    ) -> None:
        if requests is None and duration_s is None:
            raise ValueError("a schedule needs an end: requests, duration_s, or both")
        if (requests is not None and requests < 1) or (duration_s is not None and duration_s <= 0):
            raise ValueError(f"requests {requests} and duration_s {duration_s} must be positive")
        if profile.rate_per_s <= 0 or profile.sessions.turns < 1:
            raise ValueError(f"rate {profile.rate_per_s}/s must be positive, turns {profile.sessions.turns} at least 1")
        if max_context_tokens is not None and max_context_tokens < 2:
            raise ValueError(f"max_context_tokens {max_context_tokens} has no room for one token in and one out")
        self._profile = profile
        self._closed = self.closed
        self._kinds = session_kinds(profile)
        self._kind_weights = tuple(accumulate(kind.weight for kind in self._kinds))
        self._mean_turns = mean_turns(self._kinds)
        self._seed = seed
        self._requests = requests
        self._duration_s = math.inf if duration_s is None else duration_s
        self._tenants = _Senders(self._kinds, tenants)
        self._max_context_tokens = math.inf if max_context_tokens is None else max_context_tokens
        self._under_way: dict[int, tuple[random.Random, SessionKind]] = {}
        self._single_turn = _SingleTurn(seed)
        self._lengths = {
            kind.name: (length_at(kind.prompt_tokens), length_at(kind.output_tokens)) for kind in self._kinds
        }
        self._starts = _Starts(seed, requests)

    @property
    def has_sessions(self) -> bool:
        """Whether conversations have several turns, so that a client names them."""
        return self._mean_turns > 1

    @property
    def closed(self) -> bool:
        """Whether a number of users decides when sessions start."""
        return self._profile.arrivals.pattern == "closed"

    @property
    def asked_rate_per_s(self) -> float | None:
        """Requests a second over the whole run; None in a closed loop."""
        pattern = self._profile.arrivals
        if self.closed:
            return None
        if pattern.pattern == "ramp" and pattern.to_rate_per_s is not None:
            return (self._profile.rate_per_s + pattern.to_rate_per_s) / 2
        return self._profile.rate_per_s

    def first_turns(self) -> Iterator[PlannedRequest]:
        """The first request of every session that starts by itself, by ``t_sched_s``, starting anew on each call."""
        self._starts = _Starts(self._seed, self._requests)
        self._under_way.clear()
        times_s = iter([0.0] * self._profile.arrivals.users) if self.closed else self._start_times()
        for time_s in times_s:
            first = self._start(time_s)
            if first is None:
                return
            yield first

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        """The next turn after ``request`` ended at ``finished_s`` with ``output_tokens``; None when it was the last.

        In a closed loop the user's next session comes after the last turn. Ask once for each turn, in the order of the
        session's turns.
        """
        if request.turns == 1 and not self._closed:
            return None
        following = self._next_turn(request, finished_s, output_tokens)
        if following is None and self.closed:
            return self._start(finished_s)
        return following

    def after_failure(self, request: PlannedRequest, *, finished_s: float) -> PlannedRequest | None:
        """A failed turn ends its conversation; in a closed loop its user starts another."""
        self._under_way.pop(request.session, None)
        return self._start(finished_s + AFTER_FAILURE_S) if self.closed else None

    def _start_times(self) -> Iterator[float]:
        pattern, rate_per_s = self._profile.arrivals, self._profile.rate_per_s / self._mean_turns
        length_s = self._duration_s
        if pattern.pattern == "ramp" and length_s == math.inf and self._requests is not None:
            last_per_s = (pattern.to_rate_per_s or self._profile.rate_per_s) / self._mean_turns
            length_s = ramp_length_s(rate_per_s, last_per_s, max(1, round(self._requests / self._mean_turns)))
        return start_times(pattern, rate_per_s, self._starts.rng, length_s=length_s)

    def _start(self, t_sched_s: float) -> PlannedRequest | None:
        """The first turn of the next session, or None when the schedule is at its end."""
        starts = self._starts
        if t_sched_s > self._duration_s or starts.left == 0:
            return None
        kind = self._kinds[0]
        if len(self._kinds) > 1:
            kind = self._kinds[bisect(self._kind_weights, starts.rng.random() * self._kind_weights[-1])]
        turns = _draw_turns(kind.turns, starts.rng) if kind.turns > 1 else 1
        if starts.left is not None:
            turns = min(turns, starts.left)
            starts.left -= turns
        return self._first(next(starts.sessions), t_sched_s, turns, kind)

    def _next_turn(self, request: PlannedRequest, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        held = self._under_way.get(request.session)
        if held is None or request.turn + 1 >= request.turns:
            self._under_way.pop(request.session, None)
            return None
        rng, kind = held
        turn = request.turn + 1
        think_s = rng.expovariate(1 / kind.think_time_s) if kind.think_time_s else 0.0
        if kind.added_tokens is None:
            new_tokens = max(1, round(draw_tokens(kind.prompt_tokens, rng) * (1 - kind.shared_prefix_ratio)))
        else:
            new_tokens = draw_tokens(kind.added_tokens, rng)
        answer = (Segment(request.answer_id, output_tokens),) if output_tokens else ()
        segments = (*request.segments, *answer, Segment(f"s{request.session}.{turn}u", new_tokens))
        output = draw_tokens(kind.output_tokens, rng)
        if segment_tokens(segments) + output > self._max_context_tokens:
            del self._under_way[request.session]
            return None
        return PlannedRequest(
            t_sched_s=finished_s + think_s,
            session=request.session,
            turn=turn,
            turns=request.turns,
            prompt_tokens=segment_tokens(segments),
            output_tokens=output,
            segments=segments,
            tenant=request.tenant,
            kind=request.kind,
        )

    def _first(self, session: int, t_sched_s: float, turns: int, kind: SessionKind) -> PlannedRequest:
        tenant_score, prompt_score, output_score = 0.0, 0.0, 0.0
        names, cumulative = self._tenants.of[kind.name]
        if turns > 1:
            rng = random.Random(f"{self._seed}:{session}")
            self._under_way[session] = (rng, kind)
            if names:
                tenant_score = rng.random()
            prompt_score, output_score = rng.gauss(0.0, 1.0), rng.gauss(0.0, 1.0)
        else:
            tenant_score, prompt_score, output_score = self._single_turn.scores(session, tenant=bool(names))
        prompt_of, output_of = self._lengths[kind.name]
        prompt, output = prompt_of(prompt_score), output_of(output_score)
        if prompt + output > self._max_context_tokens:
            output = min(output, int(self._max_context_tokens) // 2)
            prompt = min(prompt, int(self._max_context_tokens) - output)
        own = prompt
        system: tuple[Segment, ...] = ()
        if kind.shared_prefix_ratio:
            shared = min(round(prompt * kind.shared_prefix_ratio), prompt - 1)
            if shared > 0:
                system, own = (Segment(shared_segment(kind.name), shared),), prompt - shared
        return PlannedRequest(
            t_sched_s=t_sched_s,
            session=session,
            turn=0,
            turns=turns,
            prompt_tokens=prompt,
            output_tokens=output,
            segments=(*system, new_segment((f"s{session}.0u", own))),
            tenant=names[bisect(cumulative, tenant_score * cumulative[-1])] if names else "",
            kind=kind.name,
        )


class _SingleTurn:
    """What a session of one turn draws from its own generator, at half the price of making one for it.

    The numbers are those of ``random.Random(f"{seed}:{session}")``: ``random()`` for the tenant, then ``gauss()``
    twice, of which the second is the first one's other half (Box and Muller).
    """

    def __init__(self, seed: int) -> None:
        self._prefix = f"{seed}:"
        rng = random.Random()
        self._random = rng.random
        self._seed_with = super(random.Random, rng).seed

    def scores(self, session: int, *, tenant: bool) -> tuple[float, float, float]:
        """The tenant's, from 0 to 1 (0 where it is not asked), and the normal ones of prompt and answer."""
        text = f"{self._prefix}{session}".encode()
        self._seed_with(int.from_bytes(text + sha512(text).digest(), "big"))  # as Random.seed does of a text
        draw = self._random
        share = draw() if tenant else 0.0
        angle = draw() * math.tau
        radius = math.sqrt(-2.0 * math.log(1.0 - draw()))
        return share, math.cos(angle) * radius, math.sin(angle) * radius


def shared_segment(kind: str) -> str:
    """Name of the text that all prompts of ``kind`` begin with."""
    return f"{SHARED_SEGMENT}.{kind}" if kind else SHARED_SEGMENT


class _Starts:
    """How far the schedule has come: what a new run starts anew."""

    def __init__(self, seed: int, requests: int | None) -> None:
        self.rng = random.Random(f"{seed}:arrivals")
        self.sessions = count()
        self.left = requests


class _Senders:
    """Who sends each kind of session: its tenants, or all, by weight."""

    def __init__(self, kinds: Sequence[SessionKind], tenants: Sequence[Tenant]) -> None:
        known = {tenant.id for tenant in tenants}
        strangers = sorted({name for kind in kinds for name in kind.tenants if name not in known})
        if strangers and tenants:
            raise ValueError(f"the mix names tenants that do not exist: {', '.join(strangers)}")
        self.of: Mapping[str, tuple[tuple[str, ...], tuple[float, ...]]] = {
            kind.name: _shares([one for one in tenants if not kind.tenants or one.id in kind.tenants]) for kind in kinds
        }
        """By kind: the tenants' names, and their weights added up."""


def _shares(tenants: Sequence[Tenant]) -> tuple[tuple[str, ...], tuple[float, ...]]:
    return tuple(one.id for one in tenants), tuple(accumulate(one.weight for one in tenants))


def _draw_turns(mean: float, rng: random.Random) -> int:
    """Geometric from 1 with that mean: a session goes on with probability 1 - 1/mean."""
    go_on_ratio = 1 - 1 / mean
    if go_on_ratio <= 0:
        return 1
    return 1 + math.floor(math.log(1 - rng.random()) / math.log(go_on_ratio))
