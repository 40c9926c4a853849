"""The load that a workload describes: a seeded, open-loop schedule of multi-turn sessions.

Open loop means that a session starts when the schedule says, whatever the service does meanwhile. Sessions start by
a Poisson process; ``rate_per_s`` of the profile counts requests, so sessions start at ``rate_per_s / turns``. A
session's number of turns is geometric with that mean. Its next turn is sent after the previous answer ended plus an
exponential think time, and its prompt is the whole conversation so far plus new text.

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
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, count
from typing import TYPE_CHECKING

from roadworthy.twin.prompt import Segment, segment_tokens

if TYPE_CHECKING:
    from roadworthy.spec.values import Quantiles, RequestProfile, Tenant

_Z90, _Z99 = 1.2815515655446004, 2.3263478740408408
"""Standard normal scores of the 90th and 99th percentile."""

SHARED_SEGMENT = "system"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRequest:
    """One request of the schedule. ``turn`` counts from 0, of ``turns`` in its session; ``segments`` name the text
    of the prompt, ``answer_id`` the text that the answer will be in the next turn's prompt."""

    t_sched_s: float
    session: int
    turn: int
    turns: int
    prompt_tokens: int
    output_tokens: int
    segments: tuple[Segment, ...]
    tenant: str = ""

    @property
    def answer_id(self) -> str:
        return f"s{self.session}.{self.turn}a"


def draw_tokens(quantiles: Quantiles, rng: random.Random) -> int:
    """One length through P50, P90 and P99 as the module describes; at least 1."""
    z = rng.gauss(0.0, 1.0)
    to_p90 = math.log(quantiles.p90 / quantiles.p50) / _Z90
    to_p99 = math.log(quantiles.p99 / quantiles.p90) / (_Z99 - _Z90)
    log_ratio = to_p90 * min(z, _Z90) + to_p99 * max(0.0, z - _Z90)
    return max(1, round(quantiles.p50 * math.exp(log_ratio)))


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
        self._seed = seed
        self._requests = requests
        self._duration_s = math.inf if duration_s is None else duration_s
        self._tenants = tuple(tenant.id for tenant in tenants)
        self._cumulative_weights = tuple(accumulate(tenant.weight for tenant in tenants))
        self._max_context_tokens = math.inf if max_context_tokens is None else max_context_tokens
        self._rng_of_session: dict[int, random.Random] = {}
        self._single_turn_rng = random.Random()  # seeding one again costs a third of making one

    @property
    def has_sessions(self) -> bool:
        """Whether conversations have several turns, so that a client names them."""
        return self._profile.sessions.turns > 1

    def first_turns(self) -> Iterator[PlannedRequest]:
        """The first request of every session, by ``t_sched_s``, starting anew on each call."""
        rng = random.Random(f"{self._seed}:arrivals")
        session_rate_per_s = self._profile.rate_per_s / self._profile.sessions.turns
        now_s, left = 0.0, self._requests
        for session in count():
            now_s += rng.expovariate(session_rate_per_s)
            if now_s > self._duration_s or left == 0:
                return
            turns = self._draw_turns(rng)
            if left is not None:
                turns = min(turns, left)
                left -= turns
            yield self._first(session, now_s, turns)

    def follow_up(self, request: PlannedRequest, *, finished_s: float, output_tokens: int) -> PlannedRequest | None:
        """The next turn after ``request`` ended at ``finished_s`` with ``output_tokens``; None when it was the last.

        Ask once for each turn, in the order of the session's turns.
        """
        rng = self._rng_of_session.get(request.session)
        if rng is None or request.turn + 1 >= request.turns:
            self._rng_of_session.pop(request.session, None)
            return None
        turn = request.turn + 1
        think_s = (
            rng.expovariate(1 / self._profile.sessions.think_time_s) if self._profile.sessions.think_time_s else 0.0
        )
        drawn = draw_tokens(self._profile.prompt_tokens, rng)
        new_tokens = max(1, round(drawn * (1 - self._profile.shared_prefix_ratio)))
        answer = (Segment(request.answer_id, output_tokens),) if output_tokens else ()
        segments = (*request.segments, *answer, Segment(f"s{request.session}.{turn}u", new_tokens))
        output = draw_tokens(self._profile.output_tokens, rng)
        if segment_tokens(segments) + output > self._max_context_tokens:
            del self._rng_of_session[request.session]
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
        )

    def _first(self, session: int, t_sched_s: float, turns: int) -> PlannedRequest:
        if turns > 1:
            rng = self._rng_of_session[session] = random.Random(f"{self._seed}:{session}")
        else:
            rng = self._single_turn_rng
            rng.seed(f"{self._seed}:{session}")
        tenant = self._draw_tenant(rng)
        prompt = draw_tokens(self._profile.prompt_tokens, rng)
        output = draw_tokens(self._profile.output_tokens, rng)
        if prompt + output > self._max_context_tokens:
            output = min(output, int(self._max_context_tokens) // 2)
            prompt = min(prompt, int(self._max_context_tokens) - output)
        shared = min(round(prompt * self._profile.shared_prefix_ratio), prompt - 1)
        system = (Segment(SHARED_SEGMENT, shared),) if shared > 0 else ()
        return PlannedRequest(
            t_sched_s=t_sched_s,
            session=session,
            turn=0,
            turns=turns,
            prompt_tokens=prompt,
            output_tokens=output,
            segments=(*system, Segment(f"s{session}.0u", prompt - max(0, shared))),
            tenant=tenant,
        )

    def _draw_turns(self, rng: random.Random) -> int:
        """Geometric from 1 with the profile's mean: a session goes on with probability 1 - 1/mean."""
        mean = self._profile.sessions.turns
        go_on_ratio = 1 - 1 / mean
        if go_on_ratio <= 0:
            return 1
        return 1 + math.floor(math.log(1 - rng.random()) / math.log(go_on_ratio))

    def _draw_tenant(self, rng: random.Random) -> str:
        if not self._tenants:
            return ""
        return self._tenants[bisect(self._cumulative_weights, rng.random() * self._cumulative_weights[-1])]
